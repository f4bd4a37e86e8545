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

// InBubble runs fn in a synctest bubble, where hours take moments, with a server and n processes. open makes a process
// with connections of its own to the server, and returns a function that ends the process. After fn the processes end,
// and then the server.
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

// Simulated runs fn in a synctest bubble, where hours take moments, with n servers that have been up for a day. After
// fn the clients and proxies of Server.Client and NewProxy are closed, and the functions of t.Cleanup run. fn can have
// neither subtests nor processes.
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

// boot makes an embedded server report that it has been up for so long.
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
