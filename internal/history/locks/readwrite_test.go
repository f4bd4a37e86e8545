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

func TestReadWriteHistoriesUnderMixedFaultsAreLinearizable(t *testing.T) {
	t.Parallel()
	for _, seed := range redistest.Seeds(t, redistest.Sized(1, 2, 5)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			recordReadWrite(t, seed)
		})
	}
}

const readWritePollCap = 20 * time.Millisecond

func recordReadWrite(t *testing.T, seed uint64) {
	const enoughOps, processes, workers = 4000, 4, 4
	s := redistest.Start(t)
	book := &rwBook{log: history.New(), under: map[int]int{}}
	enough, stop := context.WithCancel(context.Background())
	defer stop()
	var proxies []*redistest.Proxy
	var users, faults sync.WaitGroup
	var rigs []*rig
	for c := range processes {
		p := redistest.NewProxy(t, s)
		r := newRig(t, p.Server(),
			rlock.Options{WatchdogTimeout: historyLease, CallTimeout: historyTimeout, PollCap: readWritePollCap})
		redistest.Eventually(t, 20*time.Second, "a first cycle", func() bool {
			return r.locks.Reentrant(fmt.Sprint("warm", c)).Do(within(t), func(context.Context) error { return nil }) == nil
		})
		rigs, proxies = append(rigs, r), append(proxies, p)
	}
	for c, r := range rigs {
		for w := range workers {
			rnd := rand.New(rand.NewPCG(seed, uint64(500+c*workers+w)))
			users.Go(func() {
				for enough.Err() == nil {
					if book.useOnce(r.locks, rnd, c*workers+w) >= enoughOps &&
						book.log.Count(history.Acquire, history.OK) > enoughOps/200 &&
						book.log.Count(history.AcquireRead, history.OK) > enoughOps/60 && book.nested() > 5 {
						stop()
					}
				}
			})
		}
	}
	var inflicted int
	faults.Go(func() { inflicted = inflict(t, enough, s, proxies, rand.New(rand.NewPCG(seed, 1))) })
	users.Wait()
	faults.Wait()
	log := book.log
	checking := time.Now()
	model := history.RWLockModel{
		LockModel: history.LockModel{Slack: 2 * time.Millisecond, LateAcquire: 2 * time.Millisecond, Late: time.Second},
		Under:     func(owner int) int { return book.under[owner] },
	}
	require.NoError(t, model.Check(log), "seed %d", seed)
	_, lost := log.Ops()
	written, read := log.Count(history.Acquire, history.OK), log.Count(history.AcquireRead, history.OK)
	t.Logf("%d operations, checked in %v: %d written, %d read, %d of them under a write hold; %d refused, %d unknown; "+
		"%d holds lost; %d faults",
		book.ops.Load(), time.Since(checking).Round(time.Millisecond), written, read, len(book.under),
		log.Count(history.Acquire, history.Refused)+log.Count(history.AcquireRead, history.Refused),
		log.Count(history.Acquire, history.Unknown)+log.Count(history.AcquireRead, history.Unknown), len(lost), inflicted)
	require.Greater(t, written, enoughOps/200, "a test that does no work finds nothing")
	require.Greater(t, read, enoughOps/60)
	require.Greater(t, len(book.under), 5)
	require.Greater(t, log.Count(history.Acquire, history.Unknown)+log.Count(history.AcquireRead, history.Unknown), 10)
	require.Greater(t, inflicted, 10)
	thenWell(t, s, history.New(), rigs, func(c *rlock.Client, name string) *rlock.Lock {
		return c.ReadWrite(name).Write()
	}, 1)
	var n atomic.Int64
	thenWell(t, s, history.New(), rigs, func(c *rlock.Client, name string) *rlock.Lock { // and readers with a writer
		if n.Add(1)%3 > 0 {
			return c.ReadWrite(name).Read()
		}
		return c.ReadWrite(name).Write()
	}, 2)
	direct := s.Client(t)
	redistest.Eventually(t, 20*time.Second, "nothing is left behind", func() bool { return len(keys(t, direct)) == 0 })
	for _, r := range rigs {
		require.Zero(t, r.locks.Stats().Waiting)
	}
}

