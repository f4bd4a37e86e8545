package redlatchprom

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
	kindLock      = "lock"
	kindSemaphore = "semaphore"
	kindCounter   = "counter"
	kindStock     = "stock"
	kindRedPacket = "redpacket"
	kindLimiter   = "limiter"
)

// Instrument returns o with the Collector's Observers in every package, after those that o has already.
func (c *Collector) Instrument(o redlatch.Options) redlatch.Options {
	o.Hub.Observer = o.Hub.Observer.And(c.Hub())
	o.Locks.Observer = o.Locks.Observer.And(c.Locks())
	o.Semaphores.Observer = o.Semaphores.Observer.And(c.Semaphores())
	o.Counters.Observer = o.Counters.Observer.And(c.Counters())
	o.Stocks.Observer = o.Stocks.Observer.And(c.Stocks())
	o.RedPackets.Observer = o.RedPackets.Observer.And(c.RedPackets())
	o.Limiters.Observer = o.Limiters.Observer.And(c.Limiters())
	return o
}

// Locks returns the Observer for rlock.Options. It and the next six are for programs that use the packages alone; for others
// Instrument does.
func (c *Collector) Locks() rlock.Observer {
	h := c.holder(kindLock)
	return rlock.Observer{
		Acquired:    func(_ context.Context, name string, waited time.Duration) { h.acquired(name, waited, nil) },
		NotAcquired: func(_ context.Context, name string, waited time.Duration, err error) { h.acquired(name, waited, err) },
		Released:    func(_ context.Context, name string, held time.Duration, err error) { h.released(name, held, err) },
		Renewed:     func(_ context.Context, name string, err error) { h.renewed(name, err) },
		Ended:       func(_ context.Context, name string, why error) { h.ended(name, why) },
		Woken:       func(_ context.Context, name string, byMessage bool) { h.woken(name, byMessage) },
		TakenOver: func(_ context.Context, name string, holds int) {
			c.takeovers.WithLabelValues(c.class.get(kindLock, name)).Add(float64(holds))
		},
	}
}

// Semaphores returns the Observer for rsemaphore.Options.
func (c *Collector) Semaphores() rsemaphore.Observer {
	h := c.holder(kindSemaphore)
	return rsemaphore.Observer{
		Acquired: func(_ context.Context, name string, _ int, waited time.Duration) { h.acquired(name, waited, nil) },
		NotAcquired: func(_ context.Context, name string, _ int, waited time.Duration, err error) {
			h.acquired(name, waited, err)
		},
		Waited: func(_ context.Context, name string, waited time.Duration, err error) {
			c.awaitTime.WithLabelValues(c.class.get(kindSemaphore, name), result(err, "reached")).Observe(waited.Seconds())
		},
		Released: func(_ context.Context, name string, _ int, held time.Duration, err error) {
			h.released(name, held, err)
		},
		Renewed: func(_ context.Context, name string, err error) { h.renewed(name, err) },
		Ended:   func(_ context.Context, name string, why error) { h.ended(name, why) },
		Woken:   func(_ context.Context, name string, byMessage bool) { h.woken(name, byMessage) },
	}
}

// Counters returns the Observer for rcounter.Options.
func (c *Collector) Counters() rcounter.Observer {
	return rcounter.Observer{Written: func(_ context.Context, name string, took time.Duration, err error) {
		class := c.class.get(kindCounter, name)
		c.writes.WithLabelValues(class, result(err, "written")).Inc()
		c.counterWriteTime.WithLabelValues(class).Observe(took.Seconds())
	}}
}

// Stocks returns the Observer for stock.Options.
func (c *Collector) Stocks() stock.Observer {
	return stock.Observer{
		Claimed: func(_ context.Context, name string, o stock.Outcome, n int64, took time.Duration, err error) {
			c.claimed(kindStock, name, o.String(), n, o == stock.Granted, took, err)
		},
		AnsweredLocally: func(_ context.Context, name string, o stock.Outcome) {
			c.localAnswers.WithLabelValues(c.class.get(kindStock, name), word(o.String())).Inc()
		},
		BackgroundFailed: c.failed(kindStock),
	}
}

