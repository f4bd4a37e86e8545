//go:build unix

package main

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// rights are tried, not read: what a user may do is what it can do.
func (x *checkup) rights(ctx context.Context) {
	for _, try := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"locks", x.tryLock},
		{"read-write locks", x.tryReadWrite},
		{"semaphores", x.trySemaphore},
		{"counters", x.tryCounter},
		{"rate limits", x.tryLimiter},
		{"stocks", x.tryStock},
	} {
		err := try.do(ctx)
		switch {
		case err == nil:
			x.ok(try.what, "work")
		case errors.Is(err, redlatch.ErrDenied):
			x.problem(try.what, "give the user this right; nothing, if programs do not use them (docs/operations.md)", "%v", err)
		default:
			x.problem(try.what, "see docs/operations.md for what the error means", "%v", err)
		}
	}
}

func (x *checkup) tryLock(ctx context.Context) error {
	l := x.red.Locks().Fenced(x.name + ":lock")
	h, err := l.TryLock(ctx, 0, 0)
	if err != nil {
		return err
	}
	if _, err = l.TryLock(ctx, 0, 0); errors.Is(err, redlatch.ErrNotAcquired) {
		err = nil
	}
	_, asked := l.Inspect(ctx)
	err = errors.Join(err, asked, h.Extend(ctx, time.Minute), h.Unlock(ctx))
	x.remove(ctx, keyname.Prefix("redisson_lock_token", x.server.prefix+x.name+":lock"))
	return err
}

func (x *checkup) tryReadWrite(ctx context.Context) error {
	l := x.red.Locks().ReadWrite(x.name + ":rw")
	r, err := l.Read().TryLock(ctx, 0, 0)
	if err != nil {
		return err
	}
	if err := r.Unlock(ctx); err != nil {
		return err
	}
	w, err := l.Write().TryLock(ctx, 0, 0)
	if err != nil {
		return err
	}
	return w.Unlock(ctx)
}

func (x *checkup) trySemaphore(ctx context.Context) error {
	p, err := x.red.Semaphores().Semaphore(x.name+":semaphore", 2).TryAcquire(ctx, 1, 0, 0)
	if err != nil {
		return err
	}
	err = p.Release(ctx)
	x.remove(ctx, x.server.prefix+x.name+":semaphore")
	return err
}

func (x *checkup) tryCounter(ctx context.Context) error {
	_, err := x.red.Counters().Counter(x.name+":counter", rcounter.CounterOptions{TTL: time.Minute}).Incr(ctx)
	x.remove(ctx, x.server.prefix+x.name+":counter")
	return err
}

func (x *checkup) tryLimiter(ctx context.Context) error {
	_, err := x.red.Limiters().Limiter(x.name+":limit", ratelimit.LimiterOptions{Rate: 100}).Allow(ctx, "", 1)
	return err
}

func (x *checkup) tryStock(ctx context.Context) error {
	s := x.red.Stocks().Stock(x.name + ":stock")
	if _, err := s.Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Minute, Retain: time.Second, Ledger: true}); err != nil {
		return err
	}
	_, err := s.Claim(ctx, "one")
	err = errors.Join(err, s.EndSale(ctx))
	if base, bad := keyname.Braced(x.server.prefix, x.name+":stock", "a stock"); bad == nil {
		for _, part := range []string{"", ":u", ":r", ":h", ":o", ":l", ":f"} {
			x.remove(ctx, base+part)
		}
	}
	return err
}

// remove takes away what would last; without the right to it, what is left ends by itself.
func (x *checkup) remove(ctx context.Context, key string) {
	x.client.Do(ctx, x.client.B().Del().Key(key).Build())
}

// messages tries a channel of a lock, whose name has the form of all of them.
func (x *checkup) messages(ctx context.Context) {
	const do = "allow the user the channels of docs/operations.md: without them waiters poll every second"
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	channel := keyname.Prefix("redisson_lock__channel", x.server.prefix+x.name)
	sub, err := x.red.Hub().Subscribe(ctx, channel)
	if err != nil {
		x.warn("Pub/Sub", do, "%v", err)
		return
	}
	defer sub.Close()
	began := time.Now()
	if _, err := x.red.Hub().Publish(ctx, channel, "0"); err != nil {
		x.warn("Pub/Sub", do, "%v", err)
		return
	}
	if _, err := sub.Next(ctx); err != nil {
		x.warn("Pub/Sub", "look for a proxy that drops messages", "a message did not arrive: %v", err)
		return
	}
	x.ok("Pub/Sub", "a message takes %v", time.Since(began).Round(10*time.Microsecond))
}

// tracking takes a lock, has the key deleted behind its back, and waits for the hold to notice: at once where the
// server tracks keys, at the next renewal, 10 s later, where it does not. A key is tracked from 50 ms after it was
// acquired.
func (x *checkup) tracking(ctx context.Context) {
	const do = "allow +client|caching and +client|tracking, without client_cache=0 in the URL: a lost lock is noticed " +
		"at its next renewal only"
	name := x.name + ":tracked"
	h, err := x.red.Locks().Reentrant(name).TryLock(ctx, 0, 0)
	if err != nil {
		x.warn("tracking", do, "%v", err)
		return
	}
	defer h.Unlock(context.WithoutCancel(ctx))
	pause := time.NewTimer(500 * time.Millisecond)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return
	}
	began := time.Now()
	if err := x.client.Do(ctx, x.client.B().Del().Key(x.server.prefix+name).Build()).Error(); err != nil {
		x.ok("tracking", "not known: this user may not delete: %v", err)
		return
	}
	select {
	case <-h.Done():
		x.ok("tracking", "a lock whose key is deleted is lost after %v", time.Since(began).Round(10*time.Microsecond))
	case <-time.After(3 * time.Second):
		x.warn("tracking", do, "the loss of a key was not noticed within 3 s")
	case <-ctx.Done():
	}
}
