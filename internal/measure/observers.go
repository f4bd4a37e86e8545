package measure

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
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

// Observers get events from the clients, and give them to a Sink.
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
	if kind == Limiter {
		for _, by := range []ratelimit.Policy{ratelimit.Closed, ratelimit.Open, ratelimit.Local} {
			o.sink.Add(ctx, PolicyChanges, 0, class, string(by), "true")
		}
	}
}

// Instrument returns opts with the Observers in every package, after those that opts has already.
func (o *Observers) Instrument(opts redlatch.Options) redlatch.Options {
	opts.Hub = Then(opts.Hub, func(p *pubsub.Options) { p.Observer = bothHub(p.Observer, o.Hub()) })
	opts.Locks = Then(opts.Locks, func(p *rlock.Options) { p.Observer = session.Chain(p.Observer, o.Locks(Lock)) })
	opts.Elections = Then(opts.Elections, func(p *election.Options) {
		p.Observer = session.Chain(p.Observer, o.Locks(Election))
	})
	opts.Semaphores = Then(opts.Semaphores, func(p *rsemaphore.Options) {
		p.Observer = session.Chain(p.Observer, o.Semaphores())
	})
	opts.Counters = Then(opts.Counters, func(p *rcounter.Options) { p.Observer = session.Both(p.Observer, o.Counters()) })
	opts.Stocks = Then(opts.Stocks, func(p *stock.Options) { p.Observer = session.Both(p.Observer, o.Stocks()) })
	opts.RedPackets = Then(opts.RedPackets, func(p *redpacket.Options) {
		p.Observer = session.Both(p.Observer, o.RedPackets())
	})
	opts.Limiters = Then(opts.Limiters, func(p *ratelimit.Options) { p.Observer = session.Both(p.Observer, o.Limiters()) })
	return opts
}

// bothHub is session.Both for what happens to a hub, which has no context.
func bothHub(f, g pubsub.Observer) pubsub.Observer {
	if f == nil {
		return g
	}
	return func(e pubsub.Event) { f(e); g(e) }
}

// Then returns a function of redlatch.Options that calls first, which may be nil, and then then.
func Then[O any](first, then func(*O)) func(*O) {
	return func(o *O) {
		if first != nil {
			first(o)
		}
		then(o)
	}
}

// Locks returns the Observer for rlock.Options. kind is Lock, or Election for the locks under elections.
func (o *Observers) Locks(kind string) rlock.Observer {
	return func(ctx context.Context, e rlock.Event) context.Context { return o.held(ctx, kind, OfLock(e)) }
}

// Semaphores returns the Observer for rsemaphore.Options.
func (o *Observers) Semaphores() rsemaphore.Observer {
	return func(ctx context.Context, e Event) context.Context { return o.held(ctx, Semaphore, e) }
}

// held counts what happened to a lock or a semaphore.
func (o *Observers) held(ctx context.Context, kind string, e Event) context.Context {
	switch e.Kind {
	case rsemaphore.EventAcquiring, rsemaphore.EventWaiting, rsemaphore.EventReleasing:
		return ctx // its end is counted
	}
	class := o.Class(kind, e.Name)
	switch e.Kind {
	case rsemaphore.EventAcquired, rsemaphore.EventNotAcquired:
		o.sink.Add(ctx, Acquisitions, 1, kind, class, Result(e.Err, "acquired"))
		o.sink.Record(ctx, AcquireTime, e.Waited.Seconds(), kind, class, strconv.FormatBool(e.Err == nil))
	case rsemaphore.EventAwaited:
		o.sink.Record(ctx, AwaitTime, e.Waited.Seconds(), class, Result(e.Err, "reached"))
	case rsemaphore.EventReleased:
		o.sink.Add(ctx, Releases, 1, kind, class, Result(e.Err, "released"))
		if e.Held >= 0 { // a CountingSemaphore does not know
			o.sink.Record(ctx, HoldTime, e.Held.Seconds(), kind, class)
		}
	case rsemaphore.EventRenewed:
		result := "confirmed"
		if e.Err != nil {
			result = "failed"
		}
		o.sink.Add(ctx, Renewals, 1, kind, class, result)
	case rsemaphore.EventEnded:
		o.sink.Add(ctx, Losses, 1, kind, class, Cause(e.Err))
	case rsemaphore.EventWoken:
		by := "timer"
		if e.ByMessage {
			by = "message"
		}
		o.sink.Add(ctx, Wakeups, 1, kind, class, by)
	case rsemaphore.EventTakenOver:
		o.sink.Add(ctx, Takeovers, float64(e.N), class)
	}
	return ctx
}

