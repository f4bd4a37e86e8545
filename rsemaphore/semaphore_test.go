package rsemaphore_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func acquire(t testing.TB, s *rsemaphore.Semaphore, n int) *rsemaphore.Permit {
	t.Helper()
	p, err := s.Acquire(within(t), n)
	require.NoError(t, err)
	return p
}

func release(t testing.TB, p *rsemaphore.Permit) {
	t.Helper()
	require.NoError(t, p.Release(within(t)))
}

// now is what the server says of s: available, acquired, capacity.
func counts(t testing.TB, s *rsemaphore.Semaphore) [3]int {
	t.Helper()
	available, err := s.Available(within(t))
	require.NoError(t, err)
	state, err := s.Inspect(within(t))
	require.NoError(t, err)
	return [3]int{available, len(state.Permits), state.Capacity}
}

func TestPermitsAreTakenAndGivenBack(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 5)
		require.Equal(t, [3]int{5, 0, 5}, counts(t, sem), "nobody has used it yet")
		require.Empty(t, r.keys(t), "and asking makes nothing")
		a, b := acquire(t, sem, 2), acquire(t, sem, 3)
		require.Len(t, a.IDs(), 2)
		require.Equal(t, "s", a.Name())
		require.Equal(t, [3]int{0, 5, 5}, counts(t, sem))
		require.NoError(t, a.Err())
		require.WithinDuration(t, time.Now().Add(30*time.Second), a.Until(), 10*time.Second)

		_, err := sem.TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		var na *rsemaphore.NotAcquiredError
		require.ErrorAs(t, err, &na)
		require.Equal(t, "s", na.Name)
		require.ErrorContains(t, na, `1 of "s"`)
		require.Positive(t, na.Lease)

		release(t, a)
		require.ErrorIs(t, a.Err(), errs.ErrReleased)
		require.Equal(t, [3]int{2, 3, 5}, counts(t, sem))
		c, err := sem.TryAcquire(within(t), 2, 0, time.Minute)
		require.NoError(t, err)
		release(t, b)
		release(t, c)
		require.Equal(t, [3]int{5, 0, 5}, counts(t, sem))
		require.Equal(t, []string{"s"}, r.keys(t))
		require.Positive(t, r.pttl(t, "s"), "until its lease would have been over")
	})
}

func TestAHandleReleasedTwiceReturnsItsFirstResult(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 3)
		kept := acquire(t, sem, 1)
		p := acquire(t, sem, 1)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := p.Release(within(t)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, [3]int{2, 1, 3}, counts(t, sem))
		other := acquire(t, sem, 1) // whoever came later is not released by an old handle
		release(t, p)
		require.Equal(t, [3]int{1, 2, 3}, counts(t, sem))
		lost := acquire(t, sem, 1)
		require.NoError(t, sem.ReleaseIDs(within(t), lost.IDs()...))
		require.ErrorIs(t, lost.Release(within(t)), errs.ErrLost)
		require.ErrorIs(t, lost.Release(within(t)), errs.ErrLost)
		release(t, other)
		release(t, kept)
		require.Equal(t, [3]int{3, 0, 3}, counts(t, sem))
	})
}

func TestAnIDReleasedTwiceOrNeverGrantedIsNotHeldAndRaisesNothing(t *testing.T) {
	t.Parallel()
	eachAtOnce(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 3)
		p, q := acquire(t, sem, 2), acquire(t, sem, 1)
		ids := p.IDs()
		never := strings.Repeat("0f", 16)
		for _, bad := range [][]string{{never}, {ids[0], never}} {
			require.ErrorIs(t, sem.ReleaseIDs(within(t), bad...), errs.ErrLost)
			require.Equal(t, [3]int{0, 3, 3}, counts(t, sem), "all or none")
		}
		require.NoError(t, sem.ReleaseIDs(within(t), ids[0]))
		require.Equal(t, [3]int{1, 2, 3}, counts(t, sem))
		for range 3 {
			require.ErrorIs(t, sem.ReleaseIDs(within(t), ids[0]), errs.ErrLost)
			require.ErrorIs(t, sem.ReleaseIDs(within(t), ids...), errs.ErrLost)
		}
		require.Equal(t, [3]int{1, 2, 3}, counts(t, sem))
		require.ErrorIs(t, p.Release(within(t)), errs.ErrLost, "a part of it was gone")
		require.Equal(t, [3]int{2, 1, 3}, counts(t, sem), "and the rest is given back")
		release(t, q)

		short, err := sem.TryAcquire(within(t), 1, 0, 500*time.Millisecond)
		require.NoError(t, err)
		<-short.Done()
		redistest.Eventually(t, 10*time.Second, "over on the server too", func() bool { return counts(t, sem)[1] == 0 })
		require.ErrorIs(t, sem.ReleaseIDs(within(t), short.IDs()...), errs.ErrLost)
		require.Equal(t, [3]int{3, 0, 3}, counts(t, sem))
	})
}

func TestALostPermitsRestIsGivenBackByItsRelease(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		r := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, WatchdogTimeout: 3 * time.Second})
		sem := r.c.Semaphore("s", 5)
		p := acquire(t, sem, 3)
		require.NoError(t, p.Extend(within(t), time.Hour))
		require.NoError(t, sem.ReleaseIDs(within(t), p.IDs()[1]))
		<-p.Done() // a renewal finds that it is not all there
		require.ErrorIs(t, p.Err(), errs.ErrLost)
		require.Equal(t, [3]int{3, 2, 5}, counts(t, sem))
		require.ErrorIs(t, p.Release(within(t)), errs.ErrLost)
		redistest.Eventually(t, 10*time.Second, "long before their lease is over", func() bool {
			return counts(t, sem) == [3]int{5, 0, 5}
		})
	})
}

