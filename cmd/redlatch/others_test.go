//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// here runs redlatch within the test's process: for commands that start none.
func here(s *redistest.Server, in string, args ...string) result {
	var out, messages bytes.Buffer
	code := execute(append([]string{"--redis", urlOf(s), "--call-timeout=5s"}, args...),
		streams{strings.NewReader(in), &out, &messages})
	return result{code, out.String(), messages.String()}
}

func TestStock_FromOpenToDelete_IsShownChangedStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	does := func(args ...string) string {
		t.Helper()
		r := here(s, "", append([]string{"stock"}, args...)...)
		require.Zero(t, r.code, "%v: %s", args, r.err)
		return r.out
	}
	look := func() (stand stock.Stand) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(does("inspect", "shoes", "--json")), &stand))
		return stand
	}
	for _, verb := range []string{"inspect", "holders", "pause", "ledger"} {
		r := here(s, "", "stock", verb, "shoes")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.err, "no such sale")
	}
	open1 := []string{"open", "shoes", "--limit", "5/2", "--open-for", "1h", "--ledger"}
	does(open1...)
	does(open1...)
	require.Equal(t, exitData, here(s, "", append([]string{"stock"}, append(open1, "--retain", "1h")...)...).code)
	of := open(t, s).Sales().Sale("shoes")
	require.NoError(t, of.Open(t.Context(), stock.Spec{Limit: 5, PerUser: 2, OpenFor: time.Hour, Ledger: true}))
	a := redistest.NoError(of.Buy(t.Context(), stock.Order{User: "ann"}))(t)
	require.True(t, a.Won())
	_, err := of.Reserve(t.Context(), stock.Order{ID: "order", User: "bob", Lines: []stock.Line{{N: 2}}}, time.Minute)
	require.NoError(t, err)

	require.Regexp(t, `^STATE  STARTS IN  ENDS IN +GONE IN +RESERVATIONS  UNMOVED\n`+
		`open   0s         \S+ +\S+ +1             2\n\nITEM  LIMIT  PER USER  SOLD  RESERVED  LEFT\n`+
		`-     5      2         1     2         2\n$`, does("inspect", "shoes"))
	require.Regexp(t, `(?m)^ann    ann   sold      -     1      1-1       -$`, does("holders", "shoes"))
	require.Regexp(t, `(?m)^order  bob   reserved  -     2      -         (59|1m0)s$`, does("holders", "shoes"))
	does("change", "shoes", "--limit", "3", "--end-in", "2h")
	require.EqualValues(t, 3, look().Items[""].Limit)
	require.Greater(t, look().UntilEnd, time.Hour)
	r := here(s, "", "stock", "change", "shoes", "--limit", "2")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "has 3 units sold and reserved")
	does("pause", "shoes")
	require.Equal(t, "paused", look().Phase)
	does("resume", "shoes")
	require.Equal(t, "open", look().Phase)
	does("end", "shoes", "--yes")
	require.Equal(t, "ended", look().Phase)
	does("delete", "shoes", "--yes")
	require.Equal(t, 1, here(s, "", "stock", "inspect", "shoes").code)
}

func TestStock_Lost_IsRestoredFromItsLedger(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	of := open(t, s).Sales().Sale("tour")
	buy := func(id, item string) stock.Answer {
		a := redistest.NoError(of.Buy(t.Context(), stock.Order{ID: id, Lines: []stock.Line{{Item: item, N: 1}}}))(t)
		return a
	}
	restore := []string{"stock", "restore", "tour", "--limit", "cap=5", "--limit", "mug=1", "--open-for", "1h"}
	require.Zero(t, here(s, "", "stock", "open", "tour", "--limit", "cap=5", "--limit", "mug=1", "--open-for", "1h",
		"--ledger").code)
	cap1 := buy("one", "cap")
	ledger := here(s, "", "stock", "ledger", "tour").out
	require.Regexp(t, `^\{"Serial":1,"Epoch":\d+,"Kind":"sold","Item":"cap","ID":"one","Asked":1,"N":1,"Ordinal":1,`+
		`"At":"\S+Z"\}\n$`, ledger)
	require.Equal(t, ledger, here(s, "", "stock", "ledger", "tour").out, "it takes nothing")

	s.Ask(t, "FLUSHALL")
	for records, says := range map[string]string{ledger + `{"nothing":2}`: "record 2", ledger + `{"serial":3}`: "record 2",
		"": "no entry"} {
		r := here(s, records, restore...)
		require.Equal(t, exitData, r.code)
		require.Contains(t, r.err, says)
	}
	r := here(s, ledger, restore...)
	require.Zero(t, r.code, r.err)
	require.Empty(t, r.out)
	require.Equal(t, cap1.Lines, buy("one", "cap").Lines)
	buy("two", "mug")
	r = here(s, ledger, restore...)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, `"ID":"two"`, "what the server had, and stdin had not")
	require.Equal(t, stock.SoldOut, buy("three", "mug").Why)
	require.Equal(t, exitData, here(s, ledger, restore...).code, "the ledger lacks an entry that was written")
	require.Zero(t, here(s, ledger+r.out, restore...).code)
}

