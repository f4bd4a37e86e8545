//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// What is refused is refused before anything is sent: there is no server.
func TestFlags_BadValues_AreRefusedBeforeAnyRequest(t *testing.T) {
	t.Parallel()
	const nowhere = "redis://:secret@127.0.0.1:1"
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"run", "--", "true"}, 64, "[lock semaphore] is required"},
		{[]string{"run", "--lock", "a", "--semaphore", "b", "-c", "1", "--", "true"}, 64, "in the group [lock "},
		{[]string{"run", "--lock", "a"}, 64, "no command"},
		{[]string{"run", "--lock", "a{b", "--", "true"}, 64, `--lock "a{b"`},
		{[]string{"run", "--lock", "a", "--wait", "-1s", "--", "true"}, 64, `"-1s" for "-w, --wait" flag: must be from 0s`},
		{[]string{"run", "--lock", "a", "-n", "--wait", "1s", "--", "true"}, 64, "[nonblock wait] were all set"},
		{[]string{"run", "--lock", "a", "--wait", "10", "--", "true"}, 64, `"10"`},
		{[]string{"run", "--lock", "a", "--lease", "1ms", "--", "true"}, 64, `"1ms" for "--lease" flag: must be from 1s`},
		{[]string{"run", "--lock", "a", "--lease", "1m", "--max-hold", "1m", "--", "true"}, 64, "[lease max-hold]"},
		{[]string{"run", "--lock", "a", "-E", "256", "--", "true"}, 64,
			`"256" for "-E, --conflict-exit-code" flag: must be from 0 to 255`},
		{[]string{"run", "--semaphore", "a", "--", "true"}, 64, "missing [capacity]"},
		{[]string{"run", "--semaphore", "a", "-c", "2", "--permits", "3", "--", "true"}, 64, "--permits 3"},
		{[]string{"run", "--semaphore", "a", "-c", "2", "--fenced", "--", "true"}, 64, "[fenced semaphore] were all set"},
		{[]string{"run", "--lock", "a", "--label", strings.Repeat("x", 257), "--", "true"}, 64, "--label"},
		{[]string{"run", "--lock", "a", "--", "./no-such-program"}, 69, "no-such-program"},
		{[]string{"--redis", "localhost:6379", "run", "--lock", "a", "--", "true"}, 64, `--redis "localhost:6379"`},
		{[]string{"run", "--lock", "a", "--tls-ca", "x", "--", "true"}, 64, "--tls-ca"},
		{[]string{"unlock", "a"}, 64, "--force"},
		{[]string{"unlock", "--force", "a"}, 64, "--yes"},
		{[]string{"inspect", "--rate", "0"}, 64, `"0" for "--rate" flag`},
		{[]string{"inspect", "}"}, 64, `"}"`},
		{[]string{"inspect", "a", "--match", "b*"}, 64, `--match "b*"`},
		{[]string{"elect", "--", "true"}, 64, "the name of an election"},
		{[]string{"elect", "a", "--ttl", "1s", "--", "true"}, 64, `"1s" for "--ttl" flag: must be from 2s`},
		{[]string{"elect", "a", "--observe", "--", "true"}, 64, "--observe"},
		{[]string{"elect", "a", "--once"}, 64, "--once"},
		{[]string{"inspect", "--watch=1ms"}, 64, `"1ms" for "--watch" flag`},
		{[]string{"inspect", "--watch", "--json"}, 64, "[json watch] were all set"},
		{[]string{"stock", "pause", "{a}"}, 64, `"{a}"`},
		{[]string{"stock", "end", "a"}, 64, "--yes"},
		{[]string{"stock", "inspect"}, 64, "accepts 1 arg(s)"},
		{[]string{"limit", "a", "--rate", "5"}, 64, "[peek reset set unset] is required"},
		{[]string{"limit", "a", "--peek", "--reset"}, 64, "[peek reset] were all set"},
		{[]string{"limit", "a", "--set", "me"}, 64, "--set needs --rate and --algorithm"},
		{strings.Fields("limit a --set me --rate 5 --per 24h"), 64, "--set needs --rate and --algorithm"},
		{strings.Fields("limit a --peek --rate 5 --algorithm bucket"), 64, "must be one of GCRA, SlidingWindow, FixedWindow"},
		{strings.Fields("limit a --peek --rate 5 --algorithm FixedWindow --unit aeon"), 64, `"aeon" for "--unit"`},
		{strings.Fields("limit a --peek --rate 5 --algorithm FixedWindow --unit day --zone Mars"), 64, `"Mars" for "--zone"`},
		{strings.Fields("limit a --peek --algorithm FixedWindow --unit day --zone Local"), 64, `"Local" for "--zone"`},
		{[]string{"inspect", "--prefix", "}"}, 64, `--prefix "}"`},
		{[]string{"inspect", "--call-timeout", "1000000h"}, 64, `for "--call-timeout" flag: must be from 1ms`},
		{[]string{"run", "--lock", "a", "--ttl", "1000000h", "--", "true"}, 64, `for "--ttl" flag: must be from 2s`},
		{[]string{"inspect", "--tls-cert", "x"}, 64, "missing [tls-key]"},
		{[]string{"nothing"}, 64, `"nothing"`},
		{[]string{"run", "--lock", "a", "--", "true"}, 75, "redis://***@127.0.0.1:1"},
	} {
		var out, messages bytes.Buffer
		code := execute(append([]string{"--redis", nowhere}, tt.args...), streams{strings.NewReader(""), &out, &messages})
		require.Equal(t, tt.code, code, "%v: %s", tt.args, &messages)
		require.Contains(t, messages.String(), tt.says, "%v", tt.args)
		require.Empty(t, out.String(), "%v", tt.args)
		require.NotContains(t, messages.String(), "secret", "%v", tt.args)
	}
}

