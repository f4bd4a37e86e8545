package rsemaphore_test

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestAPermitIsExtendedAndLookedAtByItsIDFromAnotherProcess(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r, other := newRig(t, srv, patient), newRig(t, srv, patient)
		p, err := r.c.Semaphore("s", 3).WithLabel("import").TryAcquire(within(t), 2, 0, time.Minute)
		require.NoError(t, err)
		s, ids := other.c.Semaphore("s", 3), p.IDs()
		unknown := strings.Repeat("0", 32)

		require.NoError(t, s.ExtendIDs(within(t), time.Hour, ids[0]))
		seen, err := s.InspectIDs(within(t), ids[0], unknown, ids[1])
		require.NoError(t, err)
		require.Len(t, seen, 3)
		require.Equal(t, ids[0], seen[0].ID)
		require.Equal(t, "import", seen[0].Label)
		require.True(t, strings.HasPrefix(r.c.ID(), seen[0].Client) && seen[0].Client != "", seen[0].Client)
		require.Greater(t, seen[0].Lease, 50*time.Minute)
		require.Zero(t, seen[1].Lease, "never granted")
		require.Positive(t, seen[2].Lease)
		require.LessOrEqual(t, seen[2].Lease, time.Minute, "the other permit of the same handle is left as it is")

		require.NoError(t, s.ExtendIDs(within(t), 2*time.Second, ids...), "it never shortens a lease")
		require.Greater(t, must1[[]rsemaphore.Holder](t)(s.InspectIDs(within(t), ids[0]))[0].Lease, 50*time.Minute)

		require.ErrorIs(t, s.ExtendIDs(within(t), 3*time.Hour, ids[0], unknown), errs.ErrLost)
		require.Less(t, must1[[]rsemaphore.Holder](t)(s.InspectIDs(within(t), ids[0]))[0].Lease, 2*time.Hour, "all or none")
		require.NoError(t, s.ReleaseIDs(within(t), ids...))
		require.ErrorIs(t, s.ExtendIDs(within(t), time.Hour, ids...), errs.ErrLost)

		for text, err := range map[string]error{
			"d is 1ms":            s.ExtendIDs(within(t), time.Millisecond, ids...),
			"d is 0s":             s.ExtendIDs(within(t), 0, ids...),
			"number of ids is 0":  s.ExtendIDs(within(t), time.Second),
			"number of different": errOf(s.InspectIDs(within(t), unknown, unknown)),
			`id is "x"`:           errOf(s.InspectIDs(within(t), "x")),
		} {
			require.ErrorIs(t, err, errs.ErrInvalidOption, text)
			require.ErrorContains(t, err, text)
			require.ErrorContains(t, err, "rsemaphore: ")
		}
	})
}

func TestAPermitOfRedissonIsExtendedByItsID(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		r.put(t, sem{count: "1", out: map[string]int{idA: 1, idJava: always}})
		s := r.c.Semaphore("s", 3).Shared()
		a, b := hex.EncodeToString([]byte(idA)), hex.EncodeToString([]byte(idJava))
		require.NoError(t, s.ExtendIDs(within(t), 30*unit*time.Millisecond, a, b))
		require.Equal(t, sem{count: "1", out: map[string]int{idA: 30, idJava: always}}, r.get(t))
		seen, err := s.InspectIDs(within(t), b)
		require.NoError(t, err)
		require.Negative(t, seen[0].Lease, "it has no end")
		require.Empty(t, seen[0].Client)
	})
}

func TestAddPermitsChangesTheCapacityByAsMuchWhateverItIs(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		s := r.c.Semaphore("s", 3)
		p := acquire(t, s, 2)
		require.Equal(t, 5, must1[int](t)(s.AddPermits(within(t), 2)))
		require.Equal(t, 4, must1[int](t)(r.c.Semaphore("s", 100).AddPermits(within(t), -1)), "the capacity is the server's")
		require.Equal(t, 4, must1[int](t)(s.AddPermits(within(t), 0)))
		q := acquire(t, s, 2)
		for _, delta := range []int{-4, 1 << 31, -1 << 31, 1<<31 - 1} {
			_, err := s.AddPermits(within(t), delta)
			require.ErrorIs(t, err, errs.ErrInvalidOption)
			require.ErrorContains(t, err, "delta is ")
		}
		require.Equal(t, 1, must1[int](t)(s.AddPermits(within(t), -3)))
		require.Equal(t, -3, must1[int](t)(s.Available(within(t))), "what is held stays held")
		release(t, p)
		release(t, q)
		require.Equal(t, 1, must1[int](t)(s.Available(within(t))))
	})
}

