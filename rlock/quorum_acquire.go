package rlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
)

// quorumAcquisition is one acquisition of a Quorum: rounds, each of which requests all members' votes at the same time.
// docs/design/protocols.md describes them.
type quorumAcquisition struct {
	of             *several
	lease          time.Duration // 0: the WatchdogTimeout of each client
	releaseUntil   time.Time     // the acquisition waits for releases of votes until this; zero: no bound
	won            *heldParts
	outcomeUnknown bool            // a server without a reply may have voted
	releases       *memberReleases // nil: the acquisition does not wait for releases

	// The rounds.
	rounds  int
	splits  int // rounds in a row with some votes and no majority
	endedAt time.Time
	freeIn  time.Duration // from the last round until the holders' leases leave a majority free; negative: not known

	mu    sync.Mutex
	votes []vote // the results of the last round, by member
	awake bool   // a round is in progress or due, so a release need not wake the waiter
}

// vote is the result of one member in a round. Zero value: the member has not replied yet.
type vote struct {
	replied  bool
	err      error // nil: the member voted for this owner
	released bool  // the member may have been released since the round began
}

func (v vote) granted() bool { return v.replied && v.err == nil }
func (v vote) refused() bool { return v.replied && v.err != nil }

// countVotes returns the number of votes for which is reports true.
func countVotes(votes []vote, is func(vote) bool) (count int) {
	for _, vote := range votes {
		if is(vote) {
			count++
		}
	}
	return count
}

// acquireMajority acquires a majority of the members of a Quorum.
func (q *several) acquireMajority(ctx context.Context, wanted terms) (*heldParts, error) {
	began := time.Now()
	quorum := &quorumAcquisition{of: q, lease: wanted.lease, freeIn: -1}
	request := wait.Request{Name: q.name, Object: q, Began: began, QueueKey: q.queueKey, QueueClass: "votes",
		MultiServer: true, Try: quorum.round, Backoff: quorum.pollIn}
	if wanted.wait != forever {
		request.Until = began.Add(wanted.wait)
	}
	if wanted.wait != 0 {
		quorum.releaseUntil = request.Until
	}
	reenters := slices.ContainsFunc(q.members, func(member *single) bool { return ctx.Value(member.ownKey) != nil })
	if wanted.wait == 0 || reenters {
		request.Mode = wait.Alone
	} else {
		quorum.releases = newMemberReleases(ctx, q.members, quorum.memberReleased)
		defer quorum.releases.stop()
	}
	if err := q.members[0].c.waiters.Wait(ctx, request); err != nil {
		return nil, errorContext(q.name, time.Since(began), quorum.outcomeUnknown).Explain(err)
	}
	return quorum.won, nil
}

// voteTimeout returns how long a round waits for the vote of a server.
func (l *single) voteTimeout(lease time.Duration) time.Duration {
	if lease == 0 {
		lease = l.c.opts.WatchdogTimeout
	}
	return max(min(l.c.opts.CallTimeout, lease/10), session.MinCallTimeout)
}

// round requests the votes of all members once.
func (a *quorumAcquisition) round(ctx context.Context) (wait.Answer, error) {
	if err := a.prepare(ctx); err != nil {
		return wait.Answer{}, err
	}
	q, parts, began := a.of, newHeldParts(a.of), time.Now()
	votes := a.requestVotes(ctx, parts)
	for _, member := range q.members {
		member.c.askedForRun.Store(true)
	}
	err := q.checkServers()
	granted := countVotes(votes, vote.granted)
	if err == nil && granted >= q.needed {
		if parts.startMajority(a.lease == 0) {
			a.won = parts
			return wait.Answer{Granted: true}, nil
		}
		err = fmt.Errorf("%w: %q: the votes took longer than their lease", errs.ErrUnavailable, q.name)
		if why := parts.life.Err(); why != nil && !errors.Is(why, errs.ErrLost) {
			err = why
		}
	}
	// A server that became silent during the round delays the releases by no more than the round took.
	releaseUntil := time.Now().Add(time.Since(began))
	if !a.releaseUntil.IsZero() && a.releaseUntil.Before(releaseUntil) {
		releaseUntil = a.releaseUntil
	}
	parts.releaseAll(ctx, releaseUntil)
	if err != nil {
		return wait.Answer{}, err
	}
	if a.splits++; granted == 0 {
		a.splits = 0
	}
	a.endedAt = time.Now()
	a.mu.Lock()
	a.awake = false
	a.wakeIfMajorityFree()
	a.mu.Unlock()
	return a.outcome(votes)
}

