// Package redistest starts the servers that tests run against: miniredis inside the process for quick logic, and
// private redis-server processes, alone, as a Cluster or as a primary with replicas and sentinels, each on ports of the
// loopback address that the test process has to itself, in a directory of its own, and ended with the test.
package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
)

// RequireEnv, set to 1, turns a missing redis-server from a skip into a failure.
const RequireEnv = "REDLATCH_REQUIRE_REDIS"

// Server is one running server, the seed nodes of a Cluster, or the sentinels of a primary and its replica.
type Server struct {
	Addrs    []string
	Embedded *miniredis.Miniredis // nil for a real server
	Process  *os.Process          // nil for the embedded server

	// nil: TCP
	dial    func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)
	set     string       // Addrs are sentinels that watch this
	run     *run         // nil for what was not started here
	scripts *declared    // of an embedded server
	down    *atomic.Bool // of a server in a bubble: killed
}

// Addr is the first address.
func (s *Server) Addr() string { return s.Addrs[0] }

// Embedded starts miniredis on a loopback port, its TTLs running with the wall clock.
func Embedded(t testing.TB) *Server {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	for {
		addr, err := FreeAddr()
		if err == nil {
			err = m.StartAddr(addr)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EADDRINUSE) { // see FreeAddr
			t.Fatalf("redistest: start miniredis: %v", err)
		}
	}
	t.Cleanup(m.Close)
	s := &Server{Addrs: []string{m.Addr()}, Embedded: m, scripts: describe(m, 24*time.Hour)}
	s.judge(t)
	return s
}

// Clock stops the clock of an embedded server, and returns what moves it on.
func (s *Server) Clock() (forward func(d time.Duration)) {
	now := time.Now()
	forward = func(d time.Duration) { now = now.Add(d); s.Embedded.SetTime(now) }
	forward(0)
	return forward
}

// Start runs a private redis-server with the given extra arguments. It skips the test if none is installed, or
// fails it if RequireEnv is set. One without arguments may have been of another test before; it is empty.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if len(args) > 0 {
		return fresh(t, args...)
	}
	NeedServer(t)
	return reused(t, 1, func() ([]*Server, func()) {
		s, end := begin(t, func(host, port, dir string) []string { return settings(host, port, dir) })
		return []*Server{s}, end
	})[0]
}

// fresh is Start of one that no test had before.
func fresh(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, func(host, port, dir string) []string { return append(settings(host, port, dir), args...) })
}

func settings(host, port, dir string) []string {
	return []string{"--port", port, "--bind", host, "--replica-announce-ip", host, "--dir", dir, "--save", "",
		"--appendonly", "no", "--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0", "--logfile",
		filepath.Join(dir, "log")}
}

// start is Launch for the length of a test.
func start(t testing.TB, line func(host, port, dir string) []string) *Server {
	t.Helper()
	NeedServer(t)
	s, end := begin(t, line)
	t.Cleanup(end)
	return s
}

// begin is Launch in a test.
func begin(t testing.TB, line func(host, port, dir string) []string) (*Server, func()) {
	t.Helper()
	s, end, err := Launch(line)
	if err != nil {
		t.Fatalf("redistest: start redis-server: %v", err)
	}
	return s, end
}

// Each runs fn on the embedded server and on a real one.
func Each(t *testing.T, fn func(t *testing.T, s *Server)) {
	t.Run("embedded", func(t *testing.T) { fn(t, Embedded(t)) })
	t.Run("redis", func(t *testing.T) { fn(t, Start(t)) })
}

// NeedServer skips the test if no redis-server is installed, or fails it if RequireEnv is set; with -short it skips a
// test, not a benchmark. Start calls it.
func NeedServer(t testing.TB) {
	t.Helper()
	if _, ok := t.(*testing.T); ok && testing.Short() {
		t.Skip("starts a process; leave -short out")
	}
	_, err := Program()
	switch {
	case err == nil:
	case os.Getenv(RequireEnv) == "1" || os.Getenv(ServerEnv) != "":
		t.Fatalf("redistest: %s is %q, %s is %q, and there is no server: %v", RequireEnv, os.Getenv(RequireEnv), ServerEnv,
			os.Getenv(ServerEnv), err)
	default:
		t.Skip("no redis-server in PATH; install one to run this test")
	}
}

