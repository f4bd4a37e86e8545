package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func init() { roles["participant"] = beParticipant }

// beParticipant counts a latch down, again and again, as one participant.
func beParticipant() error {
	_, c, err := connectRole(patient)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for range 3 {
		if _, err := c.CountDownLatch(os.Args[2]).CountDownBy(context.Background(), os.Args[3]); err != nil &&
			!errors.Is(err, rsemaphore.ErrLatchExpired) {
			return err
		}
	}
	fmt.Println("counted")
	select {}
}

// Random histories over a network that fails, with a participant that is killed at some moment and started again:
// however often each repeats itself, the latch opens when the last has counted and no earlier, for everybody; and if
// one never comes, it opens for nobody.
func TestLatchHistoriesUnderFaultsOpenForAllWhenAllHaveCounted(t *testing.T) {
	t.Parallel()
	redistest.InFull(t, "TestLatchKeepsToItsModel")
	srv := redistest.Start(t)
	direct := newRig(t, srv, patient)
	var proxies []*redistest.Proxy
	var rigs []*rig
	for range 3 {
		p := redistest.NewProxy(t, srv)
		proxies = append(proxies, p)
		rigs = append(rigs, newRig(t, p.Server(),
			rsemaphore.Options{CallTimeout: 50 * time.Millisecond, PollCap: 50 * time.Millisecond}))
	}
	const participants, waiters = 9, 12
	rounds := redistest.Sized(2, 4, 12)
	var inflicted, repeated atomic.Int64
	for round := range rounds {
		complete := round%2 == 0
		name := "l" + strconv.Itoa(round)
		ttl := time.Hour
		if !complete {
			ttl = 1500 * time.Millisecond
		}
		set := false
		for try := 0; !set; try++ {
			ok, err := rigs[0].c.CountDownLatch(name).TrySetCount(within(t), participants, ttl)
			if err == nil {
				require.True(t, ok || try > 0)
				set = true
			}
		}
		rnd := rand.New(rand.NewPCG(21, uint64(round)))
		var began atomic.Int64 // participants that have begun to count
		stop, done := context.WithCancel(context.Background())
		var work, faults sync.WaitGroup
		faults.Go(func() {
			rnd := rand.New(rand.NewPCG(22, uint64(round)))
			for stop.Err() == nil {
				breakNetwork(proxies[rnd.IntN(len(proxies))], rnd, name)
				inflicted.Add(1)
			}
		})
		for i := range waiters {
			rnd := rand.New(rand.NewPCG(23, uint64(100*round+i)))
			work.Go(func() {
				latch := rigs[i%len(rigs)].c.CountDownLatch(name)
				for {
					ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
					if i%2 == 1 { // and asks again
						cancel()
						ctx, cancel = context.WithTimeout(context.Background(), time.Duration(rnd.IntN(5000))*time.Microsecond)
						if rnd.IntN(2) == 0 {
							ctx, cancel = context.WithCancel(context.Background())
							time.AfterFunc(time.Duration(rnd.IntN(5000))*time.Microsecond, cancel)
						}
					}
					err := latch.Await(ctx)
					left := i%2 == 1 && ctx.Err() != nil
					cancel()
					switch {
					case err == nil && began.Load() != participants:
						t.Errorf("round %d: open with %d of %d", round, began.Load(), participants)
					case err == nil && complete, errors.Is(err, rsemaphore.ErrLatchExpired) && !complete:
					case rsemaphoreRetryable(err) ||
						left && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
						continue
					default:
						t.Errorf("round %d: %v", round, err)
					}
					return
				}
			})
		}
		for i := range participants - 1 {
			wait := time.Duration(rnd.IntN(200)) * time.Millisecond
			if i == 0 && !complete {
				continue // never comes
			}
			work.Go(func() {
				time.Sleep(wait)
				began.Add(1)
				l := rigs[i%len(rigs)].c.CountDownLatch(name)
				for n := 0; n < 3; { // says it three times
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rand.IntN(15))*time.Millisecond)
					_, err := l.CountDownBy(ctx, strconv.Itoa(i))
					cancel()
					switch {
					case err == nil:
						n++
					case errors.Is(err, rsemaphore.ErrLatchExpired):
						return
					default:
						repeated.Add(1)
					}
				}
			})
		}
		killed := redistest.Spawn(t, "participant", srv, name, "killed")
		require.Equal(t, "ready", killed.Line(t))
		began.Add(1)
		time.Sleep(time.Duration(rnd.IntN(3000)) * time.Microsecond)
		killed.Signal(t, syscall.SIGKILL)
		again := redistest.Spawn(t, "participant", srv, name, "killed")
		require.Equal(t, "ready", again.Line(t))
		require.Equal(t, "counted", again.Line(t))
		work.Wait()
		done()
		faults.Wait()
		if complete {
			require.EqualValues(t, 0, direct.number(t, "EXISTS", name))
		}
	}
	t.Logf("%d faults, %d count-downs repeated after an error", inflicted.Load(), repeated.Load())
	require.Greater(t, inflicted.Load(), int64(20))
	require.Positive(t, repeated.Load())
	for _, r := range rigs {
		require.Zero(t, r.c.Shared())
		require.Zero(t, r.c.Lines())
	}
}

func rsemaphoreRetryable(err error) bool {
	return errors.Is(err, errs.ErrUnavailable) || errors.Is(err, errs.ErrUnknownOutcome)
}
