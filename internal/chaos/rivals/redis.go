package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	syncpool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/redlatch/redlatch/internal/chaos/cells"
)

var redisLibraries = []cells.Library{
	{
		Name: "redsync", Module: "github.com/go-redsync/redsync/v4",
		How: "go-redis pool, `NewMutex(WithExpiry)`, `Lock` with its default tries and delays, `Extend` at each third " +
			"of the lease, `Unlock`",
		Reports: "`Until`",
		Open:    openRedsync,
	},
	{
		Name: "redsync-quorum", Module: "github.com/go-redsync/redsync/v4", Servers: "Quorum of five",
		How:     "the same, with five go-redis pools",
		Reports: "`Until`",
		Open:    openRedsync,
	},
	{
		Name: "redislock", Module: "github.com/bsm/redislock",
		How: "go-redis client, `Obtain` with `LinearBackoff(50ms)`, the README's watchdog: `Refresh` at each third of the " +
			"lease, whose first " +
			"error cancels the work; `Release`",
		Reports: "the watchdog's context",
		Open:    openRedislock,
	},
	{
		Name: "rueidislock", Module: "github.com/redis/rueidis",
		How:     "the README's options (`KeyMajority` 1, `NoLoopTracking`), `KeyValidity`, `WithContext`, its `cancel`",
		Reports: "the context of `WithContext`",
		Open:    openRueidislock,
	},
}

// goRedis is a client of the server, or of the primary of a set.
func goRedis(s cells.Setup, addr string) *redis.Client {
	if s.Set != "" {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Set, SentinelAddrs: s.Addrs, Dialer: s.Dial})
	}
	return redis.NewClient(&redis.Options{Addr: addr, Dialer: s.Dial})
}

type redsyncLocker struct {
	sync    *redsync.Redsync
	lease   time.Duration
	clients []*redis.Client
}

func openRedsync(_ context.Context, s cells.Setup) (cells.Locker, error) {
	l := &redsyncLocker{lease: s.Lease}
	addrs := s.Addrs[:1]
	if s.Each {
		addrs = s.Addrs
	}
	var pools []syncpool.Pool
	for _, a := range addrs {
		c := goRedis(s, a)
		l.clients = append(l.clients, c)
		pools = append(pools, goredis.NewPool(c))
	}
	l.sync = redsync.New(pools...)
	return l, nil
}

func (l *redsyncLocker) Close() {
	for _, c := range l.clients {
		c.Close()
	}
}

func (l *redsyncLocker) Lock(ctx context.Context, name string) (cells.Held, error) {
	m := l.sync.NewMutex(name, redsync.WithExpiry(l.lease))
	var taken *redsync.ErrTaken
	switch err := m.LockContext(ctx); {
	case ctx.Err() != nil && err != nil:
		return nil, ctx.Err()
	case errors.Is(err, redsync.ErrFailed), errors.As(err, &taken):
		return nil, cells.ErrBusy
	case err != nil:
		return nil, err
	}
	h := &redsyncHold{mutex: m}
	h.note()
	h.extender = every(l.lease/3, func(ctx context.Context) bool {
		if ok, err := m.ExtendContext(ctx); ok && err == nil {
			h.note()
		}
		return true // it may succeed next time, until the lock has run out
	})
	return h, nil
}

// redsyncHold extends its mutex, which is not safe for concurrent use, and keeps what it said.
type redsyncHold struct {
	mutex    *redsync.Mutex
	until    atomic.Pointer[time.Time]
	extender *ticking
}

func (h *redsyncHold) note() {
	until := h.mutex.Until()
	h.until.Store(&until)
}

func (h *redsyncHold) Held() bool            { return time.Now().Before(*h.until.Load()) }
func (h *redsyncHold) Lost() <-chan struct{} { return nil }

func (h *redsyncHold) Release(ctx context.Context) error {
	h.extender.stop()
	ok, err := h.mutex.UnlockContext(ctx)
	var taken *redsync.ErrTaken
	switch {
	case ok:
		return nil
	case errors.Is(err, redsync.ErrLockAlreadyExpired), errors.As(err, &taken):
		return errors.Join(cells.ErrGone, err)
	case err == nil:
		return cells.ErrGone
	}
	return err
}

type redislockLocker struct {
	client *redis.Client
	locks  *redislock.Client
	lease  time.Duration
}

func openRedislock(_ context.Context, s cells.Setup) (cells.Locker, error) {
	c := goRedis(s, s.Addrs[0])
	return &redislockLocker{c, redislock.New(c), s.Lease}, nil
}

func (l *redislockLocker) Close() { l.client.Close() }

func (l *redislockLocker) Lock(ctx context.Context, name string) (cells.Held, error) {
	k, err := l.locks.Obtain(ctx, name, l.lease,
		&redislock.Options{RetryStrategy: redislock.LinearBackoff(50 * time.Millisecond)})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, redislock.ErrNotObtained):
		return nil, cells.ErrBusy
	case err != nil:
		return nil, err
	}
	work, cancel := context.WithCancel(context.Background())
	return &redislockHold{k, work, every(l.lease/3, func(ctx context.Context) bool {
		if err := k.Refresh(ctx, l.lease, nil); err != nil && ctx.Err() == nil {
			cancel()
			return false
		}
		return true
	}), cancel}, nil
}

type redislockHold struct {
	lock     *redislock.Lock
	work     context.Context
	watchdog *ticking
	cancel   context.CancelFunc
}

func (h *redislockHold) Held() bool            { return h.work.Err() == nil }
func (h *redislockHold) Lost() <-chan struct{} { return h.work.Done() }

func (h *redislockHold) Release(ctx context.Context) error {
	h.watchdog.cancel()
	h.cancel()
	err := h.lock.Release(ctx)
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return errors.Join(cells.ErrGone, err)
	}
	return err
}

type rueidislockLocker struct{ rueidislock.Locker }

func openRueidislock(_ context.Context, s cells.Setup) (cells.Locker, error) {
	o := rueidis.ClientOption{InitAddress: s.Addrs[:1],
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", s.By(addr))
		}}
	if s.Set != "" {
		o.InitAddress, o.Sentinel.MasterSet = s.Addrs, s.Set
	}
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: o, KeyMajority: 1, NoLoopTracking: true,
		KeyValidity: s.Lease})
	if err != nil {
		return nil, err
	}
	return rueidislockLocker{l}, nil
}

func (l rueidislockLocker) Lock(ctx context.Context, name string) (cells.Held, error) {
	work, cancel, err := l.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return rueidislockHold{work, cancel}, nil
}

type rueidislockHold struct {
	work   context.Context
	cancel context.CancelFunc
}

func (h rueidislockHold) Held() bool                    { return h.work.Err() == nil }
func (h rueidislockHold) Lost() <-chan struct{}         { return h.work.Done() }
func (h rueidislockHold) Release(context.Context) error { h.cancel(); return nil }

// ticking is a goroutine that does something again and again.
type ticking struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// every does it until it returns false, or stop.
func every(d time.Duration, do func(ctx context.Context) bool) *ticking {
	ctx, cancel := context.WithCancel(context.Background())
	t := &ticking{cancel: cancel}
	t.done.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if !do(ctx) {
				return
			}
		}
	})
	return t
}

// stop returns when it does it no more.
func (t *ticking) stop() {
	t.cancel()
	t.done.Wait()
}
