package rlock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// State is a lock as the server knew it at one moment.
type State struct {
	Name   string
	Locked bool
	// Mode of a read-write lock: "read" or "write"; "" of other kinds.
	Mode string
	// Lease is how long the lock stays taken if nobody renews it; NoExpiry if it has no end.
	Lease   time.Duration
	Holders []Holder
}

// Holder is one owner of a lock. More than one: the first hold was joined, or there are several readers.
type Holder struct {
	Owner Owner
	Count int
	Label string // see WithLabel
	// Lease is the holder's own where the hold was joined or a reader's, otherwise the lock's. It is 0 for one that died.
	Lease time.Duration
	// Ours: an owner of this library, not one of Redisson's.
	Ours bool
	// Write: it is the writer of a read-write lock. What it also reads are holders of their own.
	Write bool
}

// Inspect says who holds the lock of that name, and for how long. It changes nothing and is for people: what it says
// may be over when it is read.
func (c *Client) Inspect(ctx context.Context, name string) (State, error) {
	l := c.Reentrant(name)
	r, err := ask(ctx, l, func(ctx context.Context) (inspectReply, error) { return c.runInspect(ctx, l.key) })
	if err == nil && r.fields["mode"] != "" {
		l = c.ReadWrite(name).read
		r, err = ask(ctx, l, func(ctx context.Context) (inspectReply, error) {
			return c.runInspectOf(ctx, rwInspectScript, l.keys...)
		})
	}
	if err != nil || !r.locked {
		return State{Name: name}, err
	}
	s := State{Name: name, Locked: true, Lease: r.left, Mode: r.fields["mode"]}
	for field, value := range r.fields {
		if strings.HasSuffix(field, "!") || s.Mode != "" && field == "mode" {
			continue
		}
		owner, write := field, false
		if s.Mode != "" {
			owner, write = strings.CutSuffix(field, ":write")
		}
		h := Holder{Owner: Owner(owner), Label: Owner(owner).Label(), Lease: r.left, Ours: ours.MatchString(owner), Write: write}
		h.Count, _ = strconv.Atoi(value)
		if end, err := strconv.ParseInt(r.fields[field+"!"], 10, 64); err == nil {
			h.Lease = max(0, time.Duration(end-r.server)*time.Millisecond)
		}
		s.Holders = append(s.Holders, h)
	}
	slices.SortFunc(s.Holders, func(a, b Holder) int { return strings.Compare(string(a.Owner), string(b.Owner)) })
	return s, nil
}

// ForceUnlock takes the lock from whoever holds it at the time of the call and wakes the waiters; it reports whether
// anybody held it. The holders learn of it at their next renewal, or at once where their client tracks its keys, as
// ErrLost; until then they act beside the next holder. Whoever acquires the lock meanwhile is left alone.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	return ask(ctx, l, func(ctx context.Context) (bool, error) {
		r, err := l.c.runInspect(ctx, l.key)
		if err != nil || !r.locked {
			return false, err
		}
		owners := make([]string, 0, len(r.fields))
		var more []string
		for field, count := range r.fields {
			switch {
			case l.kind.side != alone:
				if timeouts, ok := l.sided(field, count); ok {
					owners, more = append(owners, field), append(more, timeouts...)
				}
			case !strings.HasSuffix(field, "!"):
				owners = append(owners, field)
			}
		}
		removed, err := l.runForce(ctx, owners, more)
		if err == nil {
			l.c.queue.Nudge(l.name)
		}
		return removed > 0, err
	})
}

// ask runs a question, or an intervention, on behalf of a caller whose ctx may have no deadline.
func ask[T any](ctx context.Context, l *Lock, f func(context.Context) (T, error)) (T, error) {
	var none T
	if l.bad != nil {
		return none, l.bad
	}
	if l.c.roster.Closed() {
		return none, fmt.Errorf("rlock: %w", ErrClosed)
	}
	ctx, cancel := context.WithTimeout(ctx, askTries*l.c.opts.CallTimeout)
	defer cancel()
	v, err := f(ctx)
	if err != nil {
		return none, fmt.Errorf("rlock: %w", err)
	}
	return v, nil
}

// askTries times CallTimeout bounds a question.
const askTries = 4
