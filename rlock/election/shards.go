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
// Each shard has a Fenced lock of package rlock, with heartbeats: shard 3 of "jobs" has the lock "jobs:3". Only the
// locks decide which worker has a shard. The workers' heartbeats decide the division. So a worker whose heartbeat is
// late or missing makes the division uneven for a while, and never lets two workers have a shard.
type Shards struct {
	client  *Client
	name    string
	count   int
	workers string // the key of the workers hash
	argErr  error  // returned by every call: the name or n is invalid
}

// maxShards bounds the state of a worker in the workers hash to about a kilobyte.
const maxShards = 4096

// Shards describes the shards 0 to n-1 of that name. It sends nothing. n is at least 1 and at most 4096, and the same
// in all processes; otherwise every call returns ErrInvalidOption. If the name cannot be used, every call returns
// ErrInvalidName.
func (c *Client) Shards(name string, n int) *Shards {
	key, argErr := c.session.Key(name)
	if argErr == nil && (n < 1 || n > maxShards) {
		argErr = c.session.Error(errs.InvalidOption("n", n, fmt.Sprintf("1 to %d", maxShards)))
	}
	return &Shards{client: c, name: name, count: n, workers: keyname.Prefix("redlatch_workers", key), argErr: argErr}
}

func (s *Shards) lock(i int) *rlock.Lock {
	return s.client.locks.Fenced(s.name + ":" + strconv.Itoa(i))
}

// Shard is one shard, or a slot, of this process, from its acquisition until it is released or lost. It is safe for
// concurrent use.
type Shard struct {
	index int
	hold  *rlock.Hold
}

// Index is the number of the shard, from 0.
func (s *Shard) Index() int { return s.index }

// Token returns the fencing token with which this process has the shard. It is positive, and greater than the token of
// every earlier owner of the shard, under the conditions that [rlock.Client.Fenced] names.
func (s *Shard) Token() int64 {
	token, _ := s.hold.Token()
	return token
}

// Until returns the instant, on this process's monotonic clock, until which it is safe to act for the shard.
func (s *Shard) Until() time.Time { return s.hold.Until() }

// Context returns a child of parent that ends when the shard is released or lost, with cause ErrReleased, ErrLost,
// ErrMaxHold or ErrClosed.
func (s *Shard) Context(parent context.Context) context.Context { return s.hold.Context(parent) }

// Release releases the shard. Its results are those of [Leadership.Resign]. Run releases the shards of Run; if the
// function releases its shard, it is acquired again, by this worker or another.
func (s *Shard) Release(ctx context.Context) error { return withPackage(s.hold.Unlock(ctx)) }

// Slot acquires any slot that no process has, and waits for a free slot until ctx ends. It is for numbers that no two
// processes may use at a time, such as the worker ids of Snowflake. The caller has the slot until Release, or until it
// is lost. Run must not use the same name. value is shown by rlock's Inspect as the label of the owner. It has at most
// 256 bytes of UTF-8.
//
// Slot tries one slot after the other, beginning with a random one. The call sends one request if most slots are free,
// and n requests if none is. While none is free it tries all slots again once in a PollCap. Waiting calls have no
// order. The slot of a process that crashed stays taken for WatchdogTimeout.
//
// The errors are those of [Election.Campaign], with one exception. If the server does not answer, Slot does not retry:
// it returns ErrUnavailable or ErrUnknownOutcome within Options.CallTimeout. A slot that such a call may have acquired
// is released in the background.
func (s *Shards) Slot(ctx context.Context, value string) (*Shard, error) {
	if err := s.client.session.Usable(s.argErr, session.CheckLabel("value", value)); err != nil {
		return nil, err
	}
	return s.takeSlot(ctx, value)
}

// Worker is the state of one worker, by its last heartbeat.
type Worker struct {
	Name    string
	Shards  []int // the numbers of its shards, ascending
	Drained bool  // the worker takes no shards for now
}

// Workers returns the live workers, in the order of their names, with their shards by their last heartbeats. A worker
// that crashed is shown for three heartbeats. The errors are those of [Election.Leader].
func (s *Shards) Workers(ctx context.Context) ([]Worker, error) {
	return session.Ask(ctx, s.client.session, s.argErr, func(ctx context.Context) ([]Worker, error) {
		members, err := s.syncMembers(ctx, "", "", s.client.trustPeriod)
		var workers []Worker
		for _, member := range members {
			worker := Worker{Name: member.name, Drained: member.drained}
			for i, isOwned := range member.owned {
				if isOwned {
					worker.Shards = append(worker.Shards, i)
				}
			}
			workers = append(workers, worker)
		}
		slices.SortStableFunc(workers, func(first, second Worker) int { return strings.Compare(first.Name, second.Name) })
		return workers, err
	})
}

