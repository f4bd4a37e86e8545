package rlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/wait"
)

// voting is what a kind is as a member of a Quorum.
func voting(k *kind) *kind {
	return k.like(func(k *kind) {
		k.title, k.drift, k.coalesces = "member of a Quorum", true, false
		k.acquire = voteCall
	})
}

var votingKinds = map[*kind]*kind{reentrant: voting(reentrant), nonReentrant: voting(nonReentrant),
	spinning: voting(spinning)}

// Quorum describes a lock that is held by the owner of a majority of its members, each on a server of its own: Redlock.
// It stays available, and exclusive, while any minority of the servers is down, slow, disconnected, or has lost its
// data. The servers must be independent. A server that fails over to a replica may forget a vote that it gave, so
// Quorum refuses clients of a Sentinel or a Cluster.
//
// There must be at least 3 members, of kinds Reentrant, NonReentrant or Spin, usually of the same name, each on another
// server. An odd number is best. Quorum refuses Fenced members, because the servers of a majority have no counter in
// common, and two members of one rueidis client or hub (ErrInvalidOption). The first acquisition refuses two clients of
// one server, after the servers have said which they are (their run_id). Use the name for nothing else on these
// servers, and the same lease in all processes.
//
// The returned lock has its own WithWait, WithLease and WithLabel. Those of its members are not used, except a member's
// label if the returned lock has none.
//
//   - Lock and TryLock ask all servers at the same time, each once, for a tenth of the lease and at most
//     Options.CallTimeout. They return as soon as a majority has granted its vote, or cannot do so any more; then all
//     votes are given back. A vote that comes later joins the hold. A waiter asks again when a majority may be free,
//     after a random time below two round trips or, while votes are split, after a random pause that grows to 256 ms at
//     most, and every PollCap.
//   - There is no order among processes, and the lock is not handed over. The servers share no queue, and each sees the
//     waiters in another order: handed over one by one, the votes of one release would go to several waiters, none of
//     which has a majority. So each release wakes every process that waits, at each server: one message each, and
//     mostly one round of calls.
//   - The hold lasts while a majority of its members last, each renewed on its own. Until is the instant up to which a
//     majority can be trusted. Each member's deadline allows lease/100 + 2 ms, or the Margin if that is more, for
//     clocks that drift apart.
//   - A vote that was not granted, or was lost because its server restarted, is asked for again if the hold is renewed:
//     soon, and then every third of the lease. ErrMaxHold and ErrClosed of any member end the hold.
//   - Extend and Unlock need the answers of a majority. Unlock goes on for the others in the background. Extend is at
//     most for as long as a server must have been up to vote. A restarted server forgets the time of UnlockAfter like
//     any vote.
//   - Owner is the members' owners, joined by commas, and empty for a member that is not held; pass it to
//     [Lock.WithOwner] of the same Quorum.
//   - IsLocked reports whether fewer members than a majority are free. The Lease of its State is the time until a
//     majority is free.
//
// Acquiring returns ErrNotAcquired if a majority was asked and others hold too many of them. It returns ErrUnavailable
// or ErrUnknownOutcome if too few servers could be asked.
//
// A server votes only when it has been up for as long as the lease, or Options.WatchdogTimeout of its client if that is
// longer. Before that it may have forgotten a vote that it gave and that still counts. So if all servers were started
// together, the first acquisition takes that long: until then it waits, or fails with an ErrUnavailable that says for
// how long.
//
// A majority cannot promise everything. A server whose data is deleted while it runs (FLUSHALL, DEL, eviction), or
// whose clock steps forward, can give the same vote twice, and one such vote may be enough for a second holder. Where
// that matters, use a Fenced lock on one server, and a resource that checks its tokens.
//
// Cost: one script call to each server to acquire and one to release, in parallel, and a renewal to each every third of
// the lease. The call to acquire runs INFO, for which the user needs the right. A waiter subscribes to the channel of
// each member.
func Quorum(locks ...*Lock) (*Lock, error) {
	if len(locks) < 3 {
		return nil, fmt.Errorf("rlock: %w: quorum: %d locks, must be 3 or more", errs.ErrInvalidOption, len(locks))
	}
	members, err := membersOf("quorum", locks)
	if err != nil {
		return nil, err
	}
	seen := map[any]int{}
	for i, l := range members {
		k := votingKinds[l.kind]
		switch {
		case l.kind == fencing:
			return nil, fmt.Errorf("rlock: %w: quorum: lock %d, %q, is Fenced, and a majority of servers gives no fencing "+
				"token: take a NonReentrant lock, or a Reentrant one without Options.Fenced", errs.ErrInvalidOption, i+1, l.name)
		case k == nil:
			return nil, fmt.Errorf("rlock: %w: quorum: lock %d, %q, is %s, must be Reentrant, NonReentrant or Spin",
				errs.ErrInvalidOption, i+1, l.name, l.kind.title)
		}
		if mode := l.c.session.Hub.Client().Mode(); mode != rueidis.ClientModeStandalone {
			return nil, fmt.Errorf("rlock: %w: quorum: lock %d, %q, is of a %s, must be of a single server",
				errs.ErrInvalidOption,
				i+1, l.name, mode)
		}
		for _, of := range []any{l.c.session.Hub, l.c.session.Hub.Client()} {
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
	return fmt.Errorf("rlock: %w: quorum: locks %d and %d, %q and %q, are on the same server, must each be on another",
		errs.ErrInvalidOption, i, j, a.name, b.name)
}

// youngError says that a server gives no vote yet.
type youngError struct {
	name string
	left time.Duration
}

func (e *youngError) Error() string {
	return fmt.Sprintf("%v: vote for %q: the server has not been up for as long as the lease, and may have forgotten a "+
		"vote; it votes in %v", errs.ErrUnavailable, e.name, e.left)
}

func (e *youngError) Unwrap() error { return errs.ErrUnavailable }

// elect acquires a majority of the members of a Quorum.
func (q *composite) elect(ctx context.Context, t terms) (*Hold, error) {
	waitTime := t.wait
	a := &quorumAcquisition{q: q, members: q.labelled(t.label), began: time.Now(), lease: t.lease,
		round: round{busy: true}}
	a.refused, a.released = make([]bool, len(a.members)), make([]bool, len(a.members))
	first := q.members[0].c
	r := wait.Request{Name: q.name, Of: q, Began: a.began, QueueKey: q.queueKey, Manner: "votes",
		Several: true, Try: a.try, Backoff: a.pause}
	if waitTime != forever {
		r.Until = a.began.Add(waitTime)
	}
	a.until = r.Until
	if waitTime == 0 || a.under(ctx) {
		r.Mode = wait.Alone
	} else {
		defer a.stopListening()
		a.first = first.waiters
	}
	if err := first.waiters.Wait(ctx, r); err != nil {
		return nil, ending(q.name, time.Since(a.began), a.unsure).Explain(err)
	}
	a.won.began = time.Now()
	return &Hold{parts: a.won}, nil
}
