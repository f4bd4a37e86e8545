package measure

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
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

// Observers are told by the clients, and tell a Sink.
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
	case Stock, Limiter:
		o.sink.Add(ctx, BackgroundFailures, 0, kind, class)
	}
	if kind == Lock || kind == Election {
		o.sink.Add(ctx, Takeovers, 0, class)
	}
}

// Instrument returns opts with the Observers in every package, after those that opts has already.
func (o *Observers) Instrument(opts redlatch.Options) redlatch.Options {
	opts.Hub.Observer = opts.Hub.Observer.And(o.Hub())
	opts.Locks.Observer = opts.Locks.Observer.And(o.Locks(Lock))
	opts.Elections.Observer = opts.Elections.Observer.And(o.Locks(Election))
	opts.Semaphores.Observer = opts.Semaphores.Observer.And(o.Semaphores())
	opts.Counters.Observer = opts.Counters.Observer.And(o.Counters())
	opts.Stocks.Observer = opts.Stocks.Observer.And(o.Stocks())
	opts.RedPackets.Observer = opts.RedPackets.Observer.And(o.RedPackets())
	opts.Limiters.Observer = opts.Limiters.Observer.And(o.Limiters())
	return opts
}

// Locks returns the Observer for rlock.Options. kind is Lock, or Election for the locks under elections.
func (o *Observers) Locks(kind string) rlock.Observer {
	h := holder{o, kind}
	return rlock.Observer{
		Acquired:    func(ctx context.Context, name string, waited time.Duration) { h.acquired(ctx, name, waited, nil) },
		NotAcquired: h.acquired,
		Released:    h.released,
		Renewed:     h.renewed,
		Ended:       h.ended,
		Woken:       h.woken,
		TakenOver: func(ctx context.Context, name string, holds int) {
			o.sink.Add(ctx, Takeovers, float64(holds), o.Class(kind, name))
		},
	}
}

// Semaphores returns the Observer for rsemaphore.Options.
func (o *Observers) Semaphores() rsemaphore.Observer {
	h := holder{o, Semaphore}
	return rsemaphore.Observer{
		Acquired: func(ctx context.Context, name string, _ int, waited time.Duration) {
			h.acquired(ctx, name, waited, nil)
		},
		NotAcquired: func(ctx context.Context, name string, _ int, waited time.Duration, err error) {
			h.acquired(ctx, name, waited, err)
		},
		Waited: func(ctx context.Context, name string, waited time.Duration, err error) {
			o.sink.Record(ctx, AwaitTime, waited.Seconds(), o.Class(Semaphore, name), Result(err, "reached"))
		},
		Released: func(ctx context.Context, name string, _ int, held time.Duration, err error) {
			h.released(ctx, name, held, err)
		},
		Renewed: h.renewed,
		Ended:   h.ended,
		Woken:   h.woken,
	}
}

// Counters returns the Observer for rcounter.Options.
func (o *Observers) Counters() rcounter.Observer {
	return rcounter.Observer{Written: func(ctx context.Context, name string, took time.Duration, err error) {
		class := o.Class(CounterOf, name)
		o.sink.Add(ctx, Writes, 1, class, Result(err, "written"))
		o.sink.Record(ctx, WriteTime, took.Seconds(), class)
	}}
}

// Stocks returns the Observer for stock.Options.
func (o *Observers) Stocks() stock.Observer {
	return stock.Observer{
		Claimed: func(ctx context.Context, name string, outcome stock.Outcome, n int64, took time.Duration, err error) {
			o.claimed(ctx, Stock, name, outcome.String(), n, outcome == stock.Granted, took, err)
		},
		AnsweredLocally: func(ctx context.Context, name string, outcome stock.Outcome) {
			o.sink.Add(ctx, LocalAnswers, 1, o.Class(Stock, name), word(outcome.String()))
		},
		BackgroundFailed: o.gaveUp(Stock),
	}
}

// RedPackets returns the Observer for redpacket.Options.
func (o *Observers) RedPackets() redpacket.Observer {
	return redpacket.Observer{Claimed: func(ctx context.Context, name string, outcome redpacket.Outcome, n int64, took time.Duration, err error) {
		o.claimed(ctx, RedPacket, name, outcome.String(), n, outcome == redpacket.Granted, took, err)
	}}
}

// Limiters returns the Observer for ratelimit.Options.
func (o *Observers) Limiters() ratelimit.Observer {
	return ratelimit.Observer{BackgroundFailed: o.gaveUp(Limiter)}
}

// Hub returns the Observer for pubsub.Options.
func (o *Observers) Hub() pubsub.Observer {
	ctx := context.Background()
	return pubsub.Observer{
		Subscribed: func(_ string, again bool) { o.sink.Add(ctx, Confirmations, 1, strconv.FormatBool(again)) },
		Refused:    func(string, error) { o.sink.Add(ctx, Refusals, 1) },
		Lost:       func(string, error) { o.sink.Add(ctx, ConnectionLosses, 1) },
		Dropped:    func(string) { o.sink.Add(ctx, DroppedMessages, 1) },
	}
}

func (o *Observers) gaveUp(kind string) func(context.Context, string, error) {
	return func(ctx context.Context, name string, _ error) {
		o.sink.Add(ctx, BackgroundFailures, 1, kind, o.Class(kind, name))
	}
}

func (o *Observers) claimed(ctx context.Context, kind, name, outcome string, n int64, granted bool, took time.Duration, err error) {
	class := o.Class(kind, name)
	o.sink.Add(ctx, Claims, 1, kind, class, Result(err, word(outcome)))
	o.sink.Record(ctx, ClaimTime, took.Seconds(), kind, class)
	if granted && err == nil {
		o.sink.Add(ctx, ClaimedUnits, float64(n), kind, class)
	}
}

// holder takes in what locks and semaphores tell alike.
type holder struct {
	o    *Observers
	kind string
}

func (h holder) acquired(ctx context.Context, name string, waited time.Duration, err error) {
	class := h.o.Class(h.kind, name)
	h.o.sink.Add(ctx, Acquisitions, 1, h.kind, class, Result(err, "acquired"))
	h.o.sink.Record(ctx, AcquireTime, waited.Seconds(), h.kind, class, strconv.FormatBool(err == nil))
}

func (h holder) released(ctx context.Context, name string, held time.Duration, err error) {
	class := h.o.Class(h.kind, name)
	h.o.sink.Add(ctx, Releases, 1, h.kind, class, Result(err, "released"))
	if held >= 0 { // a CountingSemaphore does not know
		h.o.sink.Record(ctx, HoldTime, held.Seconds(), h.kind, class)
	}
}

func (h holder) renewed(ctx context.Context, name string, err error) {
	result := "confirmed"
	if err != nil {
		result = "failed"
	}
	h.o.sink.Add(ctx, Renewals, 1, h.kind, h.o.Class(h.kind, name), result)
}

func (h holder) ended(ctx context.Context, name string, why error) {
	h.o.sink.Add(ctx, Losses, 1, h.kind, h.o.Class(h.kind, name), Cause(why))
}

func (h holder) woken(ctx context.Context, name string, byMessage bool) {
	by := "timer"
	if byMessage {
		by = "message"
	}
	h.o.sink.Add(ctx, Wakeups, 1, h.kind, h.o.Class(h.kind, name), by)
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
	if errors.Is(why, rlock.ErrWrongType) {
		return "overwritten"
	}
	return redlatch.Reason(why)
}

// word is a text as a label's value.
func word(s string) string { return strings.ReplaceAll(s, " ", "_") }