// The second run comes after others have changed the capacity: it must neither add again nor undo them.
func TestARepeatedAddPermitsAddsOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv)
	r, direct := newRig(t, p.Server(), patient), newRig(t, srv, patient)
	s, beside := r.c.Semaphore("s", 4), direct.c.Semaphore("s", 4)
	held := acquire(t, s, 1)
	require.Equal(t, 5, must1[int](t)(s.AddPermits(within(t), 1))) // the script is loaded
	for i, fate := range []redistest.Fate{redistest.LoseReply, redistest.LoseRequest} {
		trap := p.Trap(&redistest.Trap{Match: redistest.With("s"), Fate: fate})
		done := make(chan int, 1)
		go func() {
			capacity, err := s.AddPermits(within(t), 10)
			if err != nil {
				t.Error(err)
			}
			done <- capacity
		}()
		trap.Wait(t)
		now, err := beside.AddPermits(within(t), 100)
		require.NoError(t, err)
		got := <-done
		want := 5 + (i+1)*110
		state, err := beside.Inspect(within(t))
		require.NoError(t, err)
		require.Equal(t, want, state.Capacity)
		require.Contains(t, []int{want - 100, want}, got)
		require.True(t, now == want || got == want, "one of them came last")
	}
	release(t, held)
}

func TestAddPermitsWakesWaiters(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rsemaphore.Options{PollCap: 30 * time.Second})
	other := newRig(t, r.server, patient)
	s := r.c.Semaphore("s", 1)
	held := acquire(t, s, 1)
	got := make(chan error, 1)
	go func() {
		p, err := s.TryAcquire(within(t), 1, 20*time.Second, time.Minute)
		if err == nil {
			err = p.Release(within(t))
		}
		got <- err
	}()
	redistest.Eventually(t, 30*time.Second, "it waits", func() bool {
		n, err := r.do(t, "PUBSUB", "CHANNELS").AsStrSlice()
		return err == nil && len(n) > 0
	})
	require.Equal(t, 2, must1[int](t)(other.c.Semaphore("s", 1).AddPermits(within(t), 1)))
	require.NoError(t, <-got)
	release(t, held)
}

func TestAnotherProcessExtendsInspectsAndReleasesAWeightByItsID(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r, other := newRig(t, srv, patient), newRig(t, srv, patient)
		held := r.c.WeightedSemaphore("w", 10).WithLabel("import")
		a, err := held.TryAcquire(within(t), 4, 0, time.Minute)
		require.NoError(t, err)
		b, err := held.Acquire(within(t), 6)
		require.NoError(t, err)
		w, ids, unknown := other.c.WeightedSemaphore("w", 10), append(a.IDs(), b.IDs()...), strings.Repeat("0", 32)
		second := ids[0][:31] + "1" // of what weighs several there is one id

		require.NoError(t, w.ExtendIDs(within(t), time.Hour, ids[0]))
		seen, err := w.InspectIDs(within(t), ids[0], unknown, ids[1], second)
		require.NoError(t, err)
		require.Len(t, seen, 4)
		require.Equal(t, []string{ids[0], unknown, ids[1], second}, []string{seen[0].ID, seen[1].ID, seen[2].ID, seen[3].ID})
		require.Equal(t, []int{4, 0, 6, 0}, []int{seen[0].N, seen[1].N, seen[2].N, seen[3].N})
		require.Equal(t, "import", seen[0].Label)
		require.True(t, strings.HasPrefix(r.c.ID(), seen[0].Client) && seen[0].Client != "", seen[0].Client)
		require.Greater(t, seen[0].Lease, 50*time.Minute)
		require.Zero(t, seen[1].Lease+seen[3].Lease)
		require.Positive(t, seen[2].Lease)

		for _, bad := range [][]string{{unknown}, {ids[0], unknown}, {second}} {
			require.ErrorIs(t, w.ExtendIDs(within(t), 3*time.Hour, bad...), errs.ErrLost)
			require.ErrorIs(t, w.ReleaseIDs(within(t), bad...), errs.ErrLost)
		}
		require.Less(t, must1[[]rsemaphore.Holder](t)(w.InspectIDs(within(t), ids[0]))[0].Lease, 2*time.Hour,
			"all or none")

		served := make(chan error, 1)
		go func() {
			_, err := r.c.WeightedSemaphore("w", 10).Acquire(within(t), 10)
			served <- err
		}()
		redistest.Eventually(t, 20*time.Second, "it waits", func() bool {
			return r.number(t, "EXISTS", "redlatch_queue:{w}:weighted") == 1
		})
		require.NoError(t, w.ReleaseIDs(within(t), ids...))
		require.NoError(t, <-served, "what is released by id goes to who waits")
		require.ErrorIs(t, w.ReleaseIDs(within(t), ids...), errs.ErrLost)
		require.ErrorIs(t, b.Release(within(t)), errs.ErrLost)

		for text, err := range map[string]error{
			"d is 1ms":            w.ExtendIDs(within(t), time.Millisecond, ids...),
			"number of ids is 0":  w.ReleaseIDs(within(t)),
			"number of different": errOf(w.InspectIDs(within(t), unknown, unknown)),
			`id is "x"`:           errOf(w.InspectIDs(within(t), "x")),
		} {
			require.ErrorIs(t, err, errs.ErrInvalidOption, text)
			require.ErrorContains(t, err, text)
			require.ErrorContains(t, err, "rsemaphore: ")
		}
	})
}
