// Command second measures what a program that has a go-redis client pays for the rueidis client that redlatch adds:
// connections, memory here and on the server, and how long its own commands take.
//
//	go -C bench/peers run ./second
//
// docs/keep-go-redis.md has its figures. A phase of each kind comes after the other, several times, and the medians
// are compared, because other programs of the machine disturb each of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

type config struct {
	slice  time.Duration // of one phase
	rounds int
	locks  int // held in the phase that holds
}

func main() {
	var c config
	flag.DurationVar(&c.slice, "slice", time.Second, "length of one phase")
	flag.IntVar(&c.rounds, "rounds", 7, "how often each phase comes")
	flag.IntVar(&c.locks, "locks", 256, "locks that are held, each by a goroutine")
	flag.Parse()
	if _, err := run(context.Background(), c, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "second:", err)
		os.Exit(1)
	}
}

// cost is what the second client adds in one state.
type cost struct {
	connections int
	heap        int64           // bytes of this process
	server      int64           // bytes of the server for these connections
	took        []time.Duration // of go-redis commands
}

func (c *cost) at(q float64) time.Duration {
	slices.Sort(c.took)
	return c.took[int(q*float64(len(c.took)-1))]
}

// states are those that are compared, in this order. What the last differs from the first is noise.
var states = []string{"go-redis alone", "opened", "locks held", "100 locks and unlocks a second", "closed"}

func run(ctx context.Context, c config, out io.Writer) (map[string]*cost, error) {
	server, stop, err := redistest.Launch(func(host, port, dir string) []string {
		return []string{"--port", port, "--bind", host, "--dir", dir, "--save", "", "--logfile", filepath.Join(dir, "log")}
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	own := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer own.Close()
	costs := map[string]*cost{}
	for _, s := range states {
		costs[s] = &cost{}
	}
	for range c.rounds {
		if err := round(ctx, c, own, server.Addr(), costs); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(out, "GOMAXPROCS %d, %d locks\n%-32s %11s %10s %12s %9s %9s\n", runtime.GOMAXPROCS(0), c.locks, "",
		"connections", "heap, KiB", "server, KiB", "p50", "p99")
	alone := costs[states[0]]
	for _, s := range states {
		x := costs[s]
		fmt.Fprintf(out, "%-32s %11d %10d %12d %8.2fx %8.2fx\n", s, x.connections, x.heap>>10, x.server>>10,
			float64(x.at(0.5))/float64(alone.at(0.5)), float64(x.at(0.99))/float64(alone.at(0.99)))
	}
	return costs, nil
}

// round goes through the states once.
func round(ctx context.Context, c config, own *redis.Client, addr string, costs map[string]*cost) error {
	if err := traffic(ctx, own, c.slice/4, nil); err != nil { // its pool is filled, whatever was before
		return err
	}
	before := heap()
	note := func(state string) error {
		x := costs[state]
		x.heap = heap() - before
		if err := traffic(ctx, own, c.slice, x); err != nil {
			return err
		}
		var err error
		x.connections, x.server, err = clients(ctx, own)
		return err
	}
	if err := note(states[0]); err != nil {
		return err
	}
	red, err := redlatch.Open(ctx, rueidis.ClientOption{InitAddress: []string{addr}, ClientName: "redlatch"},
		redlatch.Options{})
	if err != nil {
		return err
	}
	defer red.Close(ctx)
	if err := note(states[1]); err != nil {
		return err
	}
	held, err := hold(ctx, red.Locks(), c.locks)
	if err != nil {
		return err
	}
	if err := note(states[2]); err != nil {
		return err
	}
	for _, h := range held {
		if err := h.Unlock(ctx); err != nil {
			return err
		}
	}
	using, end := context.WithCancel(ctx)
	used := make(chan error, 1)
	go func() { used <- use(using, red.Locks()) }()
	err = note(states[3])
	end()
	if err := errors.Join(err, <-used, red.Close(ctx)); err != nil {
		return err
	}
	return note(states[4])
}

// hold acquires locks, each in a goroutine of its own.
func hold(ctx context.Context, locks *rlock.Client, n int) ([]*rlock.Hold, error) {
	held, errs := make([]*rlock.Hold, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { held[i], errs[i] = locks.Reentrant("lock:" + strconv.Itoa(i)).Lock(ctx) })
	}
	wg.Wait()
	return held, errors.Join(errs...)
}

// use locks and unlocks a hundred times a second until ctx ends.
func use(ctx context.Context, locks *rlock.Client) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		h, err := locks.Reentrant("used:" + strconv.Itoa(n%16)).Lock(context.WithoutCancel(ctx))
		if err == nil {
			err = h.Unlock(context.WithoutCancel(ctx))
		}
		if err != nil {
			return err
		}
	}
}

// traffic has the program's own client work, in eight goroutines that pause between commands.
func traffic(ctx context.Context, own *redis.Client, d time.Duration, into *cost) error {
	until, errs := time.Now().Add(d), make([]error, 8)
	took := make([][]time.Duration, len(errs))
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for time.Now().Before(until) && errs[i] == nil {
				at := time.Now()
				if errs[i] = own.Incr(ctx, "own").Err(); errs[i] == nil {
					took[i] = append(took[i], time.Since(at))
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	if into != nil {
		into.took = append(into.took, slices.Concat(took...)...)
	}
	return errors.Join(errs...)
}

// heap is the memory that is in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// clients are the second client's connections and what the server has for them.
func clients(ctx context.Context, own *redis.Client) (n int, bytes int64, err error) {
	list, err := own.ClientList(ctx).Result()
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(list) {
		if !strings.Contains(line, " name=redlatch ") {
			continue
		}
		n++
		for field := range strings.FieldsSeq(line) {
			if text, ok := strings.CutPrefix(field, "tot-mem="); ok {
				size, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return 0, 0, err
				}
				bytes += size
			}
		}
	}
	return n, bytes, nil
}
