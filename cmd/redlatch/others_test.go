//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// here runs redlatch within the test's process: for commands that start none.
func here(s *redistest.Server, in string, args ...string) result {
	var out, messages bytes.Buffer
	code := execute(append([]string{"--redis", urlOf(s), "--call-timeout=5s"}, args...),
		streams{strings.NewReader(in), &out, &messages})
	return result{code, out.String(), messages.String()}
}

func TestAStockFromOpenToClose(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	look := func(code int) (all []stockStatus) {
		r := here(s, "", "stock", "status", "shoes", "--json")
		require.Equal(t, code, r.code, r.err)
		require.NoError(t, json.Unmarshal([]byte(r.out), &all))
		return all
	}
	require.Equal(t, "absent", look(1)[0].State)
	require.Equal(t, 1, here(s, "", "stock", "change", "shoes", "--limit", "5").code)
	r := here(s, "", "stock", "open", "shoes", "--limit", "3", "--open-for", "1h")
	require.Zero(t, r.code, r.err)
	require.NotEmpty(t, strings.TrimSpace(r.out))
	require.Equal(t, 1, here(s, "", "stock", "open", "shoes", "--limit", "3", "--open-for", "1h").code)
	require.Zero(t, here(s, "", "stock", "change", "shoes", "--limit", "5").code)

	r = here(s, `{"ordinal":1,"claimant":"one"} {"ordinal":2,"n":2,"claimant":"two","request":"order"}`, "stock",
		"restore", "shoes")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "added 3")
	got := look(0)[0]
	require.EqualValues(t, 3, got.Sold)
	require.EqualValues(t, 2, got.Remaining)
	g, err := open(t, s).Stocks().Stock("shoes").Lookup(context.Background(), stock.Units{Claimant: "one"})
	require.NoError(t, err)
	require.EqualValues(t, 1, g.Ordinal)

	r = here(s, `{"ordinal":1,"claimant":"one"} {"nothing":2}`, "stock", "restore", "shoes")
	require.Equal(t, 65, r.code)
	require.Contains(t, r.err, "record 2")
	require.Equal(t, "suspended", look(0)[0].State)
	require.Equal(t, 64, here(s, "", "stock", "change", "shoes", "--limit", "1").code)

	require.Zero(t, here(s, "", "stock", "restore", "shoes").code)
	require.Zero(t, here(s, "", "stock", "pause", "shoes").code)
	require.Equal(t, string(stock.PhasePaused), look(0)[0].State)
	require.Zero(t, here(s, "", "stock", "resume", "shoes").code)
	require.Equal(t, string(stock.PhaseOpen), look(0)[0].State)
	require.Zero(t, here(s, "", "stock", "change", "shoes", "--end-in", "5h").code)
	require.Greater(t, look(0)[0].EndsInMS, (4 * time.Hour).Milliseconds())
	require.Zero(t, here(s, "", "stock", "end", "shoes", "--yes").code)
	require.Equal(t, string(stock.PhaseClosed), look(0)[0].State)
	require.Zero(t, here(s, "", "stock", "delete", "shoes", "--yes").code)
	require.Equal(t, "absent", look(1)[0].State)
	require.Equal(t, 1, here(s, "", "stock", "pause", "shoes").code)
}

