package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
)

// Handles is what the handles of one client have in common. It is set up before the first and not changed afterwards.
type Handles struct {
	*Session
	Noun string // what a handle is called: "hold"
	Verb string // the method that releases it: "Unlock"
}

// Resource is what a primitive knows of a Holding of its own: it is the Of of the holding's lease.
type Resource interface {
	// Send sends the release once. again: it is not the first try, so an earlier one may have run, or may still. gone: the
	// server did not have all that was to be released.
	//
	// It wakes the waiters of this process that can have what was released.
	Send(ctx context.Context, again bool) (gone bool, err error)
	// Label is what the user calls the holder, "" without one.
	Label() string
}

// Several is a Resource of which several can be released by one call, in the background: what callers have left behind
// that gave up.
type Several interface {
	Resource
	// BatchKey is the same for all that one call can release; nil: this one is released alone. It can be compared.
	BatchKey() any
	// SendAll sends the releases of all, as Send does of a try that is not the first.
	SendAll(ctx context.Context, all []*Holding) error
}

// Follower is a Resource whose holding may go on after its last handle: another caller of this process has it next.
type Follower interface {
	Resource
	// Next is called when the last handle ends. It reports whether another caller has the holding from now on, for which
	// that caller calls Holding.Take, or another owner of the process, for which Holding.Replaced is called; the handle's
	// release sends nothing then. known: the owner is known elsewhere, so no other caller may have it as this owner. The
	// session holds no mutex.
	Next(known bool) bool
	// Gone is called when no caller can have it next, because it is over: maybe more than once, and also after a Send.
	Gone()
}

// Holding is what one owner holds: a lease that the watchdog keeps, and the handles of the acquisition and its
// re-entries, whose last release gives it back. A Holding must not refer to the values that its users have: a handle
// was dropped when no user can reach its value any more.
//
// It begins before the first request, when it is not known yet whether that is granted. So a grant whose caller has
// left is given back.
type Holding struct {
	Lease lease.Lease

	// Granted is how grants name the owner; "": by Lease.Owner. It is set before the first request.
	Granted string

	of         *Handles
	unanswered *unanswered // set before the first handle is made; nil: all requests were answered

	mu      sync.Mutex
	count   int32 // handles that may be released, and acquisitions and re-entries under way
	turn    int32 // of a Follower: how many callers have had it before
	known   int32 // 1 + the turn of which something is known elsewhere, which is the last as this owner; 0: none
	next    succession
	phase   phase
	handles *Handle // chained
	ended   error   // why it is over

	// the outermost acquisition's, which is mostly the only one: kept here to be one piece of memory
	first Handle
}

// succession says whether another caller may have a holding after its last handle.
type succession uint8

const (
	single succession = iota // the holding is not for a Follower
	open
	barred // it is for a Follower, but has one turn, or others are queued behind it
)

// phase is how far the end of a holding has come.
//
//	kept --the last release begins--> releasing --answered, or given up--> kept, with a count of 0
//	                                     |  a request that had been given up is answered
//	                                     v
//	                                  overtaken --likewise--> kept, and one more release follows
//	kept --the last handle is dropped--> dropped
type phase uint8

const (
	kept phase = iota
	releasing
	overtaken
	dropped // it is left to its lease
)

// unanswered is what requests of an acquisition may leave behind on the server if they were never answered, also after
// the release.
type unanswered struct {
	until time.Time // they do not run later than this
	entry string    // their place in a queue on the server, "" if none was asked for
}

// Begin counts the acquisition in. The lease's fields are set but for Of and Ended.
func (o *Holding) Begin(of *Handles, r Resource) {
	o.of, o.count = of, 1
	o.Lease.Of, o.Lease.Ended = r, o.lost
}

// Follow says that the holding is a Follower's. once: no caller has it next all the same.
func (o *Holding) Follow(once bool) {
	o.next = open
	if once {
		o.next = barred
	}
}

// Continue has the turns of the holding be counted from that of another owner, before its first handle is made.
func (o *Holding) Continue(turn int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turn = turn
}

// Entry is the place in a queue that a request may have left behind.
func (o *Holding) Entry() string { return o.left().entry }

// left is what requests may have left behind that were not answered.
func (o *Holding) left() (left unanswered) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unanswered != nil {
		left = *o.unanswered
	}
	return left
}

