package rlock

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// State is what the server knew of a lock at one moment.
type State struct {
	Name   string
	Locked bool // it is held
	// Mode of a read-write lock is "read" or "write". It is "" if the lock is free, and for other kinds.
	Mode string
	// Lease is how long the lock stays taken unless it is renewed. It is negative if the lock has no end.
	Lease   time.Duration
	Holders []Holder
	// Waiters are those that queue on the server, first come first. A Reentrant lock and its like, and a Plain one, have
	// one for each process. A Fair lock has all, including Redisson's. A read-write lock has one for each process that
	// waits to read, one for each that waits to write, and each reader with a lease or label of its own. Other waiters
	// only listen, and are not known.
	Waiters []Waiter
	// Token is the last fencing token that was given out; 0 if there was none, or it is forgotten.
	Token int64
	// Members are the states of the locks that make up a Multi or Quorum, which has no holders or waiters of its own. A
	// member that could not be asked has nothing but its Name.
	Members []State
}

// Holder is one owner of a lock. There is more than one if the first hold was joined, or if there are several readers.
type Holder struct {
	Owner Owner
	// how often it holds the lock, by the server's word: an owner of this library once, however often it is re-entered
	Count int
	// Process is Options.Process of the holder's client. It is "" if that client first held something less than a second
	// ago (with Liveness: holds anything for less than a heartbeat), may not say it, or is Redisson's; and of what is more
	// than a hundred.
	Process string
	// Lease is the holder's own if the hold was joined or is a reader's, otherwise the lock's. It is 0 if it has run out.
	Lease time.Duration
	// Write says that the holder is the writer of a read-write lock. Its read holds are holders of their own.
	Write bool
}

// Waiter is one that queues for a lock on the server. Others of its process may wait behind it.
type Waiter struct {
	Owner   Owner
	Process string // as that of a Holder: it is known only if the process holds something
	// Waiting is for how long the waiter has been in the queue; 0 if that is not known (Fair).
	Waiting time.Duration
	// Write says that the waiter wants to be the writer of a read-write lock.
	Write bool
}

// Inspect returns the holders of the lock of that name, whatever its kind, with their leases, and the waiters in its
// queue. It changes nothing. It is meant for people: what it returns may be out of date when it is read. A Plain lock
// whose name is hashed is found only by a Plain lock of a client that hashes it, too.
//
// It costs one call, and one more for each process that holds the lock or waits for it, 100 at most and 16 at a time.
// Inspect of a Multi or Quorum costs that for each member. Its errors are those of [Lock.IsLocked].
func (l *Lock) Inspect(ctx context.Context) (State, error) {
	if l.bad != nil {
		return State{Name: l.Name()}, l.bad
	}
	return l.form.Inspect(ctx)
}

func (l *single) Inspect(ctx context.Context) (State, error) {
	s := State{Name: l.name}
	_, err := session.Ask(ctx, l.c.session, nil, func(ctx context.Context) (struct{}, error) {
		r, err := l.c.runInspect(ctx, l.key, true)
		if err == nil {
			l.read(&s, r)
			l.nameProcesses(ctx, &s)
		}
		return struct{}{}, err
	})
	return s, err
}

// holders are those who hold the lock when a call gives up that has waited; see session.Holders. It asks for no
// waiters: a queue may be long.
func (l *single) holders(ctx context.Context, waited time.Duration) []Holder {
	return slices.Clone(l.c.named.Of(ctx, l.key, waited, func(ctx context.Context) []Holder {
		r, err := l.c.runInspect(ctx, l.key, false)
		if err != nil {
			return nil
		}
		var s State
		l.read(&s, r)
		s.Holders = s.Holders[:min(len(s.Holders), session.MostNamed)]
		l.nameProcesses(ctx, &s)
		return s.Holders
	}))
}

// read is what the server said, without the names of processes.
func (l *single) read(s *State, r inspectReply) {
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
		h := Holder{Owner: Owner(owner), Lease: r.left, Write: write}
		h.Count, _ = strconv.Atoi(value)
		end, bounded := r.ends[field]
		if till, err := strconv.ParseInt(r.fields[field+"!"], 10, 64); err == nil {
			end, bounded = max(till, -till), true // below 0: see keep.lua
		}
		if bounded {
			h.Lease = script.Left(end, r.server)
		}
		s.Holders = append(s.Holders, h)
	}
	slices.SortFunc(s.Holders, func(a, b Holder) int { return strings.Compare(string(a.Owner), string(b.Owner)) })
	for _, w := range r.waiting {
		x := Waiter{Owner: Owner(w.owner), Write: w.write}
		if w.since > 0 {
			x.Waiting = max(0, time.Duration(r.server-w.since)*time.Millisecond)
		}
		s.Waiters = append(s.Waiters, x)
	}
}

// nameProcesses asks the processes of holders and waiters for their names.
func (l *single) nameProcesses(ctx context.Context, s *State) {
	var said []string
	each := func(do func(owner Owner, process *string)) {
		for i := range s.Holders {
			do(s.Holders[i].Owner, &s.Holders[i].Process)
		}
		for i := range s.Waiters {
			do(s.Waiters[i].Owner, &s.Waiters[i].Process)
		}
	}
	each(func(owner Owner, _ *string) {
		if key := saidBy(l.key, string(owner)); key != "" {
			said = append(said, key)
		}
	})
	processes := lease.Processes(ctx, l.c.runner, said)
	each(func(owner Owner, process *string) { *process = processes[saidBy(l.key, string(owner))] })
}

// IsLocked reports whether the lock is held; of a side of a read-write lock, whether that side is held.
//
// Like all calls that only ask, it tries until it is answered, ctx ends or Options.RetryTimeout is over. The error is
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
