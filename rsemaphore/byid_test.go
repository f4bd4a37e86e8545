package rsemaphore_test

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestIDs_FromAnotherProcess_ExtendInspectAndRelease(t *testing.T) {
	t.Parallel()
	for kind, of := range map[string]func(c *rsemaphore.Client) *rsemaphore.Semaphore{
		"Semaphore":         func(c *rsemaphore.Client) *rsemaphore.Semaphore { return c.Semaphore("s", 2) },
		"WeightedSemaphore": func(c *rsemaphore.Client) *rsemaphore.Semaphore { return c.WeightedSemaphore("s", 10) },
	} {
		t.Run(kind, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
				r, other := newRig(t, srv, patient), newRig(t, srv, patient)
				units := []int{1, 1} // of the two permits
				if kind == "WeightedSemaphore" {
					units = []int{4, 6}
				}
				held := of(r.c).WithLabel("import")
				a := redistest.NoError(held.TryAcquire(within(t), units[0], 0, time.Minute))(t)
				b := acquire(t, held, units[1])
				s, ids, unknown := of(other.c), append(a.IDs(), b.IDs()...), strings.Repeat("0", 32)
				second := ids[0][:31] + "1" // an acquisition of several units of weight has one id
				inspect := func(ids ...string) []rsemaphore.Holder {
					return must1[[]rsemaphore.Holder](t)(s.InspectIDs(within(t), ids...))
				}

				require.NoError(t, s.ExtendIDs(within(t), time.Hour, ids[0]))
				seen := inspect(ids[0], unknown, ids[1], second)
				require.Equal(t, []string{ids[0], unknown, ids[1], second},
					[]string{seen[0].ID, seen[1].ID, seen[2].ID, seen[3].ID})
				require.Equal(t, []int{units[0], units[1]}, []int{seen[0].N, seen[2].N})
				require.Equal(t, "import", seen[0].Label)
				require.True(t, strings.HasPrefix(r.c.ID(), seen[0].Client) && seen[0].Client != "", seen[0].Client)
				require.Greater(t, seen[0].Lease, 50*time.Minute)
				require.Zero(t, seen[1].Lease+seen[3].Lease, "never granted")
				require.Positive(t, seen[2].Lease)
				require.LessOrEqual(t, seen[2].Lease, time.Minute, "the other permit is left as it is")
				require.NoError(t, s.ExtendIDs(within(t), 2*time.Second, ids...), "it never shortens a lease")
				for _, bad := range [][]string{{unknown}, {ids[0], unknown}, {second}} {
					require.ErrorIs(t, s.ExtendIDs(within(t), 3*time.Hour, bad...), errs.ErrLost)
					require.ErrorIs(t, s.ReleaseIDs(within(t), bad...), errs.ErrLost)
				}
				lease := inspect(ids[0])[0].Lease
				require.True(t, lease > 50*time.Minute && lease < 2*time.Hour, "all or none: %v", lease)

				served := make(chan error, 1)
				go func() { served <- of(r.c).Do(within(t), units[0]+units[1], nothing) }()
				redistest.Eventually(t, 20*time.Second, "it waits", func() bool { return r.c.Refused() == 1 })
				require.NoError(t, s.ReleaseIDs(within(t), ids...))
				require.NoError(t, <-served, "the waiter gets what is released by its ids")
				require.ErrorIs(t, s.ReleaseIDs(within(t), ids...), errs.ErrLost)
				require.ErrorIs(t, s.ExtendIDs(within(t), time.Hour, ids...), errs.ErrLost)
				require.ErrorIs(t, b.Release(within(t)), errs.ErrLost)
			})
		})
	}
}

func TestExtendIDs_PermitOfRedisson_IsExtended(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		r.put(t, sem{count: "1", out: map[string]int{idA: 1, idJava: always}})
		s := r.c.Semaphore("s", 3).Shared()
		a, b := hex.EncodeToString([]byte(idA)), hex.EncodeToString([]byte(idJava))
		require.NoError(t, s.ExtendIDs(within(t), 30*unit*time.Millisecond, a, b))
		require.Equal(t, sem{count: "1", out: map[string]int{idA: 30, idJava: always}}, r.get(t))
		seen := redistest.NoError(s.InspectIDs(within(t), b))(t)
		require.Negative(t, seen[0].Lease, "it has no end")
		require.Empty(t, seen[0].Client)
	})
}

