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

func TestMultiHistoriesUnderMixedFaultsAreLinearizable(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	log := history.New()
	enough, stop := context.WithCancel(context.Background())
	defer stop()
	const clients, workers, most = 4, 3, 3000
	var rigs []*rig
	var proxies []*redistest.Proxy
	for c := range clients {
		p := redistest.NewProxy(t, s)
		r := newRig(t, p.Server(),
			rlock.Options{WatchdogTimeout: historyLease, CallTimeout: historyTimeout, PollCap: 50 * time.Millisecond})
		redistest.Eventually(t, 20*time.Second, "a first cycle", func() bool {
			return r.locks.Reentrant(fmt.Sprint("warm", c)).Do(within(t), func(context.Context) error { return nil }) == nil
		})
		rigs, proxies = append(rigs, r), append(proxies, p)
	}
	var ops atomic.Int64
	var wg sync.WaitGroup
	for w := range clients * workers {
		r := rigs[w%clients]
		rnd := rand.New(rand.NewPCG(5, uint64(w)))
		wg.Go(func() {
			for enough.Err() == nil {
				if ops.Add(int64(useSeveral(r.locks, rnd, log, w))) >= most && log.Count(history.Acquire, history.OK) > most/20 {
					stop()
				}
			}
		})
	}
	var faults sync.WaitGroup
	faults.Go(func() { inflict(t, enough, s, proxies, rand.New(rand.NewPCG(5, 0))) })
	wg.Wait()
	faults.Wait()
	require.NoError(t, history.LockModel{Slack: 2 * time.Millisecond, LateAcquire: 2 * time.Millisecond,
		Late: time.Second}.Check(log))
	granted := log.Count(history.Acquire, history.OK)
	t.Logf("%d operations, %d granted, %d unknown", ops.Load(), granted, log.Count(history.Acquire, history.Unknown))
	require.Greater(t, granted, most/20)
	thenWell(t, s, history.New(), rigs, func(c *rlock.Client, name string) *rlock.Lock {
		m, err := rlock.Multi(c.Reentrant("l3"), c.Reentrant(name), c.NonReentrant("l4"))
		require.NoError(t, err)
		return m
	}, historyLocks)
	direct := s.Client(t)
	redistest.Eventually(t, 20*time.Second, "nothing is left behind", func() bool { return len(keys(t, direct)) == 0 })
}

// useSeveral acquires one to three locks as a Multi, keeps them for some time, and releases them: an operation on each.
func useSeveral(locks *rlock.Client, rnd *rand.Rand, log *history.Log, client int) int {
	set := rnd.Perm(historyLocks)[:1+rnd.IntN(3)]
	members := make([]*rlock.Lock, len(set))
	op := history.Op{Client: client, Owner: log.Owner(), Kind: history.Acquire, Lease: historyLease,
		Renewed: rnd.IntN(2) == 0}
	for i, n := range set {
		members[i] = locks.Reentrant(fmt.Sprint("l", n))
		if rnd.IntN(4) == 0 {
			members[i] = locks.NonReentrant(fmt.Sprint("l", n))
		}
	}
	// What failed may have held any of them for a moment.
	each := func(o history.Outcome) {
		op.Return, op.Outcome = log.At(time.Now()), o
		for _, l := range members {
			op.Lock = l.Name()
			log.Add(op)
		}
	}
	m, err := rlock.Multi(members...)
	if err != nil {
		panic(err)
	}
	op.Call = log.At(time.Now())
	leaseTime := historyLease
	if op.Renewed {
		leaseTime = 0
	}
	var h *rlock.Hold
	if op.Renewed && rnd.IntN(2) == 0 {
		_, err = redistest.Impatient(rnd, asking(m, &h, new(bool)))
	} else {
		h, err = m.TryLock(context.Background(), time.Duration(rnd.IntN(60))*time.Millisecond, leaseTime)
	}
	if err != nil {
		each(history.Unknown)
		return len(members)
	}
	// A fixed lease is renewed until all are there, so it began at any time until then.
	each(history.OK)
	keep := time.NewTimer(time.Duration(rnd.IntN(400)) * time.Microsecond)
	if rnd.IntN(50) == 0 {
		keep.Reset(historyLease / 2 * time.Duration(1+rnd.IntN(4)))
	}
	select {
	case <-keep.C:
	case <-h.Done():
	}
	keep.Stop()
	op.Kind, op.Call = history.Release, log.At(time.Now())
	ctx, cancel := context.WithTimeout(context.Background(), 2*historyTimeout)
	defer cancel()
	switch err := h.Unlock(ctx); {
	case err == nil:
		each(history.OK)
	case errors.Is(err, errs.ErrLost):
		log.Lost(op.Owner, h.Until()) // one of them; what became of the others is not said
		each(history.Unknown)
	default:
		each(history.Unknown)
	}
	return 2 * len(members)
}
