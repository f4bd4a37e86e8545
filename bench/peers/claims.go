package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// claimMode is one way to have the first N win. There is no library to compare with (none was found), so the others
// are what people write by hand.
type claimMode struct {
	Name, How string
	open      func(ctx context.Context, c *claimer) (op func(ctx context.Context, n int64) error, err error)
}

// claimer is the process of one mode.
type claimer struct {
	setup  Setup
	client rueidis.Client
	op     func(ctx context.Context, n int64) error
	// check, if there is one, compares what the server has counted with the claims that were granted.
	check   func(ctx context.Context, granted int64) error
	next    atomic.Int64
	granted atomic.Int64
}

// The scripts of those who write them by hand.
var (
	rawClaim   = rueidis.NewLuaScript(redistest.PlainClaim)
	rawReserve = rueidis.NewLuaScript(redistest.PlainReserve)
	rawConfirm = rueidis.NewLuaScript(redistest.PlainConfirm)
)

const (
	claimFloor = "raw INCR"
	counterUp  = "Counter.Incr"
)

var claimModes = []claimMode{
	{claimFloor, "INCR through rueidis: counts, and never says no",
		func(_ context.Context, c *claimer) (func(context.Context, int64) error, error) {
			return func(ctx context.Context, _ int64) error {
				return c.client.Do(ctx, c.client.B().Incr().Key("{s}").Build()).Error()
			}, nil
		}},
	{"raw claim script", "the smallest script that gives each claimant one unit, EVALSHA through rueidis",
		func(ctx context.Context, c *claimer) (func(context.Context, int64) error, error) {
			limit := strconv.Itoa(math.MaxInt32)
			if err := c.client.Do(ctx,
				c.client.B().Hset().Key("{s}").FieldValue().FieldValue("limit", limit).Build()).Error(); err != nil {
				return nil, err
			}
			return func(ctx context.Context, n int64) error {
				return rawClaim.Exec(ctx, c.client, []string{"{s}", "{s}:u"}, []string{strconv.FormatInt(n, 10)}).Error()
			}, nil
		}},
	{counterUp, "rcounter, no bounds", func(_ context.Context, c *claimer) (func(context.Context, int64) error, error) {
		counters, err := c.counters()
		if err != nil {
			return nil, err
		}
		k := counters.Counter("s", rcounter.CounterOptions{})
		c.check = func(ctx context.Context, granted int64) error {
			v, err := k.Get(ctx)
			if err == nil && v != granted {
				err = fmt.Errorf("the counter is at %d after %d increments", v, granted)
			}
			return err
		}
		return func(ctx context.Context, _ int64) error { _, err := k.Incr(ctx); return err }, nil
	}},
	{"Counter.Incr, bounded", "rcounter, with a Max",
		func(_ context.Context, c *claimer) (func(context.Context, int64) error, error) {
			counters, err := c.counters()
			if err != nil {
				return nil, err
			}
			k := counters.Counter("s", rcounter.CounterOptions{Max: rcounter.Bound(math.MaxInt32)})
			return func(ctx context.Context, _ int64) error { _, err := k.Incr(ctx); return err }, nil
		}},
	{"Stock.Claim", "rcounter, a new claimant each time, all granted",
		func(ctx context.Context, c *claimer) (func(context.Context, int64) error, error) {
			return c.claims(ctx, stock.Options{})
		}},
	{"Stock.Claim, uncombined", "the same, every claim a call of its own",
		func(ctx context.Context, c *claimer) (func(context.Context, int64) error, error) {
			return c.claims(ctx, stock.Options{MaxBatch: -1})
		}},
	{"Stock.ClaimAny", "rcounter, one unit without a user",
		func(ctx context.Context, c *claimer) (func(context.Context, int64) error, error) {
			return c.claimsAny(ctx, stock.Options{})
		}},
	{"Stock.ClaimAny, uncombined", "the same, every claim a call of its own",
		func(ctx context.Context, c *claimer) (func(context.Context, int64) error, error) {
			return c.claimsAny(ctx, stock.Options{MaxBatch: -1})
		}},
	{"Stock.Claim, sold out", "rcounter, a new claimant each time, one unit in all",
		func(ctx context.Context, c *claimer) (func(context.Context, int64) error, error) {
			s, err := c.stock(ctx, stock.Options{}, 1)
			if err != nil {
				return nil, err
			}
			if _, err := s.Claim(ctx, "the first"); err != nil {
				return nil, err
			}
			return func(ctx context.Context, n int64) error {
				g, err := s.Claim(ctx, strconv.FormatInt(n, 10))
				if err == nil && g.Outcome != stock.SoldOut {
					err = fmt.Errorf("claim when sold out: %v", g.Outcome)
				}
				return err
			}, nil
		}},
	{"Stock.Reserve, Confirm", "a unit is held under an id, and sold: two calls, which are one claim here",
		func(ctx context.Context, c *claimer) (func(context.Context, int64) error, error) {
			return c.reserved(ctx)
		}},
	{"raw reserve, confirm scripts",
		"the same by two small scripts, EVALSHA through rueidis: nothing ends what is held, and no claimant has a limit",
		func(ctx context.Context, c *claimer) (func(context.Context, int64) error, error) {
			keys := []string{"{s}", "{s}:r", "{s}:h"}
			left := strconv.Itoa(math.MaxInt32)
			if err := c.client.Do(ctx,
				c.client.B().Hset().Key(keys[0]).FieldValue().FieldValue("left", left).Build()).Error(); err != nil {
				return nil, err
			}
			return func(ctx context.Context, n int64) error {
				id := strconv.FormatInt(n, 10)
				if err := rawReserve.Exec(ctx, c.client, keys, []string{id, id, "1", "1763000000000"}).Error(); err != nil {
					return err
				}
				return rawConfirm.Exec(ctx, c.client, keys, []string{id}).Error()
			}, nil
		}},
	{"lock + GET + SET", "what is written by hand: rueidislock (KeyMajority 1) around GET and SET",
		func(ctx context.Context, c *claimer) (func(context.Context, int64) error, error) {
			return c.locked(ctx, rueidislockTuned)
		}},
	{"redlatch lock + GET + SET", "the same with rlock",
		func(ctx context.Context, c *claimer) (func(context.Context, int64) error, error) {
			return c.locked(ctx, redlatchPeer)
		}},
}

