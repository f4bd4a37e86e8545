package election

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/rlock"
)

// Shards describes n shards of work, which are divided among the workers that call Run, in any processes. It is
// immutable and costs nothing. It is safe for concurrent use.
//
// Each shard has a Fenced lock of package rlock, with heartbeats: that of shard 3 of "jobs" is called "jobs:3". Who has
// which is decided by the locks alone. How they are divided is agreed by heartbeats: a worker that is seen late, or
// not at all, makes the division uneven for a while, and never lets two workers have a shard.
type Shards struct {
	c       *Client
	name    string
	n       int
	workers string // key of the workers
	bad     error  // what every call returns
}

// maxShards keeps what a worker says of itself at about a kilobyte.
const maxShards = 4096

// Shards describes the shards 0 to n-1 of that name. Nothing is sent. n is at least 1 and at most 4096, and the same in
// all processes; otherwise every call returns ErrInvalidOption. If the name cannot be used, it returns ErrInvalidName.
func (c *Client) Shards(name string, n int) *Shards {
	key, bad := c.session.Key(name)
	if bad == nil && (n < 1 || n > maxShards) {
		bad = c.session.Error(errs.InvalidOption("n", n, fmt.Sprintf("1 to %d", maxShards)))
	}
	return &Shards{c: c, name: name, n: n, workers: keyname.Prefix("redlatch_workers", key), bad: bad}
}

func (s *Shards) lock(i int) *rlock.Lock { return s.c.locks.Fenced(s.name + ":" + strconv.Itoa(i)) }

// Shard is one shard that this process has, or a slot: from when it was acquired until it is released or lost. It is
// safe for concurrent use.
type Shard struct {
	index int
	hold  *rlock.Hold
}

// Index is the number of the shard, from 0.
func (s *Shard) Index() int { return s.index }

// Token returns the fencing token with which this process has the shard. It is positive, and greater than that of every
// earlier owner of the shard, on the conditions that [rlock.Client.Fenced] names.
func (s *Shard) Token() int64 {
	token, _ := s.hold.Token()
	return token
}

// Until returns the instant, on this process's monotonic clock, until which it is safe to act for the shard.
func (s *Shard) Until() time.Time { return s.hold.Until() }

// Context returns a child of parent that ends when the shard is released or lost, with cause ErrReleased, ErrLost,
// ErrMaxHold or ErrClosed.
func (s *Shard) Context(parent context.Context) context.Context { return s.hold.Context(parent) }

// Release gives the shard up. Its results are those of [Leadership.Resign]. A shard of Run is released by Run; if its
// function does it, the shard is acquired again, here or elsewhere.
func (s *Shard) Release(ctx context.Context) error { return edge(s.hold.Unlock(ctx)) }

// Slot acquires any of the slots that no process has, and waits for one, until ctx ends, if there is none: for numbers
// that no two processes may use at a time, such as the worker ids of Snowflake. The caller has it until Release, or
// until it is lost. Slots of that name are not for Run. value is what rlock's Inspect shows of the owner; it has at
// most 256 bytes of UTF-8.
//
// It asks for one after the other from a random one on, which takes one call if most are free and n if none is, and
// again once in a PollCap while none is. Those that wait have no order. The slot of a process that crashed is taken
// for WatchdogTimeout.
//
// The errors are those of [Election.Campaign], but that a server that does not answer is not asked again: the call
// returns ErrUnavailable or ErrUnknownOutcome within Options.CallTimeout. What such a call may have acquired is
// released in the background.
func (s *Shards) Slot(ctx context.Context, value string) (*Shard, error) {
	if err := s.c.session.Usable(s.bad, session.CheckLabel("value", value)); err != nil {
		return nil, err
	}
	return s.takeSlot(ctx, value)
}

// Worker is one worker of shards, as it says of itself.
type Worker struct {
	Name    string
	Shards  []int // that it has, in order
	Drained bool  // it is to have none
}

// Workers returns the workers that are there, in the order of their names, and which shards they have by their last
// heartbeats. A worker that crashed is shown for three of them. The errors are those of [Election.Leader].
func (s *Shards) Workers(ctx context.Context) ([]Worker, error) {
	return session.Ask(ctx, s.c.session, s.bad, func(ctx context.Context) ([]Worker, error) {
		members, err := s.say(ctx, "", "", s.c.trust)
		var all []Worker
		for _, m := range members {
			w := Worker{Name: m.name, Drained: m.drained}
			for i, has := range m.has {
				if has {
					w.Shards = append(w.Shards, i)
				}
			}
			all = append(all, w)
		}
		slices.SortStableFunc(all, func(a, b Worker) int { return strings.Compare(a.Name, b.Name) })
		return all, err
	})
}