func TestBadInputIsRefusedByNameAndNothingIsSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	sem := r.c.Semaphore("s", 5)
	do := func(p *rsemaphore.Permit, err error) error {
		require.Nil(t, p)
		return err
	}
	before := redistest.CommandCalls(t, r.redis)["evalsha"]
	for text, err := range map[string]error{
		"n is 0":                     do(sem.Acquire(within(t), 0)),
		"n is -1":                    do(sem.TryAcquire(within(t), -1, 0, 0)),
		"n is 1001":                  do(r.c.Semaphore("s", 5000).Acquire(within(t), 1001)),
		"waitTime is -1ns":           do(sem.TryAcquire(within(t), 1, -1, 0)),
		"leaseTime is 1ms":           do(sem.TryAcquire(within(t), 1, 0, time.Millisecond)),
		"capacity is 0":              do(r.c.Semaphore("s", 0).Acquire(within(t), 1)),
		"capacity is 2147483648":     do(r.c.Semaphore("s", 1<<31).Acquire(within(t), 1)),
		"label is":                   do(sem.WithLabel(strings.Repeat("x", 257)).Acquire(within(t), 1)),
		"number of ids is 0":         sem.ReleaseIDs(within(t)),
		"number of different ids is": sem.ReleaseIDs(within(t), strings.Repeat("00", 16), strings.Repeat("00", 16)),
		`id is "00"`:                 sem.ReleaseIDs(within(t), "00"),
		"must be 32 hex":             sem.ReleaseIDs(within(t), strings.Repeat("0g", 16)),
		"must be 1 to 2147483647":    errOf(sem.Resize(within(t), -3)),
	} {
		require.ErrorIs(t, err, errs.ErrInvalidOption, text)
		require.ErrorContains(t, err, text)
	}
	for _, name := range []string{"", "a}", "a{b", "{}x", "\xff", strings.Repeat("x", 64<<10+1)} {
		_, err := r.c.Semaphore(name, 1).Acquire(within(t), 1)
		require.ErrorIs(t, err, errs.ErrInvalidName, "%.10q", name)
		_, err = r.c.Semaphore(name, 1).Inspect(within(t))
		require.ErrorIs(t, err, errs.ErrInvalidName)
	}
	require.Equal(t, before, redistest.CommandCalls(t, r.redis)["evalsha"])
	require.Empty(t, r.keys(t))

	_, err := sem.Acquire(within(t), 6) // the server is asked: somebody may have resized it
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "n is 6, must be 1 to 5")
	require.Empty(t, r.keys(t))
}

func errOf[T any](_ T, err error) error { return err }

func TestACapacityIsWrittenOnceAndADifferingOneIsRefused(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		p := acquire(t, r.c.Semaphore("s", 5), 2) // nobody had to set anything up, and nobody waits
		for _, n := range []int{4, 6} {
			_, err := r.c.Semaphore("s", n).Acquire(within(t), 1)
			require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
			require.ErrorContains(t, err, fmt.Sprintf(`"s" has 5, not %d`, n))
		}
		require.Equal(t, [3]int{3, 2, 5}, counts(t, r.c.Semaphore("s", 6)), "the server's word")
		release(t, p)
		r.must(t, "DEL", "s") // as when its lease is over
		release(t, acquire(t, r.c.Semaphore("s", 6), 6))
	})
}

func TestResizeUpWakesAndDownDrains(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		// a poll is too far away to explain a wake-up
		o := rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Minute, WatchdogTimeout: 5 * time.Minute}
		r, far := newRig(t, s, o), newRig(t, s, o)
		sem := r.c.Semaphore("s", 2)
		a, b := acquire(t, sem, 1), acquire(t, sem, 1)
		waiters := make(chan *rsemaphore.Permit, 2)
		for _, c := range []*rsemaphore.Client{r.c, far.c} {
			go func() {
				p, err := c.Semaphore("s", 2).Acquire(within(t), 1)
				if err != nil {
					t.Error(err)
				}
				waiters <- p
			}()
		}
		redistest.Eventually(t, 10*time.Second, "both wait, heard by the server", func() bool {
			return subscribed(t, r) && subscribed(t, far) && r.c.Refused()+far.c.Refused() == 2
		})
		time.Sleep(20 * time.Millisecond) // the look after the subscription
		before, err := r.c.Semaphore("s", 2).Resize(within(t), 4)
		require.NoError(t, err)
		require.Equal(t, 2, before)
		c, d := <-waiters, <-waiters
		require.Equal(t, [3]int{0, 4, 4}, counts(t, sem))

		_, err = sem.Resize(within(t), 1)
		require.NoError(t, err)
		require.Equal(t, [3]int{-3, 4, 1}, counts(t, sem), "nothing is taken from anybody")
		for _, p := range []*rsemaphore.Permit{a, b, c} {
			_, err = sem.TryAcquire(within(t), 1, 0, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			require.NoError(t, p.Err())
			release(t, p)
		}
		_, err = sem.TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired, "drained, and the one is taken")
		release(t, d)
		_, err = sem.Acquire(within(t), 2)
		require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch, "this can never be")
		release(t, acquire(t, r.c.Semaphore("s", 9), 1)) // and the capacity of old configurations counts no more
		require.Equal(t, [3]int{1, 0, 1}, counts(t, sem))
		require.Greater(t, r.pttl(t, "s"), 6*24*time.Hour, "remembered")
		state, err := sem.Inspect(within(t))
		require.NoError(t, err)
		require.Equal(t, 1, state.Capacity, "the server's")
	})
}

func TestAWaiterForTwoIsServedByTwoReleasesOfOne(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		o := rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Minute, WatchdogTimeout: 5 * time.Minute}
		r, other := newRig(t, s, o), newRig(t, s, o)
		for _, w := range []*rig{r, other} { // in the same process and in another
			sem := r.c.Semaphore("s", 2)
			a, b := acquire(t, sem, 1), acquire(t, sem, 1)
			got := make(chan *rsemaphore.Permit)
			go func() {
				p, err := w.c.Semaphore("s", 2).Acquire(within(t), 2)
				if err != nil {
					t.Error(err)
				}
				got <- p
			}()
			redistest.Eventually(t, 10*time.Second, "it waits", func() bool { return w.c.Refused() == 1 && subscribed(t, w) })
			time.Sleep(20 * time.Millisecond)
			release(t, a)
			select {
			case <-got:
				t.Fatal("one is not two")
			case <-time.After(50 * time.Millisecond):
			}
			release(t, b)
			release(t, <-got)
			require.Equal(t, [3]int{2, 0, 2}, counts(t, sem))
		}
	})
}

