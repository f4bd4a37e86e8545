// Command ledger moves the ledger of a sale into a database, with two movers at the same time.
//
// A sale writes every grant and every return into a stream, in the same script. A mover delivers each entry at least once:
// again after a crash, and late if the mover was slow. So the database keeps one row for each event, under a unique key, and
// never changes it. The present owner of each unit is a view. (Books that insert a row for a grant and delete it for a
// return are wrong as soon as a slow mover inserts after another has deleted.)
//
//	cd docs/examples/ledger && go run .        embedded Redis and SQLite, nothing else needed
//
// The schema and the statements are in books.go.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/stock"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

// dial connects to a server without client-side caching, as the embedded one.
func dial(addr string) (c *stock.Client, end func(), err error) {
	option := rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true}
	red, err := redlatch.Open(option, redlatch.Options{CallTimeout: 5 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	return red.Stocks(), func() { red.Close(context.Background()) }, nil
}

func run(ctx context.Context, out io.Writer) error {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		return err
	}
	defer server.Close()
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := openBooks(filepath.Join(dir, "sale.db"))
	if err != nil {
		return err
	}
	defer b.db.Close()
	c, end, err := dial(server.Addr())
	if err != nil {
		return err
	}
	defer end()

	const name = "sale"
	sale := c.Stock(name)
	epoch, err := sale.Open(ctx, stock.Spec{Limit: 20, OpenFor: time.Hour, Ledger: true})
	if err != nil {
		return err
	}
	moving, stop := context.WithCancel(ctx)
	var movers sync.WaitGroup
	for range 2 {
		movers.Go(func() {
			sale.KeepLedger(moving, 10*time.Millisecond, 5, func(ctx context.Context, entries []stock.Entry) error {
				return b.move(ctx, name, entries)
			})
		})
	}
	defer movers.Wait()
	defer stop()
	for i := range 30 {
		user := "user-" + strconv.Itoa(i)
		g, err := sale.Claim(ctx, user)
		if err != nil {
			return err
		}
		if g.Won() && i%3 == 0 {
			if _, err := sale.Return(ctx, user, g.Ordinal); err != nil {
				return err
			}
		}
	}
	for ctx.Err() == nil { // until the ledger is empty; with two movers, a batch may be in the database and not yet removed
		n, err := sale.Ledger(ctx, 100, func(ctx context.Context, entries []stock.Entry) error { return b.move(ctx, name, entries) })
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	held, err := b.holders(ctx, name, epoch)
	if err != nil {
		return err
	}
	st, err := sale.Inspect(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, user := range held {
		names = append(names, user)
	}
	slices.Sort(names)
	fmt.Fprintf(out, "sold, as Redis says %d, as the database says %d: %v\n", st.Sold, len(held), names)
	if int(st.Sold) != len(held) {
		return fmt.Errorf("they differ")
	}
	return nil
}
