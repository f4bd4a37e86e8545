// Package demo sets up Examples, which have no testing.TB: a server in the process, and a client of it.
package demo

import (
	"context"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// Serve starts a server. A program has one: rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}}.
func Serve() (server *miniredis.Miniredis, option rueidis.ClientOption) {
	server = miniredis.NewMiniRedis()
	server.ClockTTL(true)
	Must(server.Start())
	return server, rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true}
}

// Open returns a client of a new server, and closes both by end. Calls have time: the machine may be busy.
func Open() (red *redlatch.Client, server *miniredis.Miniredis, end func()) {
	server, option := Serve()
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
