package services

import (
	"context"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// Redis starts a server for an Example, which has no testing.TB. A program has a server already, and writes
// rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}}.
func Redis() (server *miniredis.Miniredis, option rueidis.ClientOption) {
	server = miniredis.NewMiniRedis()
	server.ClockTTL(true)
	Must(server.Start())
	return server, rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true}
}

// Redlatch returns a client of a new server for an Example. end closes both. Calls have time: the machine may be busy.
func Redlatch() (red *redlatch.Client, server *miniredis.Miniredis, end func()) {
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
