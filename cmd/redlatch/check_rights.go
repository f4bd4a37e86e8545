//go:build unix

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// rights are tried, not read: what a user may do is what it can do. All at once, since where one is not answered the
// others are not, either.
func (x *checkup) rights(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*x.server.timeout)
	defer cancel()
	tries := []struct {
		what string
		do   func(context.Context) error
	}{
		{"locks", x.tryLock},
		{"read-write locks", x.tryReadWrite},
		{"semaphores", x.trySemaphore},
		{"counters", x.tryCounter},
		{"rate limits", x.tryLimiter},
		{"stocks", x.tryStock},
		{"red packets", x.tryPacket},
		{"elections", x.tryElection},
	}
	failed := make([]error, len(tries))
	var all sync.WaitGroup
	for i, try := range tries {
		all.Go(func() { failed[i] = try.do(ctx) })
	}
	all.Wait()
	for i, try := range tries {
		switch err := failed[i]; {
		case err == nil:
			x.ok(try.what, "work")
		case errors.Is(err, redlatch.ErrDenied):
			x.add(finding{"problem", try.what, "%v", "",
				"give the user this right; nothing, if programs do not use them (redlatch acl)"}, err)
		default:
			x.add(finding{"problem", try.what, "%v", "", "see docs/operations.md for what the error means"}, err)
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
	x.removeToken(ctx, x.name+":lock")
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
	return errors.Join(err, x.removeParts(ctx, x.name+":stock", "a stock"))
}

func (x *checkup) tryPacket(ctx context.Context) error {
	p := x.red.RedPackets().Packet(x.name + ":packet")
	_, err := p.Send(ctx, redpacket.Spec{Total: 2, Shares: 2, OpenFor: time.Minute, Retain: time.Second})
	if err != nil {
		return err
	}
	_, err = p.Grab(ctx, "one")
	return errors.Join(err, x.removeParts(ctx, x.name+":packet", "a red packet"))
}

func (x *checkup) tryElection(ctx context.Context) error {
	name := x.name + ":election"
	l, err := x.red.Elections().Election(name).Campaign(ctx, "check")
	if err != nil {
		return err
	}
	defer x.removeToken(ctx, name)
	return l.Resign(ctx)
}

// removeParts takes away the keys of a stock or red packet.
func (x *checkup) removeParts(ctx context.Context, name, what string) error {
	base, err := keyname.Braced(x.server.prefix, name, what)
	if err == nil {
		for _, part := range []string{"", ":u", ":r", ":h", ":o", ":l", ":f", ":p", ":a", ":g", ":e"} {
			x.remove(ctx, base+part)
		}
	}
	return err
}

// messages tries a channel of a lock, whose name has the form of all of them.
func (x *checkup) messages(ctx context.Context) {
	_, polls := errs.LackSubscribe.About()
	const do = "allow the user the channels of redlatch acl"
	ctx, cancel := context.WithTimeout(ctx, 5*x.server.timeout)
	defer cancel()
	channel := keyname.Prefix("redisson_lock__channel", x.server.prefix+x.name)
	sub, err := x.red.Hub().Subscribe(ctx, channel)
	if err != nil {
		x.add(finding{"warning", "Pub/Sub", "%v", polls, do}, err)
		return
	}
	defer sub.Close()
	began := time.Now()
	if _, err := x.red.Hub().Publish(ctx, channel, "0"); err != nil {
		x.add(finding{"warning", "Pub/Sub", "%v", polls, do}, err)
		return
	}
	if _, err := sub.Next(ctx); err != nil {
		x.add(finding{"warning", "Pub/Sub", "a message did not arrive: %v", polls, "look for a proxy that drops messages"},
			err)
		return
	}
	x.ok("Pub/Sub", "a message takes %v", time.Since(began).Round(10*time.Microsecond))
}

// tracking takes a lock, has the key deleted behind its back, and waits for the hold to notice: at once where the
// server tracks keys, at the next renewal, 10 s later, where it does not. A key is tracked from 50 ms after it was
// acquired.
func (x *checkup) tracking(ctx context.Context) {
	if !x.tracks {
		return // commands has said why, or --redis does
	}
	late := finding{"warning", "tracking", "%v", "a lock whose key was deleted is lost at its next renewal only",
		"allow +client|caching and +client|tracking, without client_cache=0 in the URL"}
	name := x.name + ":tracked"
	h, err := x.red.Locks().Reentrant(name).TryLock(ctx, 0, 0)
	if err != nil {
		x.add(late, err)
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
		x.add(late, errors.New("the loss of a key was not noticed within 3 s"))
	case <-ctx.Done():
	}
}
