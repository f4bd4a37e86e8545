package rlock

import (
	"context"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// heartbeatKeyOf returns the key of the heartbeats of a holder or waiter of the lock key; "" if it sends none.
func heartbeatKeyOf(key, owner string) string {
	if lease.TrustIn(owner) == 0 {
		return ""
	}
	return processKeyOf(key, owner)
}

// processKeyOf returns the key with the process name of an owner, with heartbeats or without; "" if the owner is not of
// this library.
func processKeyOf(key, owner string) string {
	if !lease.Ours(owner) {
		return ""
	}
	return lease.BeatKeyFor(owner[:36], key)
}

// monitor takes locks that this process waits for from crashed processes:
//
//  1. While a client with Liveness holds anything, each heartbeat moves the expiry of one key. In a Cluster, it moves
//     one key for each sixteenth of the slots in which the client holds something. The connection id of the client
//     carries its trust: a heartbeat is valid for three intervals.
//
//  2. Each hold of the client lasts until max(send time of the last confirmed heartbeat, earliest start of the hold) +
//     trust - margin, or until its lease ends, if that is earlier (lease.Heartbeats).
//
//  3. While an acquisition waits, the monitor reads the lock and the keys of its holders, twice in a heartbeat
//     interval. If a hold has had an unchanged or missing key for the whole trust, by the monitor's own clock, the
//     monitor removes the hold by its owner, as ForceUnlock does (lease.Monitor).
//
//  4. Before the removal it checks whether UnlockAfter keeps the lock (keptKey).
//
// A key that expires too early must not cost a living holder its lock (the suite of internal/contract deletes such
// keys). The monitor recognizes a holder with heartbeats by the whole shape of its owner, because the value of a Plain
// lock may be any text of another program (TestLiveness_HoldOfAnotherProgram_IsNotTaken).
type monitor struct{ *lease.Monitor }

type watchKey struct {
	key  string
	kind *kind
}

// watchedLock is a lock that a call waits for.
type watchedLock struct {
	lock   *single
	fields map[string]string // the fields of its hash in the latest reply
}

func newMonitor(client *Client) *monitor {
	return &monitor{lease.NewMonitor(client.runner, client.lockOptions.Heartbeat, client.opts.CallTimeout,
		client.session.Background)}
}

// watch makes the monitor read the lock until unwatch.
func (m *monitor) watch(lock *single) {
	m.Watch(watchKey{lock.key, lock.kind}, &watchedLock{lock: lock})
}

func (m *monitor) unwatch(lock *single) { m.Unwatch(watchKey{lock.key, lock.kind}) }

// Holds implements lease.Watched.
func (w *watchedLock) Holds(ctx context.Context) (holds []lease.Hold, err error) {
	client := w.lock.c
	reply, err := client.runInspect(ctx, w.lock.key, false)
	if err != nil {
		return nil, err
	}
	w.fields = reply.fields
	for field := range reply.fields {
		if strings.HasSuffix(field, "!") || field == "mode" || strings.HasPrefix(field, client.keeper.ID) {
			continue
		}
		if heartbeatKey := heartbeatKeyOf(w.lock.key, field); heartbeatKey != "" {
			holds = append(holds, lease.Hold{Owner: field, Beat: heartbeatKey, Trust: lease.TrustIn(field)})
		}
	}
	return holds, nil
}

// TakeOver implements lease.Watched. It removes expired holds; the script hands the lock over, or publishes the
// release.
func (w *watchedLock) TakeOver(ctx context.Context, expired []lease.Hold) {
	lock := w.lock
	fields := make(map[string]string, len(expired))
	for _, hold := range expired {
		marker := keptKey(lock.key, strings.TrimSuffix(hold.Owner, ":write"))
		reply, err := lock.c.runner.Attempt(ctx, script.Call{
			Script: script.Plain("exists"), Keys: []string{marker},
			Command: func(builder rueidis.Builder) rueidis.Completed { return builder.Exists().Key(marker).Build() },
		})
		if count, countErr := reply.AsInt64(); err == nil && countErr == nil && count == 0 {
			fields[hold.Owner] = w.fields[hold.Owner]
		}
	}
	if len(fields) == 0 {
		return
	}
	removed, err := lock.removeOwners(ctx, fields)
	if err != nil || removed == 0 {
		return // the next check tries again, or the holds had ended
	}
	for field := range fields {
		lock.c.session.Logger.Warn("redlatch: took a lock from a process without a heartbeat", "name", lock.name, "owner",
			strings.TrimSuffix(field, ":write"))
	}
	lock.c.session.Tell(context.WithoutCancel(ctx), errs.Event{Kind: errs.EventTakenOver, Name: lock.name, N: removed})
}
