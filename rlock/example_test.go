package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// option reaches the examples' server. Yours is rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}}; the
// embedded one here knows neither Cluster nor client-side caching.
var (
	option rueidis.ClientOption
	server *miniredis.Miniredis
)

// serve starts the examples' server.
func serve() (end func()) {
	server = miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	option = rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true}
	return server.Close
}

// One process at a time does the work, whichever comes first.
func Example() {
	defer serve()()

	hub, err := pubsub.Dial(context.Background(), option, pubsub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close(context.Background())
	locks, err := rlock.New(hub, rlock.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	report := locks.Reentrant("nightly-report").WithWait(10 * time.Second)
	err = report.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("one process at a time gets here") // ctx ends if the lock is lost: work under it
		return nil
	})
	if err != nil {
		log.Fatal(err) // errors.Is(err, redlatch.ErrNotAcquired): another process held it the whole time
	}
	fmt.Println("released")
	// Output:
	// one process at a time gets here
	// released
}

// demo is a client on the examples' server. Its call timeout is generous so that a busy machine changes no output.
func demo() (locks *rlock.Client, end func()) {
	stop := serve()
	hub, err := pubsub.Dial(context.Background(), option, pubsub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	locks, err = rlock.New(hub,
		rlock.Options{CallTimeout: 10 * time.Second, WatchdogTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	return locks, func() {
		locks.Close(context.Background())
		hub.Close(context.Background())
		stop()
	}
}

// Lock waits until the holder before has released.
func ExampleLock_Lock() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	invoice := locks.Reentrant("invoice:42")
	first, err := invoice.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		fmt.Println("the first worker writes the invoice")
		first.Unlock(ctx)
	}()

	second, err := invoice.Lock(ctx) // a deadline of ctx would bound the waiting
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the second worker finds it written:", second.Unlock(ctx))
	// Output:
	// the first worker writes the invoice
	// the second worker finds it written: <nil>
}

// A lease bounds how long a stuck worker keeps the lock, because nothing renews it.
func ExampleLock_WithLease() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	hold, err := locks.Reentrant("import:prices").WithLease(10 * time.Minute).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)

	fmt.Println("others may import again in", time.Until(hold.Until()).Round(time.Minute))
	// Output: others may import again in 10m0s
}

// A label tells an operator which job holds the lock.
func ExampleLock_WithLabel() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	backup := locks.Reentrant("backup:orders")
	hold, err := backup.WithLabel("weekly run 31").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)

	state, err := backup.Inspect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, holder := range state.Holders {
		fmt.Println(state.Name, "is held by", holder.Label)
	}
	// Output: backup:orders is held by weekly run 31
}

// A status page shows whether a deployment is under way; a program that acts on the answer calls TryLock instead.
func ExampleLock_IsLocked() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	deploy := locks.Reentrant("deploy:shop")

	err := deploy.Do(ctx, func(ctx context.Context) error {
		locked, err := deploy.IsLocked(ctx)
		fmt.Println("deploying:", locked)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	locked, err := deploy.IsLocked(ctx)
	fmt.Println("deploying:", locked, err)
	// Output:
	// deploying: true
	// deploying: false <nil>
}

// Do gives the work's error back as it was, joined with what went wrong with the lock.
func ExampleLock_Do() {
	locks, end := demo()
	defer end()
	errNoPaper := errors.New("no paper")

	err := locks.Reentrant("printer").WithWait(3*time.Second).Do(context.Background(), func(ctx context.Context) error {
		return errNoPaper
	})
	switch {
	case errors.Is(err, redlatch.ErrNotAcquired):
		fmt.Println("somebody else prints; nothing was done")
	case errors.Is(err, redlatch.ErrLost):
		fmt.Println("the lock was lost on the way; somebody else may have started")
	case err != nil:
		fmt.Println("printing failed:", err)
	}
	// Output: printing failed: no paper
}

// Somebody else has it: for how long at most, should its process have died?
func ExampleLock_TryLock() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	lock := locks.Reentrant("order:1")
	hold, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	_, err = lock.TryLock(ctx, 0, 0) // waitTime 0: ask once; leaseTime 0: renewed until Unlock
	var busy *rlock.NotAcquiredError
	if errors.As(err, &busy) {
		fmt.Println(busy.Name, "is taken; a crashed holder blocks it for a minute at most:", busy.Lease <= time.Minute)
	}

	_, err = lock.TryLock(ctx, 150*time.Millisecond, 0)
	if errors.As(err, &busy) {
		for _, h := range busy.Holders {
			log.Println("held by", h.Process, h.ID, h.Lease) // web-3:4121 5f1c36d2-9d4e-8a10-9c3f-0b7d24e6a1f8:12 29.8s
		}
	}

	hold.Unlock(ctx)
	hold, err = lock.TryLock(ctx, time.Second, 5*time.Second) // wait for a second at most, hold for five, unrenewed
	fmt.Println(err, time.Until(hold.Until()) <= 5*time.Second)
	hold.Unlock(ctx)
	// Output:
	// order:1 is taken; a crashed holder blocks it for a minute at most: true
	// <nil> true
}

