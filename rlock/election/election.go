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

// Election describes one election: all candidates under its name, in any process. It is immutable and costs nothing. It
// is safe for concurrent use. A candidate that is elected has a *Leadership.
type Election struct {
	client          *Client
	name, key       string
	announcementKey string // the key of the leader's announcement, and the channel of the observers
	lock            *rlock.Lock
	argErr          error // returned by every call: the name is invalid
}

// Election describes the election of that name. It sends nothing. If the name cannot be used, every call on the
// election returns ErrInvalidName.
func (c *Client) Election(name string) *Election {
	key, argErr := c.session.Key(name)
	if argErr == nil {
		argErr = c.session.Error(keyname.CheckPair(key)) // the lock is Fenced, and its name is checked likewise
	}
	return &Election{client: c, name: name, key: key, announcementKey: keyname.Prefix("redlatch_leader", key),
		lock: c.locks.Fenced(name), argErr: argErr}
}

// Name returns the election's name, without Options.KeyPrefix.
func (e *Election) Name() string { return e.name }

// Campaign waits until the caller is elected, or ctx ends. Candidates are elected in the order of their processes'
// first requests, and within a process in the order of the calls.
//
// value is shown by Leader and Observe, such as an address. Every user who may read the keys can see it, even while the
// caller is a candidate (rlock's Inspect). It has at most 256 bytes of UTF-8, and may be empty.
//
// On success the caller leads until Resign, or until the leadership is lost; ctx bounds the waiting only. Leader shows
// the caller from then on. If the announcement was not confirmed in time, it is repeated in the background.
//
// A failed call ends the candidacy. The error is one of:
//
//   - ErrNotAcquired, joined with ctx's error and cause: ctx ended first.
//   - ErrUnavailable or ErrUnknownOutcome: the server did not answer for as long as ctx lasted.
//   - ErrDenied: the user lacks a right to the lock, or to the announcement.
//   - ErrInvalidOption: value is out of its bounds.
//   - ErrNotReplicated, ErrClosed, ErrInvalidName, ErrWrongType: see there. Any other refusal of the server is returned
//     at once, wrapped.
//
// A ctx that comes from a leadership of this election is not a re-entry: the call waits for the end of that leadership.
func (e *Election) Campaign(ctx context.Context, value string) (*Leadership, error) {
	if err := e.client.session.Usable(e.argErr, session.CheckLabel("value", value)); err != nil {
		return nil, err
	}
	hold, err := e.lock.WithLabel(value).Lock(rlock.Detach(ctx))
	if err != nil {
		return nil, withPackage(err)
	}
	leadership := newLeadership(e, hold)
	if err := leadership.announceFirst(ctx); err != nil {
		_ = hold.Unlock(ctx) // a failed release is retried in the background
		return nil, e.client.session.Error(err)
	}
	return leadership, nil
}

// pause waits for the duration, or until ctx ends or the client is closed.
func pause(ctx context.Context, sess *session.Session, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-sess.Context().Done():
	}
}

// Leader is the leader of an election as the server knows it. The zero value stands for no leader.
type Leader struct {
	Value string      // the value of Campaign, or of the latest Proclaim
	Token int64       // the fencing token of the leadership; 0 without a leader
	Owner rlock.Owner // the owner id on the server
}

// Elected reports whether there is a leader.
func (l Leader) Elected() bool { return l.Token != 0 }

// Leader returns the leader, or the zero Leader if there is none. The result is the server's state at the time of its
// reply. A leader is shown as soon as Campaign has returned it. A leader that crashed is shown until its lock is taken
// over, or its lease is over. If the rueidis client sends reads to replicas, the result is a replica's state.
//
// The call is repeated until the server answers, ctx ends or Options.RetryTimeout is over. The error is ErrUnavailable,
// ErrClosed, ErrInvalidName, ErrWrongType, ErrDenied, or another refusal of the server.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	return session.Ask(ctx, e.client.session, e.argErr, e.readLeader)
}

// readLeader reads the announcement, and then checks that the announced owner holds the lock. The order matters: see
// "How a leader is announced" in docs/design/protocols.md. Each request has one key, so the server answers it also
// while the slot is being migrated.
func (e *Election) readLeader(ctx context.Context) (Leader, error) {
	reply, err := e.read(ctx, "read the leader", e.announcementKey, func(b rueidis.Builder) rueidis.Completed {
		return b.Get().Key(e.announcementKey).Build()
	})
	if errors.Is(err, rueidis.Nil) {
		return Leader{}, nil
	}
	if err != nil {
		return Leader{}, err
	}
	text, err := reply.ToString()
	if err != nil {
		return Leader{}, err
	}
	first, owner, _ := strings.Cut(text, " ")
	owner, changed, proclaimed := strings.Cut(owner, " ")
	token, err := strconv.ParseInt(first, 10, 64)
	if err != nil || token < 1 || owner == "" {
		return Leader{}, fmt.Errorf("%w: %q is not an announcement of a leader", errs.ErrWrongType, e.announcementKey)
	}
	reply, err = e.read(ctx, "look for the leader", e.key, func(b rueidis.Builder) rueidis.Completed {
		return b.Hexists().Key(e.key).Field(owner).Build()
	})
	if err != nil {
		return Leader{}, err
	}
	if held, err := reply.AsBool(); err != nil || !held {
		return Leader{}, err
	}
	leader := Leader{Value: rlock.Owner(owner).Label(), Token: token, Owner: rlock.Owner(owner)}
	if proclaimed {
		_, leader.Value, _ = strings.Cut(changed, " ")
	}
	return leader, nil
}

func (e *Election) read(ctx context.Context, what, key string,
	command func(rueidis.Builder) rueidis.Completed) (rueidis.RedisMessage, error) {
	return e.client.session.Runner.Do(ctx, script.Call{Script: script.Plain(what), Keys: []string{key}, Command: command})
}

// announceTimes returns the expiry of an announcement, and the interval at which it is repeated.
func (e *Election) announceTimes() (expiry, interval time.Duration) {
	expiry = e.client.session.WatchdogTimeout
	return expiry, expiry / 3
}