// subscribed reports whether the process hears what its waiters for s are handed.
func subscribed(t testing.TB, r *rig) bool {
	n, err := r.do(t, "PUBSUB", "NUMSUB", "redlatch_grant:"+r.c.ID()).ToArray()
	require.NoError(t, err)
	subscribers, _ := n[1].AsInt64()
	return subscribers > 0
}

func TestWithAContextThatEndsBothReasonsAreTold(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r := newRig(t, servers[0], patient)
		sem := r.c.Semaphore("s", 1)
		p := acquire(t, sem, 1)
		why := errors.New("the user went home")
		for i, end := range []func(context.Context) (context.Context, context.CancelFunc){
			func(c context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(c, 500*time.Millisecond)
			},
			func(c context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(c, 500*time.Millisecond, why)
			},
			func(c context.Context) (context.Context, context.CancelFunc) {
				c, cancel := context.WithCancelCause(c)
				time.AfterFunc(500*time.Millisecond, func() { cancel(why) })
				return c, func() { cancel(nil) }
			},
		} {
			ctx, cancel := end(context.Background())
			_, err := sem.Acquire(ctx, 1)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			require.ErrorIs(t, err, ctx.Err())
			if i > 0 {
				require.ErrorIs(t, err, why)
			}
			cancel()
		}
		_, err := sem.TryAcquire(context.Background(), 1, 500*time.Millisecond, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "waitTime was over, and no context")
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = sem.TryAcquire(ended, 1, 0, 0)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, p.Release(ended), "releasing is what those do last whose context has ended")
		require.Equal(t, [3]int{1, 0, 1}, counts(t, sem))
	})
}

func TestContextsEndWithTheirPermit(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r := newRig(t, servers[0], patient)
		sem := r.c.Semaphore("s", 2)
		p := acquire(t, sem, 1)
		type key struct{}
		parent, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "v"))
		a, b := p.Context(parent), p.Context(context.Background())
		require.Equal(t, "v", a.Value(key{}))
		cancel()
		<-a.Done()
		require.NoError(t, b.Err())
		require.NoError(t, p.Err(), "the work ended, the permit did not")
		require.NoError(t, p.Release(b), "also by the context that this ends")
		<-b.Done()
		require.ErrorIs(t, context.Cause(b), errs.ErrReleased)
		<-p.Done()
		late := p.Context(context.Background())
		require.ErrorIs(t, context.Cause(late), errs.ErrReleased)
		require.ErrorIs(t, p.Extend(within(t), time.Minute), errs.ErrReleased)

		q, err := sem.TryAcquire(within(t), 1, 0, 500*time.Millisecond)
		require.NoError(t, err)
		work := q.Context(context.Background())
		<-work.Done()
		require.ErrorIs(t, context.Cause(work), errs.ErrLost)
		require.ErrorIs(t, q.Err(), errs.ErrLost)
		require.ErrorIs(t, q.Release(within(t)), errs.ErrLost)
		require.ErrorIs(t, q.Extend(within(t), time.Minute), errs.ErrLost)
	})
}

func TestExtendMakesItLastAtLeastSoLong(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 3)
		p, err := sem.TryAcquire(within(t), 2, 0, 20*time.Second)
		require.NoError(t, err)
		left := func() time.Duration {
			state, err := sem.Inspect(within(t))
			require.NoError(t, err)
			require.Len(t, state.Permits, 2)
			require.InDelta(t, state.Permits[0].Lease, state.Permits[1].Lease, 0)
			return state.Permits[0].Lease
		}
		require.NoError(t, p.Extend(within(t), 10*time.Minute))
		require.Greater(t, left(), 9*time.Minute)
		require.Greater(t, time.Until(p.Until()), 9*time.Minute)
		require.Greater(t, r.pttl(t, "s"), 9*time.Minute)
		require.NoError(t, p.Extend(within(t), time.Minute))
		require.Greater(t, left(), 9*time.Minute, "never shorter")
		require.ErrorIs(t, p.Extend(within(t), 0), errs.ErrInvalidOption)
		require.NoError(t, sem.ReleaseIDs(within(t), p.IDs()[1]))
		require.ErrorIs(t, p.Extend(within(t), time.Minute), errs.ErrLost)
		<-p.Done()
	})
}

func TestDoRunsUnderThePermitAndJoinsErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), patient)
	sem := r.c.Semaphore("s", 2)
	require.NoError(t, sem.Do(within(t), 2, func(ctx context.Context) error {
		require.Equal(t, [3]int{0, 2, 2}, counts(t, sem))
		return ctx.Err()
	}))
	why := errors.New("work")
	err := sem.Do(within(t), 1, func(_ context.Context) error {
		r.must(t, "DEL", "s", "{s}:timeout")
		return why
	})
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, err, errs.ErrLost)
	require.PanicsWithValue(t, "oh", func() {
		sem.Do(within(t), 1, func(context.Context) error { panic("oh") })
	})
	require.Equal(t, [3]int{2, 0, 2}, counts(t, sem))
	require.ErrorIs(t, sem.Do(within(t), 3, func(context.Context) error {
		t.Error("ran")
		return nil
	}), errs.ErrInvalidOption)
}

