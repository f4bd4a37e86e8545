package rsemaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestWhoGetsNoPermitIsToldWhoHoldsSome(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		o := patient
		o.Process = "api-1"
		r, waiter := newRig(t, srv, o), newRig(t, srv, patient)
		for kind, of := range map[string]func(c *rsemaphore.Client) *rsemaphore.Semaphore{
			"permits": func(c *rsemaphore.Client) *rsemaphore.Semaphore { return c.Semaphore("s", 3) },
			"weights": func(c *rsemaphore.Client) *rsemaphore.Semaphore { return c.WeightedSemaphore("s", 3) },
		} {
			p, err := of(r.c).WithLabel("import").Acquire(within(t), 2)
			require.NoError(t, err)
			redistest.Eventually(t, 20*time.Second, "its process is known", func() bool {
				state, err := of(waiter.c).Inspect(within(t))
				return err == nil && len(state.Permits) > 0 && state.Permits[0].Process == "api-1"
			})
			_, err = of(waiter.c).TryAcquire(within(t), 2, 110*time.Millisecond, 0)
			var refused *rsemaphore.NotAcquiredError
			require.ErrorAs(t, err, &refused)
			held := 0
			for _, h := range refused.Holders {
				require.Equal(t, "api-1", h.Process)
				require.Equal(t, "import", h.Label)
				require.Contains(t, p.IDs(), h.ID)
				require.Positive(t, h.Lease)
				held += h.N
			}
			require.Equal(t, 2, held, kind)
			require.Regexp(t,
				`^rsemaphore: 2 of "s" not acquired after 1\d\dms: held by api-1 \(2\) \(leases end in [\dms.]+\)$`, err)

			_, err = of(waiter.c).TryAcquire(within(t), 2, 0, 0)
			require.ErrorAs(t, err, &refused)
			require.Empty(t, refused.Holders, "it did not wait")
			require.NoError(t, p.Release(within(t)))
		}
	})
}

func TestOfManyPermitsAFewAreNamed(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r, waiter := newRig(t, srv, patient), newRig(t, srv, patient)
		r.must(t, "SET", "s", "7")
		r.must(t, "ZADD", "{s}:timeout", "922337203685477", idJava) // Redisson's, for ever
		p, err := r.c.Semaphore("s", 8).Shared().Acquire(within(t), 7)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(within(t), 150*time.Millisecond)
		defer cancel()
		_, err = waiter.c.Semaphore("s", 8).Shared().Acquire(ctx, 1)
		var refused *rsemaphore.NotAcquiredError
		require.ErrorAs(t, err, &refused)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, refused.Holders, 8)
		last := refused.Holders[7]
		require.Empty(t, last.Client)
		require.Negative(t, last.Lease)
		require.ErrorContains(t, err, "(7), permit "+last.ID+" (1)")
		require.NoError(t, p.Release(within(t)))

		q, err := r.c.Semaphore("many", 500).Acquire(within(t), 500)
		require.NoError(t, err)
		_, err = waiter.c.Semaphore("many", 500).TryAcquire(within(t), 1, 110*time.Millisecond, 0)
		require.ErrorAs(t, err, &refused)
		require.Len(t, refused.Holders, 10)
		require.ErrorContains(t, err, "(10), others (leases end")
		require.NoError(t, q.Release(within(t)))
	})
}

func TestWhoReadsWhatIsOutAndNothingElse(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		before := sem{count: "1", ttl: 50, out: ends{idA: 50, idB: -1, idC: 40, idD: 60}, outTTL: 50,
			notes: map[string]string{idA: "a label"}, noteTTL: 50}
		r.put(t, before)
		for range 2 {
			m, err := r.script(t, "who", []string{"{s}:timeout", "{s}:notes"}, "2")
			require.NoError(t, err)
			v, err := m.AsStrSlice()
			require.NoError(t, err)
			require.Len(t, v, 7)
			require.Equal(t, []string{idC, "", idA, "a label"}, []string{v[1], v[3], v[4], v[6]})
			require.Equal(t, before, r.get(t))
		}
		m, err := r.script(t, "who", []string{"none", "{none}:notes"}, "2")
		require.NoError(t, err)
		v, err := m.AsStrSlice()
		require.NoError(t, err)
		require.Len(t, v, 1)
	})
}