// splitOver is how long after a split round the next round needs no pause, because the other waiters of that split have
// sent their requests by then.
const splitOver = 500 * time.Millisecond

// prepare pauses if other processes probably request the votes at the same instant. It then listens to releases, and
// checks that no member's client is closed.
func (a *quorumAcquisition) prepare(ctx context.Context) error {
	a.mu.Lock()
	longest := time.Duration(0)
	if a.awake { // all processes receive the message of a release at about the same instant
		longest = 2 * a.of.roundTrip()
	}
	a.awake = true
	a.mu.Unlock()
	if time.Since(a.endedAt) > splitOver {
		a.splits = 0
	}
	if a.splits > 0 { // the releases of the processes that lost would wake all of them at the same instant
		longest = max(longest, 4*time.Millisecond<<min(a.splits, 6))
	}
	if longest > 0 && !script.Pause(ctx, rand.N(longest)) {
		return fmt.Errorf("%w: %q: %w", errs.ErrUnavailable, a.of.name, errs.Cut(errs.Ended(ctx)))
	}
	if a.rounds++; a.rounds <= 2 && a.releases != nil {
		a.releases.listen(a.rounds == 2)
	}
	for _, member := range a.of.members {
		if member.c.session.Closed() {
			return fmt.Errorf("%q: %w", a.of.name, errs.ErrClosed)
		}
	}
	return nil
}

// roundTrip returns how long a majority takes to reply, according to the quickest recent replies.
func (q *several) roundTrip() time.Duration {
	trips := make([]time.Duration, len(q.members))
	for i, member := range q.members {
		trips[i] = member.c.runner.Clock.Trip(member.key)
	}
	slices.Sort(trips)
	return trips[q.needed-1]
}

// requestVotes requests the votes of all members, and adds the granted votes to parts. It returns when a majority has
// voted for this owner, or cannot any more. A later vote is added to parts, which releases it if its release has begun.
func (a *quorumAcquisition) requestVotes(ctx context.Context, parts *heldParts) []vote {
	q := a.of
	votes := make([]vote, len(q.members))
	a.mu.Lock()
	a.votes = votes
	a.mu.Unlock()
	replies := make(chan struct{}, len(votes)) // with room for late replies, which nothing receives
	for i, member := range q.members {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, member.voteTimeout(a.lease))
			defer cancel()
			hold, err := q.acquireMember(ctx, i, terms{lease: a.lease})
			if err == nil {
				parts.add(ctx, i, hold)
			}
			a.mu.Lock()
			votes[i].replied, votes[i].err = true, err
			a.mu.Unlock()
			replies <- struct{}{}
		}()
	}
	for {
		<-replies
		a.mu.Lock()
		now := slices.Clone(votes)
		a.mu.Unlock()
		granted, refused := countVotes(now, vote.granted), countVotes(now, vote.refused)
		if len(now)-refused < q.needed || granted+refused == len(now) ||
			granted >= q.needed && !q.hasUnknownServer(now) {
			return now
		}
	}
}

// hasUnknownServer reports whether a server that never replied has not replied in this round, either. The first round
// waits for such a server, so that the first acquisition finds two members of one server.
func (q *several) hasUnknownServer(votes []vote) bool {
	for i, member := range q.members {
		if !votes[i].replied && member.c.memberRun.Load() == 0 && !member.c.askedForRun.Load() {
			return true
		}
	}
	return false
}

