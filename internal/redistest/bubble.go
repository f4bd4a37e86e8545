package redistest

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/alicebob/miniredis/v2"
)

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