// Work runs under a hold's context. It is what makes a second acquisition a re-entry, and it ends with the hold.
func ExampleHold_Context() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	lock := locks.Reentrant("cart:7")
	outer, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	work := outer.Context(ctx)
	inner, err := lock.Lock(work) // the same owner, so at once
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("same owner:", inner.Owner() == outer.Owner())
	inner.Unlock(ctx)

	server.Del("cart:7")           // a flush, an eviction, a failover that lost the write
	outer.Extend(ctx, time.Minute) // asks the server and so finds out; else the next renewal does
	<-work.Done()
	fmt.Println(work.Err(), "because", context.Cause(work))
	fmt.Println(errors.Is(outer.Unlock(ctx), redlatch.ErrLost))
	// Output:
	// same owner: true
	// context canceled because lost
	// true
}

// A job that several machines have in their schedules runs once in each period. It comes every hour; 50 minutes leave
// room for clocks that differ, and for a run that begins late.
func ExampleLock_DoOnce() {
	locks, end := demo()
	defer end()
	job := func(context.Context) error { fmt.Println("runs"); return nil }
	for range 3 { // three machines
		ran, err := locks.Reentrant("nightly-report").DoOnce(context.Background(), 50*time.Minute, job)
		fmt.Println(ran, err)
	}
	// Output:
	// runs
	// true <nil>
	// false <nil>
	// false <nil>
}

// A request that was cancelled still releases its lock.
func ExampleHold_Unlock() {
	locks, end := demo()
	defer end()
	request, cancel := context.WithCancel(context.Background())
	cart := locks.Reentrant("cart:7")
	hold, err := cart.Lock(request)
	if err != nil {
		log.Fatal(err)
	}

	cancel() // the client has gone
	fmt.Println("released:", hold.Unlock(request))
	locked, err := cart.IsLocked(context.Background())
	fmt.Println("locked:", locked, err)
	// Output:
	// released: <nil>
	// locked: false <nil>
}

// The owner in a worker's log finds its hold among the holders that Inspect shows.
func ExampleHold_Owner() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	stocktake := locks.Reentrant("stocktake")
	hold, err := stocktake.WithLabel("warehouse 3").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	logged := string(hold.Owner()) // 5f1c36d2-9d4e-8a10-9c3f-0b7d24e6a1f8:1:warehouse 3

	state, err := stocktake.Inspect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, holder := range state.Holders {
		fmt.Println(holder.Label, "wrote the log:", holder.ID == logged)
	}
	// Output: warehouse 3 wrote the log: true
}

// Every hold of a Fenced lock has a greater token than the hold before, to send along with each write.
func ExampleHold_Token() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	var latest int64
	for _, payment := range []string{"rent", "salaries"} {
		hold, err := locks.Fenced("account:17").Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		token, fenced := hold.Token()
		fmt.Println(payment, "has a greater token:", fenced && token > latest)
		latest = token
		hold.Unlock(ctx)
	}
	// Output:
	// rent has a greater token: true
	// salaries has a greater token: true
}

