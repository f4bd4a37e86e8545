package rlock

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

var (
	plainAcquireScript = load("plain acquire", "plain_acquire")
	plainReleaseScript = load("plain release", "plain_release")
)

// plain is one string key, owner as its value.
var plain = &kind{
	keys:    func(_ *Client, key string) []string { return []string{key} },
	channel: func(key, _ string) string { return keyname.Prefix("redlatch_plain", key) },
	acquire: func(l *single, r acquireRequest) script.Call {
		return script.Call{Script: plainAcquireScript, Keys: l.keys, Args: append(r.room, r.owner, r.ms, strconv.FormatInt(r.notAfter, 10), l.channel, l.c.publish)}
	},
	release: func(l *single, r releaseRequest) script.Call {
		return script.Call{Script: plainReleaseScript, Keys: l.keys, Args: []string{r.owner, l.channel, l.c.publish}}
	},
	renew:  load("plain renew", "plain_renew"),
	keep:   load("plain keep", "plain_keep"),
	query:  load("plain query", "plain_query"),
	force:  load("plain force unlock", "plain_force"),
	title:  "Plain",
	manner: "plain",
	shares: true,
}

// Plain describes the mutex of the Redis documentation: one string key, set with NX and PX to a value that nobody else uses.
// Only the owner of that value deletes or prolongs it. A Plain lock excludes every program that follows the pattern on the
// same key. It excludes no other kind of lock of this package: those are hashes, and the call returns ErrWrongType.
//
// It cannot be re-entered (ErrReentry). Its releases wake the waiters of this library. If another program releases it, they
// learn of that within Options.PollCap. Waiters of one process stand in line. There is no order among processes, and a
// TryLock with a waitTime of 0 may overtake all waiters. The layout has no place for a queue: a lock that is handed from waiter
// to waiter would never be free for the other programs, which only poll. So after a release the processes that wait, and the one
// that has released if it acquires again, draw whose turn it is to ask. A release costs a few calls however many of them wait, and a
// message to each of them. A lock that is free and waited for is idle for 128 round trips at most, if its release is heard, and
// otherwise until the lease ends or for a PollCap.
//
// Names longer than Options.HashOver are hashed.
func (c *Client) Plain(name string) *Lock {
	hashed := name
	if most := c.hashOver; most > 0 && len(name) > most {
		sum := sha256.Sum256([]byte(name))
		hashed = hex.EncodeToString(sum[:])
	}
	s, bad := c.single(hashed, plain)
	s.name = name
	return s.asLock(bad)
}
