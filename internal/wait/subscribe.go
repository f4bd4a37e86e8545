package wait

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// deniedPause is how long no waiter of the client asks again for a kind of channel to which the user has no right.
const deniedPause = 30 * time.Second

// kindOf returns the prefix of a channel, which says what it is for, and by which rights are given. It ends at a colon,
// or at a brace as that of a latch does.
func kindOf(channel string) string {
	if end := strings.IndexAny(channel, ":{"); end >= 0 {
		return channel[:end]
	}
	return channel
}

// denies reports whether the server will give the same answer for long, because the user has no right or there is no
// such command. After any other refusal, as by a server that is loading or has lost its place in a Cluster, it is asked
// again soon.
func denies(err error) bool {
	var re *rueidis.RedisError
	return errors.As(err, &re) && (strings.HasPrefix(re.Error(), "NOPERM") || script.Unsupported(re))
}

// subscribe subscribes within PollCap. If the user has no right to this kind of channel, no waiter subscribes to it for
// deniedPause.
func (q *Waiters) subscribe(ctx context.Context, channel string) (*pubsub.Subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, q.pollCap)
	defer cancel()
	sub, err := q.hub.Subscribe(ctx, channel)
	if err != nil && denies(err) {
		q.deny(channel)
	}
	return sub, err
}

// deny notes that the user has no right to a kind of channel.
func (q *Waiters) deny(channel string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.denied[kindOf(channel)] = time.Now().Add(deniedPause)
}

func (w *Caller) attach(sub *pubsub.Subscription, ok bool) {
	if !ok {
		return
	}
	w.sub = sub
	if w.r.OnMessage != nil {
		w.incoming = accessor.Of[accessor.Subscription](sub).Ready() // once: each call drops the messages that have come
	}
	w.q.mu.Lock()
	w.subscribed = true
	w.q.mu.Unlock()
}

// subscribe subscribes to releases, and reports whether to try again at once: it stands, or there is no time to sleep.
func (w *Caller) subscribe() bool {
	sub, over := w.subscription(w.r.Channel)
	w.attach(sub, sub != nil)
	return sub != nil || over
}

// subscription subscribes, for as long as the waiter would sleep otherwise. A server that does not confirm must not
// keep the waiter from polling, nor from asking after a wake-up or at the end of the holder's lease. over: one of these
// has come, so the next thing is a try. Without a subscription the waiter polls; that is not an error.
func (w *Caller) subscription(channel string) (sub *pubsub.Subscription, over bool) {
	_, over = w.subscribing(channel, func(ctx context.Context) (err error) {
		sub, err = w.q.hub.Subscribe(ctx, channel)
		return err
	})
	return sub, over
}

// subscribing is subscription by the function given, and reports whether the channel is listened to.
func (w *Caller) subscribing(channel string, subscribe func(context.Context) error) (stands, over bool) {
	q := w.q
	q.mu.Lock()
	denied := time.Now().Before(q.denied[kindOf(channel)])
	q.mu.Unlock()
	if denied {
		return false, false
	}
	ctx, cancel := context.WithTimeout(w.waitContext(), w.sleepTime())
	defer cancel()
	woke := make(chan bool, 1)
	go func() {
		select {
		case <-w.wakeup:
			cancel()
			woke <- true
		case <-ctx.Done():
			woke <- false
		}
	}()
	err := subscribe(ctx)
	ended := ctx.Err() != nil
	cancel()
	byWakeup := <-woke
	switch {
	case err == nil:
		ended, w.refusals = false, 0
	case ended:
	case denies(err):
		q.deny(channel)
	default:
		w.refusals++
	}
	if over = (ended || byWakeup) && w.waitContext().Err() == nil; over {
		q.woken(w.ctx, w.r.Name, byWakeup)
	}
	return err == nil, over
}

// readMessages gives Request.OnMessage the messages that have come, and reports whether there were any, or a gap, or
// the end of the hub.
func (w *Caller) readMessages() (some bool) {
	for !w.answered {
		m, err := w.sub.Next(noWait)
		if err != nil {
			return some || errors.Is(err, errs.ErrClosed)
		}
		some = true
		w.answered = !m.Gap && w.r.OnMessage(m.Payload)
	}
	return true
}

// noWait has ended: with it Subscription.Next returns what is there.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// pushes returns the channel that receives a value when messages have come; nil for a waiter without a subscription.
func (w *Caller) pushes() <-chan struct{} {
	switch {
	case w.sub == nil:
		return nil
	case w.r.OnMessage != nil:
		return w.incoming
	}
	return accessor.Of[accessor.Subscription](w.sub).Ready()
}