// A worker stops when its hold is over, and Err is the reason.
func ExampleHold_Done() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	outbox := locks.Reentrant("outbox")
	hold, err := outbox.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := outbox.ForceUnlock(ctx); err != nil { // an operator takes the lock away
		log.Fatal(err)
	}

	mails := make(chan string)
	select {
	case mail := <-mails:
		fmt.Println("sends", mail)
	case <-hold.Done():
		fmt.Println("stops, because the lock was lost:", errors.Is(hold.Err(), redlatch.ErrLost))
	}
	// Output: stops, because the lock was lost: true
}

// Readers wait while the writer changes the price list.
func ExampleReadWriteLock_Write() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	prices := locks.ReadWrite("prices")

	err := prices.Write().Do(ctx, func(context.Context) error {
		_, err := prices.Read().TryLock(ctx, 0, 0) // ctx is not the writer's, as in another process
		fmt.Println("a reader has to wait:", errors.Is(err, redlatch.ErrNotAcquired))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	read, err := prices.Read().TryLock(ctx, 0, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the reader sees the new prices:", read.Unlock(ctx))
	// Output:
	// a reader has to wait: true
	// the reader sees the new prices: <nil>
}

// Extend asks for more time where a hold is not renewed by itself.
func ExampleHold_Extend() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	hold, err := locks.Reentrant("import").WithLease(10 * time.Second).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(hold.Extend(ctx, time.Minute), time.Until(hold.Until()) > 50*time.Second)
	hold.Unlock(ctx)
	fmt.Println(errors.Is(hold.Extend(ctx, time.Minute), redlatch.ErrReleased))
	// Output:
	// <nil> true
	// true
}

// Detach is for work that is started under a hold and is not part of it.
func ExampleDetach() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	lock := locks.Reentrant("cart:7")
	hold, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	_, err = lock.TryLock(rlock.Detach(hold.Context(ctx)), 0, 0)
	fmt.Println(errors.Is(err, redlatch.ErrNotAcquired))
	hold.Unlock(ctx)
	// Output: true
}

// At shutdown Close tells the work to stop and waits until it has let go.
func ExampleClient_Close() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	hold, err := locks.Reentrant("queue:mail").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		work := hold.Context(ctx)
		<-work.Done()
		fmt.Println("worker stops:", errors.Is(context.Cause(work), redlatch.ErrClosed))
		hold.Unlock(ctx)
	}()

	limit, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	fmt.Println(locks.Close(limit))
	_, err = locks.Reentrant("queue:mail").Lock(ctx)
	fmt.Println(errors.Is(err, redlatch.ErrClosed))
	// Output:
	// worker stops: true
	// <nil>
	// true
}

// The resource keeps the greatest token it has seen and refuses smaller ones: what a holder does that does not know yet
// that it lost the lock has no effect.
func ExampleClient_Fenced() {
	locks, end := demo()
	defer end()
	ctx := context.Background()

	var seen int64 // in SQL: UPDATE … SET …, fence = $1 WHERE id = 1 AND fence <= $1
	write := func(h *rlock.Hold) bool {
		token, _ := h.Token()
		if token < seen {
			return false
		}
		seen = token
		return true
	}
	slow, err := locks.Fenced("account").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	locks.Fenced("account").ForceUnlock(ctx) // or its lease runs out while it sleeps
	next, err := locks.Fenced("account").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the next holder writes:", write(next))
	fmt.Println("the slow one writes:", write(slow))
	fmt.Println("it finds out:", errors.Is(slow.Unlock(ctx), redlatch.ErrLost))
	next.Unlock(ctx)
	// Output:
	// the next holder writes: true
	// the slow one writes: false
	// it finds out: true
}

