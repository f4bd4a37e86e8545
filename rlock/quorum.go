package rlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/wait"
)

// voting is what a kind is as a member of a Quorum.
func voting(k *kind) *kind {
	return k.like(func(k *kind) {
		k.title, k.votes = "member of a Quorum", true
		k.acquire = voteCall
	})
}

var votingKinds = map[*kind]*kind{reentrant: voting(reentrant), nonReentrant: voting(nonReentrant), spinning: voting(spinning)}

// Quorum describes a lock that is held by whoever holds a majority of its members, each on a server of its own: Redlock.
// It stays available, and exclusive, while any minority of the servers is down, slow, cut off, or has lost its data. The
// servers must be independent: a server that fails over to a replica may forget a vote it gave, which is why clients of a
// Sentinel or a Cluster are refused.
//
// There must be at least 3 members, of kinds Reentrant, NonReentrant or Spin, usually of the same name, each of another
// server; an odd number is best. Two members of one rueidis client or hub are refused here, two clients of one server when
// the servers have said who they are (their run_id), which is waited for once: both are ErrInvalidOption. Use the name for
// nothing else on these servers, and the same lease in all processes.
//
// The lock returned has its own WithWait, WithLease and WithLabel; those of its members are not used, but for labels where
// it has none.
//
//   - Lock and TryLock ask all servers at the same time, each once and for a tenth of the lease, 500 ms
//     (Options.CallTimeout) at most. They return as soon as a majority has granted, or cannot be had; then everything is
//     given back. A server that answers later joins the hold. Who waits asks again when members are released, after a
//     random pause that grows while votes are split, and every PollCap. No order is kept among processes.
//   - Hold: it lasts while a majority of its members last, each renewed on its own; Until is the end of the last majority.
//     Each member's deadline leaves lease/100 + 2 ms, or the Margin if that is more, for clocks that drift apart. A
//     member that was not had, or is lost because its server restarted, is asked for again, soon and then every third of
//     the lease, if the hold is renewed. ErrMaxHold and ErrClosed of any member end the hold. Extend and Unlock need a
//     majority's answer; Unlock goes on for the others in the background, and Extend is for no longer than a server must
//     have been up. A restarted server forgets the minimum time of UnlockAfter like any vote. Owner is the members' owners,
//     joined by commas, with nothing for one that is not held; it goes with [Lock.WithOwner] of the same Quorum. There is
//     no Token.
//   - IsLocked: fewer than a majority are free. RemainingLease: until a majority are. HoldCount: what a majority has.
//
// Errors are ErrNotAcquired if a majority was asked and somebody else holds too many; ErrUnavailable or ErrUnknownOutcome
// if too few servers could be asked.
//
// A server votes when it has been up for as long as the greater of the lease and its client's Options.WatchdogTimeout:
// before, it may have forgotten a vote that it gave and that still counts. So the first acquisition after a deployment of
// all servers takes that long; until then it fails, or waits, with an error that says for how long (ErrUnavailable).
//
// What a majority cannot promise: a server whose data is deleted while it runs (FLUSHALL, DEL, eviction), or whose clock
// steps forward, can give the same vote twice, and one such vote may be enough for a second holder. Have the resource refuse
// the late where that matters.
//
// Cost: one script call to each server to acquire, one to release, in parallel; a renewal to each every third of the
// lease. The call to acquire runs INFO, whose right the user must have. Who waits subscribes to each member's channel.
func Quorum(locks ...*Lock) (*Lock, error) {
	if len(locks) < 3 {
		return nil, fmt.Errorf("rlock: %w: quorum: %d locks, must be 3 or more", ErrInvalidOption, len(locks))
	}
	members, err := membersOf("quorum", locks)
	if err != nil {
		return nil, err
	}
	seen := map[any]int{}
	for i, l := range members {
		k := votingKinds[l.kind]
		if k == nil {
			return nil, fmt.Errorf("rlock: %w: quorum: lock %d, %q, is %s, must be Reentrant, NonReentrant or Spin", ErrInvalidOption, i+1, l.name, l.kind.title)
		}
		if mode := l.c.hub.Client().Mode(); mode != rueidis.ClientModeStandalone {
			return nil, fmt.Errorf("rlock: %w: quorum: lock %d, %q, is of a %s, must be of a single server", ErrInvalidOption, i+1, l.name, mode)
		}
		for _, of := range []any{l.c.hub, l.c.hub.Client()} {
			if j := seen[of]; j > 0 {
				return nil, sameServer(j, i+1, members[j-1], l)
			}
			seen[of] = i + 1
		}
		voter := *l.single
		voter.kind = k
		members[i].single = &voter
	}
	return newComposite("quorum", members, len(members)/2+1), nil
}

func sameServer(i, j int, a, b member) error {
	return fmt.Errorf("rlock: %w: quorum: locks %d and %d, %q and %q, are on the same server, must each be on another", ErrInvalidOption, i, j, a.name, b.name)
}

// youngError says that a server gives no vote yet.
type youngError struct {
	name string
	left time.Duration
}

func (e *youngError) Error() string {
	return fmt.Sprintf("%v: vote for %q: the server has not been up for as long as the lease, and may have forgotten a vote; it votes in %v", ErrUnavailable, e.name, e.left)
}

func (e *youngError) Unwrap() error { return ErrUnavailable }

// elect acquires a majority of the members of a Quorum.
func (q *composite) elect(ctx context.Context, t terms) (*Hold, error) {
	waitTime := t.wait
	e := &election{q: q, members: q.labelled(t.label), began: time.Now(), lease: t.lease}
	first := q.members[0].c
	r := wait.Request{Name: q.name, Line: q.line, Manner: "votes", Alone: waitTime == 0 || e.under(ctx), Try: e.try, Backoff: e.pause}
	if waitTime != forever {
		r.Until = e.began.Add(waitTime)
	}
	e.until = r.Until
	if !r.Alone {
		defer e.stopListening()
		e.first = first.queue
	}
	if err := first.queue.Wait(ctx, r); err != nil {
		return nil, ending(q.name, time.Since(e.began), e.unsure).Explain(err)
	}
	e.won.began = time.Now()
	return &Hold{parts: e.won}, nil
}
