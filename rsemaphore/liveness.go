package rsemaphore

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// Permits are taken over as locks are (lease.Monitor), with these differences:
//
//  1. Of a process an id has the first eight bytes of its connection id: so the key of its heartbeats is named by
//     these, and the trust is in them.
//
//  2. Ids of Redisson are random, and some look like ours. So nothing is taken from a process of which no heartbeat was
//     seen, and those are there for as long as any lease that is renewed (lease.Heartbeats.Renewed).
//
//  3. A permit with a leaseTime of its own lasts for that, whatever becomes of its process: heartbeats have no say in
//     it, and its ids tell (leased). "n starts a minute" are such permits, and those that another process is to go on
//     with.
//
//  4. What is taken over is released by its base: the script serves those that wait, whichever process comes first.
//
// A party at a barrier has no part in this. It is renewed while it waits, and its lease is three heartbeats: fewer
// parties wait than permits are held, and where one lease ends the generation breaks for all, so there is nothing that
// a waiter could take over.

// liveness is what a client with Liveness has.
type liveness struct {
	party   time.Duration  // the lease of a barrier's party
	monitor *lease.Monitor // nil: permits last for their leases
}

// leased marks the base of permits with a leaseTime of their own, in the first byte of its number.
const leased = 0x80

// heartbeats are those of the client.
func (o *Options) heartbeats(c *Client) lease.Heartbeats {
	trust := lease.TrustFor(o.Heartbeat)
	key := func(group int) string { return lease.BeatKey(c.session.ID[:lease.ClientLength], group) }
	if !o.Liveness || trust >= c.session.WatchdogTimeout {
		return lease.Announced(key, o.Process)
	}
	return lease.Heartbeats{Interval: o.Heartbeat, Trust: trust, Value: o.Process, Renewed: c.session.WatchdogTimeout,
		Key: key}
}

// watch has the permits looked at whose semaphore this one waits for, until it leaves.
func (a *acquisition) watch() {
	if m := a.s.c.live.monitor; m != nil && a.waits && !a.watched {
		a.watched = true
		m.Watch(a.s.permits, watchedPermits{a.s})
	}
}

func (a *acquisition) unwatch() {
	if a.watched {
		a.s.c.live.monitor.Unwatch(a.s.permits)
	}
}

// trusted reports whether what may have been granted since then is still this process's to use, as far as heartbeats
// go.
func (a *acquisition) trusted(since time.Time) bool {
	return !a.auto || a.s.c.engine.Trusted(a.s.key, since)
}

// asks notes that a request is sent, from which on the permits may be out.
func (a *acquisition) asks(sent time.Time) {
	if a.since.IsZero() {
		a.since = sent
	}
}

// watchedPermits is a semaphore that is waited for.
type watchedPermits struct{ s *Semaphore }

// Holds implements lease.Watched. An owner is a base and a number, as Lease.Owner has it.
func (w watchedPermits) Holds(ctx context.Context) ([]lease.Hold, error) {
	s := w.s
	numbers := map[string]int64{}
	for from, skip := "", int64(0); ; {
		var more holdersReply
		var err error
		if more, err = s.holdersExchange(from, skip).by(ctx, s.c.runner.Attempt); err != nil {
			return nil, err
		}
		for base, n := range more.numbers {
			numbers[base] = max(numbers[base], n)
		}
		if from, skip = more.from, more.skip; from == "" {
			break
		}
	}
	var holds []lease.Hold
	for base, n := range numbers {
		client := idClient(idOf(base, 0))
		if client == s.c.session.ID[:lease.ClientLength] {
			continue
		}
		holds = append(holds, lease.Hold{Owner: base + decimal(n), Beat: lease.BeatKeyFor(client, s.key),
			Trust: lease.TrustInBytes(base), Proven: true})
	}
	return holds, nil
}

// TakeOver implements lease.Watched.
func (w watchedPermits) TakeOver(ctx context.Context, gone []lease.Hold) {
	s := w.s
	var took atomic.Int64
	var each errgroup.Group
	each.SetLimit(16)
	from := map[string]bool{}
	for _, h := range gone {
		from[idClient(idOf(h.Owner[:baseSize], 0))] = true
		each.Go(func() error {
			if n, err := s.runRelease(ctx, h.Owner, 0, ""); err == nil {
				took.Add(n)
			}
			return nil // what was not taken over is next time, unless it is over by then
		})
	}
	_ = each.Wait() // none of them returns an error
	if took.Load() == 0 {
		return
	}
	for client := range from {
		s.c.session.Logger.Warn("redlatch: took permits from a process without a heartbeat", "name", s.name, "owner", client)
	}
	s.c.session.Tell(context.WithoutCancel(ctx), errs.Event{Kind: errs.EventTakenOver, Name: s.name, N: took.Load()})
}

// holdersReply are the acquisitions that holders.lua found, and where it goes on.
type holdersReply struct {
	from    string
	skip    int64
	numbers map[string]int64 // by base
}

func (s *Semaphore) holdersExchange(from string, skip int64) exchange[holdersReply] {
	return exchange[holdersReply]{script.Call{Script: holdersScript, Keys: []string{s.permits},
		Args: []string{from, decimal(skip)}},
		func(m rueidis.RedisMessage) (r holdersReply, err error) {
			v, err := m.ToArray()
			if err != nil || len(v) < 2 || len(v)%2 != 0 {
				return r, malformed("look at holders", s.key, &m)
			}
			r.from, _ = v[0].ToString()
			r.skip, _ = v[1].AsInt64()
			r.numbers = make(map[string]int64, len(v)/2)
			for i := 2; i < len(v); i += 2 {
				base, _ := v[i].ToString()
				if len(base) != baseSize {
					return r, malformed("look at holders", s.key, &m)
				}
				r.numbers[base], _ = v[i+1].AsInt64()
			}
			return r, nil
		}}
}
