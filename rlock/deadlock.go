package rlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/wait"
)

// DeadlockError is the Cause of a NotAcquiredError if calls wait for each other's locks in a circle: each waits under
// the context of a hold of the lock for which the one before it waits. The call that began last gets the error, within
// two PollCaps. The other calls go on, and acquire their locks when its caller has released its holds.
//
//	var deadlock *rlock.DeadlockError
//	if errors.As(err, &deadlock) { … } // the error is ErrNotAcquired, too
//
// Calls with a time limit take part. All kinds of locks are looked at, except Quorum, whose members have no common
// owner. Permits are not looked at. A circle is not found in these cases:
//
//   - A call waits without a context of its hold, or under a context of Detach or WithOwner, or is a candidate's.
//   - The locks are on several servers, or a process has them through several hubs.
//   - A call carries more than 16 holds, of which the innermost count, or the key of a lock has more than 512 bytes.
//   - The user has no right to the keys redlatch_blocked:….
//
// A wait that carries no hold costs nothing more. With a hold, a wait longer than a third of PollCap costs a call to
// record it and one for each lock that is looked at, mostly one: six times in two PollCaps, then once in each.
type DeadlockError struct {
	// Cycle has the locks of the circle: the caller waits for the first, whose owner waits for the second, and so on. The
	// caller itself holds the last.
	Cycle []DeadlockStep
}

// DeadlockStep is one lock of a circle, and the owner for whose release the call before it waits.
type DeadlockStep struct {
	Name    string // of the lock, or its key if the key has not the prefix of the client
	Owner   Owner
	Process string // like that of a Holder
}

// Error implements error.
func (e *DeadlockError) Error() string {
	var text strings.Builder
	text.WriteString("deadlock: waits for ")
	for i, step := range e.Cycle {
		if i > 0 {
			text.WriteString(", who waits for ")
		}
		owner := "owner " + string(step.Owner)
		if step.Process != "" {
			owner = step.Process + " (" + owner + ")"
		}
		fmt.Fprintf(&text, "%q of %s", step.Name, owner)
	}
	return text.String() + ", which is this caller's"
}

// A call that waits under the context of a hold writes a record, which says which locks it holds. The records of the
// calls that wait for a lock are in one sorted set beside the lock. The youngest call of a circle finds it, by going
// backwards: from the locks that it holds to the calls that wait for them, to the locks that these hold, until one of
// them is the lock for which the youngest waits. docs/design/protocols.md ("Deadlocks") says why no circle is reported
// that was none.

const (
	maxCarried    = 16  // holds of one record
	maxCarriedKey = 512 // bytes
	maxLooks      = 64  // of one search
	quickLooks    = 6   // a third of PollCap apart; later looks are a PollCap apart
)

// carriedKey is the key under which a context has its innermost hold, as a *holdContext.
type carriedKey struct{}

// handles returns the handles of a hold, of a Multi those of all members. A Quorum has none here.
func (x *Hold) handles() []*hold.Handle {
	if x.parts == nil {
		return []*hold.Handle{x.h}
	}
	return x.parts.handles()
}

func (p *heldParts) handles() (all []*hold.Handle) {
	if p.of.isQuorum {
		return nil
	}
	for _, member := range p.heldMembers() {
		all = append(all, member.h)
	}
	return all
}

// deadlockWatch looks for circles while a call waits that carries holds.
type deadlockWatch struct {
	lock    *single
	id      string         // of the wait
	held    []*hold.Handle // the innermost first
	began   time.Time
	timer   *time.Timer
	ended   chan struct{} // closed when the wait has ended
	record  string        // the record on the server; "": none
	suspect *circle       // of the last search; nil: none

	mu     sync.Mutex
	giveUp func() // ends the wait
	found  *DeadlockError
}

// setGiveUp sets how the call's next wait ends.
func (w *deadlockWatch) setGiveUp(giveUp func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.giveUp = giveUp; w.found != nil {
		giveUp()
	}
}

// watchForDeadlock begins the watch of a call that waits for the lock. It returns nil if the call carries no hold.
// beside is the members of a Multi that the call holds; nil: none.
func (l *single) watchForDeadlock(ctx context.Context, began time.Time, beside *heldParts,
	caller *wait.Caller) *deadlockWatch {
	var held []*hold.Handle
	if beside != nil {
		held = beside.handles()
	}
	carried, _ := ctx.Value(carriedKey{}).(*holdContext)
	for ; carried != nil; carried, _ = carried.Context.Value(carriedKey{}).(*holdContext) {
		held = append(held, carried.hold.handles()...)
	}
	if len(held) == 0 {
		return nil
	}
	watch := &deadlockWatch{lock: l, id: l.c.keeper.NewOwner(""), held: held, began: began, giveUp: caller.GiveUp(),
		ended: make(chan struct{})}
	watch.timer = time.AfterFunc(watch.pause(0), func() { l.c.session.Background(watch.run) })
	return watch
}