// Observe yields what Workers returns, and again whenever that has changed, until ctx ends: then its last error is
// ctx's cause. It looks once in a PollCap. Another error ends the loop, too, but for one that says that the server did
// not answer: it is asked again.
func (s *Shards) Observe(ctx context.Context) iter.Seq2[[]Worker, error] {
	return func(yield func([]Worker, error) bool) {
		var last []Worker
		for first := true; ; first = false {
			all, err := s.Workers(ctx)
			switch {
			case ctx.Err() != nil:
				yield(nil, s.c.session.Error(context.Cause(ctx)))
				return
			case err != nil && (first || !script.NotAnswered(err)):
				yield(nil, err)
				return
			case err == nil && (first || !reflect.DeepEqual(all, last)):
				if last = all; !yield(all, nil) {
					return
				}
			}
			pause(ctx, s.c.session, s.c.session.PollCap)
		}
	}
}

// Drain has the workers of that name hand their shards over to the others, and take none for rest, and waits until they
// have none. Each of their functions ends, and then another worker has that shard at once. So a process that is to be
// stopped is drained first, by itself or by another. A worker that begins within the rest is drained, too.
//
// nil: no worker of that name has a shard. Otherwise the error is ctx's cause, or that of [Election.Leader], or
// ErrInvalidOption if worker is out of bounds, or rest less than three Heartbeats. The request may then still have its
// effect. If all workers are drained no one has the shards.
func (s *Shards) Drain(ctx context.Context, worker string, rest time.Duration) error {
	err := s.c.session.Usable(s.bad, session.CheckLabel("worker", worker),
		session.CheckRange("rest", rest, s.c.trust))
	if err != nil {
		return err
	}
	_, err = session.Ask(ctx, s.c.session, nil, func(ctx context.Context) ([]member, error) {
		return s.say(ctx, drainField+worker, "", rest)
	})
	if err != nil {
		return err
	}
	for all, err := range s.Observe(ctx) {
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(w Worker) bool { return w.Name == worker && len(w.Shards) > 0 }) {
			break
		}
	}
	return nil
}

// drainField begins the fields of workers that are drained. An id does not begin so.
const drainField = "drain:"

// say writes a field among the workers, if there is one to write, and returns who is there. The other side of its
// arguments is workers.lua. It has one key, so it is answered also while the slot is being migrated.
func (s *Shards) say(ctx context.Context, field, text string, lasts time.Duration) ([]member, error) {
	do := workersScript
	if field == "" {
		do = workersScript.Reads()
	}
	m, err := s.c.session.Runner.Do(ctx, script.Call{Script: do, Keys: []string{s.workers},
		Args: []string{field, text, script.Millis(lasts)}})
	if err != nil {
		return nil, err
	}
	list, err := m.AsStrSlice()
	if err != nil || len(list)%2 != 0 {
		return nil, script.Unexpected("say which workers are there", list, err)
	}
	drained := map[string]bool{}
	var members []member
	for i := 0; i < len(list); i += 2 {
		if name, ok := strings.CutPrefix(list[i], drainField); ok {
			drained[name] = true
			continue
		}
		bits, name, _ := strings.Cut(list[i+1], " ")
		x := member{id: list[i], name: name, has: make([]bool, s.n)}
		set, err := hex.DecodeString(bits)
		if err != nil {
			return nil, fmt.Errorf("%w: %q has no worker in %.64q", errs.ErrWrongType, s.workers, list[i])
		}
		for i := range x.has {
			x.has[i] = i/8 < len(set) && set[i/8]>>(i%8)&1 == 1
		}
		members = append(members, x)
	}
	for i := range members {
		members[i].drained = drained[members[i].name]
	}
	return members, nil
}

// text is what a worker says of itself.
func (s *Shards) text(has []bool, name string) string {
	set := make([]byte, (s.n+7)/8)
	for i := range has {
		if has[i] {
			set[i/8] |= 1 << (i % 8)
		}
	}
	return hex.EncodeToString(set) + " " + name
}
