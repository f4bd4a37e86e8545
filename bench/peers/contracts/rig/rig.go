// Package rig is what the adapters share: the server on which a suite runs, and names on it.
package rig

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// AddrEnv names the server to a suite's program.
const AddrEnv = "REDLATCH_CONTRACTS_ADDR"

// Open is another process of a suite, as far as the library can tell.
func Open() (*redlatch.Client, error) {
	return OpenAt(rueidis.ClientOption{InitAddress: []string{os.Getenv(AddrEnv)}})
}

// OpenAt is Open of another server or database.
func OpenAt(o rueidis.ClientOption) (*redlatch.Client, error) {
	return redlatch.Open(context.Background(), o, redlatch.Options{
		CallTimeout: 5 * time.Second, // a busy machine is not a failure
		Logger:      slog.New(slog.DiscardHandler),
		// Processes die here without a word, and the next of them must not wait for long.
		Locks: func(o *rlock.Options) { o.WatchdogTimeout = 10 * time.Second },
	})
}

// Shared is the one client of a program whose adapter has none of its own.
var Shared = sync.OnceValue(func() *redlatch.Client {
	red, err := Open()
	if err != nil {
		panic(err)
	}
	return red
})

var (
	run   = rand.Text()
	named atomic.Int64
)

// Name is a name that has not been used: the zero value of a peer's type is a lock of its own.
func Name() string { return fmt.Sprintf("%s:%d", run, named.Add(1)) }
