package batch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
)

var errPatience = errors.New("out of patience")

// doubler answers each request with twice its number, after a time of the test's choosing.
func doubler(t *testing.T, o Options, takes func(n int) time.Duration) *doubling {
	require.NoError(t, o.Check())
	o.Bound, o.ErrTimeout, o.Spawn = time.Second, errPatience, func(send func()) { go send() }
	var calls atomic.Int64
	d := &doubling{}
	d.Batcher = Batcher[int, int]{
		Options: &o, What: "double", Key: "n",
		Shared: func(_ context.Context, requests int) {
			d.sharedCalls.Add(1)
			d.sharedRequests.Add(int64(requests))
		},
		Run: func(_ context.Context, requests []*Request[int, int]) {
			time.Sleep(takes(int(calls.Add(1))))
			for _, r := range requests {
				r.Answer = 2 * r.Ask
			}
		},
	}
	return d
}

// doubling is a doubler, and counts of its shared calls.
type doubling struct {
	Batcher[int, int]
	sharedCalls, sharedRequests atomic.Int64
}

func (d *doubling) counts() (calls, requests int64) {
	return d.sharedCalls.Load(), d.sharedRequests.Load()
}

type result struct {
	answer int
	err    error
	took   time.Duration
}

func ask(ctx context.Context, b *doubling, n int) <-chan result {
	c, began := make(chan result, 1), time.Now()
	go func() {
		answer, err := b.Do(ctx, n)
		c <- result{answer, err, time.Since(began)}
	}()
	synctest.Wait()
	return c
}

// A caller leaves after Bound, whatever its context allows; one with a nearer deadline at that, and one whose context
// ends at once. All five are in the same call.
func TestBatcher_Callers_LeaveEachInItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := doubler(t, Options{}, func(n int) time.Duration { return time.Duration(n) * 5 * time.Second / 2 })
		alone := ask(t.Context(), b, 1) // 2.5 s
		bare := ask(context.Background(), b, 2)
		ending, end := context.WithCancel(context.Background())
		defer end()
		cancellable := ask(ending, b, 3)
		leaving, leave := context.WithCancel(context.Background())
		leaver := ask(leaving, b, 4)
		until, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		patient := ask(until, b, 5) // in a call from 100 us to 5.1 s
		soon, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
		defer cancel()
		hurried := ask(soon, b, 5)
		time.Sleep(500 * time.Millisecond)
		leave()

		r := <-leaver
		require.ErrorIs(t, r.err, errs.ErrUnknownOutcome)
		require.ErrorIs(t, r.err, context.Canceled)
		require.Equal(t, 500*time.Millisecond, r.took)
		r = <-hurried
		require.ErrorIs(t, r.err, errs.ErrUnknownOutcome)
		require.ErrorIs(t, r.err, context.DeadlineExceeded)
		require.Equal(t, 700*time.Millisecond, r.took)
		for _, c := range []<-chan result{bare, cancellable, patient} {
			r := <-c
			require.ErrorIs(t, r.err, errs.ErrUnknownOutcome)
			require.ErrorIs(t, r.err, errPatience)
			require.Equal(t, time.Second, r.took)
		}
		require.Equal(t, result{2, nil, 5 * time.Second / 2}, <-alone)
		time.Sleep(5 * time.Second)
		require.Equal(t, result{12, nil, 15 * time.Second / 2}, <-ask(t.Context(), b, 6), "the Batcher is empty again")
	})
}

// While no more calls may be under way, the callers of an open batch leave with the error that nothing was sent.
func TestBatcher_NotSent_IsErrUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := doubler(t, Options{}, func(int) time.Duration { return 3 * time.Second })
		b.Calls = func() int { return 1 }
		alone := ask(t.Context(), b, 1)
		bare := ask(context.Background(), b, 2)
		time.Sleep(time.Second / 2)
		later := ask(context.Background(), b, 3) // its patience is that of the first in its batch, so it ends sooner
		for _, c := range []<-chan result{bare, later} {
			r := <-c
			require.ErrorIs(t, r.err, errs.ErrUnavailable)
			require.ErrorIs(t, r.err, errPatience)
			require.LessOrEqual(t, r.took, time.Second)
		}
		require.Equal(t, result{2, nil, 3 * time.Second}, <-alone)
		synctest.Wait() // the empty batch took the call's place, and has gone
		require.Equal(t, result{8, nil, 3 * time.Second}, <-ask(t.Context(), b, 4))
	})
}