func TestAddPermits_AnyCapacity_ChangesByAsMuch(t *testing.T) {
	t.Parallel()
	eachSized(t, func(t *testing.T, _ *rig, of func(name string, n int) *rsemaphore.Semaphore, key string) {
		s, most := of("s", 3), 1<<31-1
		if key == weightedKeys[0] {
			most = 1<<53 - 1
		}
		p := acquire(t, s, 2)
		require.Equal(t, 5, must1[int](t)(s.AddPermits(within(t), 2)))
		require.Equal(t, 4, must1[int](t)(of("s", 100).AddPermits(within(t), -1)), "the capacity is the server's")
		require.Equal(t, 4, must1[int](t)(s.AddPermits(within(t), 0)))
		q := acquire(t, s, 2)
		for _, delta := range []int{-4, most + 1, -most - 1, most, most - 3} {
			_, err := s.AddPermits(within(t), delta)
			require.ErrorIs(t, err, errs.ErrInvalidOption)
			require.ErrorContains(t, err, "delta is ")
		}
		require.Equal(t, 1, must1[int](t)(s.AddPermits(within(t), -3)))
		require.Equal(t, -3, must1[int](t)(s.Available(within(t))), "what is held stays held")
		require.Equal(t, most, must1[int](t)(s.AddPermits(within(t), most-1)))
		release(t, p)
		release(t, q)
		require.Equal(t, most, must1[int](t)(s.Available(within(t))))
	})
}

// The second run comes after others have changed the capacity: it must neither add again nor undo them.
func TestAddPermits_RunTwice_AddsOnce(t *testing.T) {
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
		now := redistest.NoError(beside.AddPermits(within(t), 100))(t)
		got := <-done
		want := 5 + (i+1)*110
		state := redistest.NoError(beside.Inspect(within(t)))(t)
		require.Equal(t, want, state.Capacity)
		require.Contains(t, []int{want - 100, want}, got)
		require.True(t, now == want || got == want, "one of them came last")
	}
	release(t, held)
}

// TestRelease_CallerLeftAndReplyLost_ServesTheWaiterHere: the server hands the permit over to a waiter of the releasing
// process, which only the lost reply names. So the process asks for its waiters, and does not leave them to PollCap.
func TestRelease_CallerLeftAndReplyLost_ServesTheWaiterHere(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, verb := range []string{"ReleaseIDs", "ReleaseIDs of a weight", "Release", "Release of a weight",
		"ReleasePart"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				p := redistest.NewProxy(t, servers[0])
				mine := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 2 * time.Second, PollCap: 8 * time.Second})
				by := mine
				if strings.HasPrefix(verb, "ReleaseIDs") {
					by = newRig(t, servers[0], rsemaphore.Options{})
				}
				sem := func(r *rig) *rsemaphore.Semaphore {
					if strings.HasSuffix(verb, "s") || verb == "Release" {
						return r.c.Semaphore("s", 2)
					}
					return r.c.WeightedSemaphore("s", 2)
				}
				take := func() *rsemaphore.Permit {
					h := redistest.NoError(sem(by).TryAcquire(within(t), 2, 0, time.Hour))(t)
					t.Cleanup(func() { h.Release(ended) }) // the garbage collector is outside of the bubble
					return h
				}
				h := take()
				if verb == "ReleasePart" || verb == "Release of a weight" { // the server gets to know the scripts
					require.NoError(t, h.ReleasePart(within(t), 1))
				}
				require.NoError(t, sem(mine).ReleaseIDs(within(t), h.IDs()...))
				h = take()
				served := make(chan error, 1)
				var at time.Time
				go func() {
					q, err := sem(mine).Acquire(within(t), 1)
					if at = time.Now(); err == nil {
						err = q.Release(context.Background())
					}
					served <- err
				}()
				time.Sleep(300 * time.Millisecond) // it has its place
				p.Delay(50*time.Millisecond, 50*time.Millisecond)
				raw, err := hex.DecodeString(h.IDs()[0])
				require.NoError(t, err)
				lost := p.Trap(&redistest.Trap{Fate: redistest.LoseReply, Match: func(words []string) bool {
					return strings.HasPrefix(words[0], "EVAL") && strings.Contains(strings.Join(words, " "), string(raw[:13]))
				}})
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
				defer cancel()
				switch verb {
				case "ReleaseIDs", "ReleaseIDs of a weight":
					err = sem(mine).ReleaseIDs(ctx, h.IDs()...)
				case "ReleasePart":
					err = h.ReleasePart(ctx, 1)
				default:
					err = h.Release(ctx)
				}
				require.Error(t, err)
				select {
				case <-lost.Caught():
				case <-within(t).Done():
					require.Fail(t, "the release was not sent")
				}
				ran := time.Now()
				require.NoError(t, <-served)
				require.Less(t, at.Sub(ran), time.Second)
			})
		})
	}
}
