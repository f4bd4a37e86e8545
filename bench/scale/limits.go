package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/bench/internal/results"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// limits says what a key of a rate limit takes of the server while its unit counts; how long another client waits for
// the server while so many are asked for, and while all of them end at one time; and that nothing is left.
func limits(ctx context.Context, s *scene, row *results.Row) error {
	hub, err := pubsub.Dial(rueidis.ClientOption{InitAddress: []string{s.addr}},
		pubsub.Options{Grace: grace, CallTimeout: time.Minute})
	if err != nil {
		return err
	}
	c, err := ratelimit.New(hub, ratelimit.Options{AllowTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	l := c.Limiter("api", ratelimit.LimiterOptions{Rate: 1, Per: 24 * time.Hour})
	allow := func(i int) error {
		a, err := l.Allow(ctx, "user:"+strconv.Itoa(1_000_000_000+i), 1)
		if err == nil && !a.Allowed {
			err = fmt.Errorf("key %d: %+v", i, a)
		}
		return err
	}
	if err := allow(-1); err != nil { // scripts, connections
		return err
	}
	before, err := s.look(ctx)
	if err != nil {
		return err
	}
	if err := s.pings(ctx, row, "idle", func() error { return pause(ctx, 3*time.Second) }); err != nil {
		return err
	}
	if err := s.pings(ctx, row, "fill", func() error { return many(ctx, row.Workers, allow) }); err != nil {
		return err
	}
	during, err := s.look(ctx)
	if err != nil {
		return err
	}
	done(row, before, during, row.Workers)
	there(row, before, during)
	end := time.Now().Add(time.Second + time.Duration(row.Workers)*20*time.Microsecond)
	if err := s.endAt(ctx, end); err != nil {
		return err
	}
	if err := pause(ctx, time.Until(end)-time.Second); err != nil {
		return err
	}
	began := time.Now()
	// that of -1, too
	if err := s.pings(ctx, row, "end", func() error { return s.until(ctx, before.keys-1) }); err != nil {
		return err
	}
	fmt.Fprintf(s.progress, "  all have ended within %v\n", time.Since(began).Round(time.Second))
	before.keys--
	if err := s.left(ctx, row, before); err != nil {
		return err
	}
	return errors.Join(c.Close(ctx), hub.Close(ctx))
}

// pings does something, and notes how long another client waits for PONG meanwhile, asking without a pause, and for a
// second after that.
func (s *scene) pings(ctx context.Context, row *results.Row, what string, do func() error) error {
	stop, said := make(chan struct{}), make(chan error, 1)
	var all load.Histogram
	worst := time.Duration(0)
	go func() {
		for {
			at := time.Now()
			if err := s.redis.Do(ctx, s.redis.B().Ping().Build()).Error(); err != nil {
				said <- err
				return
			}
			took := time.Since(at)
			all.Add(took)
			worst = max(worst, took)
			select {
			case <-stop:
				said <- nil
				return
			default:
			}
		}
	}()
	err := errors.Join(do(), pause(ctx, time.Second))
	close(stop)
	err = errors.Join(err, <-said)
	note(row, "ping_"+what+"_ms", worst.Seconds()*1000)
	note(row, "ping_"+what+"_p99_ms", all.Quantile(.99).Seconds()*1000)
	fmt.Fprintf(s.progress, "  PING, %s: %v at worst, %v in the 99th percentile\n", what, worst, all.Quantile(.99))
	return err
}

// endAt has all keys end at one time.
func (s *scene) endAt(ctx context.Context, end time.Time) error {
	for cursor := uint64(0); ; {
		e, err := s.redis.Do(ctx, s.redis.B().Scan().Cursor(cursor).Count(1000).Build()).AsScanEntry()
		if err != nil {
			return err
		}
		var all rueidis.Commands
		for _, key := range e.Elements {
			all = append(all, s.redis.B().Pexpireat().Key(key).MillisecondsTimestamp(end.UnixMilli()).Build())
		}
		for _, r := range s.redis.DoMulti(ctx, all...) {
			if err := r.Error(); err != nil {
				return err
			}
		}
		if cursor = e.Cursor; cursor == 0 {
			return nil
		}
	}
}

// until waits until the server has so many keys.
func (s *scene) until(ctx context.Context, keys int64) error {
	for {
		n, err := objects(ctx, s.redis)
		if err != nil || n <= keys {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
