package rlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/pubsub"
)

// quorumAcquisition is one acquisition of a Quorum:
//
//  1. A round asks all members at the same time by vote_acquire.lua, for a tenth of the lease or the call timeout,
//     whichever is less. The reply says which run of the server it is. A server gives no vote before it has been up for
//     a lease.
//  2. The round ends when a majority has granted or cannot any more. Later votes join the hold, or are given back. A
//     member whose server has never answered is waited for once, so that two members of one server are found.
//  3. Without a majority all is given back. Waiters stand in one line, of the first member's client. The first in it
//     listens to the channels of all members, and asks again when so many of those that refused it may have been
//     released that a majority may be free: what other waiters take of the remaining votes, and give back, wakes no
//     waiter (TestQuorum_MajorityHeld_WaitersDoNotWakeEachOther). It waits a random time below two round
//     trips first, because all processes hear of a release at about the same instant and would split the votes.
//     After a split it pauses at random before the next round, up to 8 ms, doubled up to 256 ms, unless the split is
//     half a second past. The losers' own releases would otherwise wake all of them at the same instant.
//  4. Each vote is renewed by its own client. A missing vote is asked for again (win).
//  5. Unlock returns when a majority has released. The other releases have four call timeouts, and then are pending.
//
// Only single servers are members: after a failover nothing tells that the replica has not got a vote.
type quorumAcquisition struct {
	q       *composite
	members []member
	began   time.Time
	lease   time.Duration // 0: that of each client's watchdog
	until   time.Time     // of the waiting; zero: only ctx says
	won     *parts
	unsure  bool // a vote may have been given of which no reply came

	rounds
	mu sync.Mutex
	round
	memberSubscriptions
}

// rounds are those so far.
type rounds struct {
	made  int
	split int       // in a row that got some votes
	ended time.Time // the last of them
	known time.Duration
}

// round is the one that is under way, or the last. Guarded by quorumAcquisition.mu.
type round struct {
	number   int
	busy     bool   // it is under way, or a release has woken the local queue for the next
	refused  []bool // by member: it did not vote for us in this round
	released []bool // by member: it may have been released since the round began
}

// memberSubscriptions are how the acquisition hears of releases.
type memberSubscriptions struct {
	first     *wait.Waiters // of the line in which we stand
	listening atomic.Int32  // to how many channels
	watching  bool          // the holder's heartbeats are looked at
	stop      context.CancelFunc
	listeners sync.WaitGroup
}

// under reports whether ctx carries an owner of a member.
func (a *quorumAcquisition) under(ctx context.Context) bool {
	return slices.ContainsFunc(a.members, func(m member) bool { return ctx.Value(m.ownKey) != nil })
}

// limit is how long a server has to answer.
func (a *quorumAcquisition) limit(m member) time.Duration {
	d := a.lease
	if d == 0 {
		d = m.c.opts.WatchdogTimeout
	}
	return max(min(m.c.opts.CallTimeout, d/10), session.MinCallTimeout)
}

// roundResult is what came of a round, by member.
type roundResult struct {
	answered []bool
	results  []error // nil: it voted for us
	granted  int
}

// try is one round.
func (a *quorumAcquisition) try(ctx context.Context) (wait.Answer, error) {
	if err := a.prepare(ctx); err != nil {
		return wait.Answer{}, err
	}
	p := newParts(a.q)
	t := a.ask(ctx, p)
	for _, m := range a.members {
		m.c.metOnce.Store(true)
	}
	err := a.checkDuplicateServers()
	if err == nil && t.granted >= a.q.need {
		kept := p.b.require(a.q.need)
		if kept && time.Now().Before(p.until()) {
			a.win(p, t.granted == len(a.members))
			return wait.Answer{Granted: true}, nil
		}
		err = fmt.Errorf("%w: %q: the votes took longer than their lease", errs.ErrUnavailable, a.q.name)
		if why := p.b.life.Err(); why != nil && !errors.Is(why, errs.ErrLost) {
			err = why
		}
	}
	p.giveBack(ctx, a.giveBackBy())
	if err != nil {
		return wait.Answer{}, err
	}
	if t.granted > 0 {
		a.split++
	} else {
		a.split = 0
	}
	a.ended = time.Now()
	a.end()
	return a.count(t)
}

// prepare waits as long as split votes ask for, subscribes as the number of rounds asks for, and checks that no member
// is closed.
func (a *quorumAcquisition) prepare(ctx context.Context) error {
	if time.Since(a.ended) > splitOver {
		a.split = 0
	}
	longest := time.Duration(0)
	if a.awake() {
		longest = 2 * a.roundTrip()
	}
	if a.split > 0 {
		longest = max(longest, 4*time.Millisecond<<min(a.split, 6))
	}
	if longest > 0 && !script.Pause(ctx, rand.N(longest)) {
		return fmt.Errorf("%w: %q: %w", errs.ErrUnavailable, a.q.name, errs.Cut(errs.Ended(ctx)))
	}
	if a.made++; a.made == 1 {
		a.joinSubscriptions(ctx)
	} else if a.made == 2 {
		a.subscribe(ctx)
	}
	for _, m := range a.members {
		if m.c.session.Closed() {
			return fmt.Errorf("%q: %w", a.q.name, errs.ErrClosed)
		}
	}
	return nil
}

