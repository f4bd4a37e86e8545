package history_test

import (
	"context"
	"flag"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// TestMain runs few histories at a time, because the workers of each keep a processor busy.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "3") // a -parallel on the command line comes after it
	redistest.Main(m, nil)
}

// open connects to a server. takenOver counts the holds that the client takes from others.
func open(t testing.TB, s *redistest.Server, o rlock.Options, takenOver *atomic.Int64) *redlatch.Client {
	t.Helper()
	red, err := redlatch.Open(context.Background(), s.Option(), redlatch.Options{
		CallTimeout: o.CallTimeout, Logger: slog.New(slog.DiscardHandler),
		Locks: func(l *rlock.Options) {
			l.RetryTimeout, l.PollCap, l.WatchdogTimeout = redistest.Retries(o.CallTimeout), o.PollCap, o.WatchdogTimeout
			l.Liveness, l.Heartbeat = o.Liveness, o.Heartbeat
			l.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
				if e.Kind == redlatch.EventTakenOver {
					takenOver.Add(int64(e.N))
				}
				return ctx
			}
		},
		Semaphores: func(p *rsemaphore.Options) {
			p.RetryTimeout, p.PollCap, p.WatchdogTimeout = redistest.Retries(o.CallTimeout), o.PollCap, o.WatchdogTimeout
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { // without patience
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		red.Close(ctx)
	})
	return red
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// warm has a process learn the server's clock. The call timeout is so short that a busy machine alone can make it fail.
func warm(t testing.TB, take object) bool {
	t.Helper()
	for began := time.Now(); time.Since(began) < 30*time.Second; {
		if h, err := take(within(t), forever, 0); err == nil && unlock(within(t), h) == nil {
			return true
		}
	}
	return false
}

// keep waits for d, or until done is closed.
func keep(d time.Duration, done <-chan struct{}) (lost bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-done:
		return true
	}
}

// servers are those of one kind of lock: one, or those of a Quorum.
type servers []*redistest.Server

// voting waits until the servers vote for such leases: a server that has been up for less may have forgotten a hold.
func (all servers) voting(t testing.TB, lease time.Duration) {
	t.Helper()
	for _, s := range all {
		redistest.Eventually(t, 60*time.Second, "up for longer than a lease", func() bool {
			info, err := s.TryAsk(t, "INFO", "server")
			_, rest, _ := strings.Cut(info, "uptime_in_seconds:")
			up, _, _ := strings.Cut(rest, "\r\n")
			n, _ := strconv.Atoi(up)
			return err == nil && time.Duration(n)*time.Second > max(lease, time.Second)
		})
	}
}

// process is a client of each server, each behind a proxy of its own.
type process struct {
	locks   []*rlock.Client
	permits *rsemaphore.Client // of the first server
	proxies []*redistest.Proxy
}

func (all servers) process(t testing.TB, o rlock.Options, takenOver *atomic.Int64) *process {
	t.Helper()
	p := &process{}
	for i, s := range all {
		proxy := redistest.NewProxy(t, s)
		red := open(t, proxy.Server(), o, takenOver)
		if p.proxies, p.locks = append(p.proxies, proxy), append(p.locks, red.Locks()); i == 0 {
			p.permits = red.Semaphores()
		}
	}
	t.Cleanup(func() { // before the clients close, because they wait for answers
		for i, s := range all {
			p.proxies[i].Heal()
			s.Process.Signal(syscall.SIGCONT)
		}
	})
	return p
}
