package redlatchfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/internal/redistest/services"
)

// setup is a Redis server in this process, a client of it, and an SQLite database with an account.
func setup() (red *redlatch.Client, db *sql.DB, end func()) {
	red, _, disconnect := services.Redlatch()
	dir, err := os.MkdirTemp("", "fence")
	services.Must(err)
	db, err = sql.Open("sqlite3", "file:"+filepath.Join(dir, "bank.db")+"?_pragma=busy_timeout(10000)")
	services.Must(err)
	_, err = db.Exec(`CREATE TABLE account (id integer PRIMARY KEY, balance bigint NOT NULL, token bigint NOT NULL);
		INSERT INTO account VALUES (7, 100, 0)`)
	services.Must(err)
	return red, db, func() {
		disconnect()
		db.Close()
		os.RemoveAll(dir)
	}
}

// A holder that is suspended acts too late: the database refuses it.
func Example() {
	red, db, end := setup()
	defer end()
	ctx := context.Background()
	services.Must(redlatchfence.SQLite.Create(ctx, db)) // once
	fences := redlatchfence.Fences{DB: db, Dialect: redlatchfence.SQLite}
	withdraw := func(token redlatchfence.Token, amount int64) error {
		return fences.Do(ctx, "account:7", token, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance - ? WHERE id = 7`, amount)
			return err
		})
	}

	late, err := red.Locks().Fenced("account:7").WithLease(20 * time.Millisecond).Lock(ctx)
	services.Must(err)
	lateToken, err := redlatchfence.Of(late)
	services.Must(err)
	// It is suspended here, until its lease has ended and another process has the lock.
	hold, err := red.Locks().Fenced("account:7").Lock(ctx)
	services.Must(err)
	defer hold.Unlock(ctx)
	token, err := redlatchfence.Of(hold)
	services.Must(err)

	fmt.Println("withdraw 10:", withdraw(token, 10))
	fmt.Println("the late one is stale:", errors.Is(withdraw(lateToken, 50), redlatchfence.ErrStale))
	// Output:
	// withdraw 10: <nil>
	// the late one is stale: true
}

// A payment is booked once, though a worker is suspended while it charges the card. The bank takes the order as an
// idempotency key, and so charges once, too: a guard of this database cannot undo what was done at another place.
func ExampleFences_Do() {
	red, db, end := setup()
	defer end()
	ctx := context.Background()
	services.Must(redlatchfence.SQLite.Create(ctx, db))
	_, err := db.Exec(`CREATE TABLE payments (order_id text NOT NULL, worker text NOT NULL)`)
	services.Must(err)
	fences := redlatchfence.Fences{DB: db, Dialect: redlatchfence.SQLite}
	charged := map[string]bool{} // at the bank
	pay := func(worker string, lease time.Duration, suspended func()) error {
		hold, err := red.Locks().Fenced("order:1").WithLease(lease).Lock(ctx)
		services.Must(err)
		defer hold.Unlock(ctx) // ErrLost is no news: the database knows better
		token, err := redlatchfence.Of(hold)
		services.Must(err)
		paid := 0 // is read under the token: from here on no older holder can book
		err = fences.Do(ctx, "order:1", token, func(ctx context.Context, tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM payments WHERE order_id = '1'`).Scan(&paid)
		})
		if err != nil || paid > 0 {
			return err
		}
		suspended()
		charged["1"] = true
		return fences.Do(ctx, "order:1", token, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO payments VALUES ('1', ?)`, worker)
			return err
		})
	}
	late := pay("ann", 200*time.Millisecond, func() { // bob gets the lock when ann's lease is over
		services.Must(pay("bob", time.Minute, func() {}))
	})
	fmt.Println("ann is stale:", errors.Is(late, redlatchfence.ErrStale))
	services.Must(pay("ann", time.Minute, func() {})) // she looks again, and finds it paid
	var payments int
	var worker string
	services.Must(db.QueryRow(`SELECT COUNT(*), MAX(worker) FROM payments`).Scan(&payments, &worker))
	fmt.Println("payments booked:", payments, "by", worker, "cards charged:", len(charged))
	// Output:
	// ann is stale: true
	// payments booked: 1 by bob cards charged: 1
}

// What cannot be in one transaction with the reading: advance, read, act elsewhere, write.
func ExampleFences_Advance() {
	_, db, end := setup()
	defer end()
	ctx := context.Background()
	services.Must(redlatchfence.SQLite.Create(ctx, db))
	fences := redlatchfence.Fences{DB: db, Dialect: redlatchfence.SQLite}
	fmt.Println(fences.Advance(ctx, "account:7", 34)) // from now on 33 is refused
	var balance int64
	services.Must(db.QueryRow(`SELECT balance FROM account WHERE id = 7`).Scan(&balance))
	// The program asks another service here.
	fmt.Println(errors.Is(fences.Advance(ctx, "account:7", 33), redlatchfence.ErrStale))
	// Output:
	// <nil>
	// true
}

// The permit of an exclusive semaphore has a token, as a hold has.
func ExampleOf_permit() {
	red, _, end := setup()
	defer end()
	ctx := context.Background()
	printer := red.Semaphores().Semaphore("printer", 1).Fenced()
	var paper redlatchfence.Memory
	print := func(token redlatchfence.Token, page string) error {
		return paper.Do(ctx, "printer", token, func(context.Context) error { fmt.Println(page); return nil })
	}

	late, err := printer.TryAcquire(ctx, 1, 0, 500*time.Millisecond)
	services.Must(err)
	lateToken, err := redlatchfence.Of(late)
	services.Must(err)
	permit, err := printer.Acquire(ctx, 1) // when the lease of the first is over
	services.Must(err)
	defer permit.Release(ctx)
	token, err := redlatchfence.Of(permit)
	services.Must(err)
	services.Must(print(token, "page 1 of the second"))
	fmt.Println(errors.Is(print(lateToken, "page 2 of the first"), redlatchfence.ErrStale))
	// Output:
	// page 1 of the second
	// true
}

// In a transaction of the program's own Check comes first.
func ExampleFences_Check() {
	_, db, end := setup()
	defer end()
	ctx := context.Background()
	services.Must(redlatchfence.SQLite.Create(ctx, db))
	fences := redlatchfence.Fences{DB: db, Dialect: redlatchfence.SQLite}
	tx, err := db.BeginTx(ctx, nil)
	services.Must(err)
	defer tx.Rollback()
	services.Must(fences.Check(ctx, tx, "account:7", 33))
	_, err = tx.ExecContext(ctx, `UPDATE account SET balance = 0 WHERE id = 7`)
	services.Must(err)
	fmt.Println(tx.Commit())
	// Output: <nil>
}

// The statement goes into the program's migrations.
func ExampleDialect_Schema() {
	fmt.Print(redlatchfence.PostgreSQL.Schema())
	// Output:
	// CREATE TABLE IF NOT EXISTS fences (
	//   resource text NOT NULL PRIMARY KEY,
	//   token bigint NOT NULL
	// );
}

// A table with a column for the token needs no other table.
func ExampleRows() {
	_, db, end := setup()
	defer end()
	ctx := context.Background()
	rows := redlatchfence.Rows{DB: db, Dialect: redlatchfence.SQLite, Table: "account", Key: "id"}
	services.Must(rows.Advance(ctx, "7", 34)) // before the reading
	fmt.Println(rows.Update(ctx, "7", 34, "balance = balance - ?", 10))
	fmt.Println(rows.Update(ctx, "7", 33, "balance = balance - ?", 50))
	// Output:
	// <nil>
	// redlatchfence: the fencing token is stale: "7" has seen a greater one than 33
}

func ExampleRedis() {
	red, _, end := setup()
	defer end()
	ctx := context.Background()
	guard := redlatchfence.Redis{Client: red.Hub().Client()} // or the client of another server
	fmt.Println(guard.Set(ctx, "report", 34, "final"))
	fmt.Println(guard.HSet(ctx, "report:1", 34, map[string]string{"state": "done"}))
	fmt.Println(errors.Is(guard.Set(ctx, "report", 33, "draft"), redlatchfence.ErrStale))
	fmt.Println(guard.Del(ctx, "report", 34))
	// Output:
	// <nil>
	// <nil>
	// true
	// <nil>
}

// The client's requests carry the token; the server refuses one that is stale.
func ExampleHandler() {
	var guard redlatchfence.Memory // the resource is this process's
	server := httptest.NewServer(redlatchfence.Handler(&guard, func(r *http.Request) string { return r.URL.Path },
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, _ := redlatchfence.FromContext(r.Context())
			fmt.Fprint(w, "written with ", token)
		})))
	defer server.Close()

	client := &http.Client{Transport: redlatchfence.Transport{}} // whose RoundTrip adds the field Fencing-Token
	for _, token := range []redlatchfence.Token{34, 33} {
		ctx := redlatchfence.NewContext(context.Background(), token)
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL+"/account/7", strings.NewReader("90"))
		services.Must(err)
		resp, err := client.Do(r)
		services.Must(err)
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		stale := errors.Is(redlatchfence.Refused(resp), redlatchfence.ErrStale)
		fmt.Println(resp.StatusCode, strings.TrimSpace(string(text)), stale)
	}
	// Output:
	// 200 written with 34 false
	// 412 the fencing token is stale true
}

// A manifest in a bucket: it is read under the token, changed, and written on the condition that it is the same.
func ExampleObjects() {
	server := httptest.NewServer(&Bucket{}) // a program has a bucket, and a Client that signs
	defer server.Close()
	manifests := redlatchfence.Objects{Store: redlatchfence.S3{Bucket: server.URL}, Stamp: redlatchfence.StampJSON}
	ctx := context.Background()
	services.Must(manifests.Put(ctx, "manifest.json", 33, []byte(`{"files": 1}`)))
	data, err := manifests.Read(ctx, "manifest.json", 34) // from now on 33 is refused
	fmt.Println(string(data), err)
	fmt.Println(manifests.Put(ctx, "manifest.json", 34, []byte(`{"files": 2}`)))
	fmt.Println(errors.Is(manifests.Put(ctx, "manifest.json", 33, []byte(`{"files": 2}`)), redlatchfence.ErrStale))
	fmt.Println(manifests.Advance(ctx, "manifest.json", 35))
	// Output:
	// {"fencing_token":33,"files":1} <nil>
	// <nil>
	// true
	// <nil>
}

func ExampleFiles() {
	dir, err := os.MkdirTemp("", "fence")
	services.Must(err)
	defer os.RemoveAll(dir)
	ctx, path := context.Background(), filepath.Join(dir, "state")
	fmt.Println(redlatchfence.Files{}.Write(ctx, path, 34, []byte("new")))
	fmt.Println(errors.Is(redlatchfence.Files{}.Write(ctx, path, 33, []byte("old")), redlatchfence.ErrStale))
	text, err := os.ReadFile(path)
	fmt.Println(string(text), err)
	// Output:
	// <nil>
	// true
	// new <nil>
}