// leaves notes what requests may leave behind, before there is a handle. The watchdog may end the holding at the same
// time, and Late look at it.
func (o *Holding) leaves(until time.Time, entry string) {
	if until.IsZero() && entry == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unanswered = &unanswered{until, entry}
}

// Handle makes the handle of an acquisition, or of a re-entry, that was counted in before, also at Inflight. auto: the
// lease is renewed for it.
func (o *Holding) Handle(auto bool) *Handle {
	o.mu.Lock()
	h := &o.first
	if h.Holding != nil {
		h = &Handle{}
	}
	h.Holding, h.auto, h.counted, h.turn, h.Began = o, auto, true, o.turn, time.Since(o.of.Base)
	h.next, o.handles = o.handles, h
	ended := o.ended
	o.mu.Unlock()
	if ended != nil { // between the grant and here
		h.end(ended)
	}
	return h
}

// Start makes the first handle of what was granted. added: the watchdog has it; false if its lease was over by then.
// Requests that were not answered may run until until, and entry is their place in a queue; both are zero if there are
// none. What cannot be used is given back.
func (o *Holding) Start(added, auto bool, until time.Time, entry string) (*Handle, error) {
	if err := o.Keep(added, until, entry); err != nil {
		return nil, err
	}
	return o.Handle(auto), nil
}

// Keep is Start without the handle, for one who makes it later (Take).
func (o *Holding) Keep(added bool, until time.Time, entry string) error {
	if !added {
		// Only a stall of this very machine since the grant was looked at; the server's lease may have some time left.
		o.Abandon(time.Now(), entry)
		return o.Expired()
	} else if o.of.Closed() {
		// Close and the grant have crossed: Close ended all that was registered, and only then this was. It would never end.
		// So it is looked for after registering ("Close while it is being granted leaves nothing" in internal/contract).
		o.End(errs.ErrClosed)
		_ = o.of.Engine.Remove(&o.Lease) // it has ended already, just above
		o.Abandon(time.Now(), entry)
		return errs.ErrClosed
	}
	o.leaves(until, entry)
	return nil
}

// Take makes the handle of a caller that has the holding next, or first after Keep. The error is why it is over; the
// caller then calls Retreat.
func (o *Holding) Take(auto bool) (*Handle, error) {
	o.mu.Lock()
	ended := o.ended
	o.mu.Unlock()
	if ended != nil {
		return nil, ended
	}
	return o.Handle(auto), nil
}

// Decline is called by one that has the holding next, and cannot use it: it is given back.
func (o *Holding) Decline() { o.Retreat(o.left().until) }

// pass has another caller have the holding next, after h. It reports false if none has: then it is released.
//
//	h: its contexts have ended
//	                                   a goroutine that kept one re-enters: it is not h's turn any more, so ErrLost
//	pass: a new turn
//	                                   the watchdog ends the holding: Take says so to the next caller, which releases it
//
// The count of the handle that ends becomes that of the next, so no other can be the last meanwhile.
func (o *Holding) pass(h *Handle) bool {
	o.mu.Lock()
	known := o.known != 0
	if o.count != 1 || o.next != open || o.ended != nil {
		o.mu.Unlock()
		return false
	}
	o.unlink(h)
	o.turn++
	o.mu.Unlock()
	return o.Lease.Of.(Follower).Next(known)
}

// gone tells a Follower that no caller can have the holding next.
func (o *Holding) gone() {
	if o.Follows() {
		o.Lease.Of.(Follower).Gone()
	}
}

// Bar has no other caller have the holding as this owner after h, of whose turn something is to be known elsewhere. It
// reports false if that turn is over, and another may have begun.
func (h *Handle) Bar() bool { return h.Holding.Bar(h.turn) }

// Bar is Handle.Bar for a handle of that turn.
func (o *Holding) Bar(turn int32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if turn == o.turn {
		o.known = turn + 1
	}
	return o.known == turn+1
}

// Follows reports whether another caller may have the holding next, as far as it is known.
func (o *Holding) Follows() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next != single
}

// BarNext has no other caller have the holding next, as any owner.
func (o *Holding) BarNext() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.next != single {
		o.next = barred
	}
}

// Turn is which of the callers that follow each other has the handle, or had it.
func (h *Handle) Turn() int32 { return h.turn }

// Turn is that of the caller which has the holding.
func (o *Holding) Turn() int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.turn
}

