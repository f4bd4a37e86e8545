package hold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/session"
)

// Resource is the primitive's part of a Holding: the Of of the holding's lease.
type Resource interface {
	lease.Holder // the Holding's own methods, which the primitive embeds
	// Send sends the release once, and wakes the waiters of this process that the release may serve. again marks a
	// repeated attempt: an earlier one may have run, or may still run. gone reports that the server did not have all that
	// the request releases.
	Send(ctx context.Context, again bool) (gone bool, err error)
	// BatchKey is equal for all holdings that one call can release in the background: the remains of callers that gave up.
	// nil: this holding is released alone. It is comparable.
	BatchKey() any
	// SendAll sends the releases of all, as Send does with again.
	SendAll(ctx context.Context, all []*Holding) error
	// Label is the user's name for the holder, "" without one.
	Label() string
}

// Follower is a Resource whose holding may go on after its last handle: another caller of this process takes the next
// turn.
type Follower interface {
	Resource
	// Next is called when the last handle ends. known says that another process knows the owner, so no other caller may
	// use it. Next reports whether the holding goes on, in one of two ways:
	//
	//   - Another caller has the next turn, and calls Holding.Take.
	//   - Another owner of this process follows, and Holding.Replaced is called.
	//
	// The handle's release then sends nothing. No mutex is held.
	Next(known bool) bool
	// Gone is called when the holding is over, so that no caller can have the next turn. It may be called more than once,
	// and also after a Send.
	Gone()
}

// Holding is the hold of one owner: a lease that the watchdog renews, and the handles of the acquisition and its
// re-entries. The release of the last handle gives the lease back. A Holding must not refer to the values of its users,
// because a handle counts as dropped when no user can reach its value any more.
//
// A Holding begins before the first request, whose outcome is not known yet. So a grant whose caller has left is given
// back.
type Holding struct {
	Lease lease.Lease

	// Granted is the id of the owner in grants; "": Lease.Owner. It is set before the first request.
	Granted string

	keeper     *Keeper
	unanswered *unansweredRequests // set before the first handle is made; nil: all requests were answered

	mu         sync.Mutex
	useCount   int32 // handles that may be released, and acquisitions and re-entries under way
	turn       int32 // the number of earlier turns; 0 unless for a Follower
	finalTurn  int32 // 1 + the last turn of this owner, whom another process knows from then on; 0: no last turn
	succession succession
	phase      phase
	handleList *Handle // linked by nextHandle
	endReason  error   // nil while it lasts
	// The Observer knows the end. A holding that Close has ended stays with the watchdog until its release, and can be
	// lost before.
	endReported bool

	// The handle of the outermost acquisition, mostly the only one. It is a field so that a hold needs one allocation.
	firstHandle Handle
}

// succession says whether another caller may have a holding after its last handle.
type succession uint8

const (
	successionNever succession = iota // the Resource is not a Follower
	successionAllowed
	successionForbidden // the Resource is a Follower, but no other caller may follow
)

// phase is the progress of a holding's end.
//
//	held --the last release begins--> releasing --answered, or given up--> held, with a useCount of 0
//	                                     |  a grant of a request that was given up arrives
//	                                     v
//	                                  lateGrant --answered, or given up--> held, and one more release follows
//	held --the last handle is dropped--> leftToLease
type phase uint8

const (
	phaseHeld phase = iota
	phaseReleasing
	phaseLateGrant
	phaseLeftToLease // no handle will release it
)

// unansweredRequests are requests of an acquisition without a reply. They may take effect on the server even after the
// release.
type unansweredRequests struct {
	mayRunUntil time.Time // the last instant at which they may run
	queueEntry  string    // their entry in a queue on the server; "" for none
}

// Begin begins the holding with its acquisition as the first use. The fields of Lease must be set, except Of.
func (o *Holding) Begin(keeper *Keeper, resource Resource) {
	o.keeper, o.useCount = keeper, 1
	o.Lease.Of = resource
}

// Follow marks the holding as a Follower's. With once no other caller takes a turn all the same.
func (o *Holding) Follow(once bool) {
	o.succession = successionAllowed
	if once {
		o.succession = successionForbidden
	}
}

// Continue continues the count of turns of another owner. It is called before the first handle is made.
func (o *Holding) Continue(turn int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turn = turn
}

// Entry returns the queue entry that a request without a reply may have written.
func (o *Holding) Entry() string { return o.readUnanswered().queueEntry }

// readUnanswered returns the requests without a reply.
func (o *Holding) readUnanswered() (requests unansweredRequests) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unanswered != nil {
		requests = *o.unanswered
	}
	return requests
}

// setUnanswered records the requests without a reply, before there is a handle. It locks mu, because the watchdog may
// end the holding at the same time, and Late may read it.
func (o *Holding) setUnanswered(until time.Time, entry string) {
	if until.IsZero() && entry == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unanswered = &unansweredRequests{until, entry}
}

