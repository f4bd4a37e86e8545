package redlatch

import "github.com/redlatch/redlatch/internal/errs"

// Observer is called with the events of a client's objects, for metrics and traces. All packages have this type: set
// the observer in [Options] for all packages, or in the Options of one. The observer runs in the goroutine of the
// event, which may be the watchdog or the reader of a connection, so it must return at once and be safe for concurrent
// use. The caller of the observer holds no mutex. So an observer may call the client; only a hub's observer may not
// make calls that wait for the server, such as Subscribe. A panic is logged and otherwise ignored. A client without an
// observer pays nothing.
//
// ctx is the context of the call: it has the caller's span, and may have ended. EventRenewed and EventEnded have the
// values of the acquisition's context, EventBackgroundFailed the values of the call that left the work behind.
// EventTakenOver and the events of a hub happen outside of any call: their context has neither values nor an end.
//
// The context that an Observer returns matters for the events that begin a call, EventAcquiring and EventReleasing: the
// call goes on under it. The requests of the call, and its later events, have its values. So a span that begins with
// EventAcquiring is the parent of the spans of the requests, and EventAcquired ends it. The context must be derived
// from ctx; nil, like ctx itself, changes nothing. For all other events the returned context is ignored.
//
// Observer.And joins two observers: the second gets the context that the first returned.
type Observer = errs.Observer

// Event is an event of a client's object. The constants of [EventKind] name the fields that each kind sets:
//
//   - Package, Kind, Name: always. Package is "rlock", "election", "rsemaphore", "rcounter", "stock", "redpacket",
//     "ratelimit" or "pubsub". Name is the object's name as the caller gave it: for a hub the channel, and for
//     EventLost the node of a Cluster.
//   - N (int64): permits, units or cents; for EventTakenOver of a lock, holds; for EventShared, requests.
//   - Outcome (string): the answer. Of a sale a stock.State, or the Answer.Why of an order that was Refused; otherwise
//     "grabbed" or a redpacket.Share's Why, "allowed" or "refused"; for EventDegraded the
//     ratelimit.Policy.
//   - Took, Held (time.Duration): how long the call took, and how long the hold or permit was held.
//   - Waited (bool): the acquisition had to wait for others, and EventWaiting came before.
//   - ByMessage (bool): a message woke the waiter, not its timer.
//   - Again (bool): the channel had been confirmed before, and was down meanwhile; or a sale had the order, or
//     a red packet the user's share, before.
//   - Err (error): the error of the call, or why a hold ended or work failed; nil is success.
//   - Acquisition (context.Context): has the values of the context that the Observer returned for the acquisition which
//     is released now. The context may have ended.
type Event = errs.Event

// EventKind is the kind of an [Event], in words.
type EventKind = errs.EventKind

