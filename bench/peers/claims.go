package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
)

// There is no other Go library in which the first N win. The peers are commands, and what is written by hand.
var claimPeers = []Peer{
	claims("raw INCR", "github.com/redis/rueidis", "INCR through rueidis: counts, and never says no", rawIncr),
	claims("raw claim script", "github.com/redis/rueidis", "the shortest script that gives each claimant one unit",
		floorOf(load.RawClaim)),
	claims("raw reserve, confirm scripts", "github.com/redis/rueidis",
		"two short scripts: no hold expires, and no claimant has a limit", floorOf(load.RawReserve)),
	claims("Counter.Incr", here, "rcounter, no bounds", counterIncr),
	claims("Sale.Buy", here, "a new user each time, all sold", ofSale(
		func(ctx context.Context, s *stock.Sale, id string) (stock.Answer, error) {
			return s.Buy(ctx, stock.Order{User: id})
		})),
	claims("Sale.Buy by anyone", here, "one unit, without a user", ofSale(
		func(ctx context.Context, s *stock.Sale, _ string) (stock.Answer, error) {
			return s.Buy(ctx, stock.Order{Anyone: true})
		})),
	claims("Sale.Reserve, Pay", here, "a unit is reserved under an id, and sold: two calls are one claim here", ofSale(
		func(ctx context.Context, s *stock.Sale, id string) (stock.Answer, error) {
			a, err := s.Reserve(ctx, stock.Order{User: id}, time.Minute)
			if err == nil && a.Won() {
				a, err = s.Pay(ctx, id)
			}
			return a, err
		})),
	claims("redlatch, GET and SET", here, "a lock around GET and SET", locked(openOurs((*rlock.Client).Reentrant))),
	claims("rueidislock, GET and SET", "github.com/redis/rueidis", "the same, as it is written by hand",
		locked(openRueidislock)),
}

// claims makes a peer of what open adds to a client.
func claims(name, module, how string, open func(ctx context.Context, c rueidis.Client, s Setup, o *calls) error) Peer {
	return Peer{name, module, how, []string{claiming}, func(ctx context.Context, s Setup) (Locker, error) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Redis}})
		if err != nil {
			return nil, err
		}
		o := &calls{close: c.Close}
		if err := open(ctx, c, s, o); err != nil {
			c.Close()
			return nil, err
		}
		return o, nil
	}}
}

func rawIncr(_ context.Context, c rueidis.Client, _ Setup, o *calls) error {
	o.do = func(ctx context.Context, _ int64) error { return c.Do(ctx, c.B().Incr().Key("{s}").Build()).Error() }
	return nil
}

// floorOf is the floor that load makes of a client.
func floorOf(open func(context.Context, rueidis.Client) (load.Op, error)) func(context.Context, rueidis.Client, Setup,
	*calls) error {
	return func(ctx context.Context, c rueidis.Client, _ Setup, o *calls) (err error) {
		o.do, err = open(ctx, c)
		return err
	}
}

func counterIncr(_ context.Context, c rueidis.Client, _ Setup, o *calls) error {
	hub, err := pubsub.New(c, pubsub.Options{})
	if err != nil {
		return err
	}
	counters, err := rcounter.New(hub, rcounter.Options{})
	if err != nil {
		return err
	}
	k := counters.Counter("s", rcounter.CounterOptions{})
	o.do = func(ctx context.Context, _ int64) error { _, err := k.Incr(ctx); return err }
	o.check = func(ctx context.Context, done int64) error {
		v, err := k.Get(ctx)
		if err == nil && v != done {
			err = fmt.Errorf("the counter is at %d after %d increments", v, done)
		}
		return err
	}
	return nil
}

func ofSale(buy func(ctx context.Context, s *stock.Sale, id string) (stock.Answer, error)) func(context.Context,
	rueidis.Client, Setup, *calls) error {
	return func(ctx context.Context, c rueidis.Client, _ Setup, o *calls) error {
		hub, err := pubsub.New(c, pubsub.Options{})
		if err != nil {
			return err
		}
		sales, err := stock.New(hub, stock.Options{})
		if err != nil {
			return err
		}
		s := sales.Sale("s")
		o.do = func(ctx context.Context, n int64) error {
			a, err := buy(ctx, s, strconv.FormatInt(n, 10))
			if err == nil && a.State != stock.Sold {
				err = fmt.Errorf("a new order: %v", a)
			}
			return err
		}
		o.check = func(ctx context.Context, done int64) error {
			st, err := s.Inspect(ctx)
			if is := st.Items[""]; err == nil && (is.Sold != done || is.Seq != done) {
				err = fmt.Errorf("%d orders won, the sale says %d sold, %d ordinals", done, is.Sold, is.Seq)
			}
			return err
		}
		return s.Open(ctx, stock.Spec{Limit: 1<<53 - 1, OpenFor: time.Hour})
	}
}

// locked counts with GET and SET under a lock. The count is right only if the lock is.
func locked(open func(context.Context, Setup) (Locker, error)) func(context.Context, rueidis.Client, Setup,
	*calls) error {
	return func(ctx context.Context, c rueidis.Client, s Setup, o *calls) error {
		l, err := open(ctx, s)
		if err != nil {
			return err
		}
		o.close = func() { l.Close(); c.Close() }
		counted := func(ctx context.Context) (int64, error) {
			v, err := c.Do(ctx, c.B().Get().Key("counted").Build()).AsInt64()
			if rueidis.IsRedisNil(err) {
				err = nil
			}
			return v, err
		}
		o.do = func(ctx context.Context, _ int64) error {
			release, err := l.Lock(ctx, "lock")
			if err != nil {
				return err
			}
			v, err := counted(ctx)
			if err == nil {
				err = c.Do(ctx, c.B().Set().Key("counted").Value(strconv.FormatInt(v+1, 10)).Build()).Error()
			}
			if e := release(ctx); err == nil {
				err = e
			}
			return err
		}
		o.check = func(ctx context.Context, done int64) error {
			v, err := counted(ctx)
			if err == nil && v != done {
				err = fmt.Errorf("the counter under the lock is at %d after %d increments", v, done)
			}
			return err
		}
		return nil
	}
}