func TestLimit_SetUnsetReset_ArePeeked(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := open(t, s).Limiters().Limiter("mails", ratelimit.LimiterOptions{Rate: 1, Per: 24 * time.Hour})
	redistest.NoError(l.Allow(t.Context(), "", 1))(t)
	mails := func(more ...string) string {
		r := here(s, "", append([]string{"limit", "mails"}, more...)...)
		require.Zero(t, r.code, r.err)
		return r.out
	}
	programs := []string{"--rate", "1", "--per", "24h", "--peek"}
	require.Contains(t, mails(programs...), "0 remaining; full again in 86")
	require.Contains(t, mails(append(programs, "--key", "other")...), "1 remaining")
	require.Contains(t, here(s, "", "limit", "mails", "--peek").err, "no limit is stored")
	for flags, says := range map[string]string{"--rate 0": "Rate is 0",
		"--rate 5 --algorithm FixedWindow": "Unit is", "--rate 5 --unit day": "Unit is",
		"--rate 5 --algorithm FixedWindow --unit day --per 1h": "Per is 1h0m0s, must be 0",
		"--rate 5 --algorithm SlidingWindow --burst 7":         "Burst is 7, must be 0"} {
		r := here(s, "", strings.Fields("limit mails --peek "+flags)...)
		require.Equal(t, exitUsage, r.code, r.err)
		require.Contains(t, r.err, says)
	}
	mails("--rate", "3", "--per", "24h", "--algorithm", "gcra", "--set", "ann: incident 7")
	stored := mails(append(programs, "--stored")...)
	require.Contains(t, stored, "2 remaining")
	require.Contains(t, stored, `on the server: 3 per 24h0m0s, set by "ann: incident 7"`)
	require.Contains(t, mails("--peek"), "2 remaining")
	require.Contains(t, mails("--peek", "--json"), `"stored_by": "ann: incident 7"`)
	r := here(s, "", "inspect", "mails").out
	require.Contains(t, r, "mails  limit")
	require.NotContains(t, r, "lock")
	charge, _, err := open(t, s).Limiters().Limiter("mails", ratelimit.LimiterOptions{Rate: 3, Per: 24 * time.Hour}).
		Charge(t.Context(), "", 2)
	require.NoError(t, err)
	require.Contains(t, mails("--peek"), "1 charges are not settled")
	require.Contains(t, mails("--peek", "--json"), `"open_charges": 1`)
	require.NoError(t, charge.Settle(t.Context(), 0))
	require.NotContains(t, mails("--peek"), "charges")
	mails("--unset")
	require.Contains(t, mails(append(programs, "--stored")...), "0 remaining")
	mails("--reset")
	require.Contains(t, mails(programs...), "1 remaining")
}