// ask asks all members for their votes, which p takes in, until a majority has granted or cannot be had.
func (a *quorumAcquisition) ask(ctx context.Context, p *parts) roundResult {
	type vote struct {
		i   int
		err error
	}
	n := len(a.members)
	round := a.begin()
	votes := make(chan vote, n) // so that no vote blocks when its round is over
	for i, m := range a.members {
		go func() {
			own, cancel := context.WithTimeout(ctx, a.limit(m))
			defer cancel()
			x, err := m.take(own, terms{lease: a.lease, label: m.label}, a.lease == 0, true)
			if err != nil {
				a.refuse(round, i)
			}
			if err == nil && !p.add(i, x) {
				x.discard(ctx)
				return
			}
			votes <- vote{i, err}
		}()
	}
	t := roundResult{answered: make([]bool, n), results: make([]error, n)}
	for failed := 0; t.granted+failed < n; {
		v := <-votes
		t.answered[v.i], t.results[v.i] = true, v.err
		if v.err == nil {
			t.granted++
		} else {
			failed++
		}
		if n-failed < a.q.need || t.granted >= a.q.need && !a.hasUnseenMembers(t.answered) {
			break
		}
	}
	return t
}

// splitOver is how long after a split round the next one needs no pause: no other waiter of that split comes any more.
const splitOver = 500 * time.Millisecond

// begin begins a round, and returns its number.
func (a *quorumAcquisition) begin() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.number++
	a.refused, a.released = make([]bool, len(a.members)), make([]bool, len(a.members))
	return a.number
}

// awake ends the sleep before a round, and reports whether a release has ended it. Releases up to the round wake no
// more.
func (a *quorumAcquisition) awake() (byRelease bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	byRelease = a.busy && a.number > 0
	a.busy = true
	return byRelease
}

// roundTrip is how long a majority takes to answer, by the quickest answers of late.
func (a *quorumAcquisition) roundTrip() time.Duration {
	trips := make([]time.Duration, len(a.members))
	for i, m := range a.members {
		trips[i] = m.c.runner.Clock.Trip(m.key)
	}
	slices.Sort(trips)
	return trips[a.q.need-1]
}

// refuse notes that a member did not vote for us, which may become known after the round.
func (a *quorumAcquisition) refuse(round, i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if round == a.number {
		a.refused[i] = true
	}
}

// end ends a round that got no majority.
func (a *quorumAcquisition) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = false
	a.wakeIfMajorityFree()
}

// memberReleased notes that a member may have been released.
func (a *quorumAcquisition) memberReleased(i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.released[i] = true
	a.wakeIfMajorityFree()
}

// wakeIfMajorityFree wakes the line in which this waiter stands if a majority may be free now. While a majority is
// held, waiters take the remaining votes and give them back; if each asked again when another has given back, they
// would keep each other busy. Called with mu held.
//
// The round that follows is one for the whole release: messages that come before it begins wake no more.
func (a *quorumAcquisition) wakeIfMajorityFree() {
	free := 0
	for i, refused := range a.refused {
		if !refused || a.released[i] {
			free++
		}
	}
	if free >= a.q.need && !a.busy && a.first != nil {
		a.busy = true
		a.first.Wake(a.q.queueKey)
	}
}

// giveBackBy is until when a round waits for its votes to be given back: no longer than it waited for the votes
// themselves, because a server that fell silent in between is to cost nothing.
func (a *quorumAcquisition) giveBackBy() time.Time {
	limit := time.Duration(0)
	for _, m := range a.members {
		limit = max(limit, a.limit(m))
	}
	end := time.Now().Add(limit)
	if !a.until.IsZero() && a.until.After(a.began) && a.until.Before(end) {
		return a.until
	}
	return end
}

// hasUnseenMembers reports whether a member has not answered whose server has never answered before. It is given the
// time to answer once, so that two members of one server are found in the first acquisition.
func (a *quorumAcquisition) hasUnseenMembers(answered []bool) bool {
	for i, m := range a.members {
		if !answered[i] && m.c.run.Load() == 0 && !m.c.metOnce.Load() {
			return true
		}
	}
	return false
}

// checkDuplicateServers refuses two members of one server.
func (a *quorumAcquisition) checkDuplicateServers() error {
	seen := map[int64]int{}
	for i, m := range a.members {
		run := m.c.run.Load()
		if j := seen[run]; run != 0 && j > 0 {
			return sameServer(j, i+1, a.members[j-1], m)
		}
		seen[run] = i + 1
	}
	return nil
}