func TestRun_EachOutcome_HasTheExitCodeOfFlock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	red := open(t, s)
	ctx := context.Background()
	h, err := red.Locks().Reentrant("taken").Lock(ctx)
	keep(t, err, h.Unlock)
	permit, err := red.Semaphores().Semaphore("slots", 2).Acquire(ctx, 2)
	keep(t, err, permit.Release)
	s.Ask(t, "SET", "text", "something else")
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"run", "--lock", "free", "--", "true"}, 0, ""},
		{[]string{"run", "--lock", "free", "--wait", "0", "--", "sh", "-c", "exit 7"}, 7, ""},
		{[]string{"run", "--lock", "free", "--", "sh", "-c", "kill -KILL $$"}, 128 + 9, ""},
		{[]string{"run", "--lock", "free", "--lease", "1h", "--", "sh", "-c", "exit 1"}, 1, ""},
		{[]string{"run", "--lock", "taken", "-n", "--", "true"}, 1, `lock "taken" is held`},
		{[]string{"run", "--lock", "taken", "--wait", "10ms", "-E", "9", "--", "true"}, 9, `lock "taken" is held`},
		{[]string{"run", "--lock", "text", "--wait", "0", "--", "true"}, 65, "type"},
		{[]string{"run", "--semaphore", "slots", "-c", "2", "-n", "--", "true"}, 1, "is held"},
		{[]string{"run", "--semaphore", "slots", "-c", "3", "-n", "--", "true"}, 65, `"slots" has 2, not 3`},
		{[]string{"run", "--semaphore", "others", "-c", "3", "--permits", "2", "--", "sh", "-c", "exit 4"}, 4, ""},
	} {
		r := run(t, urlOf(s), append([]string{"--call-timeout=5s"}, tt.args...)...)
		require.Equal(t, tt.code, r.code, "%v: %s", tt.args, r.err)
		require.Contains(t, r.err, tt.says, "%v", tt.args)
		if tt.says == "" {
			require.Empty(t, r.err, "%v", tt.args)
		}
	}
	r := run(t, "redis://nobody:wrong@"+s.Addr(), "run", "--lock", "free", "--", "true")
	require.Equal(t, 77, r.code, r.err)
}

func TestRun_LockIsLost_CommandIsStopped(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ grace, trap, says string }{
		"by SIGTERM": {"5s", "", `lost: lock "a"`},
		"by SIGKILL": {"100ms", "trap '' TERM; ", "did not end within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			r := begin(t, urlOf(s), "run", "--lock", "a", "--grace", tt.grace, "--call-timeout=5s", "--", "sh", "-c",
				tt.trap+"echo ready; sleep 600; sleep 600; echo never")
			u := run(t, urlOf(s), "unlock", "--force", "--yes", "a", "--call-timeout=5s")
			require.Zero(t, u.code, u.err)
			require.Equal(t, 125, codeOf(t, r.Wait()), r.messages)
			require.Contains(t, r.messages.String(), tt.says)
			r.silence(t)
		})
	}
}