// An operator changes a calendar limit of running programs: what was taken still counts.
func TestLimitSet_SameKind_KeepsWhatWasTaken(t *testing.T) {
	t.Parallel()
	zone := redistest.NoError(time.LoadLocation("Europe/Berlin"))(t)
	for name, tt := range map[string]struct {
		programs ratelimit.LimiterOptions
		flags    string
		shown    string
	}{
		"day": {
			ratelimit.LimiterOptions{Rate: 20, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day, Zone: zone, Stored: true},
			"--algorithm fixedwindow --unit day --zone Europe/Berlin", `100 per Day (Europe/Berlin), set by "more"`,
		},
		"slides": {
			ratelimit.LimiterOptions{Rate: 20, Algorithm: ratelimit.SlidingWindow, Per: time.Hour, Stored: true},
			"--algorithm SlidingWindow --per 1h", `100 per 1h0m0s, set by "more"`,
		},
	} {
		for _, key := range []string{"", "ann"} {
			t.Run(name+key, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				l := open(t, s).Limiters().Limiter(name, tt.programs)
				redistest.NoError(l.Allow(t.Context(), key, 14))(t)
				r := here(s, "", append(strings.Fields("limit "+name+" --rate 100 --set more"), strings.Fields(tt.flags)...)...)
				require.Zero(t, r.code, r.err)
				require.Empty(t, r.err)
				redistest.Eventually(t, 20*time.Second, "the limit is known", func() bool {
					a := redistest.NoError(l.Peek(t.Context(), key))(t)
					return a.Remaining == 86
				})
				r = here(s, "", "limit", name, "--peek", "--key", key)
				require.Zero(t, r.code, r.err)
				require.Contains(t, r.out, "86 remaining")
				require.Contains(t, r.out, tt.shown)
			})
		}
	}
}

func TestInspectWatch_WithoutATerminal_WritesAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	h, err := open(t, s).Locks().Reentrant("job").WithLabel("one").Lock(t.Context())
	keep(t, err, h.Unlock)
	for _, names := range [][]string{{"job"}, {}} {
		c := command(t, urlOf(s), append([]string{"inspect", "--watch=100ms"}, names...)...)
		out := redistest.NoError(c.StdoutPipe())(t)
		require.NoError(t, c.Start())
		lines := bufio.NewScanner(out)
		for seen := 0; seen < 3 && lines.Scan(); {
			require.NotContains(t, lines.Text(), "\x1b")
			if strings.Contains(lines.Text(), "one") {
				seen++
			}
		}
		require.NoError(t, c.Process.Signal(syscall.SIGINT))
		require.Zero(t, codeOf(t, c.Wait()))
	}
}

func TestElect_LeaderKilled_NextRunsItsCommand(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	require.Equal(t, 1, here(s, "", "elect", "jobs").code) // nobody leads
	require.Equal(t, `{"elected":false,"owner":"","token":0,"value":""}`+"\n", here(s, "", "elect", "jobs", "--json").out)
	first := begin(t, urlOf(s), "elect", "jobs", "--value", "first", "--call-timeout=1s", "--", "sh", "-c",
		"echo ready; sleep 600")
	// a machine that stands still for 3 s takes the leadership away for a while
	redistest.Eventually(t, patience, "nobody leads", func() bool {
		return here(s, "", "elect", "jobs").out == "first\n"
	})
	require.Regexp(t, `^\{"elected":true,"owner":"[^"]+","token":[1-9]\d*,"value":"first"\}\n$`,
		here(s, "", "elect", "jobs", "--json").out)
	second := command(t, urlOf(s), "elect", "jobs", "--value", "second", "--call-timeout=1s", "--", "sh", "-c",
		`echo "$REDLATCH_TOKEN"; exit 6`)
	require.NoError(t, first.Process.Kill())
	out, err := second.Output()
	require.Equal(t, 6, codeOf(t, err))
	require.NotEmpty(t, strings.TrimSpace(string(out)))
	first.silence(t)
}

func TestCall_Unanswered_NamesItsTimeout(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t))
	p.Delay(100*time.Millisecond, 100*time.Millisecond)
	for _, args := range [][]string{{"inspect", "a"}, {"elect", "a"}, {"run", "--lock", "a", "--wait=1s", "--", "true"}} {
		r := here(p.Server(), "", append([]string{"--call-timeout=150ms"}, args...)...)
		require.Equal(t, exitServer, r.code, r.err)
		require.Contains(t, r.err, "--call-timeout 150ms")
	}
}

func TestLimit_SlowServer_IsAnsweredWithinTheCallTimeout(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t))
	p.Delay(40*time.Millisecond, 40*time.Millisecond) // the library's own bound for an Allow is 50 ms
	r := here(p.Server(), "", "limit", "mails", "--rate", "1", "--per", "24h", "--peek")
	require.Zero(t, r.code, r.err)
}