func TestInspectSaysWhoHoldsWhatUntilWhen(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		a, b := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, KeyPrefix: "p:"}), newRig(t, s,
			rsemaphore.Options{CallTimeout: 10 * time.Second, KeyPrefix: "p:"})
		sem := a.c.Semaphore("s", 6)
		state, err := sem.Inspect(within(t))
		require.NoError(t, err)
		require.Equal(t, rsemaphore.SemaphoreState{Capacity: 6, Available: 6}, state)
		p, err := sem.WithLabel("the büro").TryAcquire(within(t), 1, 0, 10*time.Minute)
		require.NoError(t, err)
		q, err := b.c.Semaphore("s", 6).TryAcquire(within(t), 2, 0, 30*time.Minute)
		require.NoError(t, err)
		java := "\x01\x02\x03\x04\x05\x06\x47\x08abcdefgh" // as Redisson's acquire without a lease
		a.must(t, "ZADD", "{p:s}:timeout", "922337203685477", java)
		a.must(t, "DECRBY", "p:s", "1")
		state, err = sem.Inspect(within(t))
		require.NoError(t, err)
		require.Equal(t, 6, state.Capacity)
		require.Equal(t, 2, state.Available)
		require.Len(t, state.Permits, 4)
		first := state.Permits[0]
		require.Equal(t, p.IDs()[0], first.ID)
		require.Equal(t, "the büro", first.Label)
		require.True(t, len(first.Client) == 18 && strings.HasPrefix(a.c.ID(), first.Client), "%q of %q", first.Client,
			a.c.ID())
		require.Greater(t, first.Lease, 9*time.Minute)
		require.LessOrEqual(t, first.Lease, 10*time.Minute)
		for _, h := range state.Permits[1:3] {
			require.Contains(t, q.IDs(), h.ID)
			require.True(t, strings.HasPrefix(b.c.ID(), h.Client))
			require.Empty(t, h.Label)
			require.Greater(t, h.Lease, 29*time.Minute)
		}
		require.Equal(t, rsemaphore.Holder{ID: hex.EncodeToString([]byte(java)), N: 1, Lease: -1}, state.Permits[3])
		release(t, p)
		require.NotContains(t, a.keys(t), "{p:s}:notes", "labels go with their permits")
		require.NoError(t, sem.ReleaseIDs(within(t), hex.EncodeToString([]byte(java))))
		release(t, q)
	})
}

func TestNoKeyIsWithoutAnEndUnlessSharedWithRedisson(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 3).WithLabel("x")
		p := acquire(t, sem, 1)
		_, err := sem.Resize(within(t), 4)
		require.NoError(t, err)
		q := acquire(t, sem, 1)
		require.Len(t, r.keys(t), 3)
		for _, k := range r.keys(t) {
			require.Positive(t, r.pttl(t, k), k)
		}
		release(t, p)
		release(t, q)
		shared := r.c.Semaphore("j", 3).Shared()
		p = acquire(t, shared, 1)
		require.Equal(t, time.Duration(-1)*time.Millisecond, r.pttl(t, "j"))
		require.Equal(t, time.Duration(-1)*time.Millisecond, r.pttl(t, "{j}:timeout"))
		require.NoError(t, p.Extend(within(t), time.Hour))
		require.Equal(t, time.Duration(-1)*time.Millisecond, r.pttl(t, "{j}:timeout"))
		release(t, p)
		require.Equal(t, "3", r.text(t, "GET", "j"))
		require.Equal(t, time.Duration(-1)*time.Millisecond, r.pttl(t, "j"))
	})
}

func TestNamesUsedOnceLeaveNothingAfterTheirLease(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	names := redistest.Sized(200, 200, 10_000)
	var wg sync.WaitGroup
	for w := range 20 {
		wg.Go(func() {
			for i := w; i < names; i += 20 {
				p, err := r.c.Semaphore(fmt.Sprint("s", i), 3).TryAcquire(context.Background(), 1, 0, time.Second)
				if errors.Is(err, errs.ErrUnknownOutcome) {
					continue // the machine is so busy that the lease was over: it is one more that is forgotten
				}
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 { // the others are forgotten
					p.Release(context.Background())
				}
			}
		})
	}
	wg.Wait()
	redistest.Eventually(t, 30*time.Second, "no key is left", func() bool {
		time.Sleep(10 * time.Millisecond)
		return len(r.keys(t)) == 0
	})
	require.Zero(t, r.c.Lines())
	require.Zero(t, r.c.Refused())
}

func TestUncontendedAcquireAndReleaseAreOneCallEachAndNoChannel(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	sem := r.c.Semaphore("s", 3)
	release(t, acquire(t, sem, 1)) // the scripts are known now
	before := redistest.CommandCalls(t, r.redis)
	for range 100 {
		release(t, acquire(t, sem, 2))
	}
	after := redistest.CommandCalls(t, r.redis)
	require.Equal(t, 200, after["evalsha"]-before["evalsha"])
	require.Equal(t, before["eval"], after["eval"])
	require.Equal(t, before["subscribe"], after["subscribe"])

	kept := acquire(t, sem, 1) // so long that a lock would be followed
	for range 20 {
		time.Sleep(10 * time.Millisecond)
		release(t, acquire(t, sem, 1))
	}
	release(t, kept)
	after = redistest.CommandCalls(t, r.redis)
	require.Equal(t, 200+2*21, after["evalsha"]-before["evalsha"])
	require.Zero(t, after["client|caching"],
		"the keys of a semaphore change all the time; following them would be a call for each")
}

func TestNamesMayHaveHashTagsAndWorkInACluster(t *testing.T) {
	redistest.InFull(t, "TestNamesWithBracesKeepTheirSlotInACluster")
	t.Parallel()
	s := redistest.Cluster(t)
	r := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, WatchdogTimeout: 4 * time.Second,
		PollCap: time.Minute})
	for _, name := range []string{"plain", "{tag}rest", "a{b}c", "日本語"} {
		sem := r.c.Semaphore(name, 2).WithLabel("l")
		p := acquire(t, sem, 2)
		first := p.Until()
		got := make(chan error, 1)
		go func() { got <- sem.Do(within(t), 1, func(context.Context) error { return nil }) }()
		redistest.Eventually(t, 10*time.Second, "waits", func() bool { return r.c.Refused() == 1 })
		redistest.Eventually(t, 10*time.Second, "renewed", func() bool { return p.Until().After(first) })
		_, err := sem.Resize(within(t), 2)
		require.NoError(t, err)
		require.NoError(t, sem.ReleaseIDs(within(t), p.IDs()[0]))
		require.NoError(t, <-got)
		require.ErrorIs(t, p.Release(within(t)), errs.ErrLost)
		redistest.Eventually(t, 30*time.Second, "all is back", func() bool { return counts(t, sem) == [3]int{2, 0, 2} })
	}
}

