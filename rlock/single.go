package rlock

import (
	"github.com/redlatch/redlatch/internal/keyname"
)

// single is a lock on one key. Like Lock it is immutable and holds no state.
type single struct {
	c                  *Client
	kind               *kind
	name, key, channel string
	keys               []string // of its scripts: the lock and, where waiters queue, their queue
	grants             string   // channels of grants, without the connection id
	ownKey             any      // an ownerKey, boxed once
	backoff            *backoff // of a lock that spins; nil for the others
}

func (c *Client) lock(name string, kind *kind) *Lock {
	lock, bad := c.single(name, kind)
	return lock.asLock(bad)
}

// single is the lock of that name, and why it cannot be used, if so.
func (c *Client) single(name string, kind *kind) (s single, bad error) {
	key, bad := c.session.Key(name)
	if bad == nil && kind.refusesBracePair {
		bad = c.session.Error(keyname.CheckPair(key))
	}
	s = single{c: c, kind: kind, name: name, key: key, ownKey: ownerKey{c, name, kind.resolve != nil}}
	s.channel, s.keys = kind.channel(key, ""), kind.keys(key)
	s.grants = grantPrefix
	if c.clustered {
		s.grants = keyname.Prefix("redlatch_grant", key) + ":"
	}
	return s, bad
}

// grantPrefix and a connection id are the channel of a process's grants where one server serves all keys.
const grantPrefix = "redlatch_grant:"

// asLock makes the Lock, in one piece of memory with l.
func (l single) asLock(bad error) *Lock {
	x := &struct {
		Lock
		single
	}{Lock{terms: terms{wait: forever}, bad: bad}, l}
	x.form = &x.single
	return &x.Lock
}

// Name implements form.
func (l *single) Name() string { return l.name }

// Kind implements form.
func (l *single) Kind() string { return l.kind.title }

// grantChannel is the channel of this process's grants.
func (l *single) grantChannel() string {
	if !l.c.clustered {
		return l.c.grantChannel
	}
	return l.grants + l.c.session.ID
}

// handsOver reports whether waiters queue on the server and releases hand the lock over to them.
func (l *single) handsOver() bool {
	return l.kind.queueEntry != nil
}
