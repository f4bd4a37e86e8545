package bench_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

var (
	heldFlag  = flag.Int("held", 10000, "renewal: how many locks are held")
	leaseFlag = flag.Duration("lease", 3*time.Second, "renewal: their lease, which is also how long they are watched")
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(victimEnv); addr != "" {
		if err := beVictim(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if f := flag.Lookup("test.bench"); f != nil && f.Value.String() != "" {
		fmt.Println("server:", serverName())
	}
	os.Exit(m.Run())
}

func haveRedis() bool {
	_, err := redistest.Program()
	return err == nil || os.Getenv(redistest.RequireEnv) == "1" // then the start fails and says why
}

func serverName() string {
	if !haveRedis() {
		return "embedded (no redis-server in PATH)"
	}
	program, _ := redistest.Program()
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		return "redis-server: " + err.Error()
	}
	return strings.TrimSpace(string(out))
}

func start(b *testing.B) *redistest.Server {
	b.Helper()
	if haveRedis() {
		return redistest.Start(b)
	}
	return redistest.Embedded(b)
}

// open is one process's client of the locks.
func open(b *testing.B, s *redistest.Server, o rlock.Options) *rlock.Client {
	b.Helper()
	return openWith(b, s.Option(), o)
}

func openWith(b *testing.B, server rueidis.ClientOption, o rlock.Options) *rlock.Client {
	b.Helper()
	hub, err := pubsub.Dial(b.Context(), server, pubsub.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { hub.Close(context.Background()) })
	locks, err := rlock.New(hub, o)
	require.NoError(b, err)
	b.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what is still held runs out
		locks.Close(ctx)
	})
	return locks
}

func acquire(locks *rlock.Client) load.Acquire {
	return func(ctx context.Context, name string) (load.Release, error) {
		h, err := locks.Reentrant(name).Lock(ctx)
		if err != nil {
			return nil, err
		}
		return h.Unlock, nil
	}
}

// meter counts what the server does for the operations between its making and report.
type meter struct {
	c      rueidis.Client
	before load.Usage
	counts bool
}

func newMeter(b *testing.B, s *redistest.Server) *meter {
	b.Helper()
	m := &meter{c: s.Client(b), counts: s.Embedded == nil}
	if m.counts {
		var err error
		m.before, err = load.ServerUsage(context.Background(), m.c)
		require.NoError(b, err)
	}
	return m
}

// report divides by ops; except are commands that are not the lock's.
func (m *meter) report(b *testing.B, ops int64, except ...string) {
	b.Helper()
	if !m.counts || ops == 0 {
		return
	}
	after, err := load.ServerUsage(context.Background(), m.c)
	require.NoError(b, err)
	b.ReportMetric(float64(after.Since(m.before, except...))/float64(ops), "cmds/op")
	b.ReportMetric(float64(after.Scripts(m.before))/float64(ops), "scripts/op")
}

// perSecond reports rates over d.
func (m *meter) perSecond(b *testing.B, d time.Duration) {
	b.Helper()
	if !m.counts {
		return
	}
	after, err := load.ServerUsage(context.Background(), m.c)
	require.NoError(b, err)
	b.ReportMetric(float64(after.Since(m.before))/d.Seconds(), "cmds/s")
	b.ReportMetric(float64(after.Scripts(m.before))/d.Seconds(), "scripts/s")
}

func reportTimes(b *testing.B, h *load.Histogram) {
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	b.ReportMetric(us(h.Quantile(0.5)), "p50-us")
	b.ReportMetric(us(h.Quantile(0.99)), "p99-us")
}