// Expired is the error of what was granted and cannot be used any more.
func (o *Holding) Expired() error {
	return fmt.Errorf("%w: %q was granted, but its lease was over before it could be used", errs.ErrUnavailable,
		o.Lease.Name)
}

// Enter counts a re-entry in, in that turn, or says why there is nothing to re-enter. The caller calls Handle or
// Retreat next.
func (o *Holding) Enter(turn int32) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.ended, errs.ErrLost) {
		return o.ended // with ErrWrongType, if its key was overwritten
	}
	if o.ended != nil || o.count == 0 || turn != o.turn {
		return errs.ErrLost
	}
	o.count++
	return nil
}

// Retreat counts out a failed re-entry, or one that has the holding and cannot use it; requests of its acquisition may
// run until until. If every handle that was there has been released meanwhile, each left the lock to it:
//
//	re-entry: counted in                    Unlock of the outer hold: one is left, so the lock is kept
//	re-entry: refused                       no handle is left to release it
func (o *Holding) Retreat(until time.Time) {
	o.mu.Lock()
	o.count--
	last := o.count == 0
	if last && o.ended == nil {
		o.ended = errs.ErrReleased
	}
	o.mu.Unlock()
	if last {
		_ = o.of.Engine.Remove(&o.Lease) // lost or not, it is released
		o.releaseLater(until)
		o.gone()
	}
}

// Abandon ends the holding of an acquisition that failed. What its requests may still take, up to until, is released in
// the background. A zero until means that they take nothing.
func (o *Holding) Abandon(until time.Time, entry string) {
	o.leaves(until, entry)
	o.End(errs.ErrNotAcquired)
	o.mu.Lock()
	o.count = 0
	o.mu.Unlock()
	if !until.IsZero() {
		o.releaseLater(until)
	}
}

// Replaced ends a holding that another owner of this process was to take over. The server may still have it, or may get
// it until until, and is asked to release that in the background; zero: the other owner has it, or it was lost.
// Requests of its own that were not answered are waited for in any case:
//
//	acquire by from, no reply ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ runs: enters from into the queue
//	transfer from → to, granted … to is released
//	                                                   from is handed the lock, and has no caller
func (o *Holding) Replaced(until time.Time) {
	left := o.left()
	if left.until.After(until) {
		until = left.until
	}
	o.Abandon(until, left.entry)
}

// Late is called when a request that its caller had given up was granted after all. The grant is given back unless the
// holding is in use, which it is until its release also past MaxHold and in a closed client, or was left to its lease.
// While a release is under way a second one could reach the server first; the other would find nothing and say that the
// holding was lost. So it is made afterwards ("a late reply does not take it from under its release" in
// internal/contract).
func (o *Holding) Late() {
	o.mu.Lock()
	if o.phase == releasing {
		o.phase = overtaken
	}
	unwanted := o.phase != overtaken && (o.count == 0 && o.phase != dropped || errors.Is(o.ended, errs.ErrLost))
	o.mu.Unlock()
	if unwanted {
		o.releaseLater(time.Time{})
	}
}

// lost is called by the watchdog when the holding is over. It may be called again: what Close has ended stays with the
// watchdog until its release, and can be lost before that.
func (o *Holding) lost(why error) {
	o.End(why) // first: an Unlock at the same time must know why
	if o.Lease.Tell() {
		o.of.Tell(o.of.Engine.Values(&o.Lease), errs.Event{Kind: errs.EventEnded, Name: o.Lease.Name, Err: why})
	}
}

// End ends it and its handles; the first reason counts.
func (o *Holding) End(why error) {
	o.mu.Lock()
	if o.ended == nil {
		o.ended = why
	}
	var handles []*Handle
	for h := o.handles; h != nil; h = h.next {
		handles = append(handles, h)
	}
	o.mu.Unlock()
	for _, h := range handles {
		h.end(why)
	}
	o.gone()
}

// Why is why it is over, or cannot be used: ErrLost if nothing more is known.
func (o *Holding) Why() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended == nil {
		return errs.ErrLost
	}
	return o.ended
}

// Lasts reports whether it holds something, as far as this process knows.
func (o *Holding) Lasts() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended == nil && o.count > 0
}

// Count is how many handles there are that may be released, with acquisitions and re-entries under way.
func (o *Holding) Count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return int(o.count)
}

