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

// term is what goes on in the background of a leadership: the leader is announced again and again. It refers to the
// texts of the leadership, and not to its hold, which would never be forgotten.
type term struct {
	e            *Election
	token, owner string
	done         <-chan struct{} // of the hold
	again        chan struct{}   // has one message if the announcement is to be made now

	mu      sync.Mutex
	changes int // of the value, by Proclaim
	value   string
}

func newTerm(e *Election, hold *rlock.Hold, token int64) *term {
	return &term{e: e, token: strconv.FormatInt(token, 10), owner: string(hold.Owner()), done: hold.Done(),
		again: make(chan struct{}, 1)}
}

// announceFirst makes the leader known, or returns why it cannot be; otherwise it is made known again and again until
// the end of the leadership. A server that does not answer is not a reason to give a leadership up.
func (l *Leadership) announceFirst(ctx context.Context) error {
	t := l.term
	if _, err := t.announce(context.WithoutCancel(ctx), t.e.c.session.Runner.Attempt); err != nil {
		if !script.NotAnswered(err) {
			return err
		}
		t.announceSoon()
	}
	t.e.c.session.Background(t.run) // false: Close has begun, which ends the leadership
	return nil
}

// Proclaim changes the leader's value, which Leader and Observe show, without another election: its token stays. value
// is bounded as that of Campaign. rlock's Inspect goes on showing the value of Campaign.
//
// nil: Leader shows it, or a later Proclaim's. ErrReleased, ErrLost, ErrMaxHold or ErrClosed: the leadership is over.
// ErrUnavailable or ErrUnknownOutcome: it was not confirmed before ctx or Options.RetryTimeout ended; this goes on in
// the background for as long as the leadership lasts, or until a later Proclaim. ErrInvalidOption: value is out of its
// bounds, and nothing has changed. Any other refusal of the server, such as ErrDenied, is returned at once, and it goes
// on likewise.
//
// Values are shown in the order of the calls: none is shown after a later one.
func (l *Leadership) Proclaim(ctx context.Context, value string) error {
	s, t := l.e.c.session, l.term
	if err := session.CheckLabel("value", value); err != nil {
		return s.Error(err)
	}
	if err := l.Err(); err != nil {
		return s.Error(err)
	}
	t.mu.Lock()
	t.changes++
	t.value = value
	t.mu.Unlock()
	ctx, cancel := s.Bounded(ctx)
	defer cancel()
	stands, err := t.announce(ctx, s.Runner.Do)
	switch {
	case err != nil:
		t.announceSoon()
	case !stands: // a later leader's does
		if err = l.Err(); err == nil {
			err = errs.ErrLost
		}
	}
	return s.Error(err)
}

// announce makes it known who leads, and reports false if a later leader has. The other side of its arguments is
// announce.lua.
//
// A call that is slow to arrive cannot bring an earlier value back, because each says how many changes there were:
//
//	Proclaim("b"): change 1, sent, no reply
//	Proclaim("c"): change 2, confirmed
//	                                         "b" arrives: change 1 is less than 2, nothing done
func (t *term) announce(ctx context.Context,
	send func(context.Context, script.Call) (rueidis.RedisMessage, error)) (stands bool, err error) {
	e := t.e
	lasts, _ := e.standing()
	t.mu.Lock()
	changes, value := t.changes, t.value
	t.mu.Unlock()
	m, err := send(ctx, script.Call{Script: announceScript, Keys: []string{e.announced}, Args: []string{
		t.token, t.owner, script.Millis(lasts), e.announced, e.c.session.Inner.PublishCommand(), strconv.Itoa(changes), value,
	}})
	if err != nil {
		return false, err
	}
	n, err := script.Integer("announce", m)
	return n != 0, err
}

func (t *term) announceSoon() {
	select {
	case t.again <- struct{}{}:
	default:
	}
}

// run goes on until the end of the leadership.
func (t *term) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-t.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	s := t.e.c.session
	_, every := t.e.standing()
	announcing := time.NewTicker(every)
	defer announcing.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.again:
		case <-announcing.C:
		}
		limit, cancel := context.WithTimeout(ctx, every)
		_, err := t.announce(limit, s.Runner.Do)
		cancel()
		if err != nil && ctx.Err() == nil {
			s.Complain("a leader could not announce itself: observers see no leader until it can", t.e.name, err)
		}
	}
}