// poll is the longest time between two requests of a waiter.
func (w *deadlockWatch) poll() time.Duration { return min(w.lock.c.opts.PollCap, wait.MaxPoll) }

// pause returns the time before the n-th look.
func (w *deadlockWatch) pause(n int) time.Duration {
	if n < quickLooks {
		return w.poll() / 3
	}
	return w.poll()
}

// end ends the watch of a wait that ended with err, and returns the error for the caller.
func (w *deadlockWatch) end(err error) error {
	w.timer.Stop()
	close(w.ended)
	w.mu.Lock()
	defer w.mu.Unlock()
	var gaveUp *wait.GaveUp
	if w.found != nil && errors.As(err, &gaveUp) && gaveUp.Cause == nil {
		return &wait.GaveUp{Left: gaveUp.Left, Cause: w.found}
	}
	return err
}

// run looks until the wait ends, a circle is found, or ctx ends.
func (w *deadlockWatch) run(ctx context.Context) {
	for n := 1; ; n++ {
		if circle := w.look(ctx); circle != nil {
			deadlock := w.lock.describe(ctx, circle)
			w.mu.Lock()
			w.found = deadlock
			w.giveUp() // a context's cancel, which waits for nothing
			w.mu.Unlock()
		}
		timer := time.NewTimer(w.pause(n))
		select {
		case <-timer.C:
			continue
		case <-w.ended:
		case <-ctx.Done():
		}
		timer.Stop()
		if w.record != "" {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.lock.c.opts.CallTimeout)
			defer cancel()
			_, _ = w.lock.runBlocked(bounded, "", w.record) // else it is removed later, and never written anew
		}
		return
	}
}

// look writes the record anew, and returns a circle that is confirmed.
func (w *deadlockWatch) look(ctx context.Context) *circle {
	ctx, cancel := context.WithTimeout(ctx, w.poll())
	defer cancel()
	own := w.newRecord()
	text := own.text()
	before := w.record
	if text == before {
		before = ""
	}
	w.record = text // also if the reply is lost
	if _, err := w.lock.runBlocked(ctx, text, before); err != nil || text == "" {
		w.suspect = nil
		return nil
	}
	if w.suspect != nil {
		switch w.lock.confirm(ctx, w.suspect) {
		case circleConfirmed:
			return w.suspect
		case circleOpen:
			return nil
		}
	}
	w.suspect = w.lock.search(ctx, own)
	return nil
}

// newRecord returns the record of the call, with the holds that last.
func (w *deadlockWatch) newRecord() blockedRecord {
	record := blockedRecord{began: w.lock.c.runner.Clock.At(w.lock.key, w.began), stale: 5 * w.poll() / 2, id: w.id}
	if w.record != "" {
		before, _ := readBlocked(w.record)
		record.began = before.began
	}
	server := w.lock.c.session.Hub.Client()
	for _, handle := range w.held {
		own := ownerOf(handle)
		if handle.Err() == nil && own.lock.c.session.Hub.Client() == server && len(own.lock.key) <= maxCarriedKey &&
			len(record.holds) < maxCarried {
			record.holds = append(record.holds, heldLock{own.lock.key, own.Lease.Owner})
		}
	}
	return record
}

// describe returns the error for a circle, with the names of processes as far as the server tells them.
func (l *single) describe(ctx context.Context, found *circle) *DeadlockError {
	ctx, cancel := context.WithTimeout(ctx, l.c.opts.CallTimeout)
	defer cancel()
	var keys []string
	for _, part := range found.parts {
		keys = append(keys, processKeyOf(part.key, part.owner))
	}
	processes := lease.Processes(ctx, l.c.runner, keys)
	deadlock := &DeadlockError{}
	for _, part := range found.parts {
		deadlock.Cycle = append(deadlock.Cycle, DeadlockStep{Name: strings.TrimPrefix(part.key, l.c.opts.KeyPrefix),
			Owner: Owner(part.owner), Process: processes[processKeyOf(part.key, part.owner)]})
	}
	return deadlock
}
