package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

func init() {
	roles["adder"] = beAdder
	roles["holder"] = beHolder
	roles["careful holder"] = beCarefulHolder
}

func connectRole(o rlock.Options) (rueidis.Client, *rlock.Client, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{os.Args[1]}})
	if err != nil {
		return nil, nil, err
	}
	hub, err := pubsub.New(c, pubsub.Options{})
	if err != nil {
		return nil, nil, err
	}
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	locks, err := rlock.New(hub, o)
	return c, locks, err
}

// beAdder adds to a number under the lock, from many goroutines, with a read and a write of its own for each: anything
// that comes in between is lost.
func beAdder() error {
	goroutines, _ := strconv.Atoi(os.Args[2])
	rounds, _ := strconv.Atoi(os.Args[3])
	c, locks, err := connectRole(rlock.Options{})
	if err != nil {
		return err
	}
	ctx := context.Background()
	add := func(ctx context.Context) error {
		inside, err := c.Do(ctx, c.B().Incr().Key("inside").Build()).AsInt64()
		if err != nil || inside != 1 {
			return fmt.Errorf("%d inside at once (%s)", inside, fmt.Sprint(err))
		}
		n, err := c.Do(ctx, c.B().Get().Key("sum").Build()).AsInt64()
		if err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
		if err := c.Do(ctx, c.B().Set().Key("sum").Value(strconv.FormatInt(n+1, 10)).Build()).Error(); err != nil {
			return err
		}
		return c.Do(ctx, c.B().Decr().Key("inside").Build()).Error()
	}
	failed := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range rounds {
				if err := locks.Reentrant("l").Do(ctx, add); err != nil {
					failed[g] = err
					return
				}
			}
		})
	}
	wg.Wait()
	fmt.Println("done")
	return errors.Join(failed...)
}

// beHolder holds the lock, says so, and says when it is told that the hold is over.
func beHolder() error {
	lease, err := time.ParseDuration(os.Args[2])
	if err != nil {
		return err
	}
	_, locks, err := connectRole(rlock.Options{WatchdogTimeout: lease})
	if err != nil {
		return err
	}
	hold, err := locks.Reentrant("l").Lock(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("held")
	gone := make(chan struct{})
	go func() { io.Copy(io.Discard, os.Stdin); close(gone) }()
	select {
	case <-hold.Done():
		fmt.Println("over:", hold.Err(), "unlock:", hold.Unlock(context.Background()))
	case <-gone:
	}
	return nil
}

func TestAHundredGoroutinesInFourProcessesExclude(t *testing.T) {
	s := redistest.Start(t)
	const processes, goroutines, rounds = 4, 25, 5
	children := make([]*redistest.Child, processes)
	for i := range children {
		children[i] = redistest.Spawn(t, "adder", s, strconv.Itoa(goroutines), strconv.Itoa(rounds))
	}
	for _, c := range children {
		require.Equal(t, "done", c.Line(t))
		require.NoError(t, c.Cmd.Wait())
	}
	c := s.Client(t)
	sum, err := c.Do(within(t), c.B().Get().Key("sum").Build()).AsInt64()
	require.NoError(t, err)
	require.EqualValues(t, processes*goroutines*rounds, sum)
}

func TestAKilledHolderBlocksForItsLeaseAndNoLonger(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	holder := redistest.Spawn(t, "holder", s, "1200ms")
	require.Equal(t, "held", holder.Line(t))
	holder.Signal(t, syscall.SIGKILL)
	_, err := r.locks.Reentrant("l").TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	began := time.Now()
	left := r.pttl(t, "l")
	h := lock(t, r.locks.Reentrant("l"), within(t))
	require.Greater(t, time.Since(began), left-50*time.Millisecond, "not before its lease is over")
	require.Less(t, time.Since(began), 10*time.Second)
	require.NoError(t, h.Unlock(within(t)))
}

func TestAStoppedHolderIsToldWhenItRunsAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	holder := redistest.Spawn(t, "holder", s, "500ms")
	require.Equal(t, "held", holder.Line(t))
	holder.Signal(t, syscall.SIGSTOP)
	h := lock(t, r.locks.Reentrant("l"), within(t))
	holder.Signal(t, syscall.SIGCONT)
	over := holder.Line(t)
	require.True(t, strings.HasPrefix(over, "over: lost unlock:") && strings.HasSuffix(over, "lost"), over)
	require.Equal(t, map[string]string{string(h.Owner()): "1"}, r.hash(t, "l"),
		"its late unlock touches nobody else's hold")
	require.NoError(t, h.Unlock(within(t)))
}

