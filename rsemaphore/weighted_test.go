package rsemaphore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

var weightedKeys = []string{"{s}:weighted", "{s}:weights", "redlatch_queue:{s}:weighted", "{s}:weighted_shares"}

// weigh acquires without waiting.
func weigh(t *testing.T, s *rsemaphore.Semaphore, n int) *rsemaphore.Permit {
	t.Helper()
	p := redistest.NoError(s.TryAcquire(within(t), n, 0, 0))(t)
	return p
}

func TestWeight_AnyAmount_IsOneRecord(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		const all = 1<<53 - 1
		s := r.c.WeightedSemaphore("s", all)
		a := weigh(t, s.WithLabel("half and one"), all/2+1)
		b := weigh(t, s, all/2)
		require.Zero(t, must1[int](t)(s.Available(within(t))))
		require.EqualValues(t, 2, r.number(t, "ZCARD", weightedKeys[1]))
		require.EqualValues(t, 4, r.number(t, "HLEN", weightedKeys[0]), "capacity, used and one of each")
		_, err := s.TryAcquire(within(t), 1, 0, 0)
		var busy *rsemaphore.NotAcquiredError
		require.ErrorAs(t, err, &busy)
		require.Positive(t, busy.Lease, "until the first lease ends, which frees enough")

		state := redistest.NoError(s.Inspect(within(t)))(t)
		require.EqualValues(t, all, state.Capacity)
		require.Zero(t, state.Available)
		require.Len(t, state.Permits, 2)
		for _, h := range state.Permits {
			require.True(t, strings.HasPrefix(r.c.ID(), h.Client) && h.Client != "")
			require.Positive(t, h.Lease)
			require.Equal(t, map[bool]int{true: all/2 + 1, false: all / 2}[h.Label != ""], h.N)
		}
		require.Equal(t, []string{state.Permits[0].ID, state.Permits[1].ID}, append(a.IDs(), b.IDs()...))
		require.NoError(t, a.Release(within(t)))
		require.EqualValues(t, all/2+1, must1[int](t)(s.Available(within(t))))
		require.NoError(t, b.Release(within(t)))
		require.EqualValues(t, all, must1[int](t)(s.Available(within(t))))
		require.ErrorIs(t, a.Err(), errs.ErrReleased)
		require.NoError(t, a.Release(within(t)), "the first call's result")
	})
}

func TestReleasePart_OfAWeight_KeepsTheRest(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		s := r.c.WeightedSemaphore("s", 100)
		p := weigh(t, s, 90)
		require.NoError(t, p.ReleasePart(within(t), 40))
		require.EqualValues(t, 50, p.N())
		require.EqualValues(t, 50, must1[int](t)(s.Available(within(t))))
		for _, n := range []int{50, 51, 0, -1, 1 << 60} {
			err := p.ReleasePart(within(t), n)
			require.ErrorIs(t, err, errs.ErrInvalidOption)
			require.ErrorContains(t, err, `n is `)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, p.ReleasePart(ended, 1), "it has a second")
		require.NoError(t, p.Extend(within(t), time.Hour), "the rest has its lease")
		require.NoError(t, p.Release(within(t)))
		require.EqualValues(t, 100, must1[int](t)(s.Available(within(t))))
		require.ErrorIs(t, p.ReleasePart(within(t), 1), errs.ErrReleased)

		q := weigh(t, s, 10)
		r.must(t, "DEL", weightedKeys[0], weightedKeys[1])
		require.ErrorIs(t, q.ReleasePart(within(t), 1), errs.ErrLost)
		require.ErrorIs(t, q.Release(within(t)), errs.ErrLost)
	})
}

// What is out follows from both keys, so where one is deleted all is free, and nobody is told that it holds what it
// does not.
func TestWeightedSemaphore_KeyDeleted_HasAllFree(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		s := r.c.WeightedSemaphore("s", 10)
		for _, key := range weightedKeys[:2] {
			p := weigh(t, s, 7)
			r.must(t, "DEL", key)
			q := weigh(t, s, 10)
			require.ErrorIs(t, p.Release(within(t)), errs.ErrLost, key)
			require.Zero(t, must1[int](t)(s.Available(within(t))), key)
			require.NoError(t, q.Release(within(t)))
			require.EqualValues(t, 10, must1[int](t)(s.Available(within(t))), key)
		}
	})
}
