package rlock

import (
	"github.com/redlatch/redlatch/internal/keyname"
)

// single is a lock on one key. Like Lock it is immutable and holds no state.
type single struct {
	c                  *Client
	kind               *kind
	name, key, channel string
	keys               []string // the KEYS of the kind's scripts: the lock and, where waiters queue, their queue
	grants             string   // the channel of grants without the connection id
	ownKey             any      // an ownerKey, boxed once
	backoff            *backoff // of a Spin lock; nil for other kinds
}

func (c *Client) lock(name string, kind *kind) *Lock {
	lock, bad := c.single(name, kind)
	return lock.asLock(bad)
}

// single returns the lock of that name, and the reason why it cannot be used; nil: it can.
func (c *Client) single(name string, kind *kind) (s single, bad error) {
	key, bad := c.session.Key(name)
	if bad == nil && kind.refusesBracePair {
		bad = c.session.Error(keyname.CheckPair(key))
	}
	return c.singleOn(key, name, kind, ownerKey{c, name, kind.resolve != nil}), bad
}

// singleOn returns the lock of a key.
func (c *Client) singleOn(key, name string, kind *kind, ownKey ownerKey) (s single) {
	s = single{c: c, kind: kind, name: name, key: key, ownKey: ownKey}
	s.channel, s.keys = kind.layout.channel(key, ""), kind.layout.keys(key)
	s.grants = grantPrefix
	if c.clustered {
		s.grants = keyname.Prefix("redlatch_grant", key) + ":"
	}
	return s
}

// grantPrefix, followed by a connection id, is the channel of grants to one process, where one server serves all keys.
const grantPrefix = "redlatch_grant:"

// asLock makes the Lock, with one allocation for both.
func (l single) asLock(bad error) *Lock {
	allocated := &struct {
		Lock
		single
	}{Lock{terms: terms{wait: forever}, bad: bad}, l}
	allocated.form = &allocated.single
	return &allocated.Lock
}

// Name implements form.
func (l *single) Name() string { return l.name }

// Kind implements form.
func (l *single) Kind() string { return l.kind.title }

// grantChannel returns the channel of grants to this process.
func (l *single) grantChannel() string {
	if !l.c.clustered {
		return l.c.grantChannel
	}
	return l.grants + l.c.keeper.ID
}

// handsOver reports whether waiters queue on the server, and releases hand the lock over to them.
func (l *single) handsOver() bool {
	return l.kind.waiting.queueEntry != nil
}
