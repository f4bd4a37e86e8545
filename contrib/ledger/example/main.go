// Command example moves the ledger of a sale into a database, with two movers at the same time.
//
//	go -C contrib/ledger run ./example        embedded Redis and SQLite, nothing else needed
package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
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
	db, err := sql.Open("sqlite3",
		"file:"+filepath.Join(dir, "sale.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := redlatchledger.SQLite.Create(ctx, db); err != nil {
		return err
	}
	option := rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, ForceSingleClient: true}
	red, err := redlatch.Open(ctx, option, redlatch.Options{CallTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	defer red.Close(context.WithoutCancel(ctx))

	sale := red.Stocks().Stock("sale")
	epoch, err := sale.Open(ctx, stock.Spec{Limit: 20, OpenFor: time.Hour, Ledger: true})
	if err != nil {
		return err
	}
	mover := redlatchledger.Mover{DB: db, Dialect: redlatchledger.SQLite, Stock: "sale"}
	if err := mover.Announce(ctx, epoch); err != nil {
		return err
	}
	moving, stop := context.WithCancel(ctx)
	var movers sync.WaitGroup
	for range 2 {
		movers.Go(func() { _ = mover.Keep(moving, sale, 10*time.Millisecond) })
	}
	defer movers.Wait()
	defer stop()
	if err := sell(ctx, sale); err != nil {
		return err
	}
	for n := 1; n > 0; { // until the ledger is empty
		if n, err = sale.Ledger(ctx, 100, mover.Move); err != nil {
			return err
		}
	}
	var names []string
	for e, err := range mover.Units(ctx, epoch) {
		if err != nil {
			return err
		}
		names = append(names, e.Claimant)
	}
	st, err := sale.Inspect(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "sold, as Redis says %d, as the database says %d: %s\n", st.Sold, len(names),
		strings.Join(names, " "))
	if int(st.Sold) != len(names) {
		return fmt.Errorf("they differ")
	}
	return nil
}

// sell has 30 users claim a unit, of whom every third returns it.
func sell(ctx context.Context, sale *stock.Stock) error {
	for i := range 30 {
		user := "user-" + strconv.Itoa(i)
		g, err := sale.Claim(ctx, user)
		if err != nil {
			return err
		}
		if g.Won() && i%3 == 0 {
			if _, err := sale.Return(ctx, stock.Units{Claimant: user, Ordinal: g.Ordinal}); err != nil {
				return err
			}
		}
	}
	return nil
}