// The caller that asked first is served first, in any process.
func ExampleClient_Fair() {
	locks, end := demo()
	defer end()
	ctx := context.Background()

	err := locks.Fair("printer").Do(ctx, func(context.Context) error {
		fmt.Println("my turn")
		return nil
	})
	fmt.Println(err)
	// Output:
	// my turn
	// <nil>
}

// A function that must not be entered twice says so, in place of waiting for itself or going on.
func ExampleClient_NonReentrant() {
	locks, end := demo()
	defer end()
	ledger := locks.NonReentrant("ledger")

	err := ledger.Do(context.Background(), func(ctx context.Context) error {
		return ledger.Do(ctx, func(context.Context) error { return nil }) // by way of some other function
	})
	fmt.Println(errors.Is(err, rlock.ErrReentry))
	// Output: true
}

// For a server that allows no Pub/Sub. The longest sleep between two looks is 16 ms here.
func ExampleClient_Spin() {
	locks, end := demo()
	defer end()
	ctx := context.Background()

	hold, err := locks.Spin("counter", time.Millisecond, 16*time.Millisecond).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", hold.Err() == nil, "released:", hold.Unlock(ctx) == nil)
	// Output: held: true released: true
}

// Another program locks the same key with SET NX PX, as the Redis documentation shows it.
func ExampleClient_Plain() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	server.Set("import", "some random value of the other program")

	_, err := locks.Plain("import").TryLock(ctx, 0, 0)
	fmt.Println("busy:", errors.Is(err, redlatch.ErrNotAcquired))
	server.Del("import")
	hold, err := locks.Plain("import").TryLock(ctx, 0, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ours:", hold.Unlock(ctx) == nil)
	// Output:
	// busy: true
	// ours: true
}

// httpStatus is what a handler answers when its work under a lock failed with err. The order counts: a caller that left
// while it waited is ErrNotAcquired as well.
func httpStatus(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, redlatch.ErrLost), errors.Is(err, redlatch.ErrMaxHold):
		// the work was under way, and somebody else may do it now; it may have returned Canceled, too
		return http.StatusConflict
	case errors.Is(err, context.Canceled):
		return 499 // the client has gone: nobody reads it, and it is nobody's conflict
	case errors.Is(err, redlatch.ErrNotAcquired):
		return http.StatusLocked // somebody else works on it: try again later
	case errors.Is(err, redlatch.ErrUnavailable), errors.Is(err, redlatch.ErrUnknownOutcome),
		errors.Is(err, redlatch.ErrClosed):
		return http.StatusServiceUnavailable // no answer, or this process ends
	}
	return http.StatusInternalServerError // ErrDenied, a name that cannot be used, the work's own errors
}

// What an HTTP handler answers. A request whose client has left is told from one that met somebody else's lock.
func ExampleNotAcquiredError() {
	defer serve()()
	hub, err := pubsub.Dial(context.Background(), option, pubsub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close(context.Background())
	locks, err := rlock.New(hub, rlock.Options{CallTimeout: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	handle := func(ctx context.Context) int {
		return httpStatus(locks.Reentrant("order:17").WithWait(50*time.Millisecond).Do(ctx, func(context.Context) error {
			return nil
		}))
	}
	fmt.Println("free:", handle(context.Background()))

	hold, err := locks.Reentrant("order:17").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("somebody else has it:", handle(context.Background()))
	gone, leave := context.WithCancel(context.Background())
	leave()
	fmt.Println("the client has gone:", handle(gone))
	if err := hold.Unlock(context.Background()); err != nil {
		log.Fatal(err)
	}

	server.SetError("LOADING Redis is loading the dataset in memory")
	fmt.Println("no server:", handle(context.Background()))
	server.SetError("NOPERM this user has no permissions to run the 'evalsha' command")
	fmt.Println("a right is missing:", handle(context.Background()))
	server.SetError("")
	// Output:
	// free: 200
	// somebody else has it: 423
	// the client has gone: 499
	// no server: 503
	// a right is missing: 500
}