// rwBook records what is done with read-write locks.
type rwBook struct {
	log *history.Log
	ops atomic.Int64
	mu  sync.Mutex
	// under which writer a reader reads
	under map[int]int
}

// nested is how many readers have read, or wanted to, under their own write hold.
func (b *rwBook) nested() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.under)
}

// useOnce reads or writes some lock for some time, or writes it and goes on reading. It returns how many operations
// there have been.
func (b *rwBook) useOnce(locks *rlock.Client, rnd *rand.Rand, client int) int64 {
	name := fmt.Sprint("l", rnd.IntN(3))
	rw := locks.ReadWrite(name)
	if rnd.IntN(3) > 0 {
		if h, op := b.acquire(context.Background(), rw.Read(), history.AcquireRead, name, 0, rnd, client); h != nil {
			b.keep(h, rnd)
			b.release(h, op, history.ReleaseRead)
		}
		return b.ops.Load()
	}
	w, op := b.acquire(context.Background(), rw.Write(), history.Acquire, name, 0, rnd, client)
	if w == nil {
		return b.ops.Load()
	}
	b.keep(w, rnd)
	if rnd.IntN(2) == 0 {
		if h, read := b.acquire(w.Context(context.Background()), rw.Read(), history.AcquireRead, name, op.Owner, rnd,
			client); h != nil {
			if rnd.IntN(3) == 0 { // in the other order
				b.release(h, read, history.ReleaseRead)
			} else {
				defer b.release(h, read, history.ReleaseRead)
				defer b.keep(h, rnd)
			}
		}
	}
	b.release(w, op, history.Release)
	return b.ops.Load()
}

func (b *rwBook) keep(h *rlock.Hold, rnd *rand.Rand) {
	keep := time.Duration(rnd.IntN(400)) * time.Microsecond
	if rnd.IntN(60) == 0 {
		keep = historyLease / 2 * time.Duration(1+rnd.IntN(4))
	}
	work := time.NewTimer(keep)
	defer work.Stop()
	select {
	case <-work.C:
	case <-h.Done():
	}
}

func (b *rwBook) acquire(ctx context.Context, l *rlock.Lock, kind history.Kind, name string, under int, rnd *rand.Rand,
	client int) (*rlock.Hold, history.Op) {
	op := history.Op{Client: client, Lock: name, Owner: b.log.Owner(), Kind: kind, Lease: historyLease}
	if under != 0 {
		b.mu.Lock()
		b.under[op.Owner] = under
		b.mu.Unlock()
	}
	op.Renewed = rnd.IntN(3) > 0
	var hold *rlock.Hold
	// A cancelled one may be granted later, as long as its process stands in the queue.
	got := ask(b.log, op, historyTimeout+4*readWritePollCap, func(cancelled *bool) history.Outcome {
		var err error
		switch {
		case !op.Renewed:
			hold, err = l.TryLock(ctx, 0, historyLease)
		case under == 0 && rnd.IntN(3) == 0:
			_, err = redistest.Impatient(rnd, asking(l, &hold, cancelled))
		case rnd.IntN(2) == 0:
			hold, err = l.TryLock(ctx, time.Duration(rnd.IntN(20))*time.Millisecond+time.Millisecond, 0)
		default:
			ctx, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(60_000))*time.Microsecond)
			defer cancel()
			hold, err = l.Lock(ctx)
		}
		switch {
		case err == nil:
			return history.OK
		case errors.Is(err, errs.ErrNotAcquired) && !op.Renewed && kind == history.Acquire:
			return history.Refused
		}
		// A reader may also have been refused because a writer waited.
		return history.Unknown
	})
	b.ops.Add(1)
	if got != history.OK {
		return nil, op
	}
	return hold, op
}

func (b *rwBook) release(h *rlock.Hold, op history.Op, kind history.Kind) {
	giveBack(b.log, op, h, kind)
	b.ops.Add(1)
}