func TestALimitSaysByItsExitCodeWhetherUnitsMayPass(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := here(s, "", "limit", "mails", "--rate", "1", "--per", "24h")
	require.Zero(t, r.code, r.err)
	require.Empty(t, r.out)
	for _, more := range [][]string{{}, {"--wait", "1s"}} {
		r = here(s, "", append([]string{"limit", "mails", "--rate", "1", "--per", "24h"}, more...)...)
		require.Equal(t, 1, r.code, r.err)
		after, err := time.ParseDuration(strings.TrimSpace(r.out) + "s")
		require.NoError(t, err)
		require.Greater(t, after, 12*time.Hour)
	}
	require.Zero(t, here(s, "", "limit", "mails", "--rate", "1", "--per", "24h", "--key", "other").code)
	require.Zero(t, here(s, "", "limit", "fast", "--rate", "5", "--wait", "1m").code)
	require.Zero(t, here(s, "", "limit", "fast", "--rate", "5", "--wait", "1m").code)

	r = here(s, "", "limit", "mails", "--rate", "1", "--per", "24h", "--peek")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "0 could pass now; all of them in 86")
	require.Zero(t, here(s, "", "limit", "mails", "--rate", "3", "--per", "24h", "--set", "ann: incident 7").code)
	r = here(s, "", "limit", "mails", "--rate", "1", "--per", "24h", "--stored", "--peek")
	require.Contains(t, r.out, "2 could pass now")
	require.Contains(t, r.out, `on the server: 3 in 24h0m0s, set by "ann: incident 7"`)
	require.Zero(t, here(s, "", "limit", "mails", "--rate", "1", "--per", "24h", "--stored").code)
	require.Zero(t, here(s, "", "limit", "mails", "--unset").code)
	require.Equal(t, 1, here(s, "", "limit", "mails", "--rate", "1", "--per", "24h", "--stored").code)
	require.Zero(t, here(s, "", "limit", "mails", "--rate", "1", "--per", "24h", "--reset").code)
	require.Zero(t, here(s, "", "limit", "mails", "--rate", "1", "--per", "24h").code)
	require.Equal(t, 64, here(s, "", "limit", "mails", "--rate", "1", "--peek", "--reset").code)
}

func TestBenchAndTopWithoutATerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := here(s, "", "bench", "--for", "20ms", "--json")
	require.Zero(t, r.code, r.err)
	var all []measurement
	require.NoError(t, json.Unmarshal([]byte(r.out), &all))
	require.Len(t, all, 4)
	for _, m := range all {
		require.Positive(t, m.Rate, m.What)
		require.Positive(t, m.Floor, m.What)
	}
	h, err := open(t, s).Locks().Reentrant("job").WithLabel("one").Lock(context.Background())
	keep(t, err, h.Unlock)
	r = here(s, "", "top")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "one")
	require.NotContains(t, r.out, "\x1b")
}

func TestTheLeaderRunsTheCommandAndIsFollowed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	require.Equal(t, 1, here(s, "", "elect", "jobs").code) // nobody leads
	first := begin(t, urlOf(s), "elect", "jobs", "--value", "first", "--call-timeout=1s", "--", "sh", "-c",
		"echo ready; sleep 600")
	// a machine that stands still for 3 s takes the leadership away for a while
	redistest.Eventually(t, patience, "nobody leads", func() bool {
		return here(s, "", "elect", "jobs").out == "first\n"
	})
	second := command(t, urlOf(s), "elect", "jobs", "--value", "second", "--call-timeout=1s", "--", "sh", "-c",
		`echo "$REDLATCH_TOKEN"; exit 6`)
	require.NoError(t, first.Process.Kill())
	out, err := second.Output()
	require.Equal(t, 6, codeOf(t, err))
	require.NotEmpty(t, strings.TrimSpace(string(out)))
	first.silence(t)
}

func TestADrainedLeadersCommandIsStoppedAndAnotherLeads(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	require.Equal(t, 0, here(s, "", "elect", "jobs", "--drain", "1m").code, "nobody leads")
	first := begin(t, urlOf(s), "elect", "jobs", "--value", "first", "--call-timeout=1s", "--", "sh", "-c",
		"trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done")
	redistest.Eventually(t, patience, "nobody leads", func() bool {
		return here(s, "", "elect", "jobs").out == "first\n"
	})
	second := command(t, urlOf(s), "elect", "jobs", "--value", "second", "--call-timeout=1s", "--", "sleep", "600")
	require.NoError(t, second.Start())
	t.Cleanup(func() { second.Process.Kill() })
	require.Equal(t, 0, here(s, "", "elect", "jobs", "--drain", "10m", "--call-timeout=1s").code)
	redistest.Eventually(t, patience, "the second does not lead", func() bool {
		return here(s, "", "elect", "jobs").out == "second\n"
	})
	for _, c := range []*exec.Cmd{first.Cmd, second} {
		require.NoError(t, c.Process.Signal(syscall.SIGTERM))
		require.Error(t, c.Wait())
	}
	first.silence(t)
}

func TestALimitIsAnsweredWithinTheCallTimeout(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t))
	p.Delay(40*time.Millisecond, 40*time.Millisecond) // the library's own bound for an Allow is 50 ms
	r := here(p.Server(), "", "limit", "mails", "--rate", "1", "--per", "24h")
	require.Zero(t, r.code, r.err)
}
