package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

func sellTo(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(context.Background(), args, &out, &errs)
	t.Logf("%v\n%s%s", args, errs.String(), out.String())
	return out.String(), errs.String(), status
}

func TestDefaultRunNeedsNothing(t *testing.T) {
	out, _, status := sellTo(t)
	require.Equal(t, exitOK, status)
	require.Regexp(t, `(?s)^packet redpacket-[0-9a-f]{8} on the embedded server: 200.00 in 50 shares, double mean\n\n.*█.*
users +60  each tapped twice, in \d+\.\d\d s
shares taken +50  of 50
came late +10
taken +200.00
refunded +0.00
mean +4.00
best luck +\d+\.\d\d  user-\d{4}, share \d+
check ok: no user took two shares, each got the same answer twice, 200.00 taken \+ 0.00 refunded = 200.00
$`, out)
}

func TestWhatNobodyTookGoesBack(t *testing.T) {
	out, _, status := sellTo(t, strings.Fields("-total 100 -shares 10 -method equal -users 4 -open 1s")...)
	require.Equal(t, exitOK, status)
	require.Contains(t, out, "40.00 taken + 60.00 refunded = 100.00")
}

func TestARealServerAndAPicture(t *testing.T) {
	srv := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "amounts.svg")
	out, _, status := sellTo(t, "-redis", srv.Addr(), "-total", "20000", "-shares", "5000", "-users", "6000", "-method",
		"line", "-max", "20", "-svg", file, "-open", "5m", "-name", "a<b")
	require.Equal(t, exitOK, status)
	require.Contains(t, out, "20000.00 taken + 0.00 refunded = 20000.00")
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(svg), "a&lt;b: 20000.00 in 5000 shares, line cutting, 5000 taken")
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	_, stderr, status := sellTo(t, "-redis", srv.Addr(), "-name", "a<b")
	require.Equal(t, exitUsage, status)
	require.Contains(t, stderr, "-name a<b: there is such a packet already")
}

func TestASeedGivesTheSameShares(t *testing.T) {
	amounts := func() (a []int64) {
		o, err := parseFlags(strings.Fields("-seed 7 -shares 20 -users 20"))
		require.NoError(t, err)
		p, _, err := hold(context.Background(), o)
		require.NoError(t, err)
		require.Empty(t, p.faults)
		for _, s := range p.shares {
			a = append(a, s.Cents)
		}
		return a
	}
	require.Equal(t, amounts(), amounts())
}

func TestBadFlagsAreRefusedByNameAndValue(t *testing.T) {
	for args, says := range map[string]string{
		"-total 0":                              `"0" for flag -total`,
		"-total 1.5":                            `"1.5" for flag -total`,
		"-total -1":                             `"-1" for flag -total`,
		"-total 99999999999999":                 `for flag -total`,
		"-total 1.+1":                           `for flag -total`,
		"-shares 0":                             `"0" for flag -shares`,
		"-shares 100001":                        `"100001" for flag -shares`,
		"-users x":                              `"x" for flag -users`,
		"-method best":                          `"best" for flag -method`,
		"-open 0s":                              `"0s" for flag -open`,
		"-seed -1":                              `"-1" for flag -seed`,
		"-redis nowhere":                        `"nowhere" is not an address`,
		"-total 0.10 -shares 11":                "-total 0.10 cannot be split into -shares 11 with -min 0.01 and no -max",
		"-total 10 -shares 4 -max 2":            "-total 10.00 cannot be split into -shares 4 with -min 0.01 and -max 2.00",
		"-nothing":                              "-nothing",
		"-svg " + "/does/not/exist/x.svg":       "-svg",
		"more":                                  `unexpected argument "more"`,
		"-name x{1}":                            "-name x{1}",
		"-total 100 -shares 2 -min 3 -max 2.00": "cannot be split",
	} {
		out, stderr, status := sellTo(t, strings.Fields(args)...)
		require.Equal(t, exitUsage, status, args)
		require.Empty(t, out, args)
		require.Contains(t, stderr, says, args)
	}
	out, _, status := sellTo(t, "-help")
	require.Equal(t, exitOK, status)
	require.Equal(t, help, out)
}

func TestNoServerIsSaidAndNothingElse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.svg")
	_, stderr, status := sellTo(t, "-redis", "127.0.0.1:1", "-svg", file)
	require.Equal(t, exitBad, status)
	require.Contains(t, stderr, "Redis at 127.0.0.1:1")
	require.NoFileExists(t, file)
}

// The check is a check: each promise broken is found.
func TestTheCheckFindsWhatIsWrong(t *testing.T) {
	share := func(user string, ordinal, cents int64) redpacket.Share {
		return redpacket.Share{User: user, Outcome: redpacket.Granted, Ordinal: ordinal, Cents: cents, Epoch: 1}
	}
	sound := func() (*party, []answer) {
		a, b := share("user-0001", 1, 40), share("user-0002", 2, 60)
		none := redpacket.Share{Outcome: redpacket.SoldOut}
		return &party{users: 3, spec: redpacket.Spec{Total: 100, Shares: 2, Min: 1, Max: 70},
			shares: []redpacket.Share{a, b}}, []answer{{a, a}, {b, b}, {none, none}}
	}
	p, answers := sound()
	p.check(answers, 1)
	require.Empty(t, p.faults)
	require.EqualValues(t, 1, p.empty)
	for what, spoil := range map[string]func(p *party, a []answer){
		"took two":           func(p *party, _ []answer) { p.shares[1].User = "user-0001" },
		"in place":           func(p *party, _ []answer) { p.shares[1].Ordinal = 3 },
		"bounds":             func(p *party, _ []answer) { p.spec.Max = 50 },
		"another":            func(p *party, _ []answer) { p.shares[0].Epoch = 2 },
		"got the answer":     func(_ *party, a []answer) { a[0][1].Cents = 41 },
		"were due":           func(p *party, _ []answer) { p.spec.Shares = 3 },
		"not 1.01":           func(p *party, _ []answer) { p.spec.Total = 101 },
		"1.05, not":          func(p *party, _ []answer) { p.refund.Cents = 5 },
		"got the answer no":  func(_ *party, a []answer) { a[1][0] = redpacket.Share{} },
		"got the answer gra": func(_ *party, a []answer) { a[2][0] = share("user-0003", 1, 40) },
	} {
		p, answers := sound()
		spoil(p, answers)
		p.check(answers, 1)
		require.NotEmpty(t, p.faults, what)
		require.Contains(t, strings.Join(p.faults, "\n"), what)
		require.Contains(t, p.text(), "CHECK FAILED: ")
	}
}

func TestAStoppedRunSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("stopped by a test"))
	var out, errs bytes.Buffer
	require.Equal(t, exitBad, run(ctx, nil, &out, &errs))
	require.Contains(t, errs.String(), "stopped by a test")
}