// A semaphore without labels has a key that is not there, so from the first moment of a migration the server refuses
// its scripts, though nothing has been moved.
func TestPermitsAreKeptWhileTheirSlotIsMigrated(t *testing.T) {
	redistest.InFull(t, "TestNamesWithBracesKeepTheirSlotInACluster")
	t.Parallel()
	s := redistest.Cluster(t)
	const term = 4 * time.Second // a busy machine may be late by so much
	r := newRig(t, s, rsemaphore.Options{WatchdogTimeout: term})
	slot := keyname.Slot("s")
	owner := 0
	for int(slot) >= (owner+1)*16384/3 {
		owner++
	}
	node := func(i int) (c rueidis.Client, id string) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addrs[i%3]}, ForceSingleClient: true,
			DisableCache: true})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		id, err = c.Do(within(t), c.B().Arbitrary("CLUSTER", "MYID").Build()).ToString()
		require.NoError(t, err)
		return c, id
	}
	from, fromID := node(owner)
	to, toID := node(owner + 1)
	do := func(c rueidis.Client, args ...string) {
		t.Helper()
		require.NoError(t, c.Do(within(t), c.B().Arbitrary(args...).Build()).Error(), "%v", args)
	}
	p, q := acquire(t, r.c.Semaphore("{s}2", 5), 2), acquire(t, r.c.Semaphore("s", 5).WithLabel("x"), 1)
	do(to, "CLUSTER", "SETSLOT", strconv.Itoa(int(slot)), "IMPORTING", fromID)
	do(from, "CLUSTER", "SETSLOT", strconv.Itoa(int(slot)), "MIGRATING", toID)
	kept := func(what string) {
		t.Helper()
		since := time.Now()
		redistest.Eventually(t, 30*time.Second, what, func() bool {
			require.NoError(t, p.Err())
			require.NoError(t, q.Err())
			return p.Until().Sub(since) > 3*term/2 && q.Until().Sub(since) > 3*term/2
		})
	}
	kept("renewed again and again before anything is moved")
	host, port, err := net.SplitHostPort(s.Addrs[(owner+1)%3])
	require.NoError(t, err)
	for _, keys := range [][]string{{"{s}2", "{s}:timeout"}, {"s", "{s}2:timeout", "{s}:notes"}} {
		for _, key := range keys {
			do(from, "MIGRATE", host, port, key, "0", "5000")
		}
		kept("and with more and more moved")
	}
	left, err := from.Do(within(t),
		from.B().Arbitrary("CLUSTER", "COUNTKEYSINSLOT", strconv.Itoa(int(slot))).Build()).AsInt64()
	require.NoError(t, err)
	require.Zero(t, left)
	for _, c := range []rueidis.Client{to, from} {
		do(c, "CLUSTER", "SETSLOT", strconv.Itoa(int(slot)), "NODE", toID)
	}
	release(t, p)
	release(t, q)
	require.Equal(t, [3]int{5, 0, 5}, counts(t, r.c.Semaphore("s", 5)))
}

// Redisson's side of the layout, by reference: what a Java process sends.

func javaSet(t *testing.T, r *rig, n int) {
	t.Helper()
	r.must(t, "SET", "s", strconv.Itoa(n))
	r.must(t, "PUBLISH", "redisson_sc:{s}", strconv.Itoa(n))
}

func javaAcquire(t *testing.T, r *rig, id string, lease time.Duration) {
	t.Helper()
	require.NotEqual(t, "0", r.text(t, "GET", "s"))
	r.must(t, "DECRBY", "s", "1")
	r.must(t, "ZADD", "{s}:timeout", strconv.FormatInt(r.now(t)+lease.Milliseconds(), 10), id)
}

func javaRelease(t *testing.T, r *rig, id string) {
	t.Helper()
	require.EqualValues(t, 1, r.number(t, "EVAL", `
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('PUBLISH', ARGV[2], redis.call('INCRBY', KEYS[2], 1))
return 1`, "2", "{s}:timeout", "s", id, "redisson_sc:{s}"))
}

// javaSetPermits and javaAddPermits are Redisson's: the total becomes n, or what is available more by n.
func javaSetPermits(t *testing.T, r *rig, n int64) {
	t.Helper()
	available := r.number(t, "GET", "s")
	r.must(t, "INCRBY", "s", strconv.FormatInt(n-available-r.number(t, "ZCOUNT", "{s}:timeout", "0", "+inf"), 10))
	r.must(t, "PUBLISH", "redisson_sc:{s}", strconv.FormatInt(n, 10))
}

func javaAddPermits(t *testing.T, r *rig, n int64) {
	t.Helper()
	total := r.number(t, "GET", "s") + n
	r.must(t, "SET", "s", strconv.FormatInt(total, 10))
	if total > 0 {
		r.must(t, "PUBLISH", "redisson_sc:{s}", strconv.FormatInt(total, 10))
	}
}