// RedPackets returns the Observer for redpacket.Options.
func (c *Collector) RedPackets() redpacket.Observer {
	return redpacket.Observer{Claimed: func(_ context.Context, name string, o redpacket.Outcome, n int64, took time.Duration, err error) {
		c.claimed(kindRedPacket, name, o.String(), n, o == redpacket.Granted, took, err)
	}}
}

// Limiters returns the Observer for ratelimit.Options.
func (c *Collector) Limiters() ratelimit.Observer {
	return ratelimit.Observer{BackgroundFailed: c.failed(kindLimiter)}
}

// Hub returns the Observer for pubsub.Options.
func (c *Collector) Hub() pubsub.Observer {
	return pubsub.Observer{
		Subscribed: func(_ string, again bool) { c.confirmed.WithLabelValues(strconv.FormatBool(again)).Inc() },
		Refused:    func(string, error) { c.refused.WithLabelValues().Inc() },
		Lost:       func(string, error) { c.cut.WithLabelValues().Inc() },
		Dropped:    func(string) { c.dropped.WithLabelValues().Inc() },
	}
}

func (c *Collector) failed(kind string) func(context.Context, string, error) {
	return func(_ context.Context, name string, _ error) {
		c.failures.WithLabelValues(kind, c.class.get(kind, name)).Inc()
	}
}

func (c *Collector) claimed(kind, name, outcome string, n int64, granted bool, took time.Duration, err error) {
	class := c.class.get(kind, name)
	c.claims.WithLabelValues(kind, class, result(err, word(outcome))).Inc()
	c.claimTime.WithLabelValues(kind, class).Observe(took.Seconds())
	if granted && err == nil {
		c.units.WithLabelValues(kind, class).Add(float64(n))
	}
}

// holder takes in what locks and semaphores tell alike.
type holder struct {
	c    *Collector
	kind string
}

func (c *Collector) holder(kind string) holder { return holder{c, kind} }

func (h holder) acquired(name string, waited time.Duration, err error) {
	class := h.c.class.get(h.kind, name)
	h.c.acquisitions.WithLabelValues(h.kind, class, result(err, "acquired")).Inc()
	h.c.acquireTime.WithLabelValues(h.kind, class, strconv.FormatBool(err == nil)).Observe(waited.Seconds())
}

func (h holder) released(name string, held time.Duration, err error) {
	class := h.c.class.get(h.kind, name)
	h.c.releases.WithLabelValues(h.kind, class, result(err, "released")).Inc()
	if held >= 0 { // a CountingSemaphore does not know
		h.c.holdTime.WithLabelValues(h.kind, class).Observe(held.Seconds())
	}
}

func (h holder) renewed(name string, err error) {
	result := "confirmed"
	if err != nil {
		result = "failed"
	}
	h.c.renewals.WithLabelValues(h.kind, h.c.class.get(h.kind, name), result).Inc()
}

func (h holder) ended(name string, why error) {
	cause := reason(why)
	if errors.Is(why, rlock.ErrWrongType) {
		cause = "overwritten"
	}
	h.c.losses.WithLabelValues(h.kind, h.c.class.get(h.kind, name), cause).Inc()
}

func (h holder) woken(name string, byMessage bool) {
	by := "timer"
	if byMessage {
		by = "message"
	}
	h.c.wakeups.WithLabelValues(h.kind, h.c.class.get(h.kind, name), by).Inc()
}

// result is success, or the reason of err.
func result(err error, success string) string {
	if err == nil {
		return success
	}
	return reason(err)
}

// reason is the label of an error: see "Labels" in the package comment. It is "" for nil.
func reason(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.label
		}
	}
	return "error"
}

// reasons are in the order in which they are looked for: an error may be several. What is known of the outcome comes first.
var reasons = []struct {
	err   error
	label string
}{
	{rlock.ErrMaxHold, "max_hold"},
	{rlock.ErrLost, "lost"},
	{rlock.ErrNotAcquired, "not_acquired"},
	{rlock.ErrNotReplicated, "not_replicated"},
	{rlock.ErrDenied, "denied"},
	{rlock.ErrClosed, "closed"},
	{rlock.ErrUnknownOutcome, "unknown_outcome"},
	{rlock.ErrUnavailable, "unavailable"},
	{context.DeadlineExceeded, "timeout"},
}

// word is a text as a label's value.
func word(s string) string { return strings.ReplaceAll(s, " ", "_") }
