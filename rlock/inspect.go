package rlock

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/session"
)

// State is a lock as the server knew it at one moment.
type State struct {
	Name   string
	Locked bool
	// Mode of a read-write lock: "read" or "write"; "" of other kinds.
	Mode string
	// Lease is how long the lock stays taken if nobody renews it; negative if it has no end.
	Lease   time.Duration
	Holders []Holder
	// Waiters are those that queue on the server, first come first: for a Reentrant lock and its like one for each
	// process, for a Fair one all, also Redisson's; of a read-write lock the writers that go before readers, in no order.
	// Other waiters only listen, and are not known.
	Waiters []Waiter
	// Token is the last fencing token that was given out; 0: none, or forgotten.
	Token int64
	// Members are those of a Multi or Quorum, which has no holders or waiters of its own; one that could not be asked has
	// nothing but its Name.
	Members []State
}

// Holder is one owner of a lock. More than one: the first hold was joined, or there are several readers.
type Holder struct {
	Owner Owner
	Count int
	// Process is Options.Process of the holder's client, "" if it has Liveness off, has held for less than a heartbeat or
	// has not been heard of for long.
	Process string
	// Lease is the holder's own where the hold was joined or a reader's, otherwise the lock's. It is 0 for one that died.
	Lease time.Duration
	// Write: it is the writer of a read-write lock. What it also reads are holders of their own.
	Write bool
}

// Waiter is one that queues for a lock. Behind it there may be others of its process.
type Waiter struct {
	Owner   Owner
	Process string // as Holder's: it is known if the process holds something, too
	// Waiting is for how long it has been in the queue; 0 if that is not known (Fair, ReadWrite).
	Waiting time.Duration
}

// Inspect says who holds the lock of that name, of whatever kind, for how long, and who queues for it. It changes
// nothing and is for people: what it says may be over when it is read. A Plain lock whose name is hashed is only found
// by a Plain lock that hashes it, too. It costs one call, and one for each process that holds the lock and has
// Options.Liveness on; of a Multi or Quorum, that for each member. Errors as of [Lock.IsLocked].
func (l *Lock) Inspect(ctx context.Context) (State, error) {
	if l.bad != nil {
		return State{Name: l.Name()}, l.bad
	}
	return l.form.inspect(ctx)
}

func (l *single) inspect(ctx context.Context) (State, error) {
	s := State{Name: l.name}
	_, err := session.Ask(ctx, l.c.session, nil, func(ctx context.Context) (struct{}, error) {
		r, err := l.c.runInspect(ctx, inspectRequest{l.key, true})
		if err == nil {
			l.describe(ctx, &s, r)
		}
		return struct{}{}, err
	})
	return s, err
}

func (l *single) describe(ctx context.Context, s *State, r inspectReply) {
	processes := map[string]string{}
	process := func(owner string) string {
		key := l.c.aliveOf(l.key, owner)
		if key == "" {
			return ""
		}
		if p, ok := processes[key]; ok {
			return p
		}
		b, _ := lease.Look(ctx, l.c.runner, key) // who may not look does not know
		processes[key] = b.Value
		return b.Value
	}
	s.Token = r.token
	if r.locked {
		s.Locked, s.Lease, s.Mode = true, r.left, r.fields["mode"]
	}
	for field, value := range r.fields {
		if strings.HasSuffix(field, "!") || s.Mode != "" && field == "mode" {
			continue
		}
		owner, write := field, false
		if s.Mode != "" {
			owner, write = strings.CutSuffix(field, ":write")
		}
		h := Holder{Owner: Owner(owner), Process: process(owner), Lease: r.left, Write: write}
		h.Count, _ = strconv.Atoi(value)
		end, bounded := r.ends[field]
		if till, err := strconv.ParseInt(r.fields[field+"!"], 10, 64); err == nil {
			end, bounded = max(till, -till), true // below 0: see keep.lua
		}
		if bounded {
			h.Lease = max(0, time.Duration(end-r.server)*time.Millisecond)
		}
		s.Holders = append(s.Holders, h)
	}
	slices.SortFunc(s.Holders, func(a, b Holder) int { return strings.Compare(string(a.Owner), string(b.Owner)) })
	for member, until := range r.ends {
		if owner, waits := strings.CutPrefix(member, "!"); waits && -until > r.server {
			owner, _, _ = strings.Cut(owner, " ")
			r.waiting = append(r.waiting, inspectWaiter{owner: owner})
		}
	}
	for _, w := range r.waiting {
		x := Waiter{Owner: Owner(w.owner), Process: process(w.owner)}
		if w.since > 0 {
			x.Waiting = max(0, time.Duration(r.server-w.since)*time.Millisecond)
		}
		s.Waiters = append(s.Waiters, x)
	}
}

// IsLocked reports whether anybody holds the lock. Like all questions it is asked until it is answered, ctx ends or five
// CallTimeouts are over, and fails with ErrUnavailable, ErrUnknownOutcome, ErrClosed, ErrInvalidName, ErrInvalidOption,
// ErrWrongType or what else the server answers.
func (l *Lock) IsLocked(ctx context.Context) (bool, error) {
	q, err := l.query(ctx)
	return q.owners > 0, err
}

// HoldCount is how often the owner that ctx carries (see [Hold.Context]) holds the lock, by the server's word; 0 if it does
// not, or ctx carries none of this lock. While
// other goroutines of the same owner are locking or unlocking it may be one off.
func (l *Lock) HoldCount(ctx context.Context) (int, error) {
	q, err := l.query(ctx)
	return int(q.count), err
}

// RemainingLease is how long the present lease still lasts if nobody renews it: 0 if nobody holds the lock, negative
// if the lock has no end. Errors as of IsLocked.
func (l *Lock) RemainingLease(ctx context.Context) (time.Duration, error) {
	q, err := l.query(ctx)
	return q.left, err
}

func (l *Lock) query(ctx context.Context) (queryReply, error) {
	if l.bad != nil {
		return queryReply{}, l.bad
	}
	return l.form.query(ctx)
}

func (l *single) query(ctx context.Context) (queryReply, error) {
	own, id := ownerIn(ctx, l)
	if own != nil {
		id = ""
		if own, _, _ = l.resolve(own); own != nil {
			id = Owner(own.Lease.Owner)
		}
	}
	q, err := session.Ask(ctx, l.c.session, nil, func(ctx context.Context) (queryReply, error) { return l.runQuery(ctx, queryRequest{string(id)}) })
	if id == "" {
		q.count = 0
	}
	return q, err
}
