// Package redistest starts the servers of tests: miniredis inside the process for quick logic, and private redis-server
// processes, alone, as a Cluster, or as a primary with replicas and sentinels. The test process has a loopback address
// to itself for their ports. Each server has a directory of its own, and ends with its test.
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

// Addr returns the first address.
func (s *Server) Addr() string { return s.Addrs[0] }

// Embedded starts miniredis on a loopback port. Its TTLs run with the wall clock.
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

// Clock stops the clock of an embedded server, and returns a function that moves the clock on.
func (s *Server) Clock() (forward func(d time.Duration)) {
	now := time.Now()
	forward = func(d time.Duration) { now = now.Add(d); s.Embedded.SetTime(now) }
	forward(0)
	return forward
}

// Start runs a private redis-server with the given extra arguments. It skips the test if none is installed, or
// fails it if RequireEnv is set. A server without extra arguments may be reused from an earlier test; it is empty.
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

// fresh is Start for a server that no test has used before.
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

// Option returns the configuration of a client of s. A test may change it before use. The connections have smaller
// buffers than rueidis' own of over a megabyte, because a test makes many connections and spent much time on that
// memory.
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

// Client returns a client with s.Option, which is closed with the test.
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

// Calls are the numbers of calls of each command on a server. Commands that scripts run are included, except on an
// embedded server.
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

// ofConnections are the commands that open and keep a connection. A client opens connections when it needs them.
var ofConnections = []string{"hello", "client|tracking", "ping"}

// Since returns the number of calls after before. It does not count the commands of connections, the commands in
// except, and the INFO that reads the numbers.
func (c Calls) Since(before Calls, except ...string) (sum int) {
	for name, n := range c {
		if name != "info" && !slices.Contains(ofConnections, name) && !slices.Contains(except, name) {
			sum += n - before[name]
		}
	}
	return sum
}

// Scripts returns the number of scripts that were called after before.
func (c Calls) Scripts(before Calls) (sum int) {
	for _, name := range []string{"eval", "evalsha"} {
		sum += c[name] - before[name]
	}
	return sum
}

// InABubble reports whether the caller is in a synctest bubble, whose clock begins with the year 2000.
func InABubble() bool { return time.Now().Year() < 2010 }

// patience is the time limit for steps that take a busy machine some seconds at most.
const patience = 60 * time.Second

// Eventually polls ok until it returns true. If ok does not return true within limit, the test fails with the message
// what. A limit of ten seconds or more is patience with a busy machine and not a promise of the library, so it becomes
// at least a minute, except in a bubble.
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
