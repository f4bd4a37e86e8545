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
//  1. An id has only the first eight bytes of its process's connection id. So the key of the heartbeats is named by
//     these bytes, and they encode the trust period.
//
//  2. Ids of Redisson are random, and some look like ours. So permits are taken over only from a process whose
//     heartbeat was seen. Heartbeats are kept for as long as any lease that is renewed (lease.Heartbeats.Renewed).
//
//  3. A permit with a leaseTime of its own lasts for that time, whether or not its process lives. Its ids have a mark
//     (fixedLeaseBit). Such permits limit the starts in a minute, or are continued by another process.
//
//  4. A permit is taken over by a release of its base: the script serves the waiters, whichever process sends it first.
//
// Parties at a barrier are not taken over. A party is renewed while it waits, and its lease is three heartbeats. Fewer
// parties wait than permits are held, and the end of one lease breaks the generation for all, so a waiter could take
// over nothing.

// fixedLeaseBit marks the base of permits with a leaseTime of their own, in the first byte of its number.
const fixedLeaseBit = 0x80

// heartbeats returns the heartbeats of the client.
func (o *Options) heartbeats(client *Client) lease.Heartbeats {
	trust := lease.TrustFor(o.Heartbeat)
	key := func(group int) string { return lease.BeatKey(client.keeper.ID[:lease.ClientLength], group) }
	if !o.Liveness || trust >= client.session.WatchdogTimeout {
		return lease.Announced(key, o.Process)
	}
	return lease.Heartbeats{Interval: o.Heartbeat, Trust: trust, Value: o.Process, Renewed: client.session.WatchdogTimeout,
		Key: key}
}

// watch makes the monitor watch the permits of the semaphore that this acquisition waits for, until unwatch.
func (a *acquisition) watch() {
	if monitor := a.s.c.monitor; monitor != nil && a.waits && !a.watched {
		a.watched = true
		monitor.Watch(a.s.permits, watchedPermits{a.s})
	}
}

func (a *acquisition) unwatch() {
	if a.watched {
		a.s.c.monitor.Unwatch(a.s.permits)
	}
}

// trusted reports whether heartbeats allow this process to use a permit that may have been granted since that instant.
func (a *acquisition) trusted(since time.Time) bool {
	return !a.auto || a.s.c.engine.Trusted(a.s.key, since)
}

// asks records that a request is sent. The permits may be granted from then on.
func (a *acquisition) asks(sent time.Time) {
	if a.since.IsZero() {
		a.since = sent
	}
}

// watchedPermits is a semaphore with waiters in this process.
type watchedPermits struct{ s *Semaphore }

// Holds implements lease.Watched. An owner is a base and a number, as Lease.Owner has it.
func (w watchedPermits) Holds(ctx context.Context) ([]lease.Hold, error) {
	semaphore := w.s
	numbers := map[string]int64{}
	for from, skip := "", int64(0); ; {
		var more holdersReply
		var err error
		if more, err = semaphore.lookAtHolders(ctx, from, skip); err != nil {
			return nil, err
		}
		for base, released := range more.numbers {
			numbers[base] = max(numbers[base], released)
		}
		if from, skip = more.nextBase, more.skip; from == "" {
			break
		}
	}
	var holds []lease.Hold
	for base, released := range numbers {
		client := idClient(idOf(base, 0))
		if client == semaphore.c.keeper.ID[:lease.ClientLength] {
			continue
		}
		holds = append(holds, lease.Hold{Owner: base + decimal(released), Beat: lease.BeatKeyFor(client, semaphore.key),
			Trust: lease.TrustInBytes(base), Proven: true})
	}
	return holds, nil
}

// TakeOver implements lease.Watched.
func (w watchedPermits) TakeOver(ctx context.Context, deadHolds []lease.Hold) {
	semaphore := w.s
	var took atomic.Int64
	var releases errgroup.Group
	releases.SetLimit(16)
	clients := map[string]bool{}
	for _, hold := range deadHolds {
		clients[idClient(idOf(hold.Owner[:baseSize], 0))] = true
		releases.Go(func() error {
			if released, err := semaphore.runRelease(ctx, hold.Owner, 0, ""); err == nil {
				took.Add(released)
			}
			return nil // a permit that was not taken over is tried again, unless it is over by then
		})
	}
	_ = releases.Wait() // no function returns an error
	if took.Load() == 0 {
		return
	}
	for client := range clients {
		semaphore.c.session.Logger.Warn("redlatch: took permits from a process without a heartbeat",
			"name", semaphore.name, "owner", client)
	}
	semaphore.c.session.Tell(context.WithoutCancel(ctx),
		errs.Event{Kind: errs.EventTakenOver, Name: semaphore.name, N: took.Load()})
}

// holdersReply are the acquisitions that holders.lua found, and the cursor of the next call.
type holdersReply struct {
	nextBase string
	skip     int64
	numbers  map[string]int64 // by base
}

func (s *Semaphore) lookAtHolders(ctx context.Context, from string, skip int64) (reply holdersReply, err error) {
	message, err := s.c.runner.Attempt(ctx, script.Call{Script: holdersScript, Keys: []string{s.permits},
		Args: []string{from, decimal(skip)}})
	if err != nil {
		return reply, err
	}
	return s.decodeHolders(message)
}

func (s *Semaphore) decodeHolders(message rueidis.RedisMessage) (reply holdersReply, err error) {
	rest, err := readHead(message, "look at holders", s.key, &reply.nextBase, &reply.skip)
	reply.numbers = make(map[string]int64, len(rest)/2)
	for ; err == nil && len(rest) > 0; rest = rest[2:] {
		var base string
		var number int64
		if len(rest) == 1 || readValue(&rest[0], &base) != nil || readValue(&rest[1], &number) != nil ||
			len(base) != baseSize {
			return reply, malformed("look at holders", s.key, &message)
		}
		reply.numbers[base] = number
	}
	return reply, err
}
