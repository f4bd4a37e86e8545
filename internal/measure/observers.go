package measure

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// The kinds.
const (
	Lock      = "lock"
	Election  = "election"
	Semaphore = "semaphore"
	CounterOf = "counter"
	Stock     = "stock"
	RedPacket = "redpacket"
	Limiter   = "limiter"
)

// Observers get the events of the clients, and give them to a Sink.
type Observers struct {
	sink  Sink
	class *Classes
}

// NewObservers returns the observers that tell a sink, by classes that of makes of names; see NewClasses.
func NewObservers(sink Sink, of func(kind, name string) string, most int) *Observers {
	o := &Observers{sink: sink}
	o.class = NewClasses(of, most, o.begin)
	for _, i := range []*Instrument{Refusals, ConnectionLosses, DroppedMessages} {
		sink.Add(context.Background(), i, 0)
	}
	return o
}

// Class is the class of a name.
func (o *Observers) Class(kind, name string) string { return o.class.Get(kind, name) }

// begin makes the series of rare events: a counter that begins at 1 has not increased, and no alert sees it.
func (o *Observers) begin(kind, class string) {
	ctx := context.Background()
	switch kind {
	case Lock, Election, Semaphore:
		for _, cause := range []string{"lost", "overwritten", "max_hold", "closed"} {
			o.sink.Add(ctx, Losses, 0, kind, class, cause)
		}
		o.sink.Add(ctx, Takeovers, 0, class)
	case Stock, Limiter:
		o.sink.Add(ctx, BackgroundFailures, 0, kind, class)
	}
	if kind != Election {
		o.sink.Add(ctx, SharedCalls, 0, kind)
		o.sink.Add(ctx, SharedRequests, 0, kind)
	}
	if kind == Limiter {
		for _, by := range []ratelimit.Policy{ratelimit.Closed, ratelimit.Open, ratelimit.Local} {
			o.sink.Add(ctx, PolicyChanges, 0, class, string(by), "true")
		}
	}
}

// kinds are the kinds of what packages report events of.
var kinds = map[string]string{"rlock": Lock, "election": Election, "rsemaphore": Semaphore, "rcounter": CounterOf,
	"stock": Stock, "redpacket": RedPacket, "ratelimit": Limiter}

// Kind is the kind of the object of an event; "" of a hub's.
func Kind(e redlatch.Event) string { return kinds[e.Package] }

// Observe is the redlatch.Observer of all packages.
func (o *Observers) Observe(ctx context.Context, e redlatch.Event) context.Context {
	switch e.Kind {
	case redlatch.EventAcquiring, redlatch.EventWaiting, redlatch.EventReleasing: // the end of the call is counted
	case redlatch.EventShared:
		o.sink.Add(ctx, SharedCalls, 1, Kind(e))
		o.sink.Add(ctx, SharedRequests, float64(e.N), Kind(e))
	case redlatch.EventSubscribed:
		o.sink.Add(ctx, Confirmations, 1, strconv.FormatBool(e.Again))
	case redlatch.EventRefused:
		o.sink.Add(ctx, Refusals, 1)
	case redlatch.EventLost:
		o.sink.Add(ctx, ConnectionLosses, 1)
	case redlatch.EventDropped:
		o.sink.Add(ctx, DroppedMessages, 1)
	default:
		kind := Kind(e)
		class := o.Class(kind, e.Name)
		o.ofHolders(ctx, kind, class, e)
		o.ofCounts(ctx, kind, class, e)
	}
	return ctx
}

// ofHolders counts events of locks, elections and semaphores.
func (o *Observers) ofHolders(ctx context.Context, kind, class string, e redlatch.Event) {
	switch e.Kind {
	case redlatch.EventAcquired, redlatch.EventNotAcquired:
		o.sink.Add(ctx, Acquisitions, 1, kind, class, Result(e.Err, "acquired"))
		o.sink.Record(ctx, AcquireTime, e.Took.Seconds(), kind, class, strconv.FormatBool(e.Err == nil))
	case redlatch.EventAwaited:
		o.sink.Record(ctx, AwaitTime, e.Took.Seconds(), class, Result(e.Err, "reached"))
	case redlatch.EventReleased:
		o.sink.Add(ctx, Releases, 1, kind, class, Result(e.Err, "released"))
		if e.Held >= 0 { // a counting.Semaphore does not know its holders
			o.sink.Record(ctx, HoldTime, e.Held.Seconds(), kind, class)
		}
	case redlatch.EventRenewed:
		result := "confirmed"
		if e.Err != nil {
			result = "failed"
		}
		o.sink.Add(ctx, Renewals, 1, kind, class, result)
	case redlatch.EventEnded:
		o.sink.Add(ctx, Losses, 1, kind, class, Cause(e.Err))
	case redlatch.EventWoken:
		by := "timer"
		if e.ByMessage {
			by = "message"
		}
		o.sink.Add(ctx, Wakeups, 1, kind, class, by)
	case redlatch.EventTakenOver:
		o.sink.Add(ctx, Takeovers, float64(e.N), class)
	}
}

// replayed is the outcome of an order that the sale had before, and of a share that the user had.
const replayed = "replayed"

// ofCounts counts events of counters, sales, red packets and limiters.
func (o *Observers) ofCounts(ctx context.Context, kind, class string, e redlatch.Event) {
	switch e.Kind {
	case redlatch.EventWritten:
		o.sink.Add(ctx, Writes, 1, class, Result(e.Err, "written"))
		o.sink.Record(ctx, WriteTime, e.Took.Seconds(), class)
	case redlatch.EventClaimed:
		outcome := labelValue(e.Outcome)
		if e.Again {
			outcome = replayed
		}
		o.sink.Add(ctx, Claims, 1, kind, class, Result(e.Err, outcome))
		o.sink.Record(ctx, ClaimTime, e.Took.Seconds(), kind, class)
		switch outcome {
		case "grabbed", string(stock.Sold), string(stock.Reserved):
			o.sink.Add(ctx, ClaimedUnits, float64(e.N), kind, class)
		}
	case redlatch.EventAnsweredLocally:
		o.sink.Add(ctx, LocalAnswers, 1, class, labelValue(e.Outcome))
	case redlatch.EventAdmitted:
		o.sink.Add(ctx, Admissions, 1, class, Result(e.Err, labelValue(e.Outcome)))
		o.sink.Record(ctx, AdmitTime, e.Took.Seconds(), class)
	case redlatch.EventSettled:
		o.sink.Add(ctx, Settlements, 1, class, Result(e.Err, "settled"))
		switch {
		case e.N < 0:
			o.sink.Add(ctx, SettledUnits, float64(-e.N), class, "returned")
		case e.N > 0:
			o.sink.Add(ctx, SettledUnits, float64(e.N), class, "taken")
		}
	case redlatch.EventDegraded:
		o.sink.Add(ctx, PolicyChanges, 1, class, e.Outcome, strconv.FormatBool(e.Err != nil))
	case redlatch.EventBackgroundFailed:
		o.sink.Add(ctx, BackgroundFailures, 1, kind, class)
	}
}

// Result is success, or the reason of err.
func Result(err error, success string) string {
	if err == nil {
		return success
	}
	return redlatch.Reason(err)
}

// Cause is why a hold has ended: a reason, or "overwritten" for a loss by another type of value.
func Cause(why error) string {
	if errors.Is(why, errs.ErrWrongType) {
		return "overwritten"
	}
	return redlatch.Reason(why)
}

// labelValue is a text as a label's value.
func labelValue(s string) string { return strings.ReplaceAll(s, " ", "_") }
