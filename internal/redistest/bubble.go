package redistest

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
)

// InBubble runs fn in a synctest bubble with a server and n processes on it; hours there are moments here. open makes a
// process on its own connections to the server, and says how to end it. All ends with fn, the server last.
func InBubble[P any](t *testing.T, n int, open func(t *testing.T, s *Server, c rueidis.Client) (p P, end func()),
	fn func(t *testing.T, s *Server, all []P)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := Bubble(t)
		all, ends := make([]P, n), make([]func(), n)
		for i := range all {
			c, err := rueidis.NewClient(s.Option())
			if err != nil {
				t.Fatalf("redistest: connect: %v", err)
			}
			p, end := open(t, s, c)
			all[i], ends[i] = p, func() { end(); c.Close() }
		}
		fn(t, s, all)
		for _, end := range ends {
			end()
		}
		s.Embedded.Close()
	})
}

// Simulated runs fn in a synctest bubble with n servers, which have been up for a day: hours there are moments here.
// What fn opens by Server.Client and NewProxy is closed with fn, and so is what it closes by t.Cleanup. fn can have no
// subtests and no processes.
func Simulated(t *testing.T, n int, fn func(t *testing.T, servers []*Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Second) }) // all is closed: what pauses before it tries again finds that out
		var servers []*Server
		for range n {
			s := Bubble(t)
			s.boot(t, 24*time.Hour)
			t.Cleanup(s.Embedded.Close)
			servers = append(servers, s)
		}
		fn(t, servers)
	})
}

// boot starts an embedded server as one that has been up for that long.
func (s *Server) boot(t testing.TB, up time.Duration) {
	t.Helper()
	c, err := s.Embedded.Dial()
	if err != nil {
		t.Fatalf("redistest: start miniredis: %v", err)
	}
	_ = c.Close() // it was for the start only
	s.scripts = describe(s.Embedded, up)
	s.judge(t)
}

// Bubble starts miniredis without a socket, for use inside a testing/synctest bubble: clients reach it through
// s.Option over in-memory pipes, and its TTLs follow the bubble's clock. The test must close its clients, hubs and
// finally s.Embedded before the bubble ends.
func Bubble(t testing.TB) *Server {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	s := &Server{Addrs: []string{"bubble:0"}, Embedded: m, down: &atomic.Bool{}}
	s.dial = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
		if s.down.Load() { // else it would be started by this
			return nil, syscall.ECONNREFUSED
		}
		return m.Dial()
	}
	return s
}