func openClaims(ctx context.Context, mode string, s Setup) (*claimer, error) {
	for _, m := range claimModes {
		if m.Name != mode {
			continue
		}
		c := &claimer{setup: s}
		var err error
		if c.client, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Redis}}); err != nil {
			return nil, err
		}
		// Another process's claimants are others, another mode's keys too: every mode has a server of its own.
		c.next.Store(int64(os.Getpid()) << 32)
		c.op, err = m.open(ctx, c)
		return c, err
	}
	return nil, fmt.Errorf("no way to claim called %q", mode)
}

func (c *claimer) counters() (*rcounter.Client, error) {
	hub, err := pubsub.New(c.client, pubsub.Options{})
	if err != nil {
		return nil, err
	}
	return rcounter.New(hub, rcounter.Options{})
}

// stock opens one, and has every turn compare what it says with what was granted.
func (c *claimer) stock(ctx context.Context, o stock.Options, limit int64) (*stock.Stock, error) {
	hub, err := pubsub.New(c.client, pubsub.Options{})
	if err != nil {
		return nil, err
	}
	stocks, err := stock.New(hub, o)
	if err != nil {
		return nil, err
	}
	s := stocks.Stock("s")
	if limit > 1 {
		c.check = func(ctx context.Context, granted int64) error {
			st, err := s.Inspect(ctx)
			if err == nil && (st.Sold != granted || st.Seq != granted) {
				err = fmt.Errorf("%d claims were granted, the stock says %d sold, %d ordinals", granted, st.Sold, st.Seq)
			}
			return err
		}
	}
	_, err = s.Open(ctx, stock.Spec{Limit: limit, OpenFor: time.Hour})
	return s, err
}