// count says what a round means that got no majority.
func (a *quorumAcquisition) count(t roundResult) (wait.Answer, error) {
	n := len(t.results)
	var held, away int
	var fatal, problems []error
	lefts := make([]time.Duration, t.granted, n) // until each is free, at the earliest
	for i, err := range t.results {
		var contended *NotAcquiredError
		switch {
		case !t.answered[i]:
			lefts = append(lefts, 0)
		case err == nil:
		case errors.Is(err, errs.ErrClosed):
			return wait.Answer{}, fmt.Errorf("%q: %w", a.q.name, errs.ErrClosed)
		case errors.As(err, &contended) && contended.Cause == nil:
			held++
			if contended.Lease >= 0 {
				lefts = append(lefts, contended.Lease)
			}
		case script.NotAnswered(err), errors.As(err, &contended):
			away++
			if contended != nil && contended.Unheard { // of the server: the round was over before it answered
				err = fmt.Errorf("%w: %q: %w", errs.ErrUnknownOutcome, contended.Name, contended.Cause)
			}
			a.unsure = a.unsure || errors.Is(err, errs.ErrUnknownOutcome)
			problems = append(problems, err)
		default:
			fatal = append(fatal, err)
		}
	}
	slices.SortFunc(lefts, cmp.Compare[time.Duration])
	a.known = -1
	if len(lefts) >= a.q.need {
		a.known = lefts[a.q.need-1]
	}
	switch {
	case n-len(fatal) < a.q.need:
		return wait.Answer{}, fmt.Errorf("%q: %w", a.q.name, errors.Join(fatal...))
	case held > 0 && n-away-len(fatal) >= a.q.need:
		return wait.Answer{Left: a.known}, nil
	}
	problems = append(problems, fatal...)
	for i, err := range problems {
		if a.unsure {
			problems[i] = script.Unsure(err)
		}
	}
	kind := errs.ErrUnavailable
	if a.unsure {
		kind = errs.ErrUnknownOutcome
	}
	return wait.Answer{}, fmt.Errorf("%w: %q: %d of %d servers cannot vote: %w", kind, a.q.name, len(problems), n,
		errors.Join(problems...))
}

// pause is how long to sleep after a round unless something is heard.
func (a *quorumAcquisition) pause(int) time.Duration {
	d := wait.MaxPoll // and PollCap, if that is less
	if a.listening.Load() == 0 {
		d = 4 * script.Backoff(a.made)
	}
	if a.known >= 0 {
		d = min(d, wait.AfterLease(a.known))
	}
	return d - rand.N(d/10+1)
}

// joinSubscriptions listens for releases of all members if the process is subscribed to their channels already, as it
// is where it waited a moment ago: that sends nothing, and saves the rounds before and after a subscription.
func (a *quorumAcquisition) joinSubscriptions(ctx context.Context) {
	if a.first == nil {
		return
	}
	subs := make([]*pubsub.Subscription, len(a.members))
	for i, m := range a.members {
		sub, ok := m.c.session.Inner.TrySubscribe(m.channel)
		if !ok || m.backoff != nil {
			if ok {
				sub.Close()
			}
			for _, sub := range subs[:i] {
				sub.Close()
			}
			return
		}
		subs[i] = sub
	}
	ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	for i, sub := range subs {
		a.listeners.Go(func() { a.receive(ctx, i, sub) })
	}
}

// subscribe subscribes to the releases of all members. A subscription that begins, and each gap in it, may stand for
// one.
func (a *quorumAcquisition) subscribe(ctx context.Context) {
	if a.first == nil {
		return
	}
	for _, m := range a.members {
		if m.c.monitor != nil {
			m.c.monitor.watch(m.single)
			a.watching = true
		}
	}
	if a.stop != nil {
		return // joinSubscriptions did
	}
	ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	for i, m := range a.members {
		if m.backoff != nil {
			continue // a Spin lock has no channel
		}
		a.listeners.Go(func() {
			sub, err := m.c.session.Hub.Subscribe(ctx, m.channel)
			if err == nil {
				a.memberReleased(i)
				a.receive(ctx, i, sub)
			}
		})
	}
}

// receive takes in the messages of a member's channel.
func (a *quorumAcquisition) receive(ctx context.Context, i int, sub *pubsub.Subscription) {
	defer sub.Close()
	a.listening.Add(1)
	defer a.listening.Add(-1)
	for {
		if _, err := sub.Next(ctx); err != nil {
			return
		}
		a.memberReleased(i)
	}
}

// stopListening ends what joinSubscriptions and subscribe began.
func (a *quorumAcquisition) stopListening() {
	if a.stop != nil {
		a.stop()
		a.listeners.Wait()
	}
	if a.watching {
		for _, m := range a.members {
			if m.c.monitor != nil {
				m.c.monitor.unwatch(m.single)
			}
		}
	}
}
