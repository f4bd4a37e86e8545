package services

import (
	"context"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// Embedded is a Redis server in the process.
type Embedded struct {
	*miniredis.Miniredis
	ahead atomic.Int64 // nanoseconds by which its clock is ahead of the process's
}

// Forward moves the server's clock.
func (s *Embedded) Forward(d time.Duration) { s.ahead.Add(int64(d)) }

// freezeScripts stops the server's clock while a script runs, as Redis does. Otherwise a key can expire between two
// commands of a script. The server's clock stands between the commands of clients, which begin with HELLO.
func (s *Embedded) freezeScripts() {
	var clients sync.Map
	s.Server().SetPreHook(func(peer *server.Peer, command string, _ ...string) (done bool) {
		if command == "HELLO" {
			clients.Store(peer, nil)
		}
		if _, client := clients.Load(peer); client { // not a script, which holds the mutex that SetTime takes
			s.SetTime(time.Now().Add(time.Duration(s.ahead.Load())))
		}
		return false
	})
}

// Redis starts a server for an Example, which has no testing.TB. A program has a server already, and writes
// rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}}.
func Redis() (server *Embedded, option rueidis.ClientOption) {
	server = &Embedded{Miniredis: miniredis.NewMiniRedis()}
	server.ClockTTL(true)
	Must(server.Start())
	server.freezeScripts()
	return server, rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true}
}

// Redlatch returns a client of a new server for an Example. end closes both. Calls have time: the machine may be busy.
func Redlatch() (red *redlatch.Client, server *Embedded, end func()) {
	server, option := Redis()
	red, err := redlatch.Open(context.Background(), option, redlatch.Options{CallTimeout: 10 * time.Second,
		Limiters: func(o *ratelimit.Options) { o.AllowTimeout = 10 * time.Second }})
	Must(err)
	return red, server, func() {
		_ = red.Close(context.Background()) // the Example has shown what it shows
		server.Close()
	}
}

// Must ends an Example that cannot go on.
func Must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
