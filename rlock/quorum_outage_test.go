package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

// The first server answers all the while.
func TestQuorum_NoMajority_FailsInOneTimeoutAndLogsOnce(t *testing.T) {
	t.Parallel()
	simulated(t, 3, func(t *testing.T, servers quorumServers) {
		const callTimeout = 500 * time.Millisecond
		var book redistest.Logbook
		p := servers.behindProxies(t,
			rlock.Options{WatchdogTimeout: time.Second, CallTimeout: callTimeout, RetryTimeout: callTimeout,
				Logger: book.Logger()})
		q := p.lock(t, "q")
		_, err := q.Inspect(within(t)) // all are connected
		require.NoError(t, err)
		for _, proxy := range p.proxies[1:] { // as servers that are stopped
			proxy.Hold(redistest.Up)
			proxy.Hold(redistest.Down)
		}
		for verb, call := range map[string]func(ctx context.Context) error{
			"TryLock":     func(ctx context.Context) error { _, err := q.TryLock(ctx, 0, 0); return err },
			"IsLocked":    func(ctx context.Context) error { _, err := q.IsLocked(ctx); return err },
			"Inspect":     func(ctx context.Context) error { _, err := q.Inspect(ctx); return err },
			"ForceUnlock": func(ctx context.Context) error { _, err := q.ForceUnlock(ctx); return err },
		} {
			began := time.Now()
			require.Error(t, call(context.Background()), verb)
			require.LessOrEqual(t, time.Since(began), callTimeout, verb)
		}
		const silent, again = "does not answer waiting calls", "answers waiting calls again"
		require.Zero(t, book.Count(silent), "nobody waits: %s", &book)
		got := pass(t, q)
		redistest.Eventually(t, 60*time.Second, "the outage is logged", func() bool { return book.Count(silent) > 0 })
		time.Sleep(2 * callTimeout)
		for _, proxy := range p.proxies[1:] {
			proxy.Heal()
		}
		require.NoError(t, <-got)
		require.Equal(t, []int{1, 1}, []int{book.Count(silent), book.Count(again)}, &book)
	})
}

func TestQuorum_KeysOfAnotherType_IsRefused(t *testing.T) {
	t.Parallel()
	simulated(t, 3, func(t *testing.T, servers quorumServers) {
		p := servers.process(t, rlock.Options{WatchdogTimeout: time.Second})
		q := p.lock(t, "q")
		h := lock(t, q, within(t))
		for _, r := range p.rigs[1:] {
			wire.Must(t, r.redis, "DEL", "q")
			wire.Must(t, r.redis, "RPUSH", "q", "a")
		}
		require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
		_, err := q.TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, errs.ErrWrongType)
		servers[:1].empty(t, "q")
	})
}

// What a majority has not confirmed may have been released or not.
func TestQuorum_UnlockUnconfirmed_IsUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, patience := range []time.Duration{100 * time.Millisecond, time.Minute} {
		simulated(t, 3, func(t *testing.T, servers quorumServers) {
			p := servers.behindProxies(t, quick)
			h := lock(t, p.lock(t, "q"), within(t))
			for _, proxy := range p.proxies[1:] {
				proxy.Hold(redistest.Up)
				proxy.Hold(redistest.Down)
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			require.ErrorIs(t, h.Unlock(ctx), errs.ErrUnknownOutcome)
			for _, proxy := range p.proxies {
				proxy.Heal()
			}
			servers.empty(t, "q")
		})
	}
}
