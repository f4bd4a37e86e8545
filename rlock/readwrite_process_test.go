package rlock_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func init() { roles["reader"] = beReader }

// beReader reads until its input ends.
func beReader() error {
	lease, err := time.ParseDuration(os.Args[2])
	if err != nil {
		return err
	}
	_, locks, err := connectRole(rlock.Options{WatchdogTimeout: lease})
	if err != nil {
		return err
	}
	hold, err := locks.ReadWrite("l").Read().Lock(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("reads")
	io.Copy(io.Discard, os.Stdin)
	return hold.Unlock(context.Background())
}

func TestAKilledReaderKeepsAWriterOutOnlyForItsOwnLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const lease = 1200 * time.Millisecond
	r := newRig(t, s, rlock.Options{PollCap: 100 * time.Millisecond})
	rw := r.locks.ReadWrite("l")
	long := lock(t, rw.Read().WithLease(time.Hour), within(t))
	child := redistest.Spawn(t, "reader", s, lease.String())
	require.Equal(t, "reads", child.Line(t))
	child.Signal(t, syscall.SIGKILL)
	killed := time.Now()
	require.NoError(t, long.Unlock(within(t)))
	early, err := rw.Write().TryLock(within(t), 0, 0)
	if err == nil {
		require.NoError(t, early.Unlock(within(t)))
	}
	if time.Since(killed) < lease/4 { // it may have been renewed a third of the lease before
		require.ErrorIs(t, err, errs.ErrNotAcquired, "its lease is not over yet")
	}
	left := r.pttl(t, "l")
	require.LessOrEqual(t, left, lease, "the lock has its end, not that of the reader that left")
	w := lock(t, rw.Write(), within(t))
	require.Less(t, time.Since(killed), lease+8*time.Second)
	require.NoError(t, w.Unlock(within(t)))
	redistest.Eventually(t, 10*time.Second, "nothing is left", func() bool { return len(keys(t, r.redis)) == 0 })
}
