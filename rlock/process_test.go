package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

func init() {
	roles["careful holder"] = beCarefulHolder
}

func connectRole(o rlock.Options) (rueidis.Client, *rlock.Client, error) {
	c, hub, err := wire.Role()
	if err != nil {
		return nil, nil, err
	}
	o.RetryTimeout = redistest.Retries(o.CallTimeout)
	locks, err := rlock.New(hub, o)
	return c, locks, err
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
func TestHolder_StoppedBeyondItsLease_DoesNotActAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{CallTimeout: 10 * time.Second})
	holder := redistest.Spawn(t, "careful holder", s, "1s")
	var token, acted int64
	_, err := fmt.Sscanf(holder.Line(t), "held %d", &token)
	require.NoError(t, err)
	var h *rlock.Hold
	redistest.Eventually(t, time.Minute, "the lease of the first is over", func() bool {
		holder.Signal(t, redistest.SigStop) // again: whoever stops all processes of a busy machine lets them go on together
		h, err = r.locks.Fenced("l").TryLock(within(t), 200*time.Millisecond, 0)
		return err == nil
	})
	acquired := time.Now()
	next, ok := h.Token()
	require.True(t, ok)
	require.Greater(t, next, token, "what the first holder still sends can be told from what the second one does")
	holder.Signal(t, redistest.SigCont)
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
