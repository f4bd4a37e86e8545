package redlatchtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
)

// example is what the t of a test is in yours.
type example struct {
	testing.TB
	cleanups []func()
}

func (*example) Helper()                   {}
func (*example) Failed() bool              { return false }
func (*example) Output() io.Writer         { return io.Discard }
func (e *example) Cleanup(fn func())       { e.cleanups = append(e.cleanups, fn) }
func (*example) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (*example) Errorf(f string, a ...any) { fmt.Fprintf(os.Stdout, f+"\n", a...) }

func (e *example) end() {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
}

// Report writes a report, unless another process does: it is what the tests are about.
func Report(ctx context.Context, red *redlatch.Client, write func(ctx context.Context) error) (string, error) {
	err := red.Locks().Reentrant("report").WithWait(0).Do(ctx, write)
	switch {
	case errors.Is(err, redlatch.ErrNotAcquired):
		return "another process writes it", nil
	case errors.Is(err, redlatch.ErrLost):
		return "", errors.New("lost the lock while writing")
	case err != nil:
		return "", err
	}
	return "written", nil
}

// Three tests in one. In yours, t is the test's own.
func Example() {
	t := &example{}
	defer t.end()
	srv := redlatchtest.New(t)
	red := srv.Open()
	write := func(context.Context) error { return nil }

	fmt.Println(Report(context.Background(), red, write))

	release := srv.HoldElsewhere("report")
	fmt.Println(Report(context.Background(), red, write))
	release()

	fmt.Println(Report(context.Background(), red, func(ctx context.Context) error {
		srv.Lose("report") // in the middle
		<-ctx.Done()       // moments later
		return ctx.Err()
	}))
	// Output:
	// written <nil>
	// another process writes it <nil>
	//  lost the lock while writing
}

func ExampleServer_HoldElsewhere() {
	t := &example{}
	defer t.end()
	srv := redlatchtest.New(t)
	red, ctx := srv.Open(), context.Background()

	var kinds = []redlatchtest.LockKind{redlatchtest.Reentrant, redlatchtest.Read}
	release := srv.HoldElsewhere("a", kinds[0])
	defer release()
	_, err := red.Locks().Fenced("a").TryLock(ctx, 0, 0)
	fmt.Println("a:", errors.Is(err, redlatch.ErrNotAcquired))

	srv.HoldElsewhere("b", kinds[1]) // until the end of the test
	_, err = red.Locks().ReadWrite("b").Write().TryLock(ctx, 0, 0)
	fmt.Println("b:", errors.Is(err, redlatch.ErrNotAcquired))
	// Output:
	// a: true
	// b: true
}

func ExampleServer_TakeElsewhere() {
	t := &example{}
	defer t.end()
	srv := redlatchtest.New(t)
	exports := srv.Open().Semaphores().Semaphore("exports", 3)

	release := srv.TakeElsewhere("exports", 3, 3)
	_, err := exports.TryAcquire(context.Background(), 1, 0, 0)
	fmt.Println(errors.Is(err, redlatch.ErrNotAcquired))
	release()
	fmt.Println(exports.Available(context.Background()))
	// Output:
	// true
	// 3 <nil>
}

// A holder that was paused for longer than its lease finds that another process has the lock.
func ExampleServer_Expire() {
	t := &example{}
	defer t.end()
	srv := redlatchtest.New(t)
	red, ctx := srv.Open(), context.Background()

	hold, err := red.Locks().Reentrant("report").Lock(ctx)
	if err != nil {
		t.Fatalf("%v", err)
	}
	srv.Expire("report")
	srv.HoldElsewhere("report")
	<-hold.Done()
	fmt.Println(errors.Is(hold.Unlock(ctx), redlatch.ErrLost))
	// Output: true
}

