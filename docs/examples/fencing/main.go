//go:build unix

// Command fencing shows what a lock cannot do by itself, and the other half that can.
//
// A clerk process holds the lock of an account and has read the balance. Then it is stopped until its lease is over, by
// SIGSTOP, which stands for a long pause or a suspended virtual machine. Another clerk gets the lock and books a
// deposit. Then the first clerk continues, and writes what it computed from the old balance. No lock can prevent that.
// The account can: it keeps the greatest fencing token that it has seen, and refuses a write with a smaller one.
//
//	go -C docs/examples run ./fencing                      embedded Redis and SQLite, nothing else needed
//	go -C docs/examples run ./fencing -redis 127.0.0.1:6379
//
// It books twice: on an account without that guard, and on one with it. Guards for other resources are in
// docs/fencing.md.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/docs/examples/internal/stage"
	"github.com/redlatch/redlatch/rlock"
)

const (
	slow  = 10 // the deposit of the clerk that is stopped
	quick = 50 // and of the other
	lease = time.Second
)

// The guard is the last condition, in the same step as the write.
const (
	create = `CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER);
		INSERT INTO account VALUES (1, 100, 0)`
	write   = `UPDATE account SET balance = ?1, fence = ?2 WHERE id = 1`
	guarded = write + ` AND fence <= ?2`
)

func main() {
	option := stage.Redis()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	red, err := redlatch.Open(ctx, option, redlatch.Options{})
	if err != nil {
		log.Fatal("fencing: ", err)
	}
	lock := red.Locks().Fenced("example-account")
	if file, update, ok := strings.Cut(stage.Role(), "\n"); ok { // the clerk that will be stopped
		wait := func() error { _, err := bufio.NewReader(os.Stdin).ReadString('\n'); return err }
		err = book(ctx, lock.WithLease(lease), file, update, "slow", slow, wait)
	} else {
		err = show(ctx, lock)
	}
	if err != nil {
		log.Fatal("fencing: ", err)
	}
}

// book adds a deposit to the account, under the lock. pause comes between reading and writing.
func book(ctx context.Context, lock *rlock.Lock, file, update, who string, deposit int64,
	pause func() error) error {
	account, err := sql.Open("sqlite3", "file:"+file)
	if err != nil {
		return err
	}
	defer account.Close()
	hold, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	token, _ := hold.Token()
	var balance int64
	if err := account.QueryRowContext(ctx, `SELECT balance FROM account`).Scan(&balance); err != nil {
		return err
	}
	fmt.Printf("  %-5s clerk, token …%04d: reads %d, will write %d\n", who, token%10_000, balance, balance+deposit)
	if err := pause(); err != nil {
		return err
	}
	// To look at hold.Err() here makes a late write less likely, and no more: the clerk may be stopped after that look.
	result, err := account.ExecContext(ctx, update, balance+deposit, token)
	if err != nil {
		return err
	}
	if rows, _ := result.RowsAffected(); rows == 0 {
		fmt.Printf("  %-5s clerk, token …%04d: the write is refused, a later holder has written\n", who, token%10_000)
	} else {
		fmt.Printf("  %-5s clerk, token …%04d: the write is taken\n", who, token%10_000)
	}
	if err := hold.Unlock(ctx); !errors.Is(err, redlatch.ErrLost) {
		return err
	}
	return nil
}

// show has a slow clerk and a quick one make a deposit each, on both accounts.
func show(ctx context.Context, lock *rlock.Lock) error {
	dir, err := os.MkdirTemp("", "fencing")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, update := range []string{write, guarded} {
		fmt.Println("\n" + update)
		file := filepath.Join(dir, fmt.Sprint(len(update)))
		account, err := sql.Open("sqlite3", "file:"+file)
		if err != nil {
			return err
		}
		defer account.Close()
		if _, err := account.ExecContext(ctx, create); err != nil {
			return err
		}
		clerk := stage.Start(file + "\n" + update)
		defer clerk.Process.Kill()
		said, _ := clerk.Line()
		fmt.Println(said)
		clerk.Process.Signal(syscall.SIGSTOP)
		fmt.Println("  (the slow clerk is stopped, and its lease runs out)")
		if err := book(ctx, lock, file, update, "quick", quick, func() error { return nil }); err != nil {
			return err
		}
		clerk.Say("go on") // not before: SIGSTOP takes a moment, in which the clerk would write in time
		clerk.Process.Signal(syscall.SIGCONT)
		said, _ = clerk.Line()
		fmt.Println(said)
		var balance int
		if err := account.QueryRowContext(ctx, `SELECT balance FROM account`).Scan(&balance); err != nil {
			return err
		}
		verdict := "the quick clerk's deposit is lost, and no clerk knows"
		if balance == 100+quick {
			verdict = fmt.Sprintf("the slow clerk knows that it has to book its %d again", slow)
		}
		fmt.Printf("  in the end %d of %d: %s\n", balance, 100+quick+slow, verdict)
	}
	return nil
}