// Option is the client configuration that reaches s; change it before use where a test needs to. Its connections have
// less memory than rueidis gives them, over a megabyte: a test makes many, and much of its time went into that.
func (s *Server) Option() rueidis.ClientOption {
	o := small(s.Addrs...)
	o.DialCtxFn = s.dial
	o.Sentinel.MasterSet = s.set
	if s.Embedded != nil {
		o.ForceSingleClient, o.DisableCache = true, true // miniredis has neither CLUSTER nor CLIENT TRACKING
	}
	return o
}

func small(addrs ...string) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: addrs, ReadBufferEachConn: 16 << 10, WriteBufferEachConn: 16 << 10,
		RingScaleEachConn: 8}
}

// Client connects with s.Option and closes with the test.
func (s *Server) Client(t testing.TB) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(s.Option())
	if err != nil {
		t.Fatalf("redistest: connect to %v: %v", s.Addrs, err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() { c.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(5 * time.Second): // rueidis 1.0.79, of a call at the same moment: see closeClient in pubsub
			t.Logf("redistest: a client is still being closed")
		}
	})
	return c
}

// ScriptCalls returns how many scripts the server has run for clients.
func ScriptCalls(t testing.TB, c rueidis.Client) int {
	t.Helper()
	return CommandCalls(t, c).Scripts(nil)
}

// Calls are how often a server has run each command. Commands that scripts run are included, except by an embedded
// server.
type Calls map[string]int

// CommandCalls asks a server for its Calls.
func CommandCalls(t testing.TB, c rueidis.Client) Calls {
	t.Helper()
	calls, err := CallsOf(context.Background(), c)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return calls
}

// CallsOf is CommandCalls for programs that are not tests.
func CallsOf(ctx context.Context, c rueidis.Client) (Calls, error) {
	text, err := c.Do(ctx, c.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		return nil, fmt.Errorf("INFO commandstats: %w", err)
	}
	calls := Calls{}
	for line := range strings.Lines(text) {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":calls="); ok {
			n, _, _ := strings.Cut(rest, ",")
			calls[name], _ = strconv.Atoi(n)
		}
	}
	return calls, nil
}

// ofConnections are the commands by which connections begin and are kept. A client opens connections as it likes.
var ofConnections = []string{"hello", "client|tracking", "ping"}

// Since is the number of calls after before. The commands of connections, the commands named in except, and INFO, which
// asks, are not counted.
func (c Calls) Since(before Calls, except ...string) (sum int) {
	for name, n := range c {
		if name != "info" && !slices.Contains(ofConnections, name) && !slices.Contains(except, name) {
			sum += n - before[name]
		}
	}
	return sum
}

// Scripts is the number of scripts that were called after before.
func (c Calls) Scripts(before Calls) (sum int) {
	for _, name := range []string{"eval", "evalsha"} {
		sum += c[name] - before[name]
	}
	return sum
}

// InABubble reports whether the caller is in a synctest bubble, whose clock begins with the year 2000.
func InABubble() bool { return time.Now().Year() < 2010 }

// patience is how long a busy machine is given for what takes it seconds at most.
const patience = 60 * time.Second

// Eventually polls ok until it holds, and fails the test with what if it does not within limit. A limit of ten seconds
// or more is not a promise of the library's but patience with the machine, and is a minute at least, though not in a
// bubble.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	pause := 2 * time.Millisecond
	if InABubble() { // its clock is as fast as the work between two polls
		pause = 50 * time.Millisecond
	} else if limit >= 10*time.Second {
		limit = max(limit, patience)
	}
	for end := time.Now().Add(limit); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(pause)
	}
}