// InUse reports whether there is a handle to release. What was dropped stays with the watchdog until its lease is over.
func (o *Holding) InUse() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count > 0
}

// Longest is for how long from now the server may have it, whatever is done.
func (o *Holding) Longest() time.Duration { return o.of.Engine.Longest(&o.Lease, 0) }

// Until is the instant until which it is safe to act.
func (o *Holding) Until() time.Time { return o.of.Engine.Until(&o.Lease) }

// Handle is one acquisition or re-entry, as the watchdog knows it. It must not refer to the value that the user has.
type Handle struct {
	Life
	Once    // the release
	Holding *Holding
	Began   time.Duration // after Session.Base

	next    *Handle // the holding's next; guarded by its mu
	hook    atomic.Pointer[func(*Handle)]
	turn    int32 // of the holding, when it was made
	auto    bool
	counted bool // among those that a client's Close waits for; guarded by Once.mu
}

// OnEnd has f called when the handle is over; at once if it is over already. f must not block. There is one f.
func (h *Handle) OnEnd(f *func(*Handle)) {
	h.hook.Store(f)
	if h.Err() != nil { // before it was there
		(*f)(h)
	}
}

// end ends the handle and its contexts; the first reason counts.
func (h *Handle) end(why error) {
	h.Life.End(why)
	if f := h.hook.Load(); f != nil {
		(*f)(h)
	}
	if errors.Is(why, errs.ErrLost) { // nothing is held that Close could wait for, whatever ended it before
		h.uncount()
	}
}

// uncount has Close wait for this handle no longer.
func (h *Handle) uncount() {
	h.Once.mu.Lock()
	counted := h.counted
	h.counted = false
	h.Once.mu.Unlock()
	if counted {
		h.Holding.of.Leave()
	}
}

// Manual has the lease no longer renewed for this handle.
func (h *Handle) Manual() {
	if h.auto {
		h.auto = false
		h.Holding.of.Engine.Manual(&h.Holding.Lease)
	}
}

// Dropped is called by a cleanup of the garbage collector, when nothing can reach what the user had of the handle any
// more, nor one of its contexts, and it was not released. The handle still learns of its end: a caller may wait for its
// Done. A line is logged only for a handle that was renewed and lasted: one that was never renewed may be left to its
// lease on purpose.
//
// Nothing here runs the garbage collector. An idle process finds forgotten handles within the runtime's two minutes. A
// runtime.GC of ours for every handle that is a minute old would go through the whole heap of every idle leader each
// time, for a mistake that most programs do not make, and that the log then names.
func (h *Handle) Dropped() {
	o := h.Holding
	renewed := h.auto && h.Err() == nil
	h.Manual()
	o.mu.Lock()
	o.count--
	if o.count == 0 {
		o.phase = dropped
	}
	o.mu.Unlock()
	h.uncount() // Close need not wait for a release that cannot come
	if !renewed {
		return
	}
	args := []any{"name", o.Lease.Name, "owner", o.Lease.Called()}
	if label := o.Lease.Of.(Resource).Label(); label != "" {
		args = append(args, "label", label)
	}
	o.of.Logger.Warn(fmt.Sprintf("redlatch: a %s was dropped without %s; it is no longer renewed", o.of.Noun, o.of.Verb),
		args...)
}

// Extend makes the lease last for at least d from now. nil: confirmed by the server.
func (h *Handle) Extend(ctx context.Context, d time.Duration) error {
	o := h.Holding
	if err := CheckRange("extension", d, MinLease); err != nil {
		return o.of.Error(err)
	}
	why := h.Err()
	if why == nil {
		ctx, cancel := o.of.Bounded(ctx)
		defer cancel()
		h.Bar() // who is next was promised nothing of d
		var confirmed bool
		confirmed, why = o.of.Engine.Extend(ctx, &o.Lease, d)
		switch {
		case confirmed:
			return nil
		case why == nil:
			why = o.Why()
		case !errors.Is(why, errs.ErrLost):
			return o.of.Error(why)
		}
	}
	return o.of.Error(fmt.Errorf("extend %q: %w", o.Lease.Name, why))
}

// failed is the error of a release.
func (c *Handles) failed(name string, why error) error {
	return c.Error(fmt.Errorf("%s %q: %w", strings.ToLower(c.Verb), name, why))
}