func TestRun_TimeOver_StopsTheCommand(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, flag := range []string{"--max-hold=1s", "--lease=4s"} {
		r := run(t, urlOf(s), "run", "--lock", "a", flag, "--call-timeout=5s", "--", "sleep", "600")
		require.Equal(t, 124, r.code, r.err)
		require.Contains(t, r.err, strings.Replace(flag, "=", " ", 1)+" is over")
	}
}

func TestRun_Signal_IsForwardedToTheCommand(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := begin(t, urlOf(s), "run", "--lock", "a", "--call-timeout=5s", "--", "sh", "-c",
		"trap 'exit 7' USR1; echo ready; while :; do sleep 0.05; done")
	require.NoError(t, r.Process.Signal(syscall.SIGUSR1))
	require.Equal(t, 7, codeOf(t, r.Wait()), r.messages)
	waits := command(t, urlOf(s), "run", "--lock", "b", "--call-timeout=5s", "--", "true")
	red := open(t, s)
	h, err := red.Locks().Reentrant("b").Lock(context.Background())
	keep(t, err, h.Unlock)
	require.NoError(t, waits.Start())
	redistest.Eventually(t, patience, "redlatch did not queue", func() bool {
		state, err := red.Locks().Reentrant("b").Inspect(context.Background())
		return err == nil && len(state.Waiters) == 1
	})
	require.NoError(t, waits.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 128+15, codeOf(t, waits.Wait()))
}

func TestRun_Killed_EndsTheCommand(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := begin(t, urlOf(s), "run", "--lock", "a", "--call-timeout=5s", "--", "sh", "-c",
		"echo ready; sleep 600; echo never")
	require.NoError(t, r.Process.Kill())
	r.silence(t)
}

// A redlatch that stands still does not renew, and does not say so either.
func TestGuard_LeaseOver_KillsTheCommand(t *testing.T) {
	t.Parallel()
	sleeps := exec.Command("sleep", "600")
	sleeps.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, sleeps.Start())
	defer sleeps.Process.Kill()
	orders, in := io.Pipe()
	defer in.Close()
	ended := make(chan struct{})
	says := &redistest.Logbook{}
	go func() {
		keepWatch(orders, says)
		close(ended)
	}()
	redistest.NoError(fmt.Fprintf(in, "%[1]d 3600000\n%[1]d 100\n", -sleeps.Process.Pid))(t)
	require.Error(t, sleeps.Wait())
	<-ended
	require.Contains(t, says.String(), "the lease is over")
}

func TestRun_NestedInItsCommand_JoinsTheHold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := run(t, urlOf(s), "run", "--lock", "a", "--fenced", "--call-timeout=5s", "--", "sh", "-c",
		`echo "$REDLATCH_TOKEN"; exec "$SELF" run --lock b --call-timeout=5s -- `+
			`"$SELF" run --lock a --wait 0 --fenced --call-timeout=5s -- sh -c 'echo "$REDLATCH_TOKEN"; exit 5'`)
	require.Equal(t, 5, r.code, r.err)
	tokens := strings.Fields(r.out)
	require.Len(t, tokens, 2)
	require.Equal(t, tokens[0], tokens[1])

	r = run(t, urlOf(s), "run", "--lock", "a", "--call-timeout=5s", "--", "sh", "-c",
		`"$SELF" run --lock a --wait 0 --no-join --call-timeout=5s -- true`)
	require.Equal(t, 1, r.code, r.err)
	state := statuses(t, run(t, urlOf(s), "inspect", "a", "--json", "--call-timeout=5s"))
	require.False(t, state[0].Held)
}

func TestRun_AtLeast_KeepsTheLockTaken(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := run(t, urlOf(s), "run", "--lock", "a", "--at-least", "1h", "--call-timeout=5s", "--", "true")
	require.Zero(t, r.code, r.err)
	state := redistest.NoError(open(t, s).Locks().Reentrant("a").Inspect(context.Background()))(t)
	require.Greater(t, state.Lease, 30*time.Minute)
}
