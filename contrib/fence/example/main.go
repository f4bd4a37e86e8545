// Command example is a payment service with two workers. One of them is suspended while it charges a card, until its
// lease has ended; the other one pays the order. The database refuses what the first one then writes.
//
//	go -C contrib/fence run ./example        embedded Redis and SQLite, nothing else needed
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/rlock"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

// service pays orders.
type service struct {
	locks  *rlock.Client
	fences redlatchfence.Fences
	out    io.Writer
}

const schema = `
	CREATE TABLE orders (id text PRIMARY KEY, cents bigint NOT NULL, paid_by text NOT NULL);
	CREATE TABLE payments (order_id text NOT NULL, worker text NOT NULL, cents bigint NOT NULL);
	INSERT INTO orders VALUES ('order-1', 4200, '')`

// pay charges a card for an order and books it, once. The bank takes the order's id as an idempotency key, so that it
// charges once, too: a guard of this database cannot undo what was done at another place.
func (s *service) pay(ctx context.Context, worker, order string, lease time.Duration,
	charge func(ctx context.Context, idempotencyKey string, cents int64) error) error {
	hold, err := s.locks.Fenced("payment:" + order).WithLease(lease).Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(context.WithoutCancel(ctx)) // ErrLost is no news: the database knows better
	token, err := redlatchfence.Of(hold)
	if err != nil {
		return err
	}
	// The first Do reads under the token. From here on no older holder can book.
	var cents int64
	var paidBy string
	err = s.fences.Do(ctx, order, token, func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT cents, paid_by FROM orders WHERE id = ?`, order).Scan(&cents, &paidBy)
	})
	if err != nil {
		return err
	}
	if paidBy != "" {
		fmt.Fprintf(s.out, "%s: %s has paid it\n", worker, paidBy)
		return nil
	}
	if err := charge(hold.Context(ctx), order, cents); err != nil {
		return err
	}
	// It may be suspended here as well; a look at hold.Err first would only make that less likely.
	return s.fences.Do(ctx, order, token, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE orders SET paid_by = ? WHERE id = ?`, worker, order); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO payments VALUES (?, ?, ?)`, order, worker, cents)
		return err
	})
}

func run(ctx context.Context, out io.Writer) error {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		return err
	}
	defer server.Close()
	dir, err := os.MkdirTemp("", "payments")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "shop.db")+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := redlatchfence.SQLite.Create(ctx, db); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	option := rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, ForceSingleClient: true}
	red, err := redlatch.Open(ctx, option, redlatch.Options{CallTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer red.Close(context.WithoutCancel(ctx))
	s := &service{locks: red.Locks(), fences: redlatchfence.Fences{DB: db, Dialect: redlatchfence.SQLite}, out: out}

	charged := map[string]bool{} // at the bank, by idempotency key
	quickly := func(_ context.Context, key string, _ int64) error { charged[key] = true; return nil }
	slowly := func(lost context.Context, key string, cents int64) error {
		// The worker is suspended here. The other one gets the lock when the lease has ended.
		if err := s.pay(ctx, "bob", "order-1", 30*time.Second, quickly); err != nil {
			return err
		}
		return quickly(lost, key, cents)
	}
	err = s.pay(ctx, "ann", "order-1", 200*time.Millisecond, slowly)
	switch {
	case errors.Is(err, redlatchfence.ErrStale):
		fmt.Fprintln(out, "ann: refused, a later worker has the order: look at it again")
		if err := s.pay(ctx, "ann", "order-1", 30*time.Second, quickly); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	var payments int
	var worker string
	if err := db.QueryRowContext(ctx, `SELECT COUNT(*), MAX(worker) FROM payments`).Scan(&payments, &worker); err != nil {
		return err
	}
	fmt.Fprintf(out, "payments booked: %d, by %s; cards charged: %d\n", payments, worker, len(charged))
	return nil
}
