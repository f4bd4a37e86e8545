package locks_test

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
	"github.com/redlatch/redlatch/internal/history"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// The clients of a history.
const (
	historyOps     = 10_000
	historyClients = 5
	historyWorkers = 4 // each
	historyLocks   = 5
	historyLease   = 200 * time.Millisecond
	historyTimeout = 40 * time.Millisecond // of a call
)

func TestHistoriesUnderMixedFaultsAreLinearizable(t *testing.T) {
	t.Parallel()
	for _, seed := range redistest.Seeds(t, redistest.Sized(1, 2, 10)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			recordUnderFaults(t, seed, (*rlock.Client).Reentrant, rlock.Options{WatchdogTimeout: historyLease},
				100*time.Millisecond)
		})
	}
}

func TestHistoriesOfFairLocksUnderMixedFaultsAreLinearizable(t *testing.T) {
	t.Parallel()
	for _, seed := range redistest.Seeds(t, redistest.Sized(1, 1, 5)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			recordUnderFaults(t, seed, (*rlock.Client).Fair, rlock.Options{WatchdogTimeout: historyLease}, 100*time.Millisecond)
		})
	}
}

// Leases are so long here that what is lost is lost for want of heartbeats, and what is left behind is taken over.
//
// A waiter that was not heard of for some time goes on as another owner. What was handed to the first is in no caller's
// history until it is taken away, and a reason for refusals that the model would not understand: they are not noted.
func TestHistoriesWithLivenessAreLinearizable(t *testing.T) {
	t.Parallel()
	for _, seed := range redistest.Seeds(t, redistest.Sized(1, 1, 3)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			recordUnderFaults(t, seed, (*rlock.Client).Reentrant,
				rlock.Options{WatchdogTimeout: time.Minute, Liveness: true, Heartbeat: historyLease / 4}, 2*time.Second)
		})
	}
}

// recordUnderFaults: some wait for up to patience.
func recordUnderFaults(t *testing.T, seed uint64, of func(*rlock.Client, string) *rlock.Lock, o rlock.Options,
	patience time.Duration) {
	o.CallTimeout, o.PollCap = historyTimeout, 50*time.Millisecond
	s := redistest.Start(t)
	log := history.New()
	var ops atomic.Int64
	enough, stop := context.WithCancel(context.Background())
	defer stop()
	var rigs []*rig
	var proxies []*redistest.Proxy
	var workers, faults sync.WaitGroup
	var takenOver atomic.Int64
	o.Observer = func(ctx context.Context, e rlock.Event) context.Context {
		if e.Kind == rlock.EventTakenOver {
			takenOver.Add(int64(e.Holds))
		}
		return ctx
	}
	for c := range historyClients {
		p := redistest.NewProxy(t, s)
		r := newRig(t, p.Server(), o)
		// learns the server's clock; the call timeout is so short that a busy machine alone can make it fail
		redistest.Eventually(t, 20*time.Second, "a first cycle", func() bool {
			return r.locks.Reentrant(fmt.Sprint("warm", c)).Do(within(t), func(context.Context) error { return nil }) == nil
		})
		rigs, proxies = append(rigs, r), append(proxies, p)
	}
	began := time.Now()
	for c, r := range rigs {
		for w := range historyWorkers {
			rnd := rand.New(rand.NewPCG(seed, uint64(100+c*historyWorkers+w)))
			workers.Go(func() {
				for enough.Err() == nil {
					n := ops.Add(int64(useOnce(r.locks, of, rnd, log, c*historyWorkers+w, patience, o.Liveness)))
					if n >= historyOps && log.Count(history.Acquire, history.OK) > historyOps/10 &&
						(!o.Liveness || takenOver.Load() > 0) {
						stop()
					}
				}
			})
		}
	}
	var inflicted int
	faults.Go(func() { inflicted = inflict(t, enough, s, proxies, rand.New(rand.NewPCG(seed, 0))) })
	workers.Wait()
	faults.Wait()
	took := time.Since(began)
	granted, refused, unknown := log.Count(history.Acquire, history.OK), log.Count(history.Acquire, history.Refused),
		log.Count(history.Acquire, history.Unknown)
	thenWell(t, s, log, rigs, of, historyLocks)

	// An acquire that was given up is not granted later: it says "not after" in the server's own time, known to the
	// millisecond. But its process may stand in the queue until it has left it, or was silent for 2.5 PollCaps, in a fair
	// one for 3.
	model := history.LockModel{Slack: 2 * time.Millisecond, LateAcquire: 2 * time.Millisecond, Late: time.Second,
		LateGrant: 4 * o.PollCap}
	checking := time.Now()
	require.NoError(t, model.Check(log), "seed %d", seed)
	_, lost := log.Ops()
	t.Logf("%d operations in %v, checked in %v: %d granted, %d refused, %d unknown; %d releases unknown; %d holds lost, "+
		"%d taken over; %d faults",
		ops.Load(), took.Round(time.Millisecond), time.Since(checking).Round(time.Millisecond), granted, refused, unknown,
		log.Count(history.Release, history.Unknown), len(lost), takenOver.Load(), inflicted)
	require.GreaterOrEqual(t, ops.Load(), int64(historyOps))
	require.Greater(t, granted, historyOps/20, "a test that does no work finds nothing")
	if !o.Liveness {
		require.Greater(t, refused, historyOps/400)
	}
	require.Greater(t, unknown, 10)
	require.Greater(t, inflicted, 10)
	require.Equal(t, o.Liveness, takenOver.Load() > 0)

	direct := s.Client(t)
	redistest.Eventually(t, 20*time.Second, "nothing is left behind", func() bool { return len(keys(t, direct)) == 0 })
	for _, r := range rigs {
		require.Zero(t, r.locks.Stats().Waiting)
	}
}

