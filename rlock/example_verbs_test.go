package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// Inspect shows people which process holds a lock, by the label that the holder gave.
func ExampleLock_Inspect() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	report := locks.Reentrant("report")
	hold, err := report.WithLabel("nightly run 17").WithLease(time.Hour).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)

	show := func(state rlock.State) {
		fmt.Printf("%s: locked: %t for up to %v\n", state.Name, state.Locked, state.Lease.Round(time.Minute))
	}
	holder := func(h rlock.Holder) {
		fmt.Printf("%q, %d time(s)\n", h.Label, h.N)
	}
	waiter := func(w rlock.Waiter) {
		fmt.Printf("%q waits for %v\n", w.Owner.Label(), w.Waiting)
	}

	state, err := report.Inspect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	show(state)
	for _, h := range state.Holders {
		holder(h)
	}
	for _, w := range state.Waiters {
		waiter(w)
	}
	// Output:
	// report: locked: true for up to 1h0m0s
	// "nightly run 17", 1 time(s)
}

// Two callers acquire two locks in opposite orders. The one that began to wait last gets the error, and the other goes
// on when it has released its hold.
func ExampleDeadlockError() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	account := func(name string) *rlock.Hold {
		hold, err := locks.Reentrant(name).Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		return hold
	}
	alice, bob := account("alice"), account("bob")
	transferred := make(chan error)
	go func() { // from alice to bob
		defer alice.Unlock(ctx)
		transferred <- locks.Reentrant("bob").Do(alice.Context(ctx), func(context.Context) error { return nil })
	}()
	time.Sleep(100 * time.Millisecond)

	_, err := locks.Reentrant("alice").Lock(bob.Context(ctx)) // from bob to alice
	var deadlock *rlock.DeadlockError
	if errors.As(err, &deadlock) {
		for _, step := range deadlock.Cycle {
			fmt.Println("waits for", step.Name)
		}
		bob.Unlock(ctx)
	}
	fmt.Println("the other transfer:", <-transferred)
	// Output:
	// waits for alice
	// waits for bob
	// the other transfer: <nil>
}

// An operator takes a lock from a holder that is stuck. The holder finds out when it next talks to the server.
func ExampleLock_ForceUnlock() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	deploy := locks.Reentrant("deploy")
	stuck, err := deploy.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	state, err := deploy.Inspect(ctx)
	fmt.Println("locked for up to:", state.Lease.Round(time.Minute), err)
	taken, err := deploy.ForceUnlock(ctx)
	fmt.Println("taken:", taken, err)
	locked, err := deploy.IsLocked(ctx)
	fmt.Println("locked:", locked, err)
	fmt.Println("lost:", errors.Is(stuck.Unlock(ctx), redlatch.ErrLost))
	// Output:
	// locked for up to: 1m0s <nil>
	// taken: true <nil>
	// locked: false <nil>
	// lost: true
}

// A process hands its owner to another, as in a request, which then works under the same lock at the same time.
func ExampleLock_WithOwner() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	order := locks.Reentrant("order:7")
	shop, err := order.WithLabel("shop").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	sent := shop.Owner() // goes with the request

	payment := order.WithOwner(ctx, sent)
	hold, err := order.Lock(payment) // at once
	if err != nil {
		log.Fatal(err)
	}
	state, err := order.Inspect(ctx)
	fmt.Println(sent.Label(), "is joined, owners:", len(state.Holders), err)
	shop.Unlock(ctx)
	locked, err := order.IsLocked(ctx)
	fmt.Println("locked until both are done:", locked, err)
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// shop is joined, owners: 1 <nil>
	// locked until both are done: true <nil>
	// <nil>
}

// WithWait bounds the waiting where ctx does not.
func ExampleLock_WithWait() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	seat := locks.Reentrant("seat:12A")
	hold, err := seat.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)

	_, err = seat.WithWait(20 * time.Millisecond).Lock(ctx)
	fmt.Println("taken:", errors.Is(err, redlatch.ErrNotAcquired))
	// Output: taken: true
}

