package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// The first server answers all the while.
func TestAQuorumWithoutAMajorityFailsInOneTimeoutAndLogsOnce(t *testing.T) {
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
		const silent, again = "does not answer those who wait", "answers those who wait again"
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