func (c *claimer) claims(ctx context.Context, o stock.Options) (func(context.Context, int64) error, error) {
	s, err := c.stock(ctx, o, 1<<53-1)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, n int64) error {
		g, err := s.Claim(ctx, strconv.FormatInt(n, 10))
		if err == nil && g.Outcome != stock.Granted {
			err = fmt.Errorf("claim of a new claimant: %v", g.Outcome)
		}
		return err
	}, nil
}

func (c *claimer) claimsAny(ctx context.Context, o stock.Options) (func(context.Context, int64) error, error) {
	s, err := c.stock(ctx, o, 1<<53-1)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ int64) error {
		g, err := s.ClaimAny(ctx, 1)
		if err == nil && g.N != 1 {
			err = fmt.Errorf("claim of any unit: %v, %d units", g.Outcome, g.N)
		}
		return err
	}, nil
}

func (c *claimer) reserved(ctx context.Context) (func(context.Context, int64) error, error) {
	s, err := c.stock(ctx, stock.Options{}, 1<<53-1)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, n int64) error {
		id := strconv.FormatInt(n, 10)
		g, err := s.Reserve(ctx, id, stock.Request{ID: id, N: 1}, time.Minute)
		if err == nil && g.Outcome == stock.Granted {
			g, err = s.Confirm(ctx, id)
		}
		if err == nil && g.Outcome != stock.Granted {
			err = fmt.Errorf("reserve and confirm for a new claimant: %v", g.Outcome)
		}
		return err
	}, nil
}

// locked counts with GET and SET under a lock, which is right only if the lock is.
func (c *claimer) locked(ctx context.Context, p Peer) (func(context.Context, int64) error, error) {
	l, err := p.Open(ctx, c.setup)
	if err != nil {
		return nil, err
	}
	c.check = func(ctx context.Context, granted int64) error {
		v, err := c.client.Do(ctx, c.client.B().Get().Key("counted").Build()).AsInt64()
		if err == nil && v != granted {
			err = fmt.Errorf("the counter under the lock is at %d after %d increments", v, granted)
		}
		return err
	}
	return func(ctx context.Context, _ int64) error {
		release, err := l.Lock(ctx, "lock")
		if err != nil {
			return err
		}
		v, err := c.client.Do(ctx, c.client.B().Get().Key("counted").Build()).AsInt64()
		if err == nil || rueidis.IsRedisNil(err) {
			err = c.client.Do(ctx, c.client.B().Set().Key("counted").Value(strconv.FormatInt(v+1, 10)).Build()).Error()
		}
		if e := release(ctx); err == nil {
			err = e
		}
		return err
	}, nil
}

// work claims until run ends. It returns how long each claim took, how many failed, and how the first did.
func (c *claimer) work(ctx, run context.Context) (h load.Histogram, errs int64, first error) {
	for run.Err() == nil {
		start := time.Now()
		if err := c.op(ctx, c.next.Add(1)); err != nil {
			errs++
			if first == nil {
				first = err
			}
			continue
		}
		h.Add(time.Since(start))
	}
	return h, errs, first
}

// run claims with o.Workers goroutines for o.Duration.
func (c *claimer) run(ctx context.Context, o order) (answer, error) {
	var mu sync.Mutex
	ctx, cancel := context.WithTimeout(ctx, o.Duration+stuck)
	defer cancel()
	a := timed(ctx, o.Duration, func(run context.Context) load.Outcome {
		out := load.Outcome{Shares: make([]int64, o.Workers)}
		var wg sync.WaitGroup
		for i := range o.Workers {
			wg.Go(func() {
				h, errs, first := c.work(ctx, run)
				mu.Lock()
				defer mu.Unlock()
				out.Waits.Merge(h)
				out.Shares[i] = h.Count
				out.Ops += h.Count
				out.Errors += errs
				if first != nil && out.FirstError == "" {
					out.FirstError = first.Error()
				}
			})
		}
		wg.Wait()
		return out
	})
	granted := c.granted.Add(a.Outcome.Ops)
	if c.check != nil && a.Outcome.Errors == 0 {
		if err := c.check(ctx, granted); err != nil {
			a.Broken = err.Error()
		}
	}
	return a, nil
}