// Observe yields the result of Workers, and again whenever that has changed, until ctx ends: then its last error is
// ctx's cause. It sends a request once in a PollCap. Other errors end the loop, too, except after the first result,
// when the server does not answer: the request is then repeated.
func (s *Shards) Observe(ctx context.Context) iter.Seq2[[]Worker, error] {
	return func(yield func([]Worker, error) bool) {
		var last []Worker
		for first := true; ; first = false {
			workers, err := s.Workers(ctx)
			switch {
			case ctx.Err() != nil:
				yield(nil, s.client.session.Error(context.Cause(ctx)))
				return
			case err != nil && (first || !script.NotAnswered(err)):
				yield(nil, err)
				return
			case err == nil && (first || !reflect.DeepEqual(workers, last)):
				if last = workers; !yield(workers, nil) {
					return
				}
			}
			pause(ctx, s.client.session, s.client.session.PollCap)
		}
	}
}

// Drain moves the shards of all workers of that name to the other workers, and waits until these workers have none.
// They take no shards for rest. Each of their functions ends, and then another worker has its shard at once. So drain a
// process before it is stopped, from that process or another. A worker that begins within the rest is drained, too.
//
// nil: no worker of that name has a shard. Otherwise the error is ctx's cause, or an error of [Election.Leader], or
// ErrInvalidOption if worker is out of bounds, or rest less than three Heartbeats. After an error the request may still
// take effect. If all workers are drained, the shards have no worker.
func (s *Shards) Drain(ctx context.Context, worker string, rest time.Duration) error {
	err := s.client.session.Usable(s.argErr, session.CheckLabel("worker", worker),
		session.CheckRange("rest", rest, s.client.trustPeriod))
	if err != nil {
		return err
	}
	_, err = session.Ask(ctx, s.client.session, nil, func(ctx context.Context) ([]workerState, error) {
		return s.syncMembers(ctx, drainField+worker, "", rest)
	})
	if err != nil {
		return err
	}
	for workers, err := range s.Observe(ctx) {
		if err != nil {
			return err
		}
		hasShards := func(shown Worker) bool { return shown.Name == worker && len(shown.Shards) > 0 }
		if !slices.ContainsFunc(workers, hasShards) {
			break
		}
	}
	return nil
}

// drainField is the prefix of the fields of drained workers. An id never begins with it.
const drainField = "drain:"

// syncMembers writes a field of the workers hash, unless field is empty, and returns the live members. Its arguments
// are those of workers.lua. The script has one key, so the server runs it also while the slot is being migrated.
func (s *Shards) syncMembers(ctx context.Context, field, value string, expiry time.Duration) ([]workerState, error) {
	call := workersScript
	if field == "" {
		call = workersScript.Reads()
	}
	reply, err := s.client.session.Runner.Do(ctx, script.Call{Script: call, Keys: []string{s.workers},
		Args: []string{field, value, script.Millis(expiry)}})
	if err != nil {
		return nil, err
	}
	list, err := reply.AsStrSlice()
	if err != nil || len(list)%2 != 0 {
		return nil, script.Unexpected("say which workers are there", list, err)
	}
	drained := map[string]bool{}
	var members []workerState
	for i := 0; i < len(list); i += 2 {
		if name, ok := strings.CutPrefix(list[i], drainField); ok {
			drained[name] = true
			continue
		}
		encoded, name, _ := strings.Cut(list[i+1], " ")
		member := workerState{id: list[i], name: name, owned: make([]bool, s.count)}
		bits, err := hex.DecodeString(encoded)
		if err != nil {
			return nil, fmt.Errorf("%w: %q has no worker in %.64q", errs.ErrWrongType, s.workers, list[i])
		}
		for i := range member.owned {
			member.owned[i] = i/8 < len(bits) && bits[i/8]>>(i%8)&1 == 1
		}
		members = append(members, member)
	}
	for i := range members {
		members[i].drained = drained[members[i].name]
	}
	return members, nil
}

// encodeWorker returns the state of a worker as it stands in the workers hash: the shards as bits in hex, and the name.
func (s *Shards) encodeWorker(owned []bool, name string) string {
	bits := make([]byte, (s.count+7)/8)
	for i := range owned {
		if owned[i] {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return hex.EncodeToString(bits) + " " + name
}
