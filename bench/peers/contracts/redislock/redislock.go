// Package redislock has the types of github.com/bsm/redislock, made of Reentrant locks.
package redislock

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	peer "github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/bench/peers/contracts/rig"
	"github.com/redlatch/redlatch/rlock"
)

// What is the peer's own: its options, its errors, and the pauses of its polling, which are no more than a sum here.
type (
	// Options are the peer's.
	Options = peer.Options
	// RedisClient is the peer's.
	RedisClient = peer.RedisClient
	// RetryStrategy is the peer's.
	RetryStrategy = peer.RetryStrategy
)

// See Options.
var (
	ErrNotObtained = peer.ErrNotObtained
	ErrLockNotHeld = peer.ErrLockNotHeld
	LinearBackoff  = peer.LinearBackoff
	LimitRetry     = peer.LimitRetry
)

var (
	mu   sync.Mutex
	reds = map[string]*redlatch.Client{}
)

// locks is the client of ours on the server, and the database, of a go-redis client.
func locks(client RedisClient) (*rlock.Client, error) {
	o := client.(interface{ Options() *redis.Options }).Options()
	mu.Lock()
	defer mu.Unlock()
	at := fmt.Sprint(o.Addr, "/", o.DB)
	if reds[at] == nil {
		red, err := rig.OpenAt(rueidis.ClientOption{InitAddress: []string{o.Addr}, SelectDB: o.DB})
		if err != nil {
			return nil, err
		}
		reds[at] = red
	}
	return reds[at].Locks(), nil
}

// Client is the peer's.
type Client struct{ client RedisClient }

// New is the peer's.
func New(client RedisClient) *Client { return &Client{client} }

// Obtain is the peer's.
func Obtain(ctx context.Context, client RedisClient, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	return New(client).Obtain(ctx, key, ttl, opt)
}

// ObtainMulti is the peer's.
func ObtainMulti(ctx context.Context, client RedisClient, keys []string, ttl time.Duration,
	opt *Options) (*Lock, error) {
	return New(client).ObtainMulti(ctx, keys, ttl, opt)
}

// Obtain is the peer's.
func (c *Client) Obtain(ctx context.Context, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	return c.ObtainMulti(ctx, []string{key}, ttl, opt)
}

// ObtainMulti is the peer's. The token is the label of the owner, whose text is longer. A token that holds the lock
// already joins its hold. A ttl of less than 10 ms, which is refused, is taken for 10 ms.
func (c *Client) ObtainMulti(ctx context.Context, keys []string, ttl time.Duration, opt *Options) (*Lock, error) {
	in, err := locks(c.client)
	if err != nil {
		return nil, err
	}
	if opt == nil {
		opt = &Options{}
	}
	token := opt.Token
	if token == "" {
		random := make([]byte, 16)
		rand.Read(random)
		token = base64.RawURLEncoding.EncodeToString(random)
	}
	var all []*rlock.Lock
	for _, k := range keys {
		all = append(all, in.Reentrant(k).WithLabel(token))
	}
	lock := all[0]
	if len(all) > 1 {
		if lock, err = rlock.Multi(all...); err != nil {
			return nil, err
		}
	} else if state, err := lock.Inspect(ctx); err == nil && opt.Token != "" {
		for _, h := range state.Holders {
			if h.Label == token {
				ctx = lock.WithOwner(ctx, rlock.Owner(h.ID))
			}
		}
	}
	hold, err := lock.TryLock(ctx, patience(ctx, ttl, opt.RetryStrategy), max(ttl, 10*time.Millisecond))
	if errors.Is(err, redlatch.ErrNotAcquired) {
		if ctx.Err() != nil {
			return nil, errors.Join(ErrNotObtained, err)
		}
		return nil, ErrNotObtained
	}
	if err != nil {
		return nil, err
	}
	return &Lock{hold: hold, lock: lock, token: token, metadata: opt.Metadata}, nil
}

// patience is how long a strategy would go on asking.
func patience(ctx context.Context, ttl time.Duration, s RetryStrategy) (d time.Duration) {
	if s == nil {
		return 0
	}
	most := ttl
	if end, ok := ctx.Deadline(); ok {
		most = time.Until(end) + time.Minute // ctx ends first
	}
	for d < most {
		pause := s.NextBackoff()
		if pause < 1 {
			break
		}
		d += pause
	}
	return d
}

// Lock is the peer's.
type Lock struct {
	hold            *rlock.Hold
	lock            *rlock.Lock
	token, metadata string
}

// Token is the peer's.
func (l *Lock) Token() string { return l.token }

// Metadata is the peer's. Our server keeps a label only: metadata stays here.
func (l *Lock) Metadata() string { return l.metadata }

// TTL is the peer's.
func (l *Lock) TTL(ctx context.Context) (time.Duration, error) {
	if l.hold.Err() != nil {
		return 0, nil
	}
	state, err := l.lock.Inspect(ctx)
	return max(state.Lease, 0), err
}

// Refresh is the peer's.
func (l *Lock) Refresh(ctx context.Context, ttl time.Duration, _ *Options) error {
	err := l.hold.Extend(ctx, ttl)
	if errors.Is(err, redlatch.ErrLost) || errors.Is(err, redlatch.ErrReleased) {
		return ErrNotObtained
	}
	return err
}

// Release is the peer's. Where ours returns the first result again, the peer says that there is nothing to release.
func (l *Lock) Release(ctx context.Context) error {
	if l == nil {
		return ErrLockNotHeld
	}
	err := l.hold.Unlock(ctx)
	if errors.Is(err, redlatch.ErrLost) {
		return ErrLockNotHeld
	}
	return err
}