// Handle makes the handle of an acquisition or a re-entry. The caller has counted it before, also at Inflight. With
// auto the lease is renewed for the handle.
func (o *Holding) Handle(auto bool) *Handle {
	o.mu.Lock()
	handle := &o.firstHandle
	if handle.Holding != nil {
		handle = &Handle{}
	}
	handle.Holding, handle.autoRenew, handle.inFlight = o, auto, true
	handle.turn, handle.Began = o.turn, time.Since(o.keeper.Base)
	handle.nextHandle, o.handleList = o.handleList, handle
	ended := o.endReason
	o.mu.Unlock()
	if ended != nil { // it ended between the grant and now
		handle.end(ended)
	}
	return handle
}

// Start makes the first handle of a granted holding. added reports whether the watchdog has the lease; false if the
// lease was over by then. Requests without a reply may run until mayRunUntil, and queueEntry is their queue entry; both
// are zero if there are none. A holding that cannot be used is given back, and Start returns the reason.
func (o *Holding) Start(added, auto bool, mayRunUntil time.Time, queueEntry string) (*Handle, error) {
	if err := o.Keep(added, mayRunUntil, queueEntry); err != nil {
		return nil, err
	}
	return o.Handle(auto), nil
}

// Keep is Start without the handle, for a caller that makes the handle later, with Take.
func (o *Holding) Keep(added bool, mayRunUntil time.Time, queueEntry string) error {
	if !added {
		// Only a stall of this process since the last check of the grant causes this; the server's lease may have some time
		// left.
		o.Abandon(time.Now(), queueEntry)
		return fmt.Errorf("%w: %q was granted, but its lease was over before it could be used", errs.ErrUnavailable,
			o.Lease.Name)
	} else if o.keeper.Closed() {
		// Close and the grant have crossed: Close ended all registered leases, and only then this lease was registered. It
		// would never end. So the check follows the registration ("Close while it is being granted leaves nothing" in
		// internal/contract).
		o.End(errs.ErrClosed)
		_ = o.keeper.Engine.Remove(&o.Lease) // the line above has ended it
		o.Abandon(time.Now(), queueEntry)
		return errs.ErrClosed
	}
	o.setUnanswered(mayRunUntil, queueEntry)
	return nil
}

// Take makes the handle of a caller that takes the next turn, or of the first caller after Keep. If the holding has
// ended it returns the reason, and the caller then calls Retreat.
func (o *Holding) Take(auto bool) (*Handle, error) {
	o.mu.Lock()
	ended := o.endReason
	o.mu.Unlock()
	if ended != nil {
		return nil, ended
	}
	return o.Handle(auto), nil
}

// Decline gives the holding back. It is called by a caller that has the next turn and cannot use it.
func (o *Holding) Decline() { o.Retreat(o.readUnanswered().mayRunUntil) }

// passTurn ends the turn of last, the last handle, and begins the next turn if another caller takes it. Otherwise it
// reports false, and the holding is released.
//
//	last: its contexts have ended
//	                                   a goroutine that kept a context of last re-enters: ErrLost, because
//	                                   it is not last's turn any more
//	passTurn: a new turn
//	                                   the watchdog ends the holding: Take returns the reason to the next
//	                                   caller, which releases the holding
//
// The use by last becomes the use by the next caller, so that no other handle can be the last meanwhile.
func (o *Holding) passTurn(last *Handle) bool {
	o.mu.Lock()
	known := o.finalTurn != 0
	if o.useCount != 1 || o.succession != successionAllowed || o.endReason != nil {
		o.mu.Unlock()
		return false
	}
	o.unlinkHandle(last)
	o.turn++
	o.mu.Unlock()
	return o.Lease.Of.(Follower).Next(known)
}

// notifyEnded tells a Follower that no caller can have the next turn.
func (o *Holding) notifyEnded() {
	if o.Follows() {
		o.Lease.Of.(Follower).Gone()
	}
}

// Bar makes the turn of h the last turn of this owner, because another process is about to learn of the owner. It
// reports false if the turn is over, and another may have begun.
func (h *Handle) Bar() bool { return h.Holding.Bar(h.turn) }

// Bar is Handle.Bar for any handle of the turn.
func (o *Holding) Bar(turn int32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if turn == o.turn {
		o.finalTurn = turn + 1
	}
	return o.finalTurn == turn+1
}

// Follows reports whether the holding is a Follower's.
func (o *Holding) Follows() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.succession != successionNever
}

// BarNext forbids a next turn, by any owner.
func (o *Holding) BarNext() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.succession != successionNever {
		o.succession = successionForbidden
	}
}

// Turn returns the turn in which the handle was made.
func (h *Handle) Turn() int32 { return h.turn }