func TestOfASharedSemaphoreTheServersCapacityCountsWhoeverSetIt(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		javaSet(t, r, 3)
		sem := r.c.Semaphore("s", 2).Shared()
		p := acquire(t, sem, 3) // more than it was given, and as many as there are
		javaAddPermits(t, r, 2)
		require.Equal(t, [3]int{2, 3, 5}, counts(t, sem))
		q := acquire(t, sem, 2)
		javaSetPermits(t, r, 4)
		require.Equal(t, [3]int{-1, 5, 4}, counts(t, sem))
		_, err := sem.TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.NotErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
		release(t, p)
		javaSetPermits(t, r, 6)
		release(t, q)
		_, err = sem.Acquire(within(t), 7)
		require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
		require.ErrorContains(t, err, `"s" has 6, not 7`)
		before, err := sem.Resize(within(t), 7)
		require.NoError(t, err)
		require.Equal(t, 6, before)
		release(t, acquire(t, sem, 7))
		javaAddPermits(t, r, -2) // also after a Resize it is Java's to change
		require.Equal(t, [3]int{5, 0, 5}, counts(t, sem))
		release(t, acquire(t, sem, 5))
		require.Equal(t, [3]int{5, 0, 5}, counts(t, sem))
		_, err = r.c.Semaphore("s", 4).Acquire(within(t), 6)
		require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
	})
}

func TestAWaiterOfASharedSemaphoreIsWokenByPermitsThatJavaAdds(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 10 * time.Minute,
			WatchdogTimeout: time.Hour})
		javaSet(t, r, 1)
		sem := r.c.Semaphore("s", 1).Shared()
		p := acquire(t, sem, 1)
		got := make(chan error, 1)
		go func() {
			q, err := sem.Acquire(within(t), 1)
			if err == nil {
				err = q.Release(within(t))
			}
			got <- err
		}()
		redistest.Eventually(t, 10*time.Second, "waits", func() bool { return r.c.Refused() == 1 })
		subscribedTo(t, r, "redisson_sc:{s}")
		// its look after the subscription may still be under way, and either it or a message finds the permit
		javaAddPermits(t, r, 1)
		require.NoError(t, <-got)
		release(t, p)
	})
}

func TestASharedSemaphoreThatWasResizedOutlivesAQuietWeek(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 3).Shared()
		release(t, acquire(t, sem, 1))
		_, err := sem.Resize(within(t), 5)
		require.NoError(t, err)
		require.EqualValues(t, -1, r.number(t, "PTTL", "s"))
		r.must(t, "DEL", "{s}:notes") // their end has come
		release(t, acquire(t, sem, 5))
		require.Equal(t, [3]int{5, 0, 5}, counts(t, sem))
	})
}

func TestAResizeOfASharedSemaphoreTakesItsKeysEndsAway(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 3)
		p := acquire(t, sem, 1)
		_, err := sem.Shared().Resize(within(t), 5)
		require.NoError(t, err)
		require.EqualValues(t, -1, r.number(t, "PTTL", "s"))
		require.EqualValues(t, -1, r.number(t, "PTTL", "{s}:timeout"))
		javaAddPermits(t, r, 1)
		release(t, p)
		release(t, acquire(t, sem.Shared(), 6))
	})
}

func TestAResizedSemaphoreWhosePermitsAreDeletedHasAllOfThem(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 3)
		_, err := sem.Resize(within(t), 8)
		require.NoError(t, err)
		p := acquire(t, sem, 6)
		r.must(t, "DEL", "{s}:timeout")
		require.Equal(t, [3]int{8, 0, 8}, counts(t, sem))
		state, err := sem.Inspect(within(t))
		require.NoError(t, err)
		require.Equal(t, [2]int{8, 8}, [2]int{state.Capacity, state.Available})
		q := acquire(t, sem, 8)
		require.Equal(t, "0", r.text(t, "GET", "s"))
		require.ErrorIs(t, p.Release(within(t)), errs.ErrLost)
		require.Equal(t, [3]int{0, 8, 8}, counts(t, sem), "and its late release adds none")
		release(t, q)

		p = acquire(t, sem, 6)
		r.must(t, "DEL", "{s}:timeout")
		require.ErrorIs(t, p.Release(within(t)), errs.ErrLost, "the release comes first")
		before, err := sem.Resize(within(t), 4)
		require.NoError(t, err)
		require.Equal(t, 8, before)
		require.Equal(t, [3]int{4, 0, 4}, counts(t, sem))
		release(t, acquire(t, sem, 4))
	})
}

func TestAResizedSemaphoreTakesWhatItsCapacityIsNow(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 2)
		_, err := sem.Resize(within(t), 5)
		require.NoError(t, err)
		release(t, acquire(t, sem, 5))
		_, err = sem.Acquire(within(t), 6)
		require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
	})
}

func TestGoAndJavaShareOneSemaphore(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Minute})
		javaSet(t, r, 3)
		sem := r.c.Semaphore("s", 3)
		javaAcquire(t, r, idC, time.Hour)
		javaAcquire(t, r, idD, time.Hour)
		p := acquire(t, sem, 1)
		require.Equal(t, "0", r.text(t, "GET", "s"))
		raw, err := hex.DecodeString(p.IDs()[0])
		require.NoError(t, err)
		require.NotEqual(t, "(nil)", r.text(t, "ZSCORE", "{s}:timeout", string(raw)))
		got := make(chan *rsemaphore.Permit, 1)
		go func() {
			p, err := sem.Acquire(within(t), 1)
			if err != nil {
				t.Error(err)
			}
			got <- p
		}()
		redistest.Eventually(t, 10*time.Second, "waits", func() bool { return r.c.Refused() == 1 && subscribed(t, r) })
		subscribedTo(t, r, "redisson_sc:{s}")
		time.Sleep(20 * time.Millisecond)
		javaRelease(t, r, idC)
		q := <-got
		require.NoError(t, sem.ReleaseIDs(within(t), hex.EncodeToString([]byte(idD))))
		require.Equal(t, []string{"2"}, r.told(t, func() { release(t, p) }))
		require.Equal(t, []string{"3"}, r.told(t, func() { release(t, q) }), "what Java's listeners read")
		require.Equal(t, "3", r.text(t, "GET", "s"))
		require.Equal(t, []string{"s"}, r.keys(t))
		require.EqualValues(t, -1, r.number(t, "PTTL", "s"), "its end is Java's business")
	})
}