// whenWell are the options of clients that come when the network is well again: what their callers leave behind is
// there for so long that no machine is that busy.
var whenWell = rlock.Options{CallTimeout: 20 * time.Second, PollCap: 20 * time.Second,
	WatchdogTimeout: 10 * time.Minute}

// wellPoll is the longest time between two questions of such a client that waits. The clients that went through the
// faults have leases of 200 ms. A machine that gives one of them no processor for as long loses it its lock, of which
// no waiter hears, so that those who wait find out when they ask; what is taken for a lease of the others, or for their
// CallTimeout, is found all the same.
const wellPoll = 10 * time.Second

// thenWell is the end of a history. The network is well again: clients that went through the faults, and others, have
// callers that are patient and callers that give up within 5 ms, for some of its locks, which are l0 to l(n-1). None of
// the locks is idle for long while callers wait, and none that no caller holds stays taken.
func thenWell(t *testing.T, s *redistest.Server, log *history.Log, rigs []*rig,
	of func(*rlock.Client, string) *rlock.Lock, n int) {
	p := redistest.NewProxy(t, s)
	p.Delay(500*time.Microsecond, 500*time.Microsecond) // more calls are under way when their callers leave
	healed, fresh := rigs[0], []*rig{newRig(t, p.Server(), whenWell), newRig(t, p.Server(), whenWell)}
	for i := range min(n, 2) {
		name := fmt.Sprint("l", i)
		processes := []redistest.Take{recorded(log, of(healed.locks, name), historyLease, historyTimeout)}
		for _, r := range fresh {
			processes = append(processes, recorded(log, of(r.locks, name), whenWell.WatchdogTimeout, whenWell.CallTimeout))
		}
		redistest.NotIdle(t, wellPoll+2*soon, "", processes...)
		redistest.Eventually(t, 2*soon, "no caller has it, and it is free", func() bool {
			return s.Ask(t, "EXISTS", name) == "0"
		})
	}
}

// recorded takes l, and notes it: the lease is its client's, and so is the time for which a call that is cancelled may
// still be granted.
func recorded(log *history.Log, l *rlock.Lock, lease, late time.Duration) redistest.Take {
	return func(ctx context.Context, wait time.Duration) (func(), error) {
		op := history.Op{Client: -1, Lock: l.Name(), Owner: log.Owner(), Kind: history.Acquire, Lease: lease, Renewed: true}
		var hold *rlock.Hold
		var err error
		ask(log, op, late, func(cancelled *bool) history.Outcome {
			if _, err = asking(l, &hold, cancelled)(ctx, wait); err != nil {
				return history.Unknown
			}
			return history.OK
		})
		return func() { giveBack(log, op, hold, history.Release) }, err
	}
}

