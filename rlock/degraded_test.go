package rlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func admin(t *testing.T, c rueidis.Client, words ...string) {
	t.Helper()
	require.NoError(t, c.Do(within(t), c.B().Arbitrary(words...).Build()).Error(), "%v", words)
}

func TestWithoutTheRightToSubscribeWaitersPollAndOneLineIsLogged(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	root := s.Client(t)
	admin(t, root, "ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-subscribe")
	holder := newRig(t, s, rlock.Options{})
	log := &redistest.Logbook{}
	waiter := newRigWith(t, s, rlock.Options{PollCap: 50 * time.Millisecond, Logger: log.Logger()},
		func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "any" })
	for range 5 {
		h := lock(t, holder.locks.Reentrant("l"), within(t))
		got := pass(t, waiter.locks.Reentrant("l"))
		redistest.Eventually(t, 10*time.Second, "refused", func() bool {
			return log.Count("subscribe refused") == 1 && waiter.locks.Waiting("l") == 1
		})
		require.NoError(t, h.Unlock(within(t)))
		require.NoError(t, <-got)
	}
	require.Equal(t, 1, log.Count("subscribe refused"))
}

func TestScriptsForgottenInALoopAreSentAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	root := s.Client(t)
	stop := make(chan struct{})
	var flusher, wg sync.WaitGroup
	flusher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				root.Do(context.Background(), root.B().ScriptFlush().Build())
			}
		}
	})
	for range 2 {
		r := newRig(t, s, rlock.Options{WatchdogTimeout: 3 * time.Second})
		for g := range 4 {
			wg.Go(func() {
				for i := range 50 {
					if err := r.locks.Reentrant(fmt.Sprint("l", (g+i)%3)).Do(within(t), func(context.Context) error {
						return nil
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	close(stop)
	flusher.Wait()
}

func TestAReadOnlyServerIsUnavailableUntilItIsNot(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	admin(t, r.redis, "REPLICAOF", "127.0.0.1", "1")
	admin(t, r.redis, "CONFIG", "SET", "replica-serve-stale-data", "yes")
	_, err := r.locks.Reentrant("l").TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrUnavailable)
	require.ErrorContains(t, err, "READONLY")
	got := pass(t, r.locks.Reentrant("l"))
	redistest.Eventually(t, 10*time.Second, "waits", func() bool { return r.locks.Waiting("l") == 1 })
	admin(t, r.redis, "REPLICAOF", "NO", "ONE")
	require.NoError(t, <-got)
}

func TestALoadingServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	r := newRig(t, s, rlock.Options{})
	s.Embedded.SetError("LOADING Redis is loading the dataset in memory")
	_, err := r.locks.Reentrant("l").TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrUnavailable)
	require.NotErrorIs(t, err, errs.ErrNotAcquired)
	time.AfterFunc(50*time.Millisecond, func() { s.Embedded.SetError("") })
	h := lock(t, r.locks.Reentrant("l"), within(t))
	require.NoError(t, h.Unlock(within(t)))
}

func TestAFullServerKeepsWhatIsHeldAndGrantsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{WatchdogTimeout: 3 * time.Second})
	h := lock(t, r.locks.Reentrant("held"), within(t))
	admin(t, r.redis, "CONFIG", "SET", "maxmemory", "1")
	_, err := r.locks.Reentrant("l").TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrUnavailable)
	require.ErrorContains(t, err, "OOM")
	first := h.Until()
	redistest.Eventually(t, 20*time.Second, "renewed", func() bool { return h.Until().After(first) })
	require.NoError(t, h.Unlock(within(t)))
	require.Empty(t, r.hash(t, "held"))
}

func TestNothingRunsAfterClose(t *testing.T) {
	r := newRig(t, redistest.Start(t), rlock.Options{})
	require.NoError(t, r.locks.Close(within(t)))
	before := goleak.IgnoreCurrent()
	locks, err := rlock.New(r.hub, rlock.Options{Logger: (&redistest.Logbook{}).Logger()})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 25 {
				ctx, cancel := context.WithTimeout(context.Background(), rand.N(10*time.Millisecond))
				if h, err := locks.Reentrant("l").Lock(ctx); err == nil {
					h.Unlock(ctx)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.NoError(t, locks.Close(within(t)))
	require.NoError(t, r.hub.Close(context.Background()))
	goleak.VerifyNone(t, before,
		// the client is still open: its connections are its own
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)._background"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)._backgroundRead"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)._backgroundWrite"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe).backgroundPing"),
	)
}

func init() { roles["busy holder"] = beBusyHolder }

// beBusyHolder holds 50 locks on one processor that other goroutines never leave alone. Each of them keeps it for 10 ms
// at a time, and for several times that where other processes want it too: a renewal takes some turns of all of them,
// and the lease must leave room for it.
func beBusyHolder() error {
	runtime.GOMAXPROCS(1)
	_, locks, err := connectRole(rlock.Options{WatchdogTimeout: 6 * time.Second, CallTimeout: 3 * time.Second})
	if err != nil {
		return err
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			for x := uint64(1); !stop.Load(); {
				for range 1_000_000 {
					x = x*6364136223846793005 + 1
				}
			}
		})
	}
	var holds []*rlock.Hold
	for i := range 50 {
		h, err := locks.Reentrant(fmt.Sprint("busy", i)).Lock(context.Background())
		if err != nil {
			return err
		}
		holds = append(holds, h)
	}
	end := holds[0].Until().Add(8 * time.Second) // four renewals of each
	for holds[0].Until().Before(end) && holds[0].Err() == nil {
		runtime.Gosched()
	}
	var lost []string
	for _, h := range holds {
		if err := h.Err(); err != nil {
			lost = append(lost, h.Name())
		}
	}
	stop.Store(true)
	wg.Wait()
	fmt.Fprintf(os.Stdout, "lost %d %s\n", len(lost), strings.Join(lost, " "))
	return nil
}

func TestNoHoldIsLostOnOneProcessorWithBusyNeighbours(t *testing.T) {
	redistest.InFull(t, "TestAHoldIsRenewedForAsLongAsItLasts")
	t.Parallel()
	c := redistest.Spawn(t, "busy holder", redistest.Start(t))
	require.Equal(t, "lost 0 ", c.Line(t))
}
