package redlatchtest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
)

const (
	callTimeout = 5 * time.Second // of clients that Open makes, unless the test sets another
	glance      = 2 * time.Second // for holds at the end of a test whose release may be about to begin
	// keepAlive is the time between the PINGs of a connection. The default of rueidis is a second, and made PINGs two
	// thirds of the cost of a simulated day.
	keepAlive = time.Minute
	// A test makes many connections, so each has less memory than by the defaults of rueidis, half a MiB and 10.
	bufferSize = 16 << 10
	ringScale  = 8 // the logarithm of how many calls wait on a connection
)

// Server is an in-process server for one test. Its methods are safe for concurrent use. Only New has to be called by
// the test's goroutine.
type Server struct {
	t   testing.TB
	m   *miniredis.Miniredis
	srv *server.Server
	log *output

	clock sync.Mutex
	ahead time.Duration // by which the server's clock is ahead of this process's

	mu      sync.Mutex
	peers   map[*server.Peer]*peer
	conns   map[*conn]struct{}
	faults  []*Injected
	written []string // keys written by commands whose invalidations were not sent yet
	pushes  sync.WaitGroup
	opened  []opened
	holds   []func() // releases of the holds of other processes
	ended   bool
	held    ledger
	grace   time.Duration // for background work at the end of the test

	forgotten bool // at the end of the test something was held, and nobody was releasing it

	first  sync.Once
	others *redlatch.Client // the clients of HoldElsewhere and the like
}

// opened is a client or a hub.
type opened interface {
	Close(ctx context.Context) error
}

// New starts a server, which ends with the test. The end closes the clients of [Server.Open] and the hubs of
// [Server.Hub]. The test fails if a hold or permit was not released, if a release cannot be confirmed, or if the test
// did not close a client of its own. A test that has failed already gets no such report.
//
// The server uses no port: clients reach it through pipes in memory. So it works inside a testing/synctest bubble. If
// the server is made there, with the bubble's t, its clock is the bubble's.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, m: miniredis.NewMiniRedis(), log: &output{to: t.Output()}, peers: map[*server.Peer]*peer{},
		conns: map[*conn]struct{}{}, grace: 2 * callTimeout}
	s.m.ClockTTL(true)
	first, err := s.m.Dial() // starts the server
	if err != nil {
		t.Fatalf("redlatchtest: start miniredis: %v", err)
	}
	_ = first.Close() // has served its purpose
	s.srv = s.m.Server()
	s.srv.SetPreHook(s.before)
	t.Cleanup(s.end)
	return s
}

// Option is the client configuration that reaches the server, for a client that the test makes itself, and closes.
func (s *Server) Option() rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{"redlatchtest:0"}, DialCtxFn: s.dial,
		ForceSingleClient: true, DisableCache: true, // miniredis has neither CLUSTER nor a cache's CLIENT TRACKING
		ReadBufferEachConn: bufferSize, WriteBufferEachConn: bufferSize, RingScaleEachConn: ringScale,
		// The default ConnWriteTimeout of rueidis depends on KeepAlive, and is 10 s with the default KeepAlive.
		Dialer: net.Dialer{KeepAlive: keepAlive}, ConnWriteTimeout: 10 * time.Second,
	}
}

// Open returns a client of the server, as another process would have it: several Opens are several processes. The end
// of the test closes the client, unless the test did. At most one Options may be given. CallTimeout defaults to 5 s, so
// that a busy machine makes no test fail, and Logger defaults to the test's log.
func (s *Server) Open(opts ...redlatch.Options) *redlatch.Client {
	s.t.Helper()
	if len(opts) > 1 {
		s.t.Fatalf("redlatchtest: Open takes one Options, not %d", len(opts))
	}
	var o redlatch.Options
	if len(opts) == 1 {
		o = opts[0]
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	}
	s.held.watch(&o)
	red := s.open(s.Option(), o)
	s.mu.Lock()
	// The release of a call that left without its reply is pending for a CallTimeout.
	s.grace = max(s.grace, 2*o.CallTimeout)
	s.mu.Unlock()
	s.keep(red)
	return red
}

func (s *Server) open(via rueidis.ClientOption, o redlatch.Options) *redlatch.Client {
	s.t.Helper()
	o.CallTimeout = cmp.Or(o.CallTimeout, callTimeout)
	red, err := redlatch.Open(context.Background(), via, o)
	if err != nil {
		s.t.Fatalf("redlatchtest: open: %v", err)
	}
	return red
}

// Hub returns a hub of the server, for tests of one package alone. The end of the test closes the hub, unless the test
// did. The test has to close the clients that it makes on the hub, before it ends.
func (s *Server) Hub() *pubsub.Hub {
	s.t.Helper()
	hub, err := pubsub.Dial(context.Background(), s.Option(),
		pubsub.Options{Logger: slog.New(slog.NewTextHandler(s.log, nil))})
	if err != nil {
		s.t.Fatalf("redlatchtest: dial: %v", err)
	}
	s.keep(hub)
	return hub
}