// Turn returns the current turn.
func (o *Holding) Turn() int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.turn
}

// Enter counts a re-entry in that turn, or returns the reason why there is nothing to re-enter. The caller calls Handle
// or Retreat next.
func (o *Holding) Enter(turn int32) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.endReason, errs.ErrLost) {
		return o.endReason // with ErrWrongType, if the key was overwritten
	}
	if o.endReason != nil || o.useCount == 0 || turn != o.turn {
		return errs.ErrLost
	}
	o.useCount++
	return nil
}

// Retreat counts out a re-entry that failed, or a caller that has the turn and cannot use it. Requests of its
// acquisition may run until mayRunUntil. If all other handles have been released meanwhile, Retreat releases the
// holding, because each of them left that to the re-entry:
//
//	re-entry: counted                       Unlock of the outer hold: a use is left, so nothing is sent
//	re-entry: refused                       no handle is left to release the lock
func (o *Holding) Retreat(mayRunUntil time.Time) {
	o.mu.Lock()
	o.useCount--
	last := o.useCount == 0
	if last && o.endReason == nil {
		o.endReason = errs.ErrReleased
	}
	o.mu.Unlock()
	if last {
		_ = o.keeper.Engine.Remove(&o.Lease) // lost or not, it is released
		o.releaseLater(mayRunUntil)
		o.notifyEnded()
	}
}

// Abandon ends the holding of an acquisition that failed. Its requests may be granted until mayRunUntil, and such a
// grant is released in the background. A zero mayRunUntil means that no request can be granted.
func (o *Holding) Abandon(mayRunUntil time.Time, queueEntry string) {
	o.setUnanswered(mayRunUntil, queueEntry)
	o.End(errs.ErrNotAcquired)
	o.mu.Lock()
	o.useCount = 0
	o.mu.Unlock()
	if !mayRunUntil.IsZero() {
		o.releaseLater(mayRunUntil)
	}
}

// Replaced ends a holding that another owner of this process follows. Until possibleUntil the server may still have the
// holding under this owner, or give it to this owner, so a release is sent in the background. A zero possibleUntil
// means that the other owner has the lock, or that it was lost. Requests of this owner without a reply are waited for
// in any case:
//
//	acquire by from, no reply ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ runs: enters from into the queue
//	transfer from → to, granted … to is released
//	                                                   from is handed the lock, and has no caller
func (o *Holding) Replaced(possibleUntil time.Time) {
	requests := o.readUnanswered()
	if requests.mayRunUntil.After(possibleUntil) {
		possibleUntil = requests.mayRunUntil
	}
	o.Abandon(possibleUntil, requests.queueEntry)
}

// Late is called when a request that its caller had given up was granted after all. The grant is given back, except in
// these cases:
//
//   - The holding is in use. It is in use until its release, also past MaxHold and in a closed client.
//   - It was left to its lease.
//   - A release is under way. A second release could reach the server first; the release under way would then find
//     nothing and report a loss. So the second follows it ("a late reply does not take it from under its release" in
//     internal/contract).
func (o *Holding) Late() {
	o.mu.Lock()
	if o.phase == phaseReleasing {
		o.phase = phaseLateGrant
	}
	unused := o.useCount == 0 && o.phase != phaseLeftToLease
	unwanted := o.phase != phaseLateGrant && (unused || errors.Is(o.endReason, errs.ErrLost))
	o.mu.Unlock()
	if unwanted {
		o.releaseLater(time.Time{})
	}
}

// Ended implements lease.Holder.
func (o *Holding) Ended(reason error) {
	o.End(reason) // first, because an Unlock at the same time must return the reason
	o.mu.Lock()
	first := !o.endReported
	o.endReported = true
	o.mu.Unlock()
	if first {
		o.keeper.TellOf(&o.Lease, errs.EventEnded, reason)
	}
}

// Renewed implements lease.Holder.
func (o *Holding) Renewed(err error) { o.keeper.TellOf(&o.Lease, errs.EventRenewed, err) }

// Shown implements lease.Holder.
func (o *Holding) Shown() string { return o.Lease.Owner }

// Records implements lease.Holder.
func (*Holding) Records() int { return 0 }

// End ends the holding and its handles. Only the first reason counts.
func (o *Holding) End(reason error) {
	o.mu.Lock()
	if o.endReason == nil {
		o.endReason = reason
	}
	var handles []*Handle
	for handle := o.handleList; handle != nil; handle = handle.nextHandle {
		handles = append(handles, handle)
	}
	o.mu.Unlock()
	for _, handle := range handles {
		handle.end(reason)
	}
	o.notifyEnded()
}

// Why returns the reason of the holding's end, and ErrLost if no other reason is known.
func (o *Holding) Why() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.endReason == nil {
		return errs.ErrLost
	}
	return o.endReason
}

