package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/results"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// remember is the shortest that a stock takes.
const remember = time.Minute

// bigSale is a stock with many reservations.
type bigSale struct {
	*scene
	row   *results.Row
	stock *stock.Stock
	last  snapshot
}

// reservations says what a reservation takes of the server while it is held, when it is sold, when it was cancelled,
// and when it was forgotten after that; and for how long another client waits for the server when the sale with all of
// them ends.
func reservations(ctx context.Context, s *scene, row *results.Row) error {
	hub, err := pubsub.Dial(ctx, rueidis.ClientOption{InitAddress: []string{s.addr}},
		pubsub.Options{Grace: grace, CallTimeout: time.Minute})
	if err != nil {
		return err
	}
	c, err := stock.New(hub, stock.Options{CallTimeout: 6 * time.Second})
	if err != nil {
		return err
	}
	before, err := s.look(ctx)
	if err != nil {
		return err
	}
	b := &bigSale{scene: s, row: row, stock: c.Stock("sale")}
	_, err = b.stock.Open(ctx,
		stock.Spec{Limit: 1 << 40, OpenFor: 24 * time.Hour, Retain: time.Second, Remember: remember})
	if err != nil {
		return err
	}
	if err := b.fill(ctx); err != nil {
		return err
	}
	if err := b.ends(ctx, before.keys); err != nil {
		return err
	}
	if err := s.left(ctx, row, before); err != nil {
		return err
	}
	return errors.Join(c.Close(ctx), hub.Close(ctx))
}

func (b *bigSale) reserve(ctx context.Context, name string, i int) error {
	g, err := b.stock.Reserve(ctx, fmt.Sprintf("user%08d%s", i, name[:1]),
		stock.Request{ID: fmt.Sprintf("%s-%08d", name, i), N: 1}, 20*time.Hour)
	if err == nil && g.Outcome != stock.Granted {
		err = fmt.Errorf("reserve: %v", g.Outcome)
	}
	return err
}

func (b *bigSale) cancel(ctx context.Context, name string, i int) error {
	_, err := b.stock.Cancel(ctx, fmt.Sprintf("%s-%08d", name, i))
	return err
}

// more notes how much one of so many takes: as much as it took, and what came since the last look.
func (b *bigSale) more(ctx context.Context, what string, of int, took float64) (float64, error) {
	x, err := b.look(ctx)
	if err != nil {
		return 0, err
	}
	took += float64(x.server-b.last.server) / float64(of)
	b.last = x
	note(b.row, what, took)
	fmt.Fprintf(b.progress, "  %s: %.0f bytes\n", what, took)
	return took, nil
}

// fill reserves all, confirms half of them, and cancels the others.
func (b *bigSale) fill(ctx context.Context) (err error) {
	n := b.row.Workers
	half := max(n/2, 1)
	if b.last, err = b.look(ctx); err != nil {
		return err
	}
	began := b.last
	if err := many(ctx, n, func(i int) error { return b.reserve(ctx, "order", i) }); err != nil {
		return err
	}
	held, err := b.more(ctx, "held", n, 0)
	if err != nil {
		return err
	}
	if err := many(ctx, half, func(i int) error {
		_, err := b.stock.Confirm(ctx, fmt.Sprintf("order-%08d", i))
		return err
	}); err != nil {
		return err
	}
	if _, err := b.more(ctx, "sold", half, held); err != nil {
		return err
	}
	if err := many(ctx, n-half, func(i int) error { return b.cancel(ctx, "order", half+i) }); err != nil {
		return err
	}
	ended, err := b.more(ctx, "ended", n-half, held)
	if err != nil {
		return err
	}
	done(b.row, began, b.last, 2*n)
	if n < 100_000 { // of so few it would say nothing, and take a minute
		return nil
	}
	fmt.Fprintf(b.progress, "  waiting for %v, until what has ended may be forgotten\n", remember)
	if err := pause(ctx, remember+time.Second); err != nil {
		return err
	}
	for i := range n/50 + 10 { // each call forgets some
		if err := errors.Join(b.reserve(ctx, "later", i), b.cancel(ctx, "later", i)); err != nil {
			return err
		}
	}
	_, err = b.more(ctx, "forgotten", n-half, ended)
	return err
}

// ends ends the sale, which leaves so many keys.
func (b *bigSale) ends(ctx context.Context, keys int64) error {
	idle, err := b.worst(ctx, 3*time.Second, nil)
	if err != nil {
		return err
	}
	if err := b.stock.Change(ctx, stock.Change{EndIn: stock.In(0)}); err != nil {
		return err
	}
	ends, err := b.worst(ctx, time.Minute, func() (bool, error) {
		if _, err := b.stock.Reap(ctx); err != nil { // as KeepReaped does
			return false, err
		}
		n, err := objects(ctx, b.redis)
		return n == keys, err
	})
	note(b.row, "ping_idle_ms", idle.Seconds()*1000)
	note(b.row, "ping_end_ms", ends.Seconds()*1000)
	return err
}

// many is each with as many at a time as share calls well.
func many(ctx context.Context, n int, f func(i int) error) error {
	const width = 8
	return each(ctx, (n+width-1)/width, func(i int) error {
		errs := make(chan error, width)
		for k := range width {
			go func() {
				if j := i*width + k; j < n {
					errs <- f(j)
				} else {
					errs <- nil
				}
			}()
		}
		var all error
		for range width {
			all = errors.Join(all, <-errs)
		}
		return all
	})
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// worst is the longest that another client has waited for PONG, asking without a pause, for that long or until over
// says so, and some time after that.
func (s *scene) worst(ctx context.Context, most time.Duration,
	over func() (bool, error)) (worst time.Duration, err error) {
	stop, said := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			at := time.Now()
			if err := s.redis.Do(ctx, s.redis.B().Ping().Build()).Error(); err != nil {
				said <- err
				return
			}
			worst = max(worst, time.Since(at))
			select {
			case <-stop:
				said <- nil
				return
			default:
			}
		}
	}()
	for began := time.Now(); over != nil && err == nil && time.Since(began) < most; {
		var ok bool
		if ok, err = over(); ok {
			break
		}
		err = errors.Join(err, pause(ctx, 50*time.Millisecond))
	}
	if over == nil {
		err = pause(ctx, most)
	} else {
		err = errors.Join(err, pause(ctx, 3*time.Second)) // the server frees in the background
	}
	close(stop)
	return worst, errors.Join(err, <-said)
}
