package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Weights, parts of which are released, behind proxies that delay, drop, double and cut: what may be acted on at one
// instant is never more than the capacity, and in the end all of it is back.
func TestHistoriesOfWeightsUnderFaultsNeverPassTheCapacity(t *testing.T) {
	redistest.InFull(t, "TestTheScriptsOfWeightsDoWhatTheirTablesSay")
	t.Parallel()
	for _, seed := range redistest.Seeds(t, redistest.Sized(1, 1, 5)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			weightsUnderFaults(t, seed, rsemaphore.Options{WatchdogTimeout: historyLease})
		})
	}
}

// Leases are so long here that what is lost is lost for want of heartbeats, and what a lost holder cannot give back is
// taken over.
func TestHistoriesOfWeightsWithLivenessNeverPassTheCapacity(t *testing.T) {
	redistest.InFull(t, "TestAKilledProcessesPermitsAreTakenOverBeforeTheirLeasesEnd")
	t.Parallel()
	for _, seed := range redistest.Seeds(t, redistest.Sized(1, 1, 3)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			weightsUnderFaults(t, seed,
				rsemaphore.Options{WatchdogTimeout: 2 * time.Minute, Liveness: true, Heartbeat: historyLease / 4})
		})
	}
}

func weightsUnderFaults(t *testing.T, seed uint64, o rsemaphore.Options) {
	s := redistest.Start(t)
	direct := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second})
	l := &ledger{name: "w", capacity: 1 << 30}
	enough, stop := context.WithTimeout(context.Background(), 10*historyLasts)
	defer stop()
	var granted, unknown, lost, parts, taken atomic.Int64
	o.CallTimeout, o.PollCap = historyTimeout, 50*time.Millisecond
	o.Observer = heeding(rsemaphore.EventTakenOver, func(rsemaphore.Event) { taken.Add(1) })
	var rigs []*rig
	var proxies []*redistest.Proxy
	for c := range 3 {
		p := redistest.NewProxy(t, s)
		r := newRig(t, p.Server(), o)
		redistest.Eventually(t, 30*time.Second, "a first cycle", func() bool {
			return r.c.WeightedSemaphore(fmt.Sprint("warm", c), 1).Do(within(t), 1, func(context.Context) error {
				return nil
			}) == nil
		})
		rigs, proxies = append(rigs, r), append(proxies, p)
	}
	var work sync.WaitGroup
	for c, r := range rigs {
		for k := range 4 {
			rnd := rand.New(rand.NewPCG(seed, uint64(100+10*c+k)))
			work.Go(func() {
				for enough.Err() == nil {
					switch err := useWeight(r.c.WeightedSemaphore(l.name, l.capacity), l, rnd, &lost, &parts); {
					case err == nil:
						granted.Add(1)
					case errors.Is(err, errs.ErrUnknownOutcome):
						unknown.Add(1)
					case !errors.Is(err, errs.ErrUnavailable) && !errors.Is(err, errs.ErrNotAcquired):
						t.Error(err)
					}
				}
			})
		}
	}
	work.Go(func() {
		for began := time.Now(); redistest.Pause(enough, 10*time.Millisecond); {
			if time.Since(began) > historyLasts && granted.Load() > 300 && unknown.Load() > 5 && parts.Load() > 30 &&
				(!o.Liveness || taken.Load() > 0) {
				stop()
			}
		}
	})
	inflicted := redistest.Inflict(t, enough, s, proxies, rand.New(rand.NewPCG(seed, 0)), 2*historyLease)
	work.Wait()
	most := l.most()
	t.Logf("%d granted, %d unknown, %d lost, %d takeovers, %d parts released, %d faults; %.2f of the capacity in use "+
		"at most",
		granted.Load(), unknown.Load(), lost.Load(), taken.Load(), parts.Load(), inflicted, float64(most)/float64(l.capacity))
	require.Equal(t, o.Liveness, taken.Load() > 0)
	require.LessOrEqual(t, most, l.capacity)
	require.Greater(t, most, l.capacity/2, "a test in which little is in use finds nothing")
	require.Positive(t, granted.Load())
	back := func() bool {
		state, err := direct.c.WeightedSemaphore(l.name, l.capacity).Inspect(within(t))
		return err == nil && state.Available == l.capacity && len(state.Permits) == 0
	}
	redistest.Eventually(t, 30*time.Second, "all is back", back)
	// one at a time
	thenWell(t, s, rigs[0], func(c *rsemaphore.Client, ctx context.Context, wait time.Duration) (func(), error) {
		p, err := c.WeightedSemaphore(l.name, l.capacity).TryAcquire(ctx, l.capacity/2+1, wait, 0)
		return func() { p.Release(context.Background()) }, err
	}, back)
	for _, r := range rigs {
		redistest.Eventually(t, 30*time.Second, "nothing is owed", func() bool { return r.c.Owed() == 0 })
	}
}

// useWeight acquires in some way, keeps it for some time, gives a part back now and then, and releases.
func useWeight(s *rsemaphore.Semaphore, l *ledger, rnd *rand.Rand, lost, parts *atomic.Int64) error {
	n := 1 + rnd.IntN(l.capacity)
	if rnd.IntN(3) > 0 {
		n = 1 + n/4
	}
	var p *rsemaphore.Permit
	var err error
	if rnd.IntN(3) == 0 {
		_, err = redistest.Impatient(rnd, func(ctx context.Context, wait time.Duration) (_ func(), err error) {
			p, err = s.TryAcquire(ctx, n, orForever(wait), 0)
			return nil, err
		})
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rnd.IntN(200))*time.Millisecond)
		p, err = s.Acquire(ctx, n)
		cancel()
	}
	if err != nil {
		return err
	}
	from := time.Now()
	used := func(n int) {
		to := time.Now()
		if until := p.Until(); until.Before(to) {
			to = until
		}
		l.add(from, to, n)
	}
	wait := func() {
		keep := time.Duration(rnd.IntN(2000)) * time.Microsecond
		if rnd.IntN(20) == 0 {
			keep = historyLease / 2 * time.Duration(1+rnd.IntN(4))
		}
		timer := time.NewTimer(keep)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.Done():
			lost.Add(1)
		}
	}
	wait()
	release, end := context.WithTimeout(context.Background(), 2*historyTimeout)
	defer end()
	if has := p.N(); has > 1 && rnd.IntN(2) == 0 && p.Err() == nil {
		used(has)
		from = time.Now()
		part := 1 + rnd.IntN(has-1)
		if p.ReleasePart(release, part) == nil {
			parts.Add(1)
		}
		wait()
	}
	used(p.N())
	switch err := p.Release(release); {
	case err == nil, errors.Is(err, errs.ErrLost), errors.Is(err, errs.ErrUnavailable),
		errors.Is(err, errs.ErrUnknownOutcome):
		return nil
	default:
		return fmt.Errorf("release: %w", err)
	}
}