// Lasts reports whether the owner holds something, as far as this process knows.
func (o *Holding) Lasts() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.endReason == nil && o.useCount > 0
}

// Count returns the number of handles that may be released, and of acquisitions and re-entries under way.
func (o *Holding) Count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return int(o.useCount)
}

// InUse implements lease.Holder: it reports whether there is a handle to release.
func (o *Holding) InUse() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.useCount > 0
}

// Longest returns for how long from now the server may have the holding, whatever is done.
func (o *Holding) Longest() time.Duration { return o.keeper.Engine.Longest(&o.Lease, 0) }

// Until returns the instant until which it is safe to act.
func (o *Holding) Until() time.Time { return o.keeper.Engine.Until(&o.Lease) }

// Handle is one acquisition or re-entry, as the watchdog knows it. It must not refer to the user's value.
type Handle struct {
	Life
	session.Once // the release
	Holding      *Holding
	Began        time.Duration // after session.Session.Base

	nextHandle *Handle // in Holding.handleList; guarded by Holding.mu
	onEnd      atomic.Pointer[func(*Handle)]
	turn       int32 // the turn of the holding when the handle was made
	autoRenew  bool  // the lease is renewed for this handle
	inFlight   bool  // counted among the holds for which a client's Close waits; guarded by Holding.mu
}

// OnEnd has callback called when the handle is over; at once if it is over already. callback must not block. There is
// one callback.
func (h *Handle) OnEnd(callback *func(*Handle)) {
	h.onEnd.Store(callback)
	if h.Err() != nil { // the handle ended before the Store
		(*callback)(h)
	}
}

// end ends the handle and its contexts. Only the first reason counts.
func (h *Handle) end(reason error) {
	h.Life.End(reason)
	if callback := h.onEnd.Load(); callback != nil {
		(*callback)(h)
	}
	if errors.Is(reason, errs.ErrLost) { // after a loss Close has no release to wait for, whatever ended the handle before
		h.leaveInFlight()
	}
}

// leaveInFlight makes Close wait for this handle no longer.
func (h *Handle) leaveInFlight() {
	h.Holding.mu.Lock()
	counted := h.inFlight
	h.inFlight = false
	h.Holding.mu.Unlock()
	if counted {
		h.Holding.keeper.Leave()
	}
}

// Manual ends the renewal of the lease for this handle.
func (h *Handle) Manual() {
	if h.autoRenew {
		h.autoRenew = false
		h.Holding.keeper.Engine.Manual(&h.Holding.Lease)
	}
}

// Dropped is called by a cleanup of the garbage collector when no program can reach the user's value of the handle any
// more, nor one of its contexts, and the handle was not released. The handle's end is still reported: a caller may wait
// for its Done. A line is logged only for a handle that was renewed and lasted: a handle that was never renewed may be
// left to its lease on purpose.
//
// Nothing here runs the garbage collector. An idle process finds forgotten handles within the runtime's two minutes. A
// runtime.GC of ours for every handle that is a minute old would scan the whole heap of every idle leader each time,
// for a mistake that most programs do not make, and that the log then names.
func (h *Handle) Dropped() {
	holding := h.Holding
	renewed := h.autoRenew && h.Err() == nil
	h.Manual()
	holding.mu.Lock()
	holding.useCount--
	if holding.useCount == 0 {
		holding.phase = phaseLeftToLease
	}
	holding.mu.Unlock()
	h.leaveInFlight() // Close need not wait for a release that cannot come
	if !renewed {
		return
	}
	args := []any{"name", holding.Lease.Name, "owner", holding.Lease.Of.Shown()}
	if label := holding.Lease.Of.(Resource).Label(); label != "" {
		args = append(args, "label", label)
	}
	holding.keeper.Logger.Warn(fmt.Sprintf("redlatch: a %s was dropped without %s; it is no longer renewed",
		holding.keeper.Noun, holding.keeper.Verb), args...)
}

// Extend makes the lease last for at least extension from now. A nil error means that the server has confirmed.
func (h *Handle) Extend(ctx context.Context, extension time.Duration) error {
	holding := h.Holding
	if err := session.CheckRange("extension", extension, session.MinLease); err != nil {
		return holding.keeper.Error(err)
	}
	reason := h.Err()
	if reason == nil {
		ctx, cancel := holding.keeper.Bounded(ctx)
		defer cancel()
		h.Bar() // a caller with the next turn was not promised the extension
		var confirmed bool
		confirmed, reason = holding.keeper.Engine.Extend(ctx, &holding.Lease, extension)
		switch {
		case confirmed:
			return nil
		case reason == nil:
			reason = holding.Why()
		case !errors.Is(reason, errs.ErrLost):
			return holding.keeper.Error(reason)
		}
	}
	return holding.keeper.Error(fmt.Errorf("extend %q: %w", holding.Lease.Name, reason))
}
