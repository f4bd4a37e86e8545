package redistest

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
)

// InBubble runs fn in a synctest bubble with a server and n processes on it; hours there are moments here. open makes a process on its
// own connections to the server, and says how to end it. All ends with fn, the server last.
func InBubble[P any](t *testing.T, n int, open func(t *testing.T, s *Server, c rueidis.Client) (p P, end func()), fn func(t *testing.T, s *Server, all []P)) {
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

// Bubble starts miniredis without a socket, for use inside a testing/synctest bubble: clients reach it through
// s.Option over in-memory pipes, and its TTLs follow the bubble's clock. The test must close its clients, hubs and
// finally s.Embedded before the bubble ends.
func Bubble(t testing.TB) *Server {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	return &Server{Addrs: []string{"bubble:0"}, Embedded: m, dial: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
		return m.Dial()
	}}
}
