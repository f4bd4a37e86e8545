package redlatchledger

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// Live brings the entries of a sale to live pages, over a channel of the server. It costs the sale nothing. The
// messages have the ids of orders and users in them: who may subscribe to the channel reads them.
type Live struct {
	// Hub is the connection. Required.
	Hub *pubsub.Hub
	// Channel is one of the sale alone. Required.
	Channel string
}

func (l Live) check() error {
	if l.Hub == nil {
		return invalid("Hub", "nil", "a hub")
	}
	return nil
}

// messageEntries is how many entries a message has at most: some 25 KiB.
const messageEntries = 100

// Publish sends entries to everybody who ranges over Events, in the order given. It is made for Book.After: a mover
// that crashes before it leaves the entries to the next one, which publishes them.
//
// nil: the server has sent them to those who listen, if any. An error: some of them may have been sent. Who listens
// sees a gap, or the entries when they are published again, which does no harm.
func (l Live) Publish(ctx context.Context, entries []stock.Entry) error {
	if err := l.check(); err != nil {
		return err
	}
	for some := range slices.Chunk(entries, messageEntries) {
		text, err := json.Marshal(some)
		if err != nil {
			return err
		}
		if _, err := l.Hub.Publish(ctx, l.Channel, string(text)); err != nil {
			return err
		}
	}
	return nil
}

// Event is an entry that Publish has sent, or a gap between such entries.
type Event struct {
	// Entry is what happened; zero for a gap.
	stock.Entry
	// Gap: entries may be missing here. What was counted before is worth nothing now: look at Sale.Inspect.
	Gap bool
}

// Events yields what movers Publish, until ctx ends: then its last error is ctx's cause. The first Event is a gap, and
// comes when the server has confirmed the subscription: a caller that looks at Sale.Inspect on every gap misses nothing
// that is published later. Events after it may tell of what Inspect has counted already.
//
// Between two gaps the entries come in the order of their serials, without a hole, each once, whatever movers publish
// twice or in another order. Messages are sent at most once, so entries may be missing, and then there is a gap in
// their place:
//
//   - The connection was lost: a gap at once, and another one when the channel is subscribed again.
//   - A serial does not follow, because a mover failed to publish, or several movers publish in another order.
//   - The loop was slow. Then at most pubsub.Options.Buffer messages wait for it, and the oldest are dropped. A slow
//     loop delays no other loop.
//   - For the time every, at least a millisecond, there was no gap. Nothing else tells of last entries that were not
//     published, and it is how often the page is right even if the server refuses the channel for a while.
//
// An error ends the loop: redlatch.ErrClosed, ErrInvalidName, ErrInvalidOption, or ErrDenied if the user may not
// subscribe.
func (l Live) Events(ctx context.Context, every time.Duration) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := l.check()
		if err == nil && every < time.Millisecond {
			err = invalid("every", every, "at least 1ms")
		}
		if err == nil {
			err = (&feed{Live: l, every: every, yield: yield}).run(ctx)
		}
		if err != nil {
			yield(Event{}, err)
		}
	}
}

// feed is one loop over Events.
type feed struct {
	Live
	every time.Duration
	yield func(Event, error) bool
	gapAt time.Time   // when the next gap is due
	last  stock.Entry // zero: any may follow
}

// run ends with an error, or nil if the loop was left.
func (f *feed) run(ctx context.Context) error {
	sub, err := f.subscribe(ctx)
	if sub == nil {
		return err
	}
	defer sub.Close()
	f.gapAt = time.Time{} // now, whatever came before
	for ctx.Err() == nil {
		// Next prefers messages to the end of its wait: a channel that is never silent must not put the gap off
		if !time.Now().Before(f.gapAt) && !f.gap() {
			return nil
		}
		wait, done := context.WithDeadline(ctx, f.gapAt)
		m, err := sub.Next(wait)
		done()
		switch {
		case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		case err != nil:
			return err
		case !f.take(m):
			return nil
		}
	}
	return context.Cause(ctx)
}

// subscribe subscribes as soon as it can. Until then the page looks without the channel. The result is nil with the
// error of run.
func (f *feed) subscribe(ctx context.Context) (*pubsub.Subscription, error) {
	for {
		wait, done := context.WithTimeout(ctx, f.every)
		sub, err := f.Hub.Subscribe(wait, f.Channel)
		if err == nil || errors.Is(err, redlatch.ErrDenied) || errors.Is(err, redlatch.ErrInvalidName) ||
			errors.Is(err, redlatch.ErrClosed) {
			done()
			return sub, err
		}
		<-wait.Done()
		done()
		if ctx.Err() != nil || !f.gap() {
			return nil, context.Cause(ctx) // nil if the loop was left
		}
	}
}

// gap and take report whether the loop wants more.
func (f *feed) gap() bool {
	f.gapAt = time.Now().Add(f.every)
	return f.yield(Event{Gap: true}, nil)
}

func (f *feed) take(m pubsub.Message) bool {
	var entries []stock.Entry
	isNone := func(e stock.Entry) bool { return e.Epoch < 1 || e.Serial < 1 }
	if m.Gap || json.Unmarshal([]byte(m.Payload), &entries) != nil || slices.ContainsFunc(entries, isNone) {
		// What comes may begin anywhere, also before the last one: a failover has forgotten that one, and its number goes to
		// another.
		f.last = stock.Entry{}
		return f.gap()
	}
	for _, e := range entries {
		switch {
		case e.Epoch <= f.last.Epoch && e.Serial <= f.last.Serial:
			// Published twice; or after what follows, and then the jump was reported as a gap, and Inspect has counted it since.
			continue
		case f.last.Epoch != 0 && e.Serial != f.last.Serial+1 && !f.gap():
			return false
		}
		if f.last = e; !f.yield(Event{Entry: e}, nil) {
			return false
		}
	}
	return true
}
