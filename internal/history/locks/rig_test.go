// Package locks_test records histories of each kind of lock while the network and the server fail, and checks them
// against the models of package history.
package locks_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

func TestMain(m *testing.M) { redistest.Main(m, nil) }

// soon bounds what takes some round trips, on a machine however busy.
const soon = 2 * time.Second

// rig is one process as the library sees it: a lock client with a connection of its own.
type rig struct {
	locks *rlock.Client
}

func newRig(t testing.TB, s *redistest.Server, o rlock.Options) *rig {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	o.RetryTimeout = redistest.Retries(o.CallTimeout)
	c, err := rueidis.NewClient(s.Option())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	hub, err := pubsub.New(c, pubsub.Options{Logger: o.Logger})
	require.NoError(t, err)
	t.Cleanup(func() { hub.Close(context.Background()) })
	locks, err := rlock.New(hub, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		locks.Close(ctx)
	})
	return &rig{locks}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// keys are what is left on the server.
func keys(t *testing.T, c rueidis.Client) []string {
	t.Helper()
	k, err := c.Do(within(t), c.B().Keys().Pattern("*").Build()).AsStrSlice()
	require.NoError(t, err)
	return redistest.Objects(k)
}

// election is the servers of a Quorum.
type election []*redistest.Server

// started are so many servers that are starting. Started before a test is declared parallel, they mostly vote by then.
func started(t testing.TB, n int) (servers election) {
	t.Helper()
	for range n {
		servers = append(servers, redistest.Start(t))
	}
	return servers
}

// voting waits until the servers vote for leases of a second or less.
func (servers election) voting(t testing.TB) election {
	t.Helper()
	for _, s := range servers {
		redistest.Eventually(t, 60*time.Second, "up for a second longer", func() bool {
			info, err := s.TryAsk(t, "INFO", "server")
			require.NoError(t, err)
			_, rest, _ := strings.Cut(info, "uptime_in_seconds:")
			up, _, _ := strings.Cut(rest, "\r\n")
			n, err := strconv.Atoi(up)
			require.NoError(t, err)
			return n >= 2
		})
	}
	return servers
}

// process is a process that uses a Quorum: a rig for each server, behind a proxy where there are any.
type process struct {
	rigs    []*rig
	proxies []*redistest.Proxy
}

func (servers election) process(t testing.TB, o rlock.Options) *process {
	t.Helper()
	p := &process{}
	for _, s := range servers {
		p.rigs = append(p.rigs, newRig(t, s, o))
	}
	return p
}

func (servers election) behindProxies(t testing.TB, o rlock.Options) *process {
	t.Helper()
	p := &process{}
	for _, s := range servers {
		proxy := redistest.NewProxy(t, s)
		p.proxies = append(p.proxies, proxy)
		p.rigs = append(p.rigs, newRig(t, proxy.Server(), o))
	}
	t.Cleanup(func() { // before the clients close, who wait for answers
		for i, s := range servers {
			p.proxies[i].Heal()
			s.Process.Signal(syscall.SIGCONT)
		}
	})
	return p
}

// quorum is a Quorum of all the servers.
func (p *process) quorum(t testing.TB, name string) *rlock.Lock {
	t.Helper()
	var members []*rlock.Lock
	for _, r := range p.rigs {
		members = append(members, r.locks.Reentrant(name))
	}
	q, err := rlock.Quorum(members...)
	require.NoError(t, err)
	return q
}

// taking takes l as one who is patient does, or as one who gives up.
func taking(l *rlock.Lock) redistest.Take {
	return func(ctx context.Context, wait time.Duration) (func(), error) {
		l := l
		if wait > 0 {
			l = l.WithWait(wait)
		}
		h, err := l.Lock(ctx)
		if err != nil {
			return nil, err
		}
		return func() { h.Unlock(context.Background()) }, nil
	}
}
