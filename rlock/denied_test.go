package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// denied is a rig whose user "app" is told afterwards, by rights, what it may not do.
func denied(t *testing.T, o rlock.Options) (r *rig, rights func(rules ...string)) {
	t.Helper()
	s := redistest.Start(t)
	root := s.Client(t)
	rights = func(rules ...string) {
		admin(t, root, append([]string{"ACL", "SETUSER", "app"}, rules...)...)
	}
	rights("on", "nopass", "~*", "&*", "+@all")
	r = newRigWith(t, s, o, func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "any" })
	r.redis = root
	return r, rights
}

func TestAMissingRightIsDeniedByEveryVerbAndNamed(t *testing.T) {
	t.Parallel()
	r, rights := denied(t, rlock.Options{})
	l := r.locks.Reentrant("l")
	h := lock(t, l, within(t))
	began := time.Now()
	for _, x := range []struct {
		without, with, says string
		call                func() error
	}{
		{"-evalsha", "+evalsha", "lacks +evalsha", func() error {
			_, err := r.locks.Reentrant("other").Lock(within(t))
			return err
		}},
		{"-hset", "+hset", "lacks +hset", func() error { _, err := r.locks.Reentrant("other").Lock(within(t)); return err }},
		{"-pexpire", "+pexpire", "lacks +pexpire", func() error {
			_, err := l.WithLease(time.Hour).Lock(h.Context(within(t)))
			return err
		}},
		{"-pexpire", "+pexpire", "lacks +pexpire", func() error { return h.Extend(within(t), time.Hour) }},
		{"-hgetall", "+hgetall", "lacks ", func() error { _, err := l.Inspect(within(t)); return err }},
		{"-hlen", "+hlen", "lacks ", func() error { _, err := l.IsLocked(within(t)); return err }},
		{"-hdel", "+hdel", "lacks +hdel", func() error { return h.Unlock(within(t)) }},
	} {
		rights(x.without)
		err := x.call()
		require.ErrorIs(t, err, errs.ErrDenied, x.without)
		require.NotErrorIs(t, err, errs.ErrUnavailable, x.without)
		require.ErrorContains(t, err, x.says)
		rights(x.with)
	}
	require.Less(t, time.Since(began), 25*time.Second, "nothing waits for a right")
	require.ErrorIs(t, h.Err(), errs.ErrReleased)
}

// Without +pexpire the script takes the lock and cannot give it an end.
func TestALockTakenByHalfForWantOfARightIsGivenBack(t *testing.T) {
	t.Parallel()
	r, rights := denied(t, rlock.Options{})
	rights("-pexpire")
	_, err := r.locks.Reentrant("l").Lock(within(t))
	require.ErrorIs(t, err, errs.ErrDenied)
	both, err := rlock.Multi(r.locks.Reentrant("m"), r.locks.Reentrant("n"))
	require.NoError(t, err)
	_, err = both.Lock(within(t))
	require.ErrorIs(t, err, errs.ErrDenied)
	redistest.Eventually(t, 10*time.Second, "nothing is left", func() bool {
		n, err := r.redis.Do(within(t), r.redis.B().Exists().Key("l", "m", "n").Build()).AsInt64()
		return err == nil && n == 0
	})
}

func TestAHoldWithDeniedRenewalsIsLostUnlessTheRightIsBack(t *testing.T) {
	redistest.InFull(t, "TestARefusedRenewalIsTriedUntilTheDeadline")
	t.Parallel()
	renewals := make(chan error, 1000)
	r, rights := denied(t,
		rlock.Options{WatchdogTimeout: 6 * time.Second, Observer: heeding(rlock.EventRenewed, func(e rlock.Event) {
			renewals <- e.Err
		})})
	h := lock(t, r.locks.Reentrant("l"), within(t))
	next := func(good bool) error {
		for {
			select {
			case err := <-renewals:
				if err == nil == good {
					return err
				}
			case <-h.Done():
				t.Fatal("lost meanwhile")
			}
		}
	}
	// the script calls the second so that one bad key does not hide the others
	for _, right := range []string{"pexpire", "hmget"} {
		rights("-" + right)
		require.ErrorIs(t, next(false), errs.ErrDenied, right)
		if right == "hmget" {
			require.ErrorIs(t, h.Extend(within(t), time.Second), errs.ErrDenied)
		}
		rights("+" + right)
		require.NoError(t, next(true))
		require.NoError(t, h.Err())
	}
	rights("-pexpire")
	<-h.Done()
	require.ErrorIs(t, h.Err(), errs.ErrLost)
}

// A client whose user lacks the right to scripts asks again and again, it may be.
func TestWhatWasDeniedBeforeItBeganIsNotReleased(t *testing.T) {
	t.Parallel()
	r, rights := denied(t, rlock.Options{})
	rights("-evalsha", "-eval")
	for _, name := range []string{"l", "m", "n"} {
		_, err := r.locks.Reentrant(name).TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, errs.ErrDenied)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, r.locks.Close(ctx), "nothing is owed")
	require.Less(t, time.Since(began), 10*time.Second)
}