func TestAGrantThatIsNotReplicatedIsTakenBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--hz", "100") // by default WAIT ends with the next 100 ms, whatever its timeout
	host, port, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	replica := redistest.Start(t, "--replicaof", host, port)
	r := newRig(t, s, rsemaphore.Options{MinReplicas: 1, ReplicaTimeout: 250 * time.Millisecond,
		CallTimeout: 2 * time.Second, WatchdogTimeout: 1200 * time.Millisecond})
	sem := r.c.Semaphore("s", 3)
	redistest.Eventually(t, 20*time.Second, "granted with the replica", func() bool {
		p, err := sem.TryAcquire(within(t), 1, 0, 0)
		if err != nil {
			require.ErrorIs(t, err, errs.ErrNotReplicated)
			return false
		}
		release(t, p)
		return true
	})
	p := acquire(t, sem, 1)
	first := p.Until()
	redistest.Eventually(t, 20*time.Second, "renewed with the replica", func() bool { return p.Until().After(first) })
	replica.Stop(t)
	_, err = sem.Acquire(within(t), 2)
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	require.Equal(t, [3]int{2, 1, 3}, counts(t, sem), "taken back before the caller hears of it")
	require.Error(t, p.Extend(within(t), time.Minute), "an extension that no replica has does not count")
	<-p.Done()
	require.ErrorIs(t, p.Err(), errs.ErrLost, "nor do such renewals")
	require.ErrorIs(t, p.Release(within(t)), errs.ErrLost)
	replica.Resume(t)
	redistest.Eventually(t, 20*time.Second, "granted again", func() bool {
		p, err := sem.TryAcquire(within(t), 3, 0, 0)
		return err == nil && p.Release(within(t)) == nil
	})
}

func TestCloseEndsWaitersAndPermitsAndNamesWhatIsLeft(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r := newRig(t, servers[0], patient)
		sem := r.c.Semaphore("s", 2)
		p, q := acquire(t, sem, 1), forgo(t, acquire(t, sem, 1))
		waiter := make(chan error, 1)
		go func() { _, err := sem.Acquire(context.Background(), 1); waiter <- err }()
		redistest.Eventually(t, 10*time.Second, "waits", func() bool { return r.c.Refused() == 1 })
		go func() { // as a worker does that is told
			<-p.Done()
			p.Release(context.Background())
		}()
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		err := r.c.Close(ctx)
		require.ErrorContains(t, err, "1 still held, left to their leases: s")
		require.ErrorIs(t, <-waiter, errs.ErrClosed)
		require.ErrorIs(t, q.Err(), errs.ErrClosed)
		require.NoError(t, p.Release(within(t)))
		_, err = sem.Acquire(within(t), 1)
		require.ErrorIs(t, err, errs.ErrClosed)
		_, err = sem.Available(within(t))
		require.ErrorIs(t, err, errs.ErrClosed)
		var zero rueidis.RedisResult
		require.NotEqual(t, zero, r.do(t, "GET", "s"), "the hub's client is the caller's")
	})
}

func TestCloseDoesNotWaitForAPermitThatIsLostMeanwhile(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r := newRig(t, servers[0], rsemaphore.Options{CallTimeout: 10 * time.Second, WatchdogTimeout: 6 * time.Second})
		sem := r.c.Semaphore("s", 2)
		p := acquire(t, sem, 1)
		require.NoError(t, sem.ReleaseIDs(within(t), p.IDs()...))
		ctx := within(t)
		require.NoError(t, r.c.Close(ctx))
		require.NoError(t, ctx.Err(), "it did not wait")
		require.ErrorIs(t, p.Err(), errs.ErrClosed)
		require.ErrorIs(t, p.Release(within(t)), errs.ErrLost)
	})
}

func TestCloseDoesNotWaitForWhatIsLost(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r := newRig(t, servers[0], patient)
		p, err := r.c.Semaphore("s", 2).TryAcquire(within(t), 1, 0, 700*time.Millisecond)
		require.NoError(t, err)
		<-p.Done()
		ctx := within(t)
		require.NoError(t, r.c.Close(ctx))
		require.NoError(t, ctx.Err(), "it did not wait")
		require.ErrorIs(t, p.Release(within(t)), errs.ErrLost)
	})
}

func TestTheObserverIsToldOfAnEndOnceWhateverEndsThePermitAgain(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for name, x := range map[string]struct {
		o   rsemaphore.Options
		end func(t *testing.T, r *rig, p *rsemaphore.Permit)
		why error
	}{
		"Close, and nobody releases": {rsemaphore.Options{}, func(t *testing.T, r *rig, _ *rsemaphore.Permit) {
			require.Error(t, r.c.Close(gone))
		}, errs.ErrClosed},
		"Close, and the keys go": {rsemaphore.Options{WatchdogTimeout: 600 * time.Millisecond},
			func(t *testing.T, r *rig, p *rsemaphore.Permit) {
				closed := make(chan error, 1)
				go func() { closed <- r.c.Close(within(t)) }()
				<-p.Done()
				require.NoError(t, r.do(t, "FLUSHALL").Error())
				require.NoError(t, <-closed)
			}, errs.ErrClosed},
		"MaxHold, and Close": {rsemaphore.Options{MaxHold: 30 * time.Millisecond},
			func(_ *testing.T, r *rig, p *rsemaphore.Permit) {
				<-p.Done()
				r.c.Close(gone)
			}, errs.ErrMaxHold},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan error, 10)
			x.o.Observer = heeding(rsemaphore.EventEnded, func(e rsemaphore.Event) { told <- e.Err })
			r := newRig(t, redistest.Embedded(t), x.o)
			p := acquire(t, r.c.Semaphore("s", 2), 1)
			x.end(t, r, p)
			require.Equal(t, x.why, p.Err())
			require.Equal(t, x.why, <-told)
			require.Empty(t, told)
		})
	}
}