func (s *Server) keep(o opened) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = append(s.opened, o)
}

// Redis returns the miniredis behind the server, to read and change keys. Holders are not notified of changes made
// through Redis, and learn of them at their next renewal.
func (s *Server) Redis() *miniredis.Miniredis { return s.m }

// Advance moves the server's clock by d, and not this process's: leases, time-outs and windows that last no longer end
// there, as after a step of the server's clock, or after a suspension of this process for d. Holders whose lease is
// over learn of the loss as they do after [Server.Lose]. Waiters are not woken.
//
// To move both clocks, run the test in a bubble of testing/synctest and sleep, which takes no time.
func (s *Server) Advance(d time.Duration) {
	s.t.Helper()
	if d < 0 {
		s.t.Fatalf("redlatchtest: Advance by %v: want 0 or more", d)
	}
	s.clock.Lock()
	s.ahead += d
	s.clock.Unlock()
	s.tick()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		s.invalidate(p, func(string) bool { return true })
	}
}

// tick sets the server's clock for the next command. The clock then stands while a script runs, as in Redis: otherwise
// a key could expire between two commands of a script. The mutex orders the calls, because the clock must not go back.
func (s *Server) tick() {
	s.clock.Lock()
	defer s.clock.Unlock()
	s.m.SetTime(time.Now().Add(s.ahead))
}

// end is the end of the test.
func (s *Server) end() {
	s.Heal()
	s.mu.Lock()
	holds, all := s.holds, slices.Clone(s.opened)
	s.mu.Unlock()
	for _, release := range holds {
		release()
	}
	// Only keys that the server has count. The server knows neither a Multi's name nor a CountingSemaphore's holders, and
	// any client may release these.
	held := slices.DeleteFunc(s.held.left(), func(key string) bool { return s.what(key) == nothing })
	var left []error
	s.forgotten = s.held.forgotten(held)
	slices.Reverse(all)
	for _, o := range all {
		left = append(left, s.close(o))
	}
	if s.others != nil {
		_ = s.close(s.others) // the other process may hold something at the end of the test
	}
	if held := s.held.unreleased(held); held != nil {
		left = []error{held} // the other errors follow from the hold
	} else {
		left = append(left, s.unclosed())
	}
	if err := errors.Join(left...); err != nil && !s.t.Failed() {
		s.t.Errorf("redlatchtest: left at the end of the test: %v", err)
	}
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.m.Close()
	s.pushes.Wait()
	s.log.close()
}

func (s *Server) close(o opened) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience())
	defer cancel()
	return o.Close(ctx)
}

// patience is how long the end of the test waits for clients and connections to end.
func (s *Server) patience() time.Duration {
	switch {
	case s.t.Failed():
		return time.Second
	case s.forgotten:
		return glance
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grace
}

// unclosed returns how many connections are still open, as an error.
func (s *Server) unclosed() error {
	// A client closes some of its connections in the background.
	for end := time.Now().Add(s.patience()); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		n := len(s.conns)
		s.mu.Unlock()
		if n == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d connections of clients that were not closed", n)
		}
	}
}

// conn is a client's end of a connection.
type conn struct {
	net.Conn
	s *Server
}

func (c *conn) Close() error {
	c.s.mu.Lock()
	delete(c.s.conns, c)
	c.s.mu.Unlock()
	return c.Conn.Close()
}

func (s *Server) dial(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, &net.OpError{Op: "dial", Net: "redlatchtest", Err: errors.New("the test has ended")}
	}
	ours, theirs := net.Pipe()
	s.srv.ServeConn(theirs)
	c := &conn{ours, s}
	s.conns[c] = struct{}{}
	return c, nil
}

// ask runs a command of the server's own, and returns the reply as it is on the wire.
func (s *Server) ask(words ...string) string {
	var reply bytes.Buffer
	w := bufio.NewWriter(&reply)
	s.srv.Dispatch(server.NewPeer(w), words)
	_ = w.Flush() // writes to memory, and cannot fail
	return reply.String()
}

// knows reports whether the server has the script of that hash. Without it EVALSHA runs nothing, and the client sends
// the script's text next.
func (s *Server) knows(sha string) bool {
	return strings.Contains(s.ask("SCRIPT", "EXISTS", sha), ":1")
}

// output is the test's log while the test lasts.
type output struct {
	mu sync.Mutex
	to interface{ Write([]byte) (int, error) }
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to == nil {
		return len(p), nil // the test did not close the client that writes
	}
	return o.to.Write(p)
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.to = nil
}
