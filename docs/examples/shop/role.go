package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

// roleEnv makes this program one of the processes of the shop.
const roleEnv = "REDLATCH_SHOP_ROLE"

// station is what a process of the shop reads when it starts, as a line of JSON on its stdin. When stdin ends, it
// closes.
type station struct {
	Number   int
	Listen   string // of a worker
	Redis    string
	Embedded bool // the server has neither client-side caching nor Cluster
	Stock    string
	Orders   string // file of the order database
	Bank     string // URL
	Hold     time.Duration
	Cents    int64 // price of a unit
}

var roles = map[string]func(ctx context.Context, s station) error{"worker": work, "mover": move}

// play is a process in a role; it returns the exit status.
func play(role string, in io.Reader) int {
	// Ctrl-C reaches all processes of a terminal; the parent closes the shop in order
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	stdin := bufio.NewReader(in)
	line, err := stdin.ReadBytes('\n')
	var s station
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role, "without orders:", err)
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		io.Copy(io.Discard, stdin) // until the parent closes it, or dies
		cancel()
	}()
	if err := roles[role](ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// open connects to the server. Calls are made again while it does not answer, until their ctx ends.
func (s station) open() (*redlatch.Client, error) {
	return redlatch.Open(context.Background(),
		rueidis.ClientOption{InitAddress: []string{s.Redis}, DisableCache: s.Embedded,
			ForceSingleClient: true},
		redlatch.Options{CallTimeout: 2 * time.Second, RetryTimeout: patience, Logger: slog.New(slog.DiscardHandler)})
}

// stockroom is the shop's own view of its stock.
func (s station) stockroom(red *redlatch.Client) stockroom {
	return stockroom{red.Stocks().Stock(s.Stock), s.Hold}
}

// closeNow closes what is held within a bound, since the context of a process that ends is over.
func closeNow(red *redlatch.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	red.Close(ctx)
}