// Counters returns the Observer for rcounter.Options.
func (o *Observers) Counters() rcounter.Observer {
	return func(ctx context.Context, e rcounter.Event) {
		class := o.Class(CounterOf, e.Name)
		o.sink.Add(ctx, Writes, 1, class, Result(e.Err, "written"))
		o.sink.Record(ctx, WriteTime, e.Took.Seconds(), class)
	}
}

// Stocks returns the Observer for stock.Options.
func (o *Observers) Stocks() stock.Observer {
	return func(ctx context.Context, e stock.Event) {
		switch e.Kind {
		case stock.EventClaimed:
			o.claimed(ctx, Stock, e.Name, string(e.Outcome), e.N, e.Outcome == stock.Granted, e.Took, e.Err)
		case stock.EventAnsweredLocally:
			o.sink.Add(ctx, LocalAnswers, 1, o.Class(Stock, e.Name), labelValue(string(e.Outcome)))
		case stock.EventBackgroundFailed:
			o.gaveUp(ctx, Stock, e.Name)
		}
	}
}

// RedPackets returns the Observer for redpacket.Options.
func (o *Observers) RedPackets() redpacket.Observer {
	return func(ctx context.Context, e redpacket.Event) {
		o.claimed(ctx, RedPacket, e.Name, string(e.Outcome), e.Cents, e.Outcome == redpacket.Granted, e.Took, e.Err)
	}
}

// Limiters returns the Observer for ratelimit.Options.
func (o *Observers) Limiters() ratelimit.Observer {
	return func(ctx context.Context, e ratelimit.Event) {
		switch e.Kind {
		case ratelimit.EventBackgroundFailed:
			o.gaveUp(ctx, Limiter, e.Name)
		case ratelimit.EventAdmitted:
			class, result := o.Class(Limiter, e.Name), "refused"
			if e.Allowed {
				result = "allowed"
			}
			o.sink.Add(ctx, Admissions, 1, class, Result(e.Err, result))
			o.sink.Record(ctx, AdmitTime, e.Took.Seconds(), class)
		case ratelimit.EventDegraded:
			o.sink.Add(ctx, PolicyChanges, 1, o.Class(Limiter, e.Name), string(e.Policy), strconv.FormatBool(e.Err != nil))
		}
	}
}

// Hub returns the Observer for pubsub.Options.
func (o *Observers) Hub() pubsub.Observer {
	ctx := context.Background()
	return func(e pubsub.Event) {
		switch e.Kind {
		case pubsub.EventSubscribed:
			o.sink.Add(ctx, Confirmations, 1, strconv.FormatBool(e.Again))
		case pubsub.EventRefused:
			o.sink.Add(ctx, Refusals, 1)
		case pubsub.EventLost:
			o.sink.Add(ctx, ConnectionLosses, 1)
		case pubsub.EventDropped:
			o.sink.Add(ctx, DroppedMessages, 1)
		}
	}
}

func (o *Observers) gaveUp(ctx context.Context, kind, name string) {
	o.sink.Add(ctx, BackgroundFailures, 1, kind, o.Class(kind, name))
}

func (o *Observers) claimed(ctx context.Context, kind, name, outcome string, n int64, granted bool, took time.Duration,
	err error) {
	class := o.Class(kind, name)
	o.sink.Add(ctx, Claims, 1, kind, class, Result(err, labelValue(outcome)))
	o.sink.Record(ctx, ClaimTime, took.Seconds(), kind, class)
	if granted && err == nil {
		o.sink.Add(ctx, ClaimedUnits, float64(n), kind, class)
	}
}

// Event is an event of a lock or a semaphore. N of a lock is how many holds were taken over.
type Event = rsemaphore.Event

// OfLock is an event of a lock in the form of a semaphore's: both packages name the kinds alike.
func OfLock(e rlock.Event) Event {
	return Event{Kind: rsemaphore.EventKind(e.Kind), Name: e.Name, N: e.Holds, Waited: e.Waited, Held: e.Held, Err: e.Err,
		ByMessage: e.ByMessage, Acquisition: e.Acquisition}
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
