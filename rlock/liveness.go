package rlock

import (
	"context"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// aliveOf is where the holder or waiter of that id has its heartbeats for a lock; "" if it has none.
func aliveOf(key, owner string) string {
	if lease.TrustIn(owner) == 0 {
		return ""
	}
	return saidBy(key, owner)
}

// saidBy is where the process of an owner says who it is, with heartbeats or without; "" if it is not of this library.
func saidBy(key, owner string) string {
	if !lease.Ours(owner) {
		return ""
	}
	return lease.BeatKeyFor(owner[:36], key)
}

// monitor takes locks that this process waits for from processes that are gone:
//
//  1. While a client with Liveness holds anything, it moves the expiry of one key on, every heartbeat; in a Cluster one
//     for each sixteenth of the slots in which it holds something. Its connection id says for how long it is trusted
//     after one: three heartbeats.
//
//  2. Each of its holds lasts until (before the last confirmed heartbeat was sent, or since when the hold may exist) +
//     trust - margin, if its lease does not end before (lease.Heartbeats).
//
//  3. While any acquisition waits, the monitor looks every half heartbeat at the lock and at the keys of its holders. A
//     hold that it has seen for the trust, by its own clock, with the key unchanged or missing all the time, it
//     removes, by owner, as ForceUnlock does (lease.Monitor).
//
//  4. Before that it asks whether the lock is kept by UnlockAfter (keptKey).
//
// By a key that expired too early it would take every lock from living holders (the suite of internal/contract deletes
// such keys). Whether a holder has heartbeats shows in the whole shape of its owner: the value of a Plain lock may be
// any text of another program (TestLiveness_HoldOfAnotherProgram_IsNotTaken).
type monitor struct{ *lease.Monitor }

type watchKey struct {
	key  string
	kind *kind
}

// watchedLock is a lock that is waited for.
type watchedLock struct {
	l      *single
	fields map[string]string // as it was looked at last
}

func newMonitor(c *Client) *monitor {
	return &monitor{lease.NewMonitor(c.runner, c.heartbeat, c.opts.CallTimeout, c.session.Background)}
}

// watch has l watched until unwatch.
func (m *monitor) watch(l *single) { m.Watch(watchKey{l.key, l.kind}, &watchedLock{l: l}) }

func (m *monitor) unwatch(l *single) { m.Unwatch(watchKey{l.key, l.kind}) }

// Holds implements lease.Watched.
func (w *watchedLock) Holds(ctx context.Context) (holds []lease.Hold, err error) {
	c := w.l.c
	r, err := c.runInspect(ctx, w.l.key, false)
	if err != nil {
		return nil, err
	}
	w.fields = r.fields
	for field := range r.fields {
		if strings.HasSuffix(field, "!") || field == "mode" || strings.HasPrefix(field, c.session.ID) {
			continue
		}
		if alive := aliveOf(w.l.key, field); alive != "" {
			holds = append(holds, lease.Hold{Owner: field, Beat: alive, Trust: lease.TrustIn(field)})
		}
	}
	return holds, nil
}

// TakeOver implements lease.Watched: it removes holds, and wakes the waiters or hands the lock over.
func (w *watchedLock) TakeOver(ctx context.Context, gone []lease.Hold) {
	l := w.l
	fields := make(map[string]string, len(gone))
	for _, h := range gone {
		kept := keptKey(l.key, strings.TrimSuffix(h.Owner, ":write"))
		n, err := l.c.runner.Attempt(ctx, script.Call{
			Script: script.Plain("exists"), Keys: []string{kept},
			Command: func(b rueidis.Builder) rueidis.Completed { return b.Exists().Key(kept).Build() },
		})
		if v, bad := n.AsInt64(); err == nil && bad == nil && v == 0 {
			fields[h.Owner] = w.fields[h.Owner]
		}
	}
	if len(fields) == 0 {
		return
	}
	removed, err := l.evict(ctx, fields)
	if err != nil || removed == 0 {
		return // next time, or it was over anyway
	}
	for field := range fields {
		l.c.session.Logger.Warn("redlatch: took a lock from a process without a heartbeat", "name", l.name, "owner",
			strings.TrimSuffix(field, ":write"))
	}
	l.c.session.Tell(context.WithoutCancel(ctx), errs.Event{Kind: errs.EventTakenOver, Name: l.name, N: removed})
}
