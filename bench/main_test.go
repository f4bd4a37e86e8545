package bench_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(redistest.RoleEnv) == "" && flag.Lookup("test.bench").Value.String() != "" {
		fmt.Println("server:", serverName())
	}
	redistest.Main(m, map[string]func() error{"holder": holder})
}

// holder is a process that acquires a lock and is killed while it holds it.
func holder() error {
	hub, err := pubsub.Dial(context.Background(), rueidis.ClientOption{InitAddress: os.Args[1:2],
		ForceSingleClient: true, DisableCache: true}, pubsub.Options{})
	if err != nil {
		return err
	}
	locks, err := rlock.New(hub, rlock.Options{WatchdogTimeout: crashLease})
	if err != nil {
		return err
	}
	hold, err := locks.Reentrant("crash").Lock(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("holding")
	bufio.NewScanner(os.Stdin).Scan() // ends when the benchmark does
	return hold.Unlock(context.Background())
}

func haveRedis() bool {
	_, err := redistest.Program()
	return err == nil || os.Getenv(redistest.RequireEnv) == "1" // then the start fails and says why
}

func serverName() string {
	if !haveRedis() {
		return "embedded (no redis-server in PATH)"
	}
	program, err := redistest.Program()
	if err != nil {
		return err.Error()
	}
	name, version, err := redistest.VersionOf(program)
	if err != nil {
		return err.Error()
	}
	return name + " " + version
}

func start(b *testing.B) *redistest.Server {
	b.Helper()
	debug.SetGCPercent(100) // as in a user's program; redistest.Main collects seldom
	if haveRedis() {
		return redistest.Start(b)
	}
	return redistest.Embedded(b)
}

// stall is how long the machine may stop without an error.
const stall = 10 * time.Second

// newClient makes the clients of dial; nil: rueidis does.
var newClient func(rueidis.ClientOption) (rueidis.Client, error)

func dial(b *testing.B, server rueidis.ClientOption) *pubsub.Hub {
	b.Helper()
	hub, err := pubsub.Dial(b.Context(), server, pubsub.Options{CallTimeout: stall, NewClient: newClient})
	require.NoError(b, err)
	b.Cleanup(func() { hub.Close(context.Background()) })
	return hub
}

func openLocks(b *testing.B, server rueidis.ClientOption, o rlock.Options) *rlock.Client {
	b.Helper()
	o.CallTimeout = stall
	c, err := rlock.New(dial(b, server), o)
	require.NoError(b, err)
	b.Cleanup(func() { c.Close(redistest.Ended()) })
	return c
}

func openSemaphores(b *testing.B, server rueidis.ClientOption) *rsemaphore.Client {
	b.Helper()
	c, err := rsemaphore.New(dial(b, server), rsemaphore.Options{CallTimeout: stall})
	require.NoError(b, err)
	b.Cleanup(func() { c.Close(redistest.Ended()) })
	return c
}

// meter adds up what the server does between resume and pause.
type meter struct {
	client            rueidis.Client
	before            redistest.Calls
	counts            bool
	commands, scripts int
}

func newMeter(b *testing.B, s *redistest.Server) *meter {
	b.Helper()
	return &meter{client: s.Client(b), counts: s.Embedded == nil}
}

func (m *meter) resume(b *testing.B) {
	b.Helper()
	if m.counts {
		m.before = redistest.CommandCalls(b, m.client)
	}
}

// pause ends what resume began. Commands named in except are not counted.
func (m *meter) pause(b *testing.B, except ...string) {
	b.Helper()
	if m.counts {
		after := redistest.CommandCalls(b, m.client)
		m.commands += after.Since(m.before, except...)
		m.scripts += after.Scripts(m.before)
	}
}

// report divides by operations or seconds; per is the unit's name.
func (m *meter) report(b *testing.B, by float64, per string) {
	b.Helper()
	if m.counts && by > 0 {
		b.ReportMetric(float64(m.commands)/by, "cmds/"+per)
		b.ReportMetric(float64(m.scripts)/by, "scripts/"+per)
	}
}

func reportTimes(b *testing.B, h *load.Histogram) {
	b.ReportMetric(micros(h.Quantile(0.5)), "p50-us")
	b.ReportMetric(micros(h.Quantile(0.99)), "p99-us")
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
