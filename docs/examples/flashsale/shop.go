package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
)

// server is where the stock is.
type server struct {
	Addrs    []string
	Embedded bool // miniredis in the parent: no Cluster, no client-side caching
}

func (s server) String() string {
	if s.Embedded {
		return "the embedded server"
	}
	return "Redis at " + strings.Join(s.Addrs, ", ")
}

// shop is one process's connection to the stock: all that this program uses of redlatch.
type shop struct {
	red   *redlatch.Client
	goods goods
	lock  *rlock.Lock
}

const (
	// leaderLease is how long the others wait when the process that is opening the sale was killed. Opening is one
	// script call, and one that comes late finds the stock open, so the lease need not be renewed.
	leaderLease = 2 * time.Second
	leaderLock  = ":opening" // appended to the name of the stock

	// A stock of the run's own outlives it by a day, for a look at it with redis-cli; a named one is kept.
	ownOpenFor, namedOpenFor = 24 * time.Hour, 30 * 24 * time.Hour
	retain                   = time.Hour
)

// errClosedStock: the stock is there and does not sell.
var errClosedStock = errors.New("does not sell")

// errVanished: the stock was open and is gone. Opening it again would sell its units twice.
var errVanished = errors.New("the stock is gone from Redis (flushed, evicted, or restarted without its data?)")

// connect makes a shop of one stock. The error names the server.
func connect(srv server, name string, f form) (*shop, error) {
	o := rueidis.ClientOption{InitAddress: srv.Addrs, ForceSingleClient: srv.Embedded, DisableCache: srv.Embedded}
	// the context of each call ends it sooner: patience.Retry
	red, err := redlatch.Open(context.Background(), o, redlatch.Options{RetryTimeout: time.Minute})
	if err != nil {
		return nil, fmt.Errorf("cannot use %v: %w", srv, err)
	}
	return &shop{
		red:   red,
		goods: f.goods(red.Stocks(), red.RedPackets(), name),
		lock:  red.Locks().Reentrant(name + leaderLock).WithLease(leaderLease),
	}, nil
}

func (s *shop) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.red.Close(ctx) // holds nothing by now
}

// enter makes sure that the sale is open, by opening it if this process gets the leader lock first, and returns what
// the stock is then.
func (s *shop) enter(ctx context.Context, cfg workerConfig) (opening, error) {
	st, err := s.goods.status(ctx)
	if err != nil {
		return opening{}, err
	}
	opened := false
	if st.Phase == stock.PhaseAbsent {
		if !cfg.MayOpen {
			return opening{}, errVanished
		}
		err = s.lock.Do(ctx, func(ctx context.Context) error {
			err := s.goods.open(ctx, cfg.Units, cfg.OpenFor)
			opened = err == nil
			if err != nil && !errors.Is(err, redlatch.ErrAlreadyOpen) { // another leader was quicker
				return err
			}
			st, err = s.goods.status(ctx)
			return err
		})
		if err != nil {
			return opening{}, err
		}
	}
	if st.Phase != stock.PhaseOpen {
		return opening{}, fmt.Errorf("the stock %w: it is %v", errClosedStock, st.Phase)
	}
	return opening{Opened: opened, Limit: st.Limit, Count: st.Sold, Last: st.Seq, Cents: st.cents, Epoch: st.Epoch}, nil
}

// claim claims a unit for user until ctx ends; the library repeats what got no answer. epoch is the opening it has
// to come from.
func (s *shop) claim(ctx context.Context, user string, epoch int64) answer {
	g, err := s.goods.claim(ctx, user)
	if err != nil {
		return answer{outcome: failed, err: err.Error(), asked: unanswered(err)}
	}
	if g.outcome != stock.NotOpen && g.epoch != epoch {
		return answer{outcome: failed,
			err: fmt.Sprintf("the stock was opened anew during the run (opening %d, now %d)", epoch, g.epoch)}
	}
	switch g.outcome {
	case stock.Granted:
		return answer{outcome: granted, ordinal: g.ordinal, cents: g.cents}
	case stock.Replayed:
		return answer{outcome: replayed, ordinal: g.ordinal, cents: g.cents}
	case stock.SoldOut:
		return answer{outcome: soldOut}
	case stock.NotOpen:
		return answer{outcome: failed, err: errVanished.Error()}
	}
	return answer{outcome: failed, err: fmt.Sprintf("the stock %v: %v", errClosedStock, g.outcome)}
}

// unanswered reports whether err means that the server could not be asked, as opposed to what it said.
func unanswered(err error) bool {
	return errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrUnknownOutcome) ||
		errors.Is(err, redlatch.ErrNotAcquired)
}

// lookup returns what user has, ordinal 0 for nothing.
func (s *shop) lookup(ctx context.Context, user string) (bought, error) {
	return s.goods.lookup(ctx, user)
}

// status is the stock as it is now.
func (s *shop) status(ctx context.Context) (shelf, error) { return s.goods.status(ctx) }