// A job that takes a moment is not run again by a machine whose clock is a little behind.
func ExampleHold_UnlockAfter() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	job := locks.Reentrant("job:mails")
	hold, err := job.TryLock(ctx, 0, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("mails are sent")

	fmt.Println(hold.UnlockAfter(ctx, time.Minute))
	<-hold.Done()
	fmt.Println("this hold is over:", hold.Err())
	_, err = job.TryLock(ctx, 0, 0)
	fmt.Println("not again within a minute:", errors.Is(err, redlatch.ErrNotAcquired))
	// Output:
	// mails are sent
	// <nil>
	// this hold is over: released
	// not again within a minute: true
}

// Until is the last moment at which it is safe to begin what cannot be taken back.
func ExampleHold_Until() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	hold, err := locks.Reentrant("payout").WithLease(10 * time.Second).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)

	const needed = 2 * time.Second
	if time.Until(hold.Until()) < needed {
		return
	}
	fmt.Println(hold.Name(), "is sent")
	// Output: payout is sent
}

// An Observer feeds metrics. An event names its lock.
func ExampleObserver() {
	defer serve()()
	ctx := context.Background()
	hub, err := pubsub.Dial(ctx, option, pubsub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close(ctx)
	locks, err := rlock.New(hub, rlock.Options{Observer: func(ctx context.Context, e redlatch.Event) context.Context {
		switch e.Kind {
		case redlatch.EventAcquired: // after e.Took
			fmt.Println("acquired", e.Name)
		case redlatch.EventReleased: // after e.Held
			fmt.Println("released", e.Name, e.Err)
		}
		return ctx
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	hold, err := locks.Reentrant("report").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	hold.Unlock(ctx)
	// Output:
	// acquired report
	// released report <nil>
}

// Two observers, such as one for metrics and one for traces, and what the client does at the moment.
func ExampleObserver_two() {
	defer serve()()
	ctx := context.Background()
	hub, err := pubsub.Dial(ctx, option, pubsub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close(ctx)
	events := map[redlatch.EventKind]int{}
	var metrics, traces rlock.Observer
	metrics = func(ctx context.Context, e redlatch.Event) context.Context {
		events[e.Kind]++
		return ctx
	}
	type span struct{}
	traces = func(ctx context.Context, e redlatch.Event) context.Context {
		switch e.Kind {
		case redlatch.EventAcquiring: // the call goes on under this context
			return context.WithValue(ctx, span{}, "the span of "+e.Name)
		case redlatch.EventAcquired:
			fmt.Println("acquired", e.Name, "in", ctx.Value(span{}))
		}
		return ctx
	}
	locks, err := rlock.New(hub, rlock.Options{Observer: metrics.And(traces)})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	hold, err := locks.Reentrant("report").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	now := locks.Stats()
	fmt.Println(events[redlatch.EventAcquired], "acquired,", now.Held, "held,", now.Waiting, "waiting")
	// Output:
	// acquired report in the span of report
	// 1 acquired, 1 held, 0 waiting
}

// A request that is sent twice is answered once. Both callers get the same answer.
func ExampleOnce_Do() {
	locks, end := demo()
	defer end()
	payments := locks.Once("payments", rlock.OnceOptions{Keep: 24 * time.Hour})
	pay := func(amount string) {
		receipt, replayed, err := payments.Do(context.Background(), "order 7", amount,
			func(ctx context.Context, token int64) ([]byte, error) {
				fmt.Println("charges", amount, "with a token:", token > 0)
				return []byte("receipt for " + amount), nil
			})
		fmt.Printf("%s, replayed: %t, %t\n", receipt, replayed, errors.Is(err, redlatch.ErrMismatch))
	}
	pay("5 euros")
	pay("5 euros")
	pay("6 euros")
	// Output:
	// charges 5 euros with a token: true
	// receipt for 5 euros, replayed: false, false
	// receipt for 5 euros, replayed: true, false
	// , replayed: false, true
}

// Operators see who runs the function of a key, and how long its answer is kept.
func ExampleOnce_Inspect() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	rates := locks.Once("rates", rlock.OnceOptions{Keep: time.Minute, Stale: time.Hour})
	_, _, err := rates.Do(ctx, "eur", "", func(context.Context, int64) ([]byte, error) { return []byte("1.08"), nil })
	if err != nil {
		log.Fatal(err)
	}
	state, err := rates.Inspect(ctx, "eur")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(state.Run.Locked, state.Answered, state.Bytes, state.Fresh.Round(time.Minute),
		state.Left.Round(time.Minute))
	// Output: false true 4 1m0s 1h1m0s
}
