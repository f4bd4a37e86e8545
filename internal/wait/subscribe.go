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

// deniedPause is how long no waiter of the client subscribes to a kind of channel to which the user has no right.
const deniedPause = 30 * time.Second

// channelKind returns the prefix of a channel, which names its purpose. Rights are given by prefix. The prefix ends at
// a colon, or, for a latch, at a brace.
func channelKind(channel string) string {
	if end := strings.IndexAny(channel, ":{"); end >= 0 {
		return channel[:end]
	}
	return channel
}

// isDenied reports whether the server will refuse for long, because the user has no right or the command does not
// exist. Any other refusal may end soon, for example when the server has loaded its data.
func isDenied(err error) bool {
	var redisErr *rueidis.RedisError
	return errors.As(err, &redisErr) &&
		(strings.HasPrefix(redisErr.Error(), "NOPERM") || script.Unsupported(redisErr))
}

// subscribe subscribes within PollCap, and records a denial.
func (q *Waiters) subscribe(ctx context.Context, channel string) (*pubsub.Subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, q.pollCap)
	defer cancel()
	sub, err := q.hub.Subscribe(ctx, channel)
	if err != nil && isDenied(err) {
		q.recordDenied(channel)
	}
	return sub, err
}

// recordDenied records that the user has no right to a kind of channel: no waiter subscribes to it for deniedPause.
func (q *Waiters) recordDenied(channel string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.grants.deniedUntil[channelKind(channel)] = time.Now().Add(deniedPause)
}

// mayNotSubscribe reports whether the server has denied the user this kind of channel of late. Called with mu held.
func (q *Waiters) mayNotSubscribe(channel string) bool {
	return len(q.grants.deniedUntil) > 0 && time.Now().Before(q.grants.deniedUntil[channelKind(channel)])
}

// attach makes sub, if ok, the waiter's subscription to releases.
func (w *Caller) attach(sub *pubsub.Subscription, ok bool) {
	if !ok {
		return
	}
	w.releases.sub = sub
	if w.request.OnMessage != nil {
		// Once, because each call drops the received messages.
		w.releases.messagesReady = accessor.Of[accessor.Subscription](sub).Ready()
	}
	w.waiters.mu.Lock()
	w.releases.subscribed = true
	w.waiters.mu.Unlock()
}

// subscribeToReleases subscribes to Request.Channel. It reports whether to make a request at once, because the
// subscription stands or the time to sleep is over. Without a subscription the waiter polls; that is not an error.
func (w *Caller) subscribeToReleases() bool {
	var sub *pubsub.Subscription
	_, over := w.subscribeWithinSleep(w.request.Channel, func(ctx context.Context) (err error) {
		sub, err = w.waiters.hub.Subscribe(ctx, w.request.Channel)
		return err
	})
	w.attach(sub, sub != nil)
	return sub != nil || over
}

// subscribeWithinSleep calls subscribe for as long as the waiter would sleep otherwise. stands: the subscription is
// confirmed. over: the sleep is over, or a wake-up has come, so the waiter makes a request. Otherwise a server that
// does not confirm would delay polls, the request after a wake-up, and the request at the end of the holder's lease.
func (w *Caller) subscribeWithinSleep(channel string, subscribe func(context.Context) error) (stands, over bool) {
	waiters := w.waiters
	waiters.mu.Lock()
	denied := waiters.mayNotSubscribe(channel)
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
		ended, w.releases.refusals = false, 0
	case ended:
	case isDenied(err):
		waiters.recordDenied(channel)
	default:
		w.releases.refusals++
	}
	if over = (ended || byWakeup) && w.waitContext().Err() == nil; over {
		waiters.onWakeup(w.ctx, w.request.Name, byWakeup)
	}
	return err == nil, over
}

// readMessages calls Request.OnMessage for each received message, until a message ends the wait. It reports whether
// there was a message, a gap, or the end of the hub.
func (w *Caller) readMessages() (some bool) {
	for !w.releases.endedByMessage {
		message, err := w.releases.sub.Next(noWait)
		if err != nil {
			return some || errors.Is(err, errs.ErrClosed)
		}
		some = true
		w.releases.endedByMessage = !message.Gap && w.request.OnMessage(message.Payload)
	}
	return true
}

// noWait has ended: with it Subscription.Next returns a received message, and awaits none.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// messages returns the channel that receives a value when messages have arrived; nil without a subscription.
func (w *Caller) messages() <-chan struct{} {
	switch {
	case w.releases.sub == nil:
		return nil
	case w.request.OnMessage != nil:
		return w.releases.messagesReady
	}
	return accessor.Of[accessor.Subscription](w.releases.sub).Ready()
}
