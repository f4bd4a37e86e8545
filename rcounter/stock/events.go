package stock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/ledger"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// maxMessage is how many bytes a message has at most, if it has more than one entry. An entry by itself may have 13
// KiB, if its names are of characters that JSON escapes.
const maxMessage = 64 << 10

// Publish sends entries of the ledger, at most 10,000, to everybody who ranges over Events of the stock, in the order
// given and in messages of at most 64 KiB. It is made for a mover of the ledger, which calls it after its commit and
// before it lets Ledger remove the entries: then a mover that crashes in between leaves them to the next one, which
// publishes them. So it costs a sale nothing, and a call of the server for about 500 entries.
//
// nil: the server has sent them to those who listen, if any. An error: some of them may have been sent. A caller that
// listens sees a gap, or the entries when they are published again, which does no harm. So no mover needs to stop for
// an error. It lasts as every verb does, and the errors are ErrClosed, ErrInvalidName, ErrInvalidOption, ErrDenied,
// ErrUnavailable and ErrUnknownOutcome.
//
// The messages have the names of claimants and requests in them. Who may subscribe to the channel reads them.
func (s *Stock) Publish(ctx context.Context, entries []Entry) (err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return err
	}
	if len(entries) > ledger.MaxBatch {
		return errs.InvalidOption("entries", fmt.Sprintf("%d of them", len(entries)),
			fmt.Sprintf("at most %d", ledger.MaxBatch))
	}
	for i, e := range entries {
		if err := e.check(); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	for len(entries) > 0 {
		var text string
		if text, entries, err = message(entries); err != nil {
			return err
		}
		if err := s.publish(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// check refuses what is not an entry of a ledger.
func (e Entry) check() error {
	switch {
	case e.Epoch < 1:
		return errs.InvalidOption("Epoch", e.Epoch, "at least 1")
	case e.Serial < 1:
		return errs.InvalidOption("Serial", e.Serial, "at least 1")
	case !e.Kind.known():
		return errs.InvalidOption("Kind", fmt.Sprintf("%.32q", string(e.Kind)), "one of an entry of Ledger")
	}
	if err := keyname.Text("claimant", e.Claimant); err != nil {
		return err
	}
	return keyname.Text("request", e.Request)
}

// news is an entry as a message has it. A message is a JSON array of them.
type news struct {
	Serial   int64     `json:"s"`
	Kind     Kind      `json:"k"`
	Epoch    int64     `json:"e"`
	Ordinal  int64     `json:"o,omitempty"`
	N        int64     `json:"n"`
	Claimant string    `json:"c,omitempty"`
	Request  string    `json:"r,omitempty"`
	At       time.Time `json:"at"`
}

// message is the first entries as a message, and the rest.
func message(entries []Entry) (text string, rest []Entry, err error) {
	var b strings.Builder
	for i, e := range entries {
		one, err := json.Marshal(news(e))
		if err != nil {
			return "", nil, err
		}
		if i > 0 && b.Len()+len(one)+2 > maxMessage {
			return b.String() + "]", entries[i:], nil
		}
		b.WriteByte("[,"[min(i, 1)])
		b.Write(one)
	}
	return b.String() + "]", nil, nil
}

// published is what a message has; ok is false if it is none of Publish.
func published(text string) (entries []Entry, ok bool) {
	var all []news
	if json.Unmarshal([]byte(text), &all) != nil {
		return nil, false
	}
	for _, e := range all {
		if e.Epoch < 1 || e.Serial < 1 {
			return nil, false
		}
		e.At = e.At.UTC()
		entries = append(entries, Entry(e))
	}
	return entries, true
}

// publish sends a message until the server has answered. It may come twice, and the receivers drop the second.
func (s *Stock) publish(ctx context.Context, text string) error {
	command, channel := s.c.calls.Inner.PublishCommand(), s.channel()
	_, err := s.c.calls.Do(ctx, script.Call{Script: script.Plain(command), Keys: []string{channel}, Args: []string{text}})
	return err
}

// channel has the slot of the stock's keys, rc:{S}.
func (s *Stock) channel() string { return "redlatch_stock" + strings.TrimPrefix(s.keys[0], "rc") }

// LedgerEvent is an entry that Publish has sent, or a gap between such entries.
type LedgerEvent struct {
	// Entry is what happened; zero for a gap.
	Entry
	// Gap: entries may be missing here. What was counted before is worth nothing now: look at Inspect.
	Gap bool
}

// Events yields what movers of the ledger Publish, for a live page, until ctx ends: then its last error is ctx's cause.
// The first LedgerEvent is a gap, and comes when the server has confirmed the subscription: a caller that looks at
// Inspect on every gap misses nothing that is published later. Events after it may tell of what Inspect has counted
// already, because movers come later than the sale.
//
// Between two gaps the entries are of one opening, in the order of their serials, without a hole, each once, whatever
// movers publish twice or in another order. Messages are sent at most once, so entries may be missing, and then there
// is a gap in their place:
//
//   - The connection was lost: a gap at once, and another one when the channel is subscribed again.
//   - A serial does not follow, because a mover failed to publish, or several movers publish in another order; or
//     another opening begins.
//   - The loop was slow. Then at most pubsub.Options.Buffer messages wait for it, and the oldest are dropped. It delays
//     no one else.
//   - For the time every, at least a millisecond, there was no gap. Nothing else tells of last entries that were not
//     published, and it is how often the page is right even if the server refuses the channel for a while, or no mover
//     publishes.
//
// An error ends the loop: ErrClosed, also if the client is closed meanwhile, ErrInvalidName, ErrInvalidOption, or
// ErrDenied if the user may not subscribe.
func (s *Stock) Events(ctx context.Context, every time.Duration) iter.Seq2[LedgerEvent, error] {
	return func(yield func(LedgerEvent, error) bool) {
		err := s.usable()
		if err == nil && every < time.Millisecond {
			err = errs.InvalidOption("every", every, "at least 1ms")
		}
		if err == nil {
			err = (&feed{s: s, every: every, yield: yield}).run(ctx)
		}
		if !errors.Is(err, errEnough) {
			yield(LedgerEvent{}, edged(err))
		}
	}
}

// feed is one loop over Events.
type feed struct {
	s     *Stock
	every time.Duration
	yield func(LedgerEvent, error) bool
	due   time.Time // of the next gap
	last  Entry     // zero: any may follow
}

// errDue is the cause of the end of a wait by feed.due.
var errDue = errors.New("nothing came")

// run ends with an error.
func (f *feed) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	//nolint:contextcheck // that of the client: its Close ends the feed
	stop := context.AfterFunc(f.s.c.calls.Context(), func() { cancel(errs.ErrClosed) })
	defer stop()
	for {
		sub, err := f.subscribe(ctx)
		if err != nil {
			return err
		}
		if sub != nil {
			defer sub.Close()
			f.due = time.Time{} // a gap is due now, whatever was reported before
			return f.receive(ctx, sub)
		}
		if !f.gap() { // the page looks without the channel
			return errEnough
		}
	}
}

// subscribe returns nil if that cannot be done now: then the time every has passed.
func (f *feed) subscribe(ctx context.Context) (*pubsub.Subscription, error) {
	wait, done := context.WithTimeoutCause(ctx, f.every, errDue)
	defer done()
	sub, err := f.s.c.calls.Hub.Subscribe(wait, f.s.channel())
	switch {
	case err == nil:
		return sub, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case !errors.Is(err, errDue) && lasting(err):
		return nil, err
	}
	<-wait.Done()
	return nil, nil
}

func (f *feed) receive(ctx context.Context, sub *pubsub.Subscription) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// Next prefers messages to the end of its wait: a channel that is never silent must not put the gap off
		if !time.Now().Before(f.due) && !f.gap() {
			return errEnough
		}
		wait, done := context.WithDeadlineCause(ctx, f.due, errDue)
		m, err := sub.Next(wait)
		done()
		switch {
		case ctx.Err() != nil || errors.Is(err, errDue):
		case err != nil:
			return err
		case !f.take(m):
			return errEnough
		}
	}
}

// gap and take report whether the loop wants more.
func (f *feed) gap() bool {
	f.due = time.Now().Add(f.every)
	return f.yield(LedgerEvent{Gap: true}, nil)
}

func (f *feed) take(m pubsub.Message) bool {
	entries, ok := published(m.Payload)
	if m.Gap || !ok {
		// What comes may begin anywhere, also before the last one: a failover has forgotten that one, and its number goes to
		// another.
		f.last = Entry{}
		return f.gap()
	}
	for _, e := range entries {
		switch same := e.Epoch == f.last.Epoch; {
		case same && e.Serial <= f.last.Serial:
			// Published twice; or after what follows, and then the jump was reported as a gap, and Inspect has counted it since.
			continue
		case f.last.Epoch != 0 && (!same || e.Serial != f.last.Serial+1) && !f.gap():
			return false
		}
		if f.last = e; !f.yield(LedgerEvent{Entry: e}, nil) {
			return false
		}
	}
	return true
}
