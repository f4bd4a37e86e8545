package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

// denied is a rig whose user "app" is told afterwards, by rights, what it may not do.
func denied(t *testing.T, o rlock.Options) (r *rig, rights func(rules ...string)) {
	t.Helper()
	s := redistest.Start(t)
	root := s.Client(t)
	rights = func(rules ...string) {
		wire.Must(t, root, append([]string{"ACL", "SETUSER", "app"}, rules...)...)
	}
	rights("on", "nopass", "~*", "&*", "+@all")
	r = newRigWith(t, s, o, func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "any" })
	r.redis = root
	return r, rights
}

func TestLock_RightMissing_IsNamedByTheError(t *testing.T) {
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

// A client whose user lacks the right to scripts asks again and again, it may be.
func TestLock_DeniedBeforeItBegan_OwesNoRelease(t *testing.T) {
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
