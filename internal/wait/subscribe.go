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
func channelKind(channel string) string {
	if end := strings.IndexAny(channel, ":{"); end >= 0 {
		return channel[:end]
	}
	return channel
}

// denies reports whether the server will give the same answer for long, because the user has no right or there is no
// such command. After any other refusal, as by a server that is loading or has lost its place in a Cluster, it is asked
// again soon.
func isDenied(err error) bool {
	var re *rueidis.RedisError
	return errors.As(err, &re) && (strings.HasPrefix(re.Error(), "NOPERM") || script.Unsupported(re))
}

// subscribe subscribes within PollCap. If the user has no right to this kind of channel, no waiter subscribes to it for
// deniedPause.
func (q *Waiters) subscribe(ctx context.Context, channel string) (*pubsub.Subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, q.pollCap)
	defer cancel()
	sub, err := q.hub.Subscribe(ctx, channel)
	if err != nil && isDenied(err) {
		q.recordDenied(channel)
	}
	return sub, err
}

// deny notes that the user has no right to a kind of channel.
func (q *Waiters) recordDenied(channel string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deniedUntil[channelKind(channel)] = time.Now().Add(deniedPause)
}

func (w *Caller) attach(sub *pubsub.Subscription, ok bool) {
	if !ok {
		return
	}
	w.sub = sub
	if w.request.OnMessage != nil {
		w.messagesReady = accessor.Of[accessor.Subscription](sub).Ready() // once: each call drops the messages that have come
	}
	w.waiters.mu.Lock()
	w.subscribed = true
	w.waiters.mu.Unlock()
}

// subscribe subscribes to releases, and reports whether to try again at once: it stands, or there is no time to sleep.
func (w *Caller) subscribeToReleases() bool {
	sub, over := w.subscription(w.request.Channel)
	w.attach(sub, sub != nil)
	return sub != nil || over
}

// subscription subscribes, for as long as the waiter would sleep otherwise. A server that does not confirm must not
// keep the waiter from polling, nor from asking after a wake-up or at the end of the holder's lease. over: one of these
// has come, so the next thing is a try. Without a subscription the waiter polls; that is not an error.
func (w *Caller) subscription(channel string) (sub *pubsub.Subscription, over bool) {
	_, over = w.subscribeWithinSleep(channel, func(ctx context.Context) (err error) {
		sub, err = w.waiters.hub.Subscribe(ctx, channel)
		return err
	})
	return sub, over
}

// subscribing is subscription by the function given, and reports whether the channel is listened to.
func (w *Caller) subscribeWithinSleep(channel string, subscribe func(context.Context) error) (stands, over bool) {
	waiters := w.waiters
	waiters.mu.Lock()
	denied := time.Now().Before(waiters.deniedUntil[channelKind(channel)])
	waiters.mu.Unlock()
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
		ended, w.subscribeRefusals = false, 0
	case ended:
	case isDenied(err):
		waiters.recordDenied(channel)
	default:
		w.subscribeRefusals++
	}
	if over = (ended || byWakeup) && w.waitContext().Err() == nil; over {
		waiters.onWakeup(w.ctx, w.request.Name, byWakeup)
	}
	return err == nil, over
}

// readMessages gives Request.OnMessage the messages that have come, and reports whether there were any, or a gap, or
// the end of the hub.
func (w *Caller) readMessages() (some bool) {
	for !w.endedByMessage {
		message, err := w.sub.Next(noWait)
		if err != nil {
			return some || errors.Is(err, errs.ErrClosed)
		}
		some = true
		w.endedByMessage = !message.Gap && w.request.OnMessage(message.Payload)
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
func (w *Caller) messages() <-chan struct{} {
	switch {
	case w.sub == nil:
		return nil
	case w.request.OnMessage != nil:
		return w.messagesReady
	}
	return accessor.Of[accessor.Subscription](w.sub).Ready()
}
