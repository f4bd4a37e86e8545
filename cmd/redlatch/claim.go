//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// tenure is the time for which a claim stands.
type tenure interface {
	Done() <-chan struct{}
	Until() time.Time
}

// claim is what a command runs under: the hold of a lock, a permit, or a leadership.
type claim struct {
	tenure
	release func(ctx context.Context) error
	owner   rlock.Owner // of a lock
	token   int64       // 0: none
}

// acquire waits for as long as the flags say, or until ctx ends.
func (j *job) acquire(ctx context.Context, red *redlatch.Client) (c claim, err error) {
	switch j.kind {
	case "semaphore":
		wait := j.wait
		if !j.bounded {
			wait = century // longer than anybody waits
		}
		p, err := red.Semaphores().Semaphore(j.name, j.capacity).WithLabel(j.label).TryAcquire(ctx, j.permits, wait, j.lease)
		if err != nil {
			return c, err
		}
		return claim{p, p.Release, "", 0}, nil
	case "election":
		l, err := red.Elections().Election(j.name).Campaign(ctx, j.label)
		if err != nil {
			return c, err
		}
		return claim{l, l.Resign, "", l.Token()}, nil
	}
	lock := red.Locks().Reentrant(j.name)
	ancestor, join := j.joined()
	switch {
	case join:
		// Joining is for Reentrant locks; to all others a Fenced lock is one.
		if j.fenced && ancestor.Token == 0 {
			return c, usage("--fenced: run joins a hold of lock %q that was acquired without --fenced, and has no token", j.name)
		}
		ctx = lock.WithOwner(ctx, ancestor.Owner)
	case j.fenced:
		lock = red.Locks().Fenced(j.name)
	}
	lock = lock.WithLabel(j.label).WithLease(j.lease)
	if j.bounded {
		lock = lock.WithWait(j.wait)
	}
	h, err := lock.Lock(ctx)
	if join && errors.Is(err, redlatch.ErrLost) {
		return c, fmt.Errorf("%w: the hold in %s is over, and cannot be joined; --no-join acquires the lock instead",
			err, heldEnv)
	}
	if err != nil {
		return c, err
	}
	c = claim{h, h.Unlock, h.Owner(), ancestor.Token}
	if token, ok := h.Token(); ok {
		c.token = token
	}
	if j.atLeast > 0 {
		c.release = func(ctx context.Context) error { return h.UnlockAfter(ctx, j.atLeast) }
	}
	return c, nil
}

// await acquires, and gives up at a signal that ends processes.
func (j *job) await(ctx context.Context, red *redlatch.Client, signals <-chan os.Signal) (claim, error) {
	waits, cancel := context.WithCancelCause(ctx)
	var listening sync.WaitGroup
	listening.Go(func() { j.listen(waits, cancel, red, signals) })
	began := time.Now()
	c, err := j.acquire(waits, red)
	cancel(nil)
	listening.Wait() // it may have had a signal
	if by := (coded{}); errors.As(context.Cause(waits), &by) {
		if err == nil {
			_ = j.release(c)
		}
		return c, by
	}
	if errors.Is(err, redlatch.ErrNotAcquired) {
		waited := time.Since(began).Round(time.Millisecond)
		err = coded{j.conflict, fmt.Errorf("%s is held%s; waited %v", j.what(), j.holders(ctx, red), waited)}
	}
	return c, err
}

// listen cancels a wait with the error of a signal that ends processes, until it is over.
func (j *job) listen(waits context.Context, cancel func(error), red *redlatch.Client, signals <-chan os.Signal) {
	notice := time.After(time.Second)
	for {
		select {
		case <-waits.Done():
			return
		case s := <-signals:
			if ends(s) {
				cancel(signalled(s))
			}
		case <-notice:
			if j.server.verbose {
				j.say("waiting for %s, held%s", j.what(), j.holders(waits, red))
			}
		}
	}
}

func (j *job) what() string { return fmt.Sprintf("%s %q", j.kind, j.name) }

// holders says who has it, as far as the server tells at once.
func (j *job) holders(ctx context.Context, red *redlatch.Client) (text string) {
	ctx, cancel := context.WithTimeout(ctx, 2*j.server.timeout)
	defer cancel()
	s, _ := look(ctx, red, j.server.prefix, j.name)
	for _, h := range s.Holders[:min(len(s.Holders), 3)] {
		text += fmt.Sprintf(" by %s (lease %s),", h.Who, briefMillis(h.LeaseMS))
	}
	return strings.TrimSuffix(text, ",")
}

// heldEnv is the variable in which a command finds what its ancestors hold.
const heldEnv = "REDLATCH_HELD"

// held is a lock that an ancestor of this process holds.
type held struct {
	Place string      `json:"place"` // see server.place
	Lock  string      `json:"lock"`
	Owner rlock.Owner `json:"owner"`
	Token int64       `json:"token,omitempty"` // 0: the hold has none
}

// joined is the hold of an ancestor that this job joins.
func (j *job) joined() (held, bool) {
	for _, h := range j.inherited {
		if !j.apart && h.Lock == j.name && h.Place == j.place {
			return h, true
		}
	}
	return held{}, false
}

// environ is what the command finds in its environment, besides what this process found in its own.
func (j *job) environ(c claim) (env []string) {
	if j.server.url != "" {
		env = append(env, "REDLATCH_REDIS="+j.server.url)
	}
	token := "" // not that of another lock
	if c.token != 0 {
		token = strconv.FormatInt(c.token, 10)
	}
	env = append(env, "REDLATCH_"+strings.ToUpper(j.kind)+"="+j.name)
	switch j.kind {
	case "semaphore":
		return env
	case "election": // its lock is nothing that a command could join
		return append(env, "REDLATCH_TOKEN="+token)
	}
	all := []held{{Place: j.place, Lock: j.name, Owner: c.owner, Token: c.token}}
	for _, h := range j.inherited {
		if h.Lock != j.name || h.Place != j.place {
			all = append(all, h)
		}
	}
	text, _ := json.Marshal(all) // of strings and numbers
	return append(env, "REDLATCH_OWNER="+string(c.owner), "REDLATCH_TOKEN="+token, heldEnv+"="+string(text))
}