// ask records an acquire. If its caller cancels, it may still be granted for late, a call timeout.
func ask(log *history.Log, op history.Op, late time.Duration, f func(cancelled *bool) history.Outcome) history.Outcome {
	var cancelled bool
	op.Call = log.At(time.Now())
	op.Outcome = f(&cancelled)
	op.Return = log.At(time.Now())
	if cancelled {
		op.Late = late
	}
	log.Add(op)
	return op.Outcome
}

// asking is how a history waits for l: up to wait, or until ctx ends. It keeps the hold in h.
func asking(l *rlock.Lock, h **rlock.Hold, cancelled *bool) redistest.Take {
	return func(ctx context.Context, wait time.Duration) (release func(), err error) {
		if wait > 0 {
			*h, err = l.TryLock(ctx, wait, 0)
		} else {
			*h, err = l.Lock(ctx)
		}
		*cancelled = errors.Is(ctx.Err(), context.Canceled)
		return nil, err
	}
}

// useOnce acquires some lock in some way, keeps it for some time, and releases it. It returns how many operations that
// was. blind: refusals are not noted.
func useOnce(locks *rlock.Client, of func(*rlock.Client, string) *rlock.Lock, rnd *rand.Rand, log *history.Log,
	client int, patience time.Duration, blind bool) int {
	name := fmt.Sprint("l", rnd.IntN(historyLocks))
	l := of(locks, name)
	waited := rnd.IntN(3) > 0 // and is renewed then
	op := history.Op{Client: client, Lock: name, Owner: log.Owner(), Kind: history.Acquire, Lease: historyLease,
		Renewed: waited}
	var hold *rlock.Hold
	got := ask(log, op, historyTimeout, func(cancelled *bool) history.Outcome {
		var err error
		switch {
		case !waited:
			hold, err = l.TryLock(context.Background(), 0, historyLease)
		case rnd.IntN(3) == 0:
			_, err = redistest.Impatient(rnd, asking(l, &hold, cancelled))
		case rnd.IntN(2) == 0:
			hold, err = l.TryLock(context.Background(), time.Duration(rnd.IntN(20))*time.Millisecond+time.Millisecond, 0)
		default:
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.Int64N(int64(patience))))
			defer cancel()
			hold, err = l.Lock(ctx)
		}
		switch {
		case err == nil:
			return history.OK
		case errors.Is(err, errs.ErrNotAcquired) && !waited && !blind:
			return history.Refused
		}
		// One that waited may have stood behind another of its process without asking, or its last request may have
		// been cut short: that another owner held the lock is not said.
		return history.Unknown
	})
	if got != history.OK {
		return 1
	}
	keep := time.Duration(rnd.IntN(400)) * time.Microsecond
	if rnd.IntN(100) == 0 {
		keep = historyLease / 2 * time.Duration(1+rnd.IntN(4)) // up to twice the lease
	}
	work := time.NewTimer(keep)
	select {
	case <-work.C:
	case <-hold.Done():
	}
	work.Stop()
	giveBack(log, op, hold, history.Release)
	return 2
}

// giveBack releases what op acquired.
func giveBack(log *history.Log, op history.Op, hold *rlock.Hold, kind history.Kind) {
	op.Kind = kind
	log.Do(op, func() history.Outcome {
		ctx, cancel := context.WithTimeout(context.Background(), 2*historyTimeout)
		defer cancel()
		switch err := hold.Unlock(ctx); {
		case err == nil:
			return history.OK
		case errors.Is(err, errs.ErrLost):
			log.Lost(op.Owner, hold.Until())
			return history.Refused
		}
		return history.Unknown
	})
}

// inflict plays the network and the server, at times for so long that what is held is lost.
func inflict(t *testing.T, ctx context.Context, s *redistest.Server, proxies []*redistest.Proxy, rnd *rand.Rand) int {
	return redistest.Inflict(t, ctx, s, proxies, rnd, 2*historyLease)
}