// checkServers refuses two members of one server.
func (q *several) checkServers() error {
	seen := map[int64]int{}
	for i, member := range q.members {
		run := member.c.memberRun.Load()
		if first, ok := seen[run]; ok && run != 0 {
			return q.sameServer(first, i)
		}
		seen[run] = i
	}
	return nil
}

// memberReleased is called when a member may have been released.
func (a *quorumAcquisition) memberReleased(i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.votes != nil {
		a.votes[i].released = true
	}
	a.wakeIfMajorityFree()
}

// wakeIfMajorityFree wakes the waiter if a majority may be free now. While a majority is held, waiters take the other
// votes and release them. If each of these releases woke the other waiters, the waiters would keep each other busy
// (TestQuorum_MajorityHeld_WaitersDoNotWakeEachOther). One wake-up stands for all messages that come before the next
// round begins. Called with mu held.
func (a *quorumAcquisition) wakeIfMajorityFree() {
	free := countVotes(a.votes, func(result vote) bool { return !result.refused() || result.released })
	if !a.awake && a.releases != nil && free >= a.of.needed {
		a.awake = true
		a.of.members[0].c.waiters.Wake(a.of.queueKey)
	}
}

// outcome returns the answer of a round without a majority.
func (a *quorumAcquisition) outcome(votes []vote) (wait.Answer, error) {
	var held, silent int
	var fatal, problems []error
	var leases []time.Duration // the time until each member is free, at the earliest
	for _, vote := range votes {
		var contended *NotAcquiredError
		switch {
		case vote.err == nil:
			leases = append(leases, 0)
		case errors.Is(vote.err, errs.ErrClosed):
			return wait.Answer{}, fmt.Errorf("%q: %w", a.of.name, errs.ErrClosed)
		case errors.As(vote.err, &contended) && contended.Cause == nil:
			held++
			if contended.Lease >= 0 {
				leases = append(leases, contended.Lease)
			}
		case script.NotAnswered(vote.err), contended != nil:
			silent++
			err := vote.err
			if contended != nil && contended.Unheard { // the round was over before the server replied
				err = fmt.Errorf("%w: %q: %w", errs.ErrUnknownOutcome, contended.Name, contended.Cause)
			}
			a.outcomeUnknown = a.outcomeUnknown || errors.Is(err, errs.ErrUnknownOutcome)
			problems = append(problems, err)
		default:
			fatal = append(fatal, vote.err)
		}
	}
	slices.Sort(leases)
	a.freeIn = -1
	if len(leases) >= a.of.needed {
		a.freeIn = leases[a.of.needed-1]
	}
	switch {
	case len(votes)-len(fatal) < a.of.needed:
		return wait.Answer{}, fmt.Errorf("%q: %w", a.of.name, errors.Join(fatal...))
	case held > 0 && len(votes)-silent-len(fatal) >= a.of.needed:
		return wait.Answer{Left: a.freeIn}, nil
	}
	problems = append(problems, fatal...)
	kind := errs.ErrUnavailable
	if a.outcomeUnknown {
		kind = errs.ErrUnknownOutcome
		for i, err := range problems {
			problems[i] = script.Unsure(err)
		}
	}
	return wait.Answer{}, fmt.Errorf("%w: %q: %d of %d servers cannot vote: %w", kind, a.of.name, len(problems),
		len(votes), errors.Join(problems...))
}

// pollIn returns how long the waiter sleeps after a round if no release wakes it.
func (a *quorumAcquisition) pollIn(int) time.Duration {
	pause := wait.MaxPoll // package wait shortens the pause to PollCap
	heard := 0
	if a.releases != nil {
		heard = int(a.releases.channels.Load())
	}
	if heard == 0 || a.rounds == 1 && heard < len(a.of.members) { // the next round subscribes to the other members
		pause = 4 * script.Backoff(a.rounds)
	}
	if a.freeIn >= 0 {
		pause = min(pause, wait.AfterLease(a.freeIn))
	}
	return pause - rand.N(pause/10+1)
}