// What ends at a time of the server's ends at once.
func ExampleServer_Advance() {
	t := &example{}
	defer t.end()
	srv := redlatchtest.New(t)
	ctx := context.Background()

	sale := srv.Open().Sales().Sale("phones")
	if err := sale.Open(ctx, stock.Spec{Limit: 10, OpenFor: time.Hour}); err != nil {
		t.Fatalf("%v", err)
	}
	cart, _ := sale.Reserve(ctx, stock.Order{ID: "cart:1", User: "ann"}, 15*time.Minute)
	fmt.Println("in time:", cart.State)
	srv.Advance(15*time.Minute + time.Millisecond) // its last millisecond is hers
	cart, _ = sale.Extend(ctx, "cart:1", time.Minute)
	fmt.Println("too late:", cart.State)
	srv.Advance(time.Hour)
	late, _ := sale.Buy(ctx, stock.Order{User: "bob"})
	fmt.Println("bob:", late.Why)
	// Output:
	// in time: reserved
	// too late: lapsed
	// bob: ended
}

func ExampleServer_SellOut() {
	t := &example{}
	defer t.end()
	srv := redlatchtest.New(t)
	ctx := context.Background()

	sale := srv.Open().Sales().Sale("phones")
	if err := sale.Open(ctx, stock.Spec{Limit: 1000, OpenFor: time.Hour}); err != nil {
		t.Fatalf("%v", err)
	}
	srv.SellOut("phones")
	late, err := sale.Buy(ctx, stock.Order{User: "ann"})
	fmt.Println(late.Why, err)
	// Output: sold out <nil>
}

// A reply that is lost changes nothing: the call is repeated.
func ExampleServer_Break() {
	t := &example{}
	defer t.end()
	srv := redlatchtest.New(t)
	red, ctx := srv.Open(), context.Background()
	visits := red.Counters().Counter("visits", rcounter.CounterOptions{})

	one := srv.Break(redlatchtest.Fault{Kind: redlatchtest.LostReply, Name: "visits", Times: 1})
	_, _, err := visits.AddOnce(ctx, "request:1", 1)
	n, _ := visits.Get(ctx)
	fmt.Println(n, err, one.Calls())
	// Output: 1 <nil> 1
}

// A fault lasts until it is healed.
func ExampleInjected_Heal() {
	t := &example{}
	defer t.end()
	srv := redlatchtest.New(t)
	ctx := context.Background()
	report := srv.Open().Locks().Reentrant("report")

	fault := srv.Break(redlatchtest.Fault{Kind: redlatchtest.Unavailable, Name: "report"})
	_, err := report.TryLock(ctx, 0, 0)
	fmt.Println(redlatchtest.Kind(redlatchtest.Unavailable), errors.Is(err, redlatch.ErrUnavailable))
	<-fault.Caught()
	fault.Heal() // srv.Heal heals all
	fmt.Println(report.IsLocked(ctx))
	// Output:
	// Unavailable true
	// false <nil>
}

// One package alone, and what it left on the server.
func ExampleServer_Hub() {
	t := &example{}
	defer t.end()
	srv := redlatchtest.New(t)

	locks, err := rlock.New(srv.Hub(), rlock.Options{CallTimeout: 5 * time.Second})
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer locks.Close(context.Background())
	fmt.Println(locks.Reentrant("report").Do(context.Background(), func(context.Context) error {
		fmt.Println("held:", srv.Redis().Exists("report"))
		return nil
	}))
	fmt.Println("held:", srv.Redis().Exists("report"))
	// Output:
	// held: true
	// <nil>
	// held: false
}

// A test that needs a client of its own makes it of Option.
func ExampleServer_Option() {
	t := &example{}
	defer t.end()
	srv := redlatchtest.New(t)

	red, err := redlatch.Open(context.Background(), srv.Option(), redlatch.Options{CallTimeout: 5 * time.Second})
	if err != nil {
		t.Fatalf("%v", err)
	}
	fmt.Println(red.Locks().Reentrant("report").IsLocked(context.Background()))
	fmt.Println(red.Close(context.Background())) // or the test fails
	// Output:
	// false <nil>
	// <nil>
}
