package rlock

import (
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
)

// kindForVote returns the kind of a member of a Quorum: its requests are votes.
func kindForVote(memberKind *kind) *kind {
	return memberKind.derive(func(voteKind *kind) {
		voteKind.title, voteKind.allowsDrift, voteKind.coalesces = "member of a Quorum", true, false
		voteKind.acquire = voteCall
	})
}

var voteKinds = map[*kind]*kind{kindReentrant: kindForVote(kindReentrant),
	kindNonReentrant: kindForVote(kindNonReentrant), kindSpin: kindForVote(kindSpin)}

// Quorum describes a lock that is held by the owner of a majority of its members, each on a server of its own: Redlock.
// It stays available, and exclusive, while any minority of the servers is down, slow, disconnected, or has lost its
// data. docs/design/protocols.md describes the protocol, its costs and its limits.
//
// There must be at least 3 members, of kinds Reentrant, NonReentrant or Spin, each on another server that does not fail
// over; otherwise Quorum, or the first acquisition, returns ErrInvalidOption. Use the name for nothing else on these
// servers, and the same lease in all processes. The returned lock has its own WithWait, WithLease and WithLabel.
//
//   - Lock and TryLock return as soon as a majority has voted for the owner, or cannot. They return ErrNotAcquired if
//     other owners hold too many members, and ErrUnavailable or ErrUnknownOutcome if too few servers replied. A server
//     votes only if it has been up for the lease, and for WatchdogTimeout of its client. Processes are served in no
//     order.
//   - The hold lasts while a majority lasts. Until is the instant up to which a majority can be trusted. If the hold is
//     renewed, missing votes are requested again. ErrMaxHold and ErrClosed of any member end the hold.
//   - Extend and Unlock need the replies of a majority; Unlock goes on for the others in the background.
//   - Owner is the members' owners, joined by commas, empty for a member that is not held; pass it to [Lock.WithOwner].
//   - IsLocked reports whether fewer members than a majority are free.
//
// If the data of a running server is deleted, or its clock steps forward, a second owner may hold the lock. Where that
// matters, use a Fenced lock on one server, and a resource that checks its tokens.
func Quorum(locks ...*Lock) (*Lock, error) {
	if len(locks) < 3 {
		return nil, fmt.Errorf("rlock: %w: quorum: %d locks, must be 3 or more", errs.ErrInvalidOption, len(locks))
	}
	if err := checkMembers("quorum", locks); err != nil {
		return nil, err
	}
	q := newSeveral("quorum", locks, len(locks)/2+1)
	seen := map[any]int{}
	for i, member := range q.members {
		voteKind := voteKinds[member.kind]
		switch {
		case member.kind == kindFenced:
			return nil, fmt.Errorf("rlock: %w: quorum: lock %d, %q, is Fenced, and a majority of servers gives no fencing "+
				"token: take a NonReentrant lock, or a Reentrant one without Options.Fenced", errs.ErrInvalidOption, i+1,
				member.name)
		case voteKind == nil:
			return nil, fmt.Errorf("rlock: %w: quorum: lock %d, %q, is %s, must be Reentrant, NonReentrant or Spin",
				errs.ErrInvalidOption, i+1, member.name, member.kind.title)
		}
		hub := member.c.session.Hub
		if mode := hub.Client().Mode(); mode != rueidis.ClientModeStandalone {
			return nil, fmt.Errorf("rlock: %w: quorum: lock %d, %q, is of a %s, must be of a single server",
				errs.ErrInvalidOption, i+1, member.name, mode)
		}
		for _, server := range []any{hub, hub.Client()} {
			if first := seen[server]; first > 0 {
				return nil, q.sameServer(first-1, i)
			}
			seen[server] = i + 1
		}
		voter := *member
		voter.kind = voteKind
		q.members[i] = &voter
	}
	return q.asLock(), nil
}

// sameServer returns the error for two members on one server.
func (q *several) sameServer(first, second int) error {
	return fmt.Errorf("rlock: %w: quorum: locks %d and %d, %q and %q, are on the same server, must each be on another",
		errs.ErrInvalidOption, first+1, second+1, q.members[first].name, q.members[second].name)
}

// youngError is the error of a server that does not vote yet.
type youngError struct {
	name string
	left time.Duration
}

func (e *youngError) Error() string {
	return fmt.Sprintf("%v: vote for %q: the server has not been up for as long as the lease, and may have forgotten a "+
		"vote; it votes in %v", errs.ErrUnavailable, e.name, e.left)
}

func (e *youngError) Unwrap() error { return errs.ErrUnavailable }