func TestTheObserverIsToldOfEverythingAndMayPanic(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		var mu sync.Mutex
		var seen []string
		see := func(format string, args ...any) {
			mu.Lock()
			seen = append(seen, fmt.Sprintf(format, args...))
			mu.Unlock()
			panic("a hook")
		}
		has := func(s string) bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(seen, s)
		}
		log := &redistest.Logbook{}
		r := newRig(t, servers[0],
			rsemaphore.Options{CallTimeout: 10 * time.Second, WatchdogTimeout: 3 * time.Second, Logger: log.Logger(),
				Observer: func(_ context.Context, e rsemaphore.Event) context.Context {
					switch e.Kind {
					case rsemaphore.EventAcquired:
						see("acquired %d of %s", e.N, e.Name)
					case rsemaphore.EventNotAcquired:
						see("not acquired %d of %s: %t", e.N, e.Name, e.Err != nil)
					case rsemaphore.EventReleased:
						see("released %d of %s: %v", e.N, e.Name, e.Err)
					case rsemaphore.EventAwaited:
						see("waited for %s: %v", e.Name, e.Err)
					case rsemaphore.EventRenewed:
						see("renewed %s: %v", e.Name, e.Err)
					case rsemaphore.EventEnded:
						see("ended %s: %v", e.Name, e.Err)
					case rsemaphore.EventWoken:
						see("woken %s: %t", e.Name, e.ByMessage)
					}
					return nil
				}})
		sem := r.c.Semaphore("s", 2)
		p := acquire(t, sem, 2)
		_, err := sem.TryAcquire(within(t), 1, 0, 0)
		require.Error(t, err)
		redistest.Eventually(t, 10*time.Second, "renewed", func() bool { return has("renewed s: <nil>") })
		got := make(chan *rsemaphore.Permit, 1)
		go func() {
			q, err := sem.TryAcquire(within(t), 1, 20*time.Second, 700*time.Millisecond)
			if err != nil {
				t.Error(err)
			}
			got <- q
		}()
		redistest.Eventually(t, 10*time.Second, "waits", func() bool { return r.c.Refused() == 1 && subscribed(t, r) })
		time.Sleep(20 * time.Millisecond)
		release(t, p)
		q := forgo(t, <-got)
		<-q.Done()
		redistest.Eventually(t, 10*time.Second, "all told", func() bool {
			return has("acquired 2 of s") && has("acquired 1 of s") && has("not acquired 1 of s: true") &&
				has("released 2 of s: <nil>") && has("ended s: lost")
		})
		require.True(t, has("woken s: true") || has("woken s: false"))

		counting := r.c.CountingSemaphore("c")
		require.NoError(t, counting.Release(within(t), 3))
		require.True(t, has("released 3 of c: <nil>"))
		require.NoError(t, counting.Acquire(within(t), 2))
		require.True(t, has("acquired 2 of c"))
		require.Error(t, counting.TryAcquire(within(t), 2, 0))
		require.True(t, has("not acquired 2 of c: true"))

		latch := r.c.CountDownLatch("l")
		require.NoError(t, latch.Await(within(t)))
		require.True(t, has("waited for l: <nil>"))
		require.True(t, must1[bool](t)(latch.TrySetCount(within(t), 1, 0)))
		ended, cancel := context.WithCancel(within(t))
		cancel()
		err = latch.Await(ended)
		require.Error(t, err)
		require.True(t, has("waited for l: "+err.Error()))
		require.NoError(t, errOf(r.c.CyclicBarrier("b", 1).Await(within(t))))
		require.True(t, has("waited for b: <nil>"))
		require.Positive(t, log.Count("observer panicked"))
	})
}

// One loss is one error: which look finds it first is a race, and callers act on ErrLost.
func TestAnOverwrittenPermitIsLostAndOfTheWrongType(t *testing.T) {
	t.Parallel()
	for look, find := range map[string]func(t *testing.T, p *rsemaphore.Permit) error{
		"Release":      func(t *testing.T, p *rsemaphore.Permit) error { return p.Release(within(t)) },
		"Extend":       func(t *testing.T, p *rsemaphore.Permit) error { return p.Extend(within(t), time.Minute) },
		"the watchdog": func(_ *testing.T, p *rsemaphore.Permit) error { <-p.Done(); return p.Err() },
		"a context": func(t *testing.T, p *rsemaphore.Permit) error {
			ctx := p.Context(within(t))
			<-ctx.Done()
			return context.Cause(ctx)
		},
	} {
		t.Run(look, func(t *testing.T) {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				r := newRig(t, servers[0], rsemaphore.Options{WatchdogTimeout: 12 * time.Second, CallTimeout: 3 * time.Second})
				p := acquire(t, r.c.Semaphore(look, 3), 1)
				if look == "Release" || look == "Extend" { // neither is to be overtaken by the watchdog
					require.NoError(t, p.Extend(within(t), time.Minute))
				}
				r.must(t, "SET", "{"+look+"}:timeout", "v")
				err := find(t, p)
				require.ErrorIs(t, err, errs.ErrLost)
				require.ErrorIs(t, err, errs.ErrWrongType)
				require.ErrorIs(t, p.Release(within(t)), errs.ErrLost)
				require.ErrorIs(t, p.Release(within(t)), errs.ErrWrongType)
			})
		})
	}
}

// A right may come back, as in a deployment that sets the rights of a new version after it was started.
func TestAReleaseThatTheServerRefusesGoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	root := newRig(t, s, patient)
	root.must(t, "ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all")
	r := newRigWith(t, s, patient, func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "x" })
	sem := r.c.Semaphore("s", 3)
	p, err := sem.TryAcquire(within(t), 2, 0, time.Hour)
	require.NoError(t, err)
	root.must(t, "ACL", "SETUSER", "app", "-eval", "-evalsha")
	err = p.Release(within(t))
	require.ErrorContains(t, err, "NOPERM")
	require.ErrorContains(t, err, "goes on in the background")
	root.must(t, "ACL", "SETUSER", "app", "+@all")
	redistest.Eventually(t, 10*time.Second, "given back", func() bool {
		return counts(t, root.c.Semaphore("s", 3))[0] == 3
	})
}
