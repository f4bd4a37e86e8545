package main

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/results"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestImpatientCallersAreMeasuredWithEveryPeerAndWay(t *testing.T) {
	redistest.NeedServer(t)
	b, ctx := brief(t)
	b.cfg.Workloads, b.cfg.Patience, b.cfg.Impatient = []string{impatient}, []time.Duration{20 * time.Millisecond},
		60*time.Millisecond
	var shown bytes.Buffer
	rows, err := b.run(ctx, &progress{w: &shown})
	t.Logf("%s", &shown)
	require.NoError(t, err)
	measured := map[string]bool{}
	var acquired int64
	for _, r := range rows {
		what := fmt.Sprintf("%+v", r)
		require.Zero(t, r.Overlaps+r.Lost, what)
		if isOurs(r.Peer) {
			require.Zero(t, r.Errors, what)
		} // a peer's release fails if its client makes a connection for a caller that gives up
		idle, ok := r.Value("idle_ms")
		require.True(t, ok, what)
		require.Positive(t, idle, what)
		require.LessOrEqual(t, idle, r.Seconds*1000+50, what)
		acquired += r.Ops
		measured[r.Workload+" "+r.Peer] = true
	}
	require.Positive(t, acquired)
	want := 0
	for peer, ways := range givesUp {
		for _, way := range ways {
			want++
			require.True(t, measured[impatientWith(20*time.Millisecond, way)+" "+peer], "%s by %s", peer, way)
		}
	}
	require.Len(t, rows, want)
}

// The end of a caller's patience ends its wait and never its hold.
func TestPatienceEndsAWaitAndNoHold(t *testing.T) {
	redistest.NeedServer(t)
	for name, ways := range givesUp {
		t.Run(name, func(t *testing.T) {
			p, err := peerNamed(name)
			require.NoError(t, err)
			s, err := startRedis()
			require.NoError(t, err)
			defer s.stop()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			setup := Setup{Redis: s.addr, Lease: 20 * time.Second, Capacity: 1}
			one, err := p.Open(ctx, setup)
			require.NoError(t, err)
			defer one.Close()
			other, err := p.Open(ctx, setup)
			require.NoError(t, err)
			defer other.Close()
			for _, way := range ways {
				bounded, stop := context.WithCancel(ctx)
				release, err := patient(bounded, one, way, toWrite, 10*time.Second)
				require.NoError(t, err)
				stop() // what bounded the wait has ended
				_, err = patient(ctx, other, way, toWrite, 50*time.Millisecond)
				require.Error(t, err, "%s let in a second one", way)
				require.NoError(t, ctx.Err())
				require.NoError(t, release(ctx))
				release, err = patient(ctx, other, way, toWrite, 10*time.Second)
				require.NoError(t, err, way)
				require.NoError(t, release(ctx))
			}
		})
	}
}

// The time without a holder is found whichever processes left and entered.
func TestIdleTimeIsMeasuredAcrossProcesses(t *testing.T) {
	a, err := newArena(t.TempDir())
	require.NoError(t, err)
	defer a.Close()
	b, err := openArena(a.path) // as another process does
	require.NoError(t, err)
	defer b.Close()
	var now int64
	clock := func() int64 { return now }
	one, other := &idling{newSection(a, 0, 1), clock}, &idling{newSection(b, 1, 1), clock}

	now = 900
	one.Enter(0)
	now = 1000
	one.Leave(0)
	require.Zero(t, a.words[idleWord].Load(), "nothing is judged while warming")
	a.setPhase(measuring)
	now = 1030
	other.Enter(1)
	require.EqualValues(t, 30, a.words[idleWord].Load())
	now = 5000 // a long hold is no idleness
	other.Leave(1)
	now = 5020
	one.Enter(0)
	one.Leave(0)
	require.EqualValues(t, 30, b.words[idleWord].Load(), "a shorter time replaced a longer one")
	b.idleUntil(5100) // and nobody came before the end
	require.EqualValues(t, 80, a.words[idleWord].Load())
}

func TestALockOfOursThatIsIdleTooLongIsNamed(t *testing.T) {
	row := func(patience time.Duration, way, peer string, round int, rate, idle, late float64) results.Row {
		r := results.Blank(impatientWith(patience, way), 4, impatientCallers, peer, round)
		r.OpsPerSec, r.P99, r.Extra = rate, 1000, fmt.Sprintf("idle_ms=%.1f gave_up_per_s=7 late_ms=%.1f", idle, late)
		return r
	}
	rows := []results.Row{
		row(2*time.Millisecond, byDeadline, rueidislockTuned.Name, 1, 1000, 700, 0),
		row(2*time.Millisecond, byDeadline, redlatchPeer.Name, 1, 500, 4, 300),
		row(2*time.Millisecond, byDeadline, redlatchPeer.Name, 2, 100, 480, 9),
		row(2*time.Millisecond, byDeadline, redlatchPeer.Name, 3, 600, 5, 2),
		row(2*time.Millisecond, byWaitTime, redlatchPeer.Name, 1, 750, 100, 1),
		results.Blank(impatientWith(2*time.Millisecond, byDeadline), 4, impatientCallers, "rlock.Fair", 1), // it failed
	}
	var table bytes.Buffer
	require.Equal(t, []string{"redlatch (2ms, deadline) for 480 ms, a sleeper late by 9 ms"}, impatience(&table, rows))
	require.Regexp(t, `2ms, deadline +redlatch +500 +0\.50 +5\.0 ms +480\.0 ms`, table.String())
	require.Regexp(t, `2ms, waitTime +redlatch +750 +0\.75 +100\.0 ms`, table.String(),
		"beside the best peer with a deadline")
	require.Regexp(t, `rlock\.Fair +0 +0\.00`, table.String())

	require.EqualError(t, stalls(rows),
		"idle for more than 100ms while callers waited: redlatch (2ms, deadline) for 480 ms, a sleeper late by 9 ms")
	require.NoError(t, stalls(rows[:2]))

	table.Reset()
	require.Empty(t, impatience(&table, []results.Row{results.Blank(contended, 1, 2, redlatchPeer.Name, 1)}))
	require.Empty(t, table.String(), "a run without the workload has no table")
}
