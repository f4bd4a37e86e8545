package contention_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/measure"
	"github.com/redlatch/redlatch/redlatchdebug"
	"github.com/redlatch/redlatch/redlatchtest"
)

// acquireSeconds is a measure.Sink of the metric acquire_seconds.
type acquireSeconds struct {
	mu      sync.Mutex
	seconds float64
	count   int64
}

func (*acquireSeconds) Add(context.Context, *measure.Instrument, float64, ...string) {}

func (s *acquireSeconds) Record(_ context.Context, i *measure.Instrument, seconds float64, _ ...string) {
	if i == measure.AcquireTime {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seconds, s.count = s.seconds+seconds, s.count+1
	}
}

// observeWaits returns an observer that leaves out the acquisitions that did not wait.
func (s *acquireSeconds) observeWaits() redlatch.Observer {
	all := measure.NewObservers(s, nil, 0)
	return func(ctx context.Context, e redlatch.Event) context.Context {
		if !e.Waited {
			return ctx
		}
		return all.Observe(ctx, e)
	}
}

// Every acquisition of the client waits here, because another client holds the objects. On a busy machine the time of
// some calls is over before they can wait: the profile has no such call.
func TestProfile_EveryAcquisitionWaits_SumIsAcquireSeconds(t *testing.T) {
	t.Parallel()
	var metric acquireSeconds
	srv := redlatchtest.New(t)
	red := srv.Open(redlatch.Options{Observer: metric.observeWaits()})
	h := redlatchdebug.Contention(red)
	kinds := []redlatchtest.LockKind{redlatchtest.Reentrant, redlatchtest.Fair}
	for round := range 20 {
		// The names are new in each round, because a grant to a caller that has left is released a moment later.
		lockName, permitsName := fmt.Sprint("lock", round), fmt.Sprint("permits", round)
		release := srv.HoldElsewhere(lockName, kinds[round%2])
		permit := srv.TakeElsewhere(permitsName, 1, 1)
		var all sync.WaitGroup
		lock := red.Locks().Reentrant(lockName)
		if round%2 == 1 {
			lock = red.Locks().Fair(lockName)
		}
		for i := range 4 {
			all.Go(func() {
				if i%2 == 0 {
					_, _ = lock.TryLock(t.Context(), 30*time.Millisecond, 0)
				} else {
					_, _ = red.Semaphores().Semaphore(permitsName, 1).TryAcquire(t.Context(), 1, 30*time.Millisecond, 0)
				}
			})
		}
		all.Wait()
		release()
		permit()
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/debug/redlatch/contention", nil))
	p, err := profile.Parse(w.Body)
	require.NoError(t, err)
	require.NoError(t, p.CheckValid())
	require.Equal(t, "contentions/count delay/nanoseconds", p.SampleType[0].Type+"/"+p.SampleType[0].Unit+" "+
		p.SampleType[1].Type+"/"+p.SampleType[1].Unit)
	count, nanoseconds := int64(0), int64(0)
	for _, sample := range p.Sample {
		count, nanoseconds = count+sample.Value[0], nanoseconds+sample.Value[1]
		require.Contains(t, sample.Location[0].Line[0].Function.Name, "contention_test.TestProfile")
		require.Len(t, sample.Label["holder"], 1)
	}
	require.Greater(t, metric.count, int64(40))
	require.Equal(t, metric.count, count)
	require.InEpsilon(t, metric.seconds, float64(nanoseconds)/1e9, .01)
}