// Events of locks, elections, semaphores, latches and barriers. A Multi or Quorum reports each member.
// The events of an election are those of the lock under it: EventAcquired is an election won, EventReleased a
// resignation, EventEnded a leadership that was lost, EventTakenOver a crashed leader.
const (
	// EventAcquiring: an acquisition begins, and nothing was sent yet (N). One EventAcquired or EventNotAcquired follows,
	// with the context that the Observer returns. The members of a Multi that one script acquires begin when the script
	// has ended; each has a context of its own. A re-entry and each reader that shares a hold are acquisitions, too.
	EventAcquiring = errs.EventAcquiring
	// EventWaiting: an acquisition or an Await begins to wait, because it was refused and may wait, or because another
	// call of the process is before it. At most once in each. Of a Quorum it has the Quorum's name and the caller's
	// context, like EventWoken.
	EventWaiting = errs.EventWaiting
	// EventWoken: a sleeping waiter tries again (ByMessage).
	EventWoken = errs.EventWoken
	// EventAcquired: the lock or the permits were acquired (N, Took, Waited).
	EventAcquired = errs.EventAcquired
	// EventNotAcquired: an acquisition ended without the lock or the permits (N, Took, Waited, Err, which is never nil).
	// If the Do of a Once got an answer in place of the lock, the Reason of Err is "answered"; Do returns no such error.
	EventNotAcquired = errs.EventNotAcquired
	// EventAwaited: an Await ended (Took, Err). Err is nil if the latch opened or the barrier tripped.
	EventAwaited = errs.EventAwaited
	// EventReleasing: Unlock or Release begins, and nothing was sent yet (N, Acquisition). One EventReleased follows, with
	// the context that the Observer returns. Later calls have the result of the first, and are not events.
	EventReleasing = errs.EventReleasing
	// EventReleased: Unlock or Release has ended (N, Held, Err). Held is negative for a counting.Semaphore, which knows no
	// holders.
	EventReleased = errs.EventReleased
	// EventRenewed: a renewal of a hold, a permit or a barrier's party was confirmed, or failed (Err). A failure is not
	// final: EventEnded says when a hold or permit is lost, EventAwaited when a party is. A hold that was re-entered, or
	// that readers share, has one EventRenewed for each renewal, with the values of its first acquisition.
	EventRenewed = errs.EventRenewed
	// EventEnded: a hold or permit ended without a release (Err: ErrLost, ErrMaxHold or ErrClosed). Each hold has one such
	// event, with the values of its first acquisition.
	EventEnded = errs.EventEnded
	// EventTakenOver: this client has removed holds or permits of crashed processes (Options.Liveness) from a lock or
	// semaphore that it waits for (N). Another process may acquire them then.
	EventTakenOver = errs.EventTakenOver
)

// Events of counters, sales, red packets and limiters. Calls that are refused before anything is sent
// are not events.
const (
	// EventWritten: the server answered a call that writes a counter (Add, Incr, Decr, AddOnce, Set or CompareAndSet), or
	// did not write (Took, Err).
	EventWritten = errs.EventWritten
	// EventClaimed: the server answered a Buy or Reserve of a sale, or a Grab of a red packet, or the call failed
	// (Outcome, N, Took, Again, Err). N is how many units the order has, or the cents of the user's share.
	EventClaimed = errs.EventClaimed
	// EventAnsweredLocally: the process answered a Buy or Reserve by itself, because the sale is sold out, or the Do of a
	// Once, whose answer it knows (Outcome). No other event of the call comes then.
	EventAnsweredLocally = errs.EventAnsweredLocally
	// EventShared: a call begins that requests of this process share, because others were under way (N). It has no Name if
	// the requests may be for several names.
	EventShared = errs.EventShared
	// EventAdmitted: an Allow, AllowAtMost, AllowAll, Charge or ChargeAll was answered, by the server, by this process or
	// by a policy, or was not (Outcome, N, Took, Err). N is how many units may pass. One for several limits has one event
	// for each limit.
	EventAdmitted = errs.EventAdmitted
	// EventSettled: the server settled a charge of a limit, or did not (N, Took, Err). N is how many units were taken, or
	// negative, given back. The charge of a ChargeAll has one event for each limit.
	EventSettled = errs.EventSettled
	// EventDegraded: the server does not answer, and from now on LimiterOptions.WhenDown does in its place; or the server
	// answers again, and Err is nil (Outcome, Err). There is one for the first request and one for the last, not for each.
	EventDegraded = errs.EventDegraded
	// EventBackgroundFailed: work in the background failed (Err, which is never nil). Units of a sale or a limiter whose
	// callers had left could not be returned, and stay sold or taken. KeepLedger reports a failure after which it goes on.
	EventBackgroundFailed = errs.EventBackgroundFailed
)

// Events of a hub, one after the other. A call of Subscribe returns after the event that it waits for.
const (
	// EventSubscribed: the server confirmed a channel (Again).
	EventSubscribed = errs.EventSubscribed
	// EventRefused: the server refused to subscribe a channel (Err, which is never nil).
	EventRefused = errs.EventRefused
	// EventLost: a connection with subscriptions ended, or could not be made (Err, which is never nil). Name is the node.
	// The hub tries another.
	EventLost = errs.EventLost
	// EventDropped: a message was dropped, because Options.Buffer others waited for a subscriber. A Gap stands in its
	// place.
	EventDropped = errs.EventDropped
)
