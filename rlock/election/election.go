package election

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/rlock"
)

// Election describes one election: those who campaign under its name in any process. It is immutable and costs nothing.
// It is safe for concurrent use. A candidate that is elected has a *Leadership.
type Election struct {
	c         *Client
	name, key string
	announced string // key of the leader's announcement, and channel of the observers
	lock      *rlock.Lock
	bad       error // what every call returns
}

// Election describes the election of that name. Nothing is sent. If the name cannot be used, every call on the election
// returns ErrInvalidName.
func (c *Client) Election(name string) *Election {
	key, bad := c.session.Key(name)
	if bad == nil {
		bad = c.session.Error(keyname.CheckPair(key)) // as of its lock, which is Fenced
	}
	return &Election{c: c, name: name, key: key, announced: keyname.Prefix("redlatch_leader", key),
		lock: c.locks.Fenced(name), bad: bad}
}

// Name returns the election's name, without Options.KeyPrefix.
func (e *Election) Name() string { return e.name }

// Campaign waits until the caller is elected, or ctx ends. Candidates are elected in the order in which their processes
// came, those of one process in the order of their calls.
//
// value is what Leader and Observe show of the leader, such as an address. Every user who may read the keys can see it,
// even while it is a candidate (rlock's Inspect). It has at most 256 bytes of UTF-8, and may be empty.
//
// On success the caller leads until Resign, or until the leadership is lost; ctx bounds the waiting only. Leader shows
// it from now on. If the announcement was not confirmed in time, it is made in the background.
//
// On failure the caller is no longer a candidate. The error is one of:
//
//   - ErrNotAcquired, joined with ctx's error and cause: ctx ended first.
//   - ErrUnavailable or ErrUnknownOutcome: the server could not be asked for as long as ctx lasted.
//   - ErrDenied: the user lacks a right to the lock, or to the announcement.
//   - ErrInvalidOption: value is out of its bounds.
//   - ErrNotReplicated, ErrClosed, ErrInvalidName, ErrWrongType: see there. Any other refusal of the server is returned
//     at once, wrapped.
//
// A ctx that comes from a leadership of this election is not a re-entry: the call waits for the end of that leadership.
func (e *Election) Campaign(ctx context.Context, value string) (*Leadership, error) {
	if err := e.c.session.Usable(e.bad, session.CheckLabel("value", value)); err != nil {
		return nil, err
	}
	hold, err := e.lock.WithLabel(value).Lock(rlock.Detach(ctx))
	if err != nil {
		return nil, edge(err)
	}
	l := newLeadership(e, hold)
	if err := l.announceFirst(ctx); err != nil {
		_ = hold.Unlock(ctx) // if it fails it goes on by itself
		return nil, e.c.session.Error(err)
	}
	return l, nil
}

// pause waits for d, or until ctx ends or the client is closed.
func pause(ctx context.Context, s *session.Session, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-s.Context().Done():
	}
}

// Leader is who leads an election. The zero value stands for no leader.
type Leader struct {
	Value string      // what the leader said of itself in Campaign, or last in Proclaim
	Token int64       // its fencing token; 0 without a leader
	Owner rlock.Owner // as the server knows it
}

// Elected reports whether there is a leader.
func (l Leader) Elected() bool { return l.Token != 0 }

// Leader returns who leads, or the zero Leader if there is none. The answer is what the server knew when it was asked.
// A leader is shown from the moment at which Campaign has returned it. One that crashed is shown until its lock is
// taken over, or its lease is over. If the rueidis client sends reads to replicas, it is what a replica knew.
//
// It tries until it is answered, ctx ends or Options.RetryTimeout is over. The error is ErrUnavailable,
// ErrClosed, ErrInvalidName, ErrWrongType, ErrDenied, or another refusal of the server.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	return session.Ask(ctx, e.c.session, e.bad, e.readLeader)
}

// readLeader asks who is announced, and then whether that owner holds the lock. In this order: see "How it is
// announced". Each question has one key, so it is answered also while the slot is being migrated.
func (e *Election) readLeader(ctx context.Context) (Leader, error) {
	m, err := e.ask(ctx, "read the leader", e.announced, func(b rueidis.Builder) rueidis.Completed {
		return b.Get().Key(e.announced).Build()
	})
	if errors.Is(err, rueidis.Nil) {
		return Leader{}, nil
	}
	if err != nil {
		return Leader{}, err
	}
	text, err := m.ToString()
	if err != nil {
		return Leader{}, err
	}
	first, owner, _ := strings.Cut(text, " ")
	owner, changed, proclaimed := strings.Cut(owner, " ")
	token, err := strconv.ParseInt(first, 10, 64)
	if err != nil || token < 1 || owner == "" {
		return Leader{}, fmt.Errorf("%w: %q is not an announcement of a leader", errs.ErrWrongType, e.announced)
	}
	m, err = e.ask(ctx, "look for the leader", e.key, func(b rueidis.Builder) rueidis.Completed {
		return b.Hexists().Key(e.key).Field(owner).Build()
	})
	if err != nil {
		return Leader{}, err
	}
	if held, err := m.AsBool(); err != nil || !held {
		return Leader{}, err
	}
	l := Leader{Value: rlock.Owner(owner).Label(), Token: token, Owner: rlock.Owner(owner)}
	if proclaimed {
		_, l.Value, _ = strings.Cut(changed, " ")
	}
	return l, nil
}

func (e *Election) ask(ctx context.Context, what, key string,
	command func(rueidis.Builder) rueidis.Completed) (rueidis.RedisMessage, error) {
	return e.c.session.Runner.Do(ctx, script.Call{Script: script.Plain(what), Keys: []string{key}, Command: command})
}

// standing is for how long an announcement is made, and how often it is made again.
func (e *Election) standing() (lasts, again time.Duration) {
	lasts = e.c.session.WatchdogTimeout
	return lasts, lasts / 3
}
