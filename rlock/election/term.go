package election

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/rlock"
)

// term is the background part of a leadership: it repeats the announcement of the leader. It refers to the texts of the
// leadership, and not to its hold, because the garbage collector could then never find a forgotten hold.
type term struct {
	election     *Election
	token, owner string
	done         <-chan struct{} // closed when the hold ends
	announceNow  chan struct{}   // has one message if the leader should be announced at once

	mu           sync.Mutex
	valueChanges int    // calls of Proclaim so far
	value        string // the latest value of Proclaim
}

func newTerm(e *Election, hold *rlock.Hold, token int64) *term {
	return &term{election: e, token: strconv.FormatInt(token, 10), owner: string(hold.Owner()), done: hold.Done(),
		announceNow: make(chan struct{}, 1)}
}

// announceFirst announces the leader, or returns the server's refusal. Afterwards the announcement is repeated until
// the end of the leadership. If the server does not answer, the leadership goes on, and the next announcement follows
// soon.
func (l *Leadership) announceFirst(ctx context.Context) error {
	term := l.term
	if _, err := term.announce(context.WithoutCancel(ctx), term.election.client.session.Runner.Attempt); err != nil {
		if !script.NotAnswered(err) {
			return err
		}
		term.announceSoon()
	}
	// Background reports false if Close has begun. Close ends the leadership.
	term.election.client.session.Background(term.keepAnnounced)
	return nil
}

// Proclaim changes the leader's value, which Leader and Observe show, without another election: the token stays the
// same. value has the bounds of Campaign's. rlock's Inspect still shows the value of Campaign.
//
//   - nil: Leader shows the value, or the value of a later Proclaim.
//   - ErrReleased, ErrLost, ErrMaxHold or ErrClosed: the leadership is over.
//   - ErrUnavailable or ErrUnknownOutcome: the change was not confirmed before ctx or Options.RetryTimeout ended. It is
//     retried in the background for as long as the leadership lasts, or until a later Proclaim.
//   - ErrInvalidOption: value is out of its bounds, and nothing has changed.
//   - Any other refusal of the server, such as ErrDenied, is returned at once. The change is retried likewise.
//
// Values are shown in the order of the calls: no value is shown after a later value.
func (l *Leadership) Proclaim(ctx context.Context, value string) error {
	sess, term := l.election.client.session, l.term
	if err := session.CheckLabel("value", value); err != nil {
		return sess.Error(err)
	}
	if err := l.Err(); err != nil {
		return sess.Error(err)
	}
	term.mu.Lock()
	term.valueChanges++
	term.value = value
	term.mu.Unlock()
	ctx, cancel := sess.Bounded(ctx)
	defer cancel()
	stands, err := term.announce(ctx, sess.Runner.Do)
	switch {
	case err != nil:
		term.announceSoon()
	case !stands: // a later leader has announced itself
		if err = l.Err(); err == nil {
			err = errs.ErrLost
		}
	}
	return sess.Error(err)
}

// announce writes the announcement, and reports false if a later leader has announced itself. Its arguments are those
// of announce.lua.
//
// A call that is slow to arrive cannot bring an earlier value back, because each call carries the number of changes:
//
//	Proclaim("b"): change 1, sent, no reply
//	Proclaim("c"): change 2, confirmed
//	                                         "b" arrives: change 1 is less than 2, nothing done
func (t *term) announce(ctx context.Context,
	send func(context.Context, script.Call) (rueidis.RedisMessage, error)) (stands bool, err error) {
	election := t.election
	expiry, _ := election.announceTimes()
	t.mu.Lock()
	changes, value := t.valueChanges, t.value
	t.mu.Unlock()
	reply, err := send(ctx, script.Call{Script: announceScript, Keys: []string{election.announcementKey}, Args: []string{
		t.token, t.owner, script.Millis(expiry), election.announcementKey, election.client.session.Inner.PublishCommand(),
		strconv.Itoa(changes), value,
	}})
	if err != nil {
		return false, err
	}
	outcome, err := script.Integer("announce", reply)
	return outcome != 0, err
}

func (t *term) announceSoon() {
	select {
	case t.announceNow <- struct{}{}:
	default:
	}
}

// keepAnnounced repeats the announcement until the end of the leadership.
func (t *term) keepAnnounced(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-t.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	sess := t.election.client.session
	_, interval := t.election.announceTimes()
	announcing := time.NewTicker(interval)
	defer announcing.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.announceNow:
		case <-announcing.C:
		}
		attemptCtx, cancel := context.WithTimeout(ctx, interval)
		_, err := t.announce(attemptCtx, sess.Runner.Do)
		cancel()
		if err != nil && ctx.Err() == nil {
			sess.Complain("a leader could not announce itself: observers see no leader until it can", t.election.name, err)
		}
	}
}