// No timer is waited for: the second half is sent when it has gathered. What comes then waits for one of the two to be
// answered.
func TestBatcher_SplitInHalf_SendsTheSecondHalfWithoutATimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terms := Options{Window: time.Minute, MinInFlight: 4, SplitInHalf: true}
		b := doubler(t, terms, func(int) time.Duration { return time.Second / 4 })
		b.Calls = func() int { return 2 }
		var asked []<-chan result
		for n := range 10 { // three by themselves; one, the first of the crowd; four of eight; two
			asked = append(asked, ask(t.Context(), b, n))
		}
		for n, got := range asked {
			took := time.Second / 4
			if n >= 8 {
				took *= 2
			}
			require.Equal(t, result{2 * n, nil, took}, <-got, n)
		}
		calls, requests := b.counts()
		require.Equal(t, []int64{2, 6}, []int64{calls, requests})
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Zero(t, b.callsInFlight)
	})
}

// The second and later calls are for servers that are far away.
func TestCoalescer_LatencyGrows_AllowsMoreCalls(t *testing.T) {
	l := NewCoalescer(CoalescerConfig[int]{Timeout: time.Second})
	require.Equal(t, 1, l.batcher.callLimit(), "nothing is known")
	l.batcher.recordDuration(int64(2 * time.Millisecond))
	require.Equal(t, coalescedCalls, l.batcher.callLimit())
	l.batcher.recordDuration(int64(100 * time.Microsecond))
	require.Equal(t, 1, l.batcher.callLimit())
	for range 2 {
		l.batcher.recordDuration(int64(5 * time.Millisecond)) // no processor was free
	}
	require.Equal(t, 1, l.batcher.callLimit())
	for range 100 {
		l.batcher.recordDuration(int64(5 * time.Millisecond))
	}
	require.Equal(t, coalescedCalls, l.batcher.callLimit(), "it is far away now")
}

// A call that fails at once says nothing of how far away the server is.
func TestBatcher_FailedCall_LeavesTheCallLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := doubler(t, Options{Near: time.Second}, func(int) time.Duration { return 4 * time.Second })
		<-ask(t.Context(), b, 1)
		require.Equal(t, 5, b.callLimit())
		b.Run = func(_ context.Context, requests []*Request[int, int]) { requests[0].Err = errs.ErrUnavailable }
		require.ErrorIs(t, (<-ask(t.Context(), b, 1)).err, errs.ErrUnavailable)
		require.Equal(t, 5, b.callLimit())
	})
}

// Four callers have calls of one or two, which cost more than they save: then each asks alone. A crowd goes on sharing,
// and so do the four once they are a crowd.
func TestBatcher_HardlyShared_SendsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terms := Options{MaxCalls: 4, MinInFlight: 4, Pays: 3, SplitInHalf: true, Near: time.Hour}
		b := doubler(t, terms, func(int) time.Duration { return time.Millisecond })
		crowd := func(callers, each int) (calls, requests int64) {
			c, r := b.counts()
			var all sync.WaitGroup
			for n := range callers {
				all.Go(func() {
					for range each {
						if answer, err := b.Do(t.Context(), n); err != nil || answer != 2*n {
							t.Errorf("%d, %v of %d", answer, err, n)
						}
					}
				})
			}
			all.Wait()
			calls, requests = b.counts()
			return calls - c, requests - r
		}
		_, few := crowd(4, 500)
		require.Less(t, few, int64(100), "of 2000")
		calls, many := crowd(64, 500)
		require.Greater(t, many, int64(28_000), "of 32000, of which 256 at most were to be alone")
		require.Greater(t, many, 16*calls)
		_, few = crowd(4, 500)
		require.Less(t, few, int64(100), "again")
	})
}
