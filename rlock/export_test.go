package rlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// ID is the connection id.
func (c *Client) ID() string { return c.keeper.ID }

// Waiting is how many calls stand in the process's line for name.
func (c *Client) Waiting(name string) int { return c.waiters.Members(c.opts.KeyPrefix + name) }

// Lines is how many names somebody waits for.
func (c *Client) Lines() int { return c.waiters.Census().LocalQueues }

// Owed is how many releases are still owed in the background.
func (c *Client) Owed() int {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return len(c.keeper.Retrier.Drain(ctx))
}

// Late is what the reply to an earlier try of the hold does, if it comes only now and says that it was granted. It does
// not keep the hold in use.
func (x *Hold) Late() func() { return ownerOf(x.h).Late }

// PlantNoUptimeRule is a Quorum whose servers vote as soon as they are up.
func PlantNoUptimeRule(l *Lock) *Lock {
	lock, q := *l, *l.form.(*several)
	q.members = nil
	for _, m := range l.form.(*several).members {
		with := *m
		with.kind = with.kind.derive(func(k *kind) {
			acquire := k.acquire
			k.acquire = func(l *single, r acquireRequest) script.Call {
				call := acquire(l, r)
				call.Args[5] = "-5000"
				return call
			}
		})
		q.members = append(q.members, &with)
	}
	lock.form = &q
	return &lock
}

// Defaults and bounds.
const (
	DefaultWatchdogTimeout = 30 * time.Second
	DefaultCallTimeout     = 500 * time.Millisecond
	DefaultTokenRetention  = 24 * time.Hour
	MinLease               = session.MinLease
	MaxDuration            = session.MaxDuration
	MaxLabel               = session.MaxLabel
)

// ReadBlocked is the content of a record of a call that waits, in words; "" if the text is none.
func ReadBlocked(text string) string {
	record, ok := readBlocked(text)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d %v %s %v", record.began, record.stale, record.id, record.holds)
}

// BlockedAgain is a record that was read, as it would be written.
func BlockedAgain(text string) string {
	record, _ := readBlocked(text)
	return record.text()
}

// Search reports whether a call that waits for a lock since began, and holds another as owner, finds a circle.
func (c *Client) Search(ctx context.Context, waits, holds, owner string, began int64) bool {
	lock, _ := c.single(waits, kindReentrant)
	return lock.search(ctx, blockedRecord{began: began, id: "own", holds: []heldLock{{holds, owner}}}) != nil
}
