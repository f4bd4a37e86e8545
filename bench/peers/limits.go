package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// limit asks for a unit of one key.
type limit func(ctx context.Context) (allowed bool, err error)

// plentiful is a rate a second at which nothing is refused.
const plentiful = 1_000_000_000

var limitPeers = []Peer{
	limits("raw script", "github.com/redis/rueidis", "the generic cell rate algorithm, in one script", plainLimit),
	limits("Limiter.Allow", here, "ratelimit, defaults", redlatchLimit),
	limits("redis_rate", "github.com/go-redis/redis_rate/v10", "go-redis", redisRate),
	limits("throttled", "github.com/throttled/throttled/v2", "go-redis; compare and set, ten tries", throttledLimit),
	limits("ulule", "github.com/ulule/limiter/v3", "go-redis; a fixed window", ululeLimit),
}

type openLimit func(s Setup, rate int64) (ask limit, end func(), err error)

// openLimits has the peers' limits by name, for the test that they do limit.
var openLimits = map[string]openLimit{}

func limits(name, module, how string, open openLimit) Peer {
	openLimits[name] = open
	return Peer{name, module, how, []string{limiting}, func(_ context.Context, s Setup) (Locker, error) {
		ask, end, err := open(s, plentiful)
		if err != nil {
			return nil, err
		}
		return &calls{close: end, do: func(ctx context.Context, _ int64) error {
			allowed, err := ask(ctx)
			if err == nil && !allowed {
				err = errors.New("refused")
			}
			return err
		}}, nil
	}}
}

func plainLimit(s Setup, rate int64) (limit, func(), error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Redis}})
	if err != nil {
		return nil, nil, err
	}
	ask := load.RawLimit(c, max(1, 1_000_000/rate), rate)
	return func(ctx context.Context) (bool, error) { return ask(ctx, "k") }, c.Close, nil
}

func redlatchLimit(s Setup, rate int64) (limit, func(), error) {
	hub, err := dial(s)
	if err != nil {
		return nil, nil, err
	}
	end := func() { hub.Close(context.Background()) }
	c, err := ratelimit.New(hub, ratelimit.Options{AllowTimeout: 10 * time.Second})
	if err != nil {
		end()
		return nil, nil, err
	}
	l := c.Limiter("limit", ratelimit.LimiterOptions{Rate: rate})
	return func(ctx context.Context) (bool, error) {
		a, err := l.Allow(ctx, "k", 1)
		return a.Allowed, err
	}, end, nil
}

func redisRate(s Setup, rate int64) (limit, func(), error) {
	c := goRedis(s)
	l := redis_rate.NewLimiter(c)
	return func(ctx context.Context) (bool, error) {
		r, err := l.Allow(ctx, "k", redis_rate.PerSecond(int(rate)))
		return err == nil && r.Allowed > 0, err
	}, func() { c.Close() }, nil
}

func throttledLimit(s Setup, rate int64) (limit, func(), error) {
	c := goRedis(s)
	store, err := goredisstore.NewCtx(c, "throttled:")
	if err != nil {
		return nil, nil, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(store,
		throttled.RateQuota{MaxRate: throttled.PerSec(int(rate)), MaxBurst: int(rate)})
	return func(ctx context.Context) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, "k", 1)
		return !limited, err
	}, func() { c.Close() }, err
}

func ululeLimit(s Setup, rate int64) (limit, func(), error) {
	c := goRedis(s)
	store, err := ulule.NewStore(c)
	if err != nil {
		return nil, nil, err
	}
	l := limiter.New(store, limiter.Rate{Period: time.Second, Limit: rate})
	return func(ctx context.Context) (bool, error) {
		x, err := l.Get(ctx, "k")
		return !x.Reached, err
	}, func() { c.Close() }, nil
}
