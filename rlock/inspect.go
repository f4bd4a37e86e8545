package rlock

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// State is the server's state of a lock at one moment.
type State struct {
	Name   string
	Locked bool // the lock is held
	// Mode is "read" or "write" for a held read-write lock. It is "" if the lock is free, and for other kinds.
	Mode string
	// Lease is how long the lock stays taken unless it is renewed. It is negative if the lock has no end.
	Lease   time.Duration
	Holders []Holder
	// Waiters are the entries of the server's queue, in order. Reentrant, NonReentrant, Fenced and Plain locks have one
	// entry for each process. A Fair lock has one for each waiter, including Redisson's. A read-write lock has one for
	// each process that waits to read, one for each that waits to write, and one for each reader with a lease or label of
	// its own. Other waiters only listen, and are not known.
	Waiters []Waiter
	// Token is the last fencing token that was granted; 0 if there was none, or its record has expired.
	Token int64
	// Members are the states of the members of a Multi or Quorum, which has no holders or waiters of its own. If a member
	// did not answer, only its Name is set.
	Members []State
}

// Holder is one owner of a lock: [Holder].ID is its [Owner]. There is more than one if the first hold was joined, or if
// there are several readers. It is redlatch.Holder, which is one type for locks and permits.
type Holder = errs.Holder

// Waiter is an entry of a lock's queue on the server. Other callers of its process may wait behind it.
type Waiter struct {
	Owner   Owner
	Process string // like that of a Holder: known only while the process holds something
	// Waiting is how long the waiter has been in the queue; 0 if that is not known (Fair).
	Waiting time.Duration
	// Write marks a waiter that wants to be the writer of a read-write lock.
	Write bool
}

// Inspect returns the holders of the lock of that name, of any kind, with their leases, and the waiters in its queue.
// It changes nothing. The result is meant for people, because it may be outdated when it is read. A Plain lock whose
// name is hashed is found only by a Plain lock of a client that hashes it, too.
//
// Inspect costs one call, and one more for each process that holds the lock or waits for it, 100 at most and 16 at a
// time. For a Multi or Quorum it costs that for each member. The errors are those of [Lock.IsLocked].
func (l *Lock) Inspect(ctx context.Context) (State, error) {
	if l.bad != nil {
		return State{Name: l.Name()}, l.bad
	}
	return l.form.Inspect(ctx)
}

func (l *single) Inspect(ctx context.Context) (State, error) {
	state := State{Name: l.name}
	_, err := session.Ask(ctx, l.c.session, nil, func(ctx context.Context) (struct{}, error) {
		reply, err := l.c.runInspect(ctx, l.key, true)
		if err == nil {
			l.fillState(&state, reply)
			l.nameProcesses(ctx, &state)
		}
		return struct{}{}, err
	})
	return state, err
}

// holders returns the holders of the lock when a call gives up after waiting; see hold.Holders. It reads no waiters,
// because a queue may be long.
func (l *single) holders(ctx context.Context, waited time.Duration) []Holder {
	return slices.Clone(l.c.holderLookups.Of(ctx, l.key, waited, func(ctx context.Context) []Holder {
		reply, err := l.c.runInspect(ctx, l.key, false)
		if err != nil {
			return nil
		}
		var state State
		l.fillState(&state, reply)
		state.Holders = state.Holders[:min(len(state.Holders), hold.MostNamed)]
		l.nameProcesses(ctx, &state)
		return state.Holders
	}))
}

// fillState copies a reply into the state, without the names of processes.
func (l *single) fillState(state *State, reply inspectReply) {
	state.Token = reply.token
	if reply.locked {
		state.Locked, state.Lease, state.Mode = true, reply.leaseLeft, reply.fields["mode"]
	}
	for field, value := range reply.fields {
		if strings.HasSuffix(field, "!") || state.Mode != "" && field == "mode" {
			continue
		}
		owner, write := field, false
		if state.Mode != "" {
			owner, write = strings.CutSuffix(field, ":write")
		}
		holder := Holder{ID: owner, Client: lease.ClientIn(owner), Label: Owner(owner).Label(), Lease: reply.leaseLeft,
			Write: write}
		holder.N, _ = strconv.Atoi(value)
		end, bounded := reply.ends[field]
		if ownEnd, err := strconv.ParseInt(reply.fields[field+"!"], 10, 64); err == nil {
			end, bounded = max(ownEnd, -ownEnd), true // negative after UnlockAfter: see keep.lua
		}
		if bounded {
			holder.Lease = script.Left(end, reply.serverMs)
		}
		state.Holders = append(state.Holders, holder)
	}
	slices.SortFunc(state.Holders, func(a, b Holder) int { return strings.Compare(a.ID, b.ID) })
	for _, waiting := range reply.waiting {
		waiter := Waiter{Owner: Owner(waiting.owner), Write: waiting.write}
		if waiting.queuedAt > 0 {
			waiter.Waiting = max(0, script.Duration(reply.serverMs-waiting.queuedAt))
		}
		state.Waiters = append(state.Waiters, waiter)
	}
}

// nameProcesses reads the names of the holders' and waiters' processes.
func (l *single) nameProcesses(ctx context.Context, state *State) {
	var processKeys []string
	forEach := func(do func(owner Owner, process *string)) {
		for i := range state.Holders {
			do(Owner(state.Holders[i].ID), &state.Holders[i].Process)
		}
		for i := range state.Waiters {
			do(state.Waiters[i].Owner, &state.Waiters[i].Process)
		}
	}
	forEach(func(owner Owner, _ *string) {
		if key := processKeyOf(l.key, string(owner)); key != "" {
			processKeys = append(processKeys, key)
		}
	})
	processes := lease.Processes(ctx, l.c.runner, processKeys)
	forEach(func(owner Owner, process *string) { *process = processes[processKeyOf(l.key, string(owner))] })
}

// IsLocked reports whether the lock is held; for a side of a read-write lock, whether that side is held.
//
// Like all read calls, it is repeated until the server answers, ctx ends or Options.RetryTimeout is over. The error is
// ErrUnavailable, ErrClosed, ErrInvalidName, ErrInvalidOption, ErrWrongType, ErrDenied, or another refusal of the
// server.
func (l *Lock) IsLocked(ctx context.Context) (bool, error) {
	if l.bad != nil {
		return false, l.bad
	}
	return l.form.isLocked(ctx)
}

func (l *single) isLocked(ctx context.Context) (bool, error) {
	return session.Ask(ctx, l.c.session, nil, l.runLocked)
}
