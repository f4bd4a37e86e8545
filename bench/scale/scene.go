package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/bench/internal/results"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// scene is a server of its own, and a connection that looks at it.
type scene struct {
	addr     string
	redis    rueidis.Client
	stop     func()
	watch    time.Duration
	progress io.Writer
}

func begin(watch time.Duration, progress io.Writer) (*scene, error) {
	server, stop, err := redistest.Launch(func(host, port, dir string) []string {
		return []string{"--port", port, "--bind", host, "--dir", dir, "--save", "", "--appendonly", "no", "--logfile",
			filepath.Join(dir, "log")}
	})
	if err != nil {
		return nil, err
	}
	s := &scene{addr: server.Addr(), stop: stop, watch: watch, progress: progress}
	s.redis, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: server.Addrs, ForceSingleClient: true,
		DisableCache: true, PipelineMultiplex: -1})
	if err != nil {
		stop()
		return nil, err
	}
	return s, nil
}

func (s *scene) end() {
	s.redis.Close()
	s.stop()
}

// member is a client of the library, as a process has one.
type member struct {
	hub   *pubsub.Hub
	locks *rlock.Client
}

// grace is for how long a channel stays subscribed when no process waits any more.
const grace = 200 * time.Millisecond

func open(addr string) (*member, error) {
	hub, err := pubsub.Dial(context.Background(), rueidis.ClientOption{InitAddress: []string{addr}},
		pubsub.Options{Grace: grace, CallTimeout: time.Minute})
	if err != nil {
		return nil, err
	}
	// So much at a time stalls for longer than the default.
	locks, err := rlock.New(hub, rlock.Options{CallTimeout: 10 * time.Second})
	if err != nil {
		hub.Close(context.Background())
		return nil, err
	}
	return &member{hub, locks}, nil
}

func (m *member) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(m.locks.Close(ctx), m.hub.Close(ctx))
}

// cycle locks and unlocks once.
func (m *member) cycle(ctx context.Context, name string) error {
	h, err := m.locks.Reentrant(name).Lock(ctx)
	if err != nil {
		return err
	}
	return h.Unlock(ctx)
}

// warm makes what a first use makes.
func (m *member) warm(ctx context.Context) error {
	return each(ctx, 64, func(i int) error { return m.cycle(ctx, "warm:"+strconv.Itoa(i)) })
}

// each calls f for 0 to n-1, 64 at a time, and returns the first error.
func each(ctx context.Context, n int, f func(i int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	for range 64 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					errs <- err
					next.Store(int64(n))
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return errors.Join(<-errs, ctx.Err())
}

// mine is what this process has in use.
func mine() (goroutines int, bytes int64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), int64(m.HeapAlloc + m.StackInuse)
}

// snapshot is this process and the server at one moment.
type snapshot struct {
	at         time.Time
	goroutines int
	bytes      int64
	usage      load.Usage
	conns      int64
	keys       int64
	server     int64 // bytes
}

func (s *scene) look(ctx context.Context) (x snapshot, err error) {
	x.goroutines, x.bytes = mine()
	x.at = time.Now()
	if x.usage, err = load.ServerUsage(ctx, s.redis); err != nil {
		return x, err
	}
	if x.keys, err = objects(ctx, s.redis); err != nil {
		return x, err
	}
	text, err := s.redis.Do(ctx, s.redis.B().Info().Section("clients", "memory").Build()).ToString()
	for line := range strings.Lines(text) {
		name, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "connected_clients":
			x.conns, _ = strconv.ParseInt(v, 10, 64)
			x.conns-- // ours
		case "used_memory":
			x.server, _ = strconv.ParseInt(v, 10, 64)
		}
	}
	return x, err
}

// done fills in what so many operations took from one moment to another.
func done(row *results.Row, from, to snapshot, ops int) {
	n := float64(ops)
	row.Ops, row.Seconds = int64(ops), to.at.Sub(from.at).Seconds()
	row.OpsPerSec = n / row.Seconds
	row.Commands = float64(to.usage.Since(from.usage, own...)) / n
	row.Scripts = float64(to.usage.Scripts(from.usage)) / n
}

// own are the commands of our looking.
var own = []string{"dbsize", "keys"}

// objects is how many keys a server has. What processes say of themselves is left out where few show that.
func objects(ctx context.Context, c rueidis.Client) (int64, error) {
	n, err := c.Do(ctx, c.B().Dbsize().Build()).AsInt64()
	if err != nil || n > 1000 {
		return n, err
	}
	keys, err := c.Do(ctx, c.B().Keys().Pattern("*").Build()).AsStrSlice()
	return int64(len(redistest.Objects(keys))), err
}

// there says what is in use while all of them are there.
func there(row *results.Row, from, to snapshot) {
	n := float64(row.Workers)
	row.Conns = to.conns
	note(row, "bytes", float64(to.bytes-from.bytes)/n)
	note(row, "goroutines", float64(to.goroutines-from.goroutines))
	note(row, "server_bytes", float64(to.server-from.server)/n)
}

// watched says what the server does while nothing happens.
func (s *scene) watched(ctx context.Context, row *results.Row, from snapshot) error {
	fmt.Fprintf(s.progress, "  watching for %v\n", s.watch)
	select {
	case <-time.After(s.watch):
	case <-ctx.Done():
		return ctx.Err()
	}
	to, err := s.look(ctx)
	note(row, "commands_per_s", float64(to.usage.Since(from.usage, own...))/to.at.Sub(from.at).Seconds())
	return err
}

// left says what is still there when all is over, compared with before.
func (s *scene) left(ctx context.Context, row *results.Row, before snapshot) error {
	time.Sleep(grace + 500*time.Millisecond)
	x, err := s.look(ctx)
	for end := time.Now().Add(time.Minute); err == nil && x.keys > before.keys &&
		time.Now().Before(end); x, err = s.look(ctx) {
		time.Sleep(200 * time.Millisecond) // a release whose reply was late is repeated
	}
	note(row, "left_bytes", float64(x.bytes-before.bytes))
	note(row, "left_goroutines", float64(x.goroutines-before.goroutines))
	note(row, "left_keys", float64(x.keys-before.keys))
	note(row, "left_connections", float64(x.conns-before.conns))
	return err
}

// queued waits until that many processes stand in line for the names; it looks at some of those.
func (m *member) queued(ctx context.Context, names, processes int) error {
	for i := 0; i < names; i += max(names/200, 1) {
		for {
			state, err := m.locks.Reentrant(numbered(i)).Inspect(ctx)
			if err != nil {
				return err
			}
			if len(state.Waiters) >= processes {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	time.Sleep(time.Second) // and the rest of them
	return nil
}

func note(row *results.Row, key string, v float64) {
	row.Extra = strings.TrimSpace(row.Extra + " " + key + "=" + strconv.FormatFloat(v, 'f', 1, 64))
}