// A process whose goroutines all stand still for 100 ms again and again, as in the pauses of a garbage collector, keeps
// its hold: a renewal is due at a third of the lease, and what it needs fits between the pauses.
func TestAHolderThatPausesAgainAndAgainKeepsItsHold(t *testing.T) {
	redistest.InFull(t, "TestAHoldIsRenewedForAsLongAsItLasts")
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{CallTimeout: 10 * time.Second})
	holder := redistest.Spawn(t, "holder", s, "6s")
	require.Equal(t, "held", holder.Line(t))
	owners := r.hash(t, "l")
	for began := time.Now(); time.Since(began) < 9*time.Second; { // half as long again as its lease
		holder.Signal(t, syscall.SIGSTOP)
		time.Sleep(100 * time.Millisecond)
		holder.Signal(t, syscall.SIGCONT)
		_, err := r.locks.Reentrant("l").TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		time.Sleep(100 * time.Millisecond)
	}
	require.Equal(t, owners, r.hash(t, "l"), "it never let go")
}

// beCarefulHolder has one processor and looks, before each step of its work, whether it may still act: as the package
// says, that there is no error and that it is before Until. It says when it last might.
func beCarefulHolder() error {
	runtime.GOMAXPROCS(1)
	lease, err := time.ParseDuration(os.Args[2])
	if err != nil {
		return err
	}
	_, locks, err := connectRole(rlock.Options{WatchdogTimeout: lease, CallTimeout: lease})
	if err != nil {
		return err
	}
	hold, err := locks.Fenced("l").Lock(context.Background())
	if err != nil {
		return err
	}
	token, _ := hold.Token()
	work := hold.Context(context.Background())
	fmt.Println("held", token)
	var acted time.Time
	for now := time.Now(); hold.Err() == nil && now.Before(hold.Until()); now = time.Now() {
		acted = now
		time.Sleep(time.Millisecond)
	}
	<-work.Done()
	fmt.Println("acted", acted.UnixNano(), context.Cause(work),
		errors.Is(hold.Unlock(context.Background()), errs.ErrLost))
	return nil
}

// However soon after its pause a process looks, it sees that it may not act: no goroutine of the library has to run
// first.
func TestAHolderStoppedBeyondItsLeaseDoesNotActAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{CallTimeout: 10 * time.Second})
	holder := redistest.Spawn(t, "careful holder", s, "1s")
	var token, acted int64
	_, err := fmt.Sscanf(holder.Line(t), "held %d", &token)
	require.NoError(t, err)
	var h *rlock.Hold
	redistest.Eventually(t, time.Minute, "the lease of the first is over", func() bool {
		holder.Signal(t, syscall.SIGSTOP) // again: whoever stops all processes of a busy machine lets them go on together
		h, err = r.locks.Fenced("l").TryLock(within(t), 200*time.Millisecond, 0)
		return err == nil
	})
	acquired := time.Now()
	next, ok := h.Token()
	require.True(t, ok)
	require.Greater(t, next, token, "what the first holder still sends can be told from what the second one does")
	holder.Signal(t, syscall.SIGCONT)
	var cause string
	var lost bool
	line := holder.Line(t)
	_, err = fmt.Sscanf(line, "acted %d %s %t", &acted, &cause, &lost)
	require.NoError(t, err, line)
	require.Less(t, acted, acquired.UnixNano(), "it acted while somebody else held the lock")
	require.Equal(t, "lost", cause)
	require.True(t, lost, "its unlock says so, too")
	require.NoError(t, h.Err())
	require.NoError(t, h.Unlock(within(t)))
}
