package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// roleEnv makes this program, or its test binary, a client. It reads one order from standard input, works until that
// ends, and writes its events to standard output.
const roleEnv = "REDLATCH_CHAOS_ROLE"

// The options of every client. Leases are so short that faults outlast them.
const (
	lease       = time.Second
	callTimeout = 300 * time.Millisecond
	pollCap     = 250 * time.Millisecond
	heartbeat   = 300 * time.Millisecond // of leaders, whom others follow after three without one
	user        = "app"                  // whose rights the servers take away
)

// order is what a client has to do.
type order struct {
	Client      int // this process
	Place       int // among the clients that are there at the same time
	Places      int
	Prefix      string // of keys
	Primitives  []string
	Break       string // what it does wrong
	Addrs       []string
	Set         string            // Addrs are sentinels that watch this
	Each        bool              // Addrs are servers of a Quorum
	Through     map[string]string // which proxy stands before an address
	MinReplicas int
	Safe        bool // it has SurviveFailover
	Seed        uint64
	Began       int64
	Soak        bool // say what it uses, and leave no name behind
}

// client is one process that works.
type client struct {
	order
	red   []*redlatch.Client // one, or one for each server of a Quorum
	turns atomic.Int64

	mu  sync.Mutex
	out *json.Encoder
}

// say writes an event down. It is out of the process when it returns: it stands even if the client is killed then.
func (c *client) say(e event) {
	e.Client = c.Client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.Encode(e) != nil {
		os.Exit(1) // no process listens any more
	}
}

// next is an id that no other client has.
func (c *client) next() string { return fmt.Sprintf("%d-%d", c.Client, c.turns.Add(1)) }

// connect opens what an order names. It goes on trying, as the servers may be away.
func connect(ctx context.Context, o order) (list []*redlatch.Client, err error) {
	quiet := slog.New(slog.DiscardHandler)
	each := [][]string{o.Addrs}
	if o.Each {
		each = slices.Collect(slices.Chunk(o.Addrs, 1))
	}
	for _, addrs := range each {
		ro := rueidis.ClientOption{
			InitAddress: addrs, Username: user, Password: "any", ConnWriteTimeout: time.Second,
			Dialer: net.Dialer{Timeout: time.Second, KeepAlive: 300 * time.Millisecond},
			DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
				if p, ok := o.Through[addr]; ok {
					addr = p
				}
				return d.DialContext(ctx, "tcp", addr)
			},
		}
		ro.Sentinel.MasterSet = o.Set
		ro.Sentinel.Dialer = ro.Dialer
		for {
			var red *redlatch.Client
			red, err = redlatch.Open(ctx, ro, o.options(quiet))
			if err == nil {
				list = append(list, red)
				break
			}
			select {
			case <-ctx.Done():
				return list, fmt.Errorf("connect to %v: %w", addrs, err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return list, nil
}

// options are those of a client.
func (o order) options(log *slog.Logger) redlatch.Options {
	opts := redlatch.Options{KeyPrefix: o.Prefix, CallTimeout: callTimeout, MinReplicas: o.MinReplicas, Logger: log}
	if o.Safe {
		opts.SurviveFailover = true
	}
	opts.Hub = func(o *pubsub.Options) { o.CallTimeout = time.Second }
	opts.Locks = func(o *rlock.Options) { o.WatchdogTimeout, o.PollCap = lease, pollCap }
	opts.Elections = func(o *election.Options) {
		o.WatchdogTimeout, o.PollCap, o.Heartbeat = lease, pollCap, heartbeat
	}
	opts.Semaphores = func(o *rsemaphore.Options) { o.WatchdogTimeout, o.PollCap = lease, pollCap }
	return opts
}

func disconnect(list []*redlatch.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, red := range list {
		all.Go(func() { red.Close(ctx) })
	}
	all.Wait()
}

// serve is the main function of a client.
func serve(in io.Reader, out io.Writer) error {
	script.SoloAfter = 1 // nearly every call that meets no other goes over its own connection
	orders := json.NewDecoder(in)
	c := &client{out: json.NewEncoder(out)}
	if err := orders.Decode(&c.order); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_ = orders.Decode(&struct{}{}) // nothing but the end comes
		cancel()
	}()
	var err error
	if c.red, err = connect(ctx, c.order); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var all sync.WaitGroup
	if c.Soak {
		all.Go(func() { c.sample(ctx) })
	}
	for i, p := range primitives {
		if !slices.Contains(c.Primitives, p.name) {
			continue
		}
		for n := range max(p.workers, 1) {
			rnd := rand.New(rand.NewPCG(c.Seed, uint64(c.Client<<16|i<<8|n)))
			all.Go(func() {
				for ctx.Err() == nil {
					p.turn(ctx, c, rnd)
					rest(ctx, time.Duration(1+rnd.IntN(2*int(p.pace)))*time.Millisecond)
				}
			})
		}
	}
	all.Wait()
	disconnect(c.red)
	return nil
}

func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
