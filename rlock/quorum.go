package rlock

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

//go:embed quorum_acquire.lua
var quorumAcquireSource string

var quorumAcquireScript = script.New("acquire a vote",
	"local function acquire(KEYS, ARGV)\n"+fastFirst(acquireSource)+"\nend\n"+quorumAcquireSource)

// voting is what a kind is as a member of a Quorum.
func voting(k *kind) *kind {
	return k.like(func(k *kind) {
		k.title, k.votes = "member of a Quorum", true
		k.acquire = func(l *single, r acquireRequest) script.Call {
			r.entry = ""
			call := acquireCall(l, r)
			call.Script = quorumAcquireScript
			call.Args = append(call.Args[:6:6], "", millis(max(r.lease, l.c.opts.WatchdogTimeout)))
			return call
		}
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
		defer e.deafen()
		e.first = first.queue
	}
	if err := first.queue.Wait(ctx, r); err != nil {
		return nil, ending(q.name, time.Since(e.began), e.unsure).Explain(err)
	}
	e.won.began = time.Now()
	return &Hold{parts: e.won}, nil
}

// election is one acquisition of a Quorum.
type election struct {
	q       *composite
	members []member
	began   time.Time
	lease   time.Duration // 0: that of each client's watchdog
	until   time.Time     // of the waiting; zero: only ctx says
	won     *parts
	unsure  bool // a vote may have been given that no reply told of

	rounds int
	split  int       // rounds in a row that got some votes
	ended  time.Time // the last of them
	known  time.Duration

	mu      sync.Mutex
	round   int    // that is under way, or the last
	asking  bool   // it is under way
	refused []bool // by member: it did not vote for us in this round
	heard   []bool // by member: it may have been released since the round began

	first   *wait.Queue // of the line in which we stand
	ears    atomic.Int32
	stop    context.CancelFunc
	hearing sync.WaitGroup
}

// under reports whether ctx carries an owner of a member.
func (e *election) under(ctx context.Context) bool {
	return slices.ContainsFunc(e.members, func(m member) bool { return ctx.Value(m.ownKey) != nil })
}

// limit is how long a server has to answer.
func (e *election) limit(m member) time.Duration {
	d := e.lease
	if d == 0 {
		d = m.c.opts.WatchdogTimeout
	}
	return max(min(m.c.opts.CallTimeout, d/10), MinCallTimeout)
}

// vote is what came of one member in one round.
type vote struct {
	i    int
	hold bool
	err  error
}

// try is one round.
func (e *election) try(ctx context.Context) (wait.Answer, error) {
	if time.Since(e.ended) > splitOver {
		e.split = 0
	}
	if e.split > 0 && !script.Pause(ctx, rand.N(4*time.Millisecond<<min(e.split, 6))) {
		return wait.Answer{}, fmt.Errorf("%w: %q: %w", ErrUnavailable, e.q.name, context.Cause(ctx))
	}
	if e.rounds++; e.rounds == 2 {
		e.listen(ctx)
	}
	n := len(e.members)
	for _, m := range e.members {
		if m.c.inflight.Closed() {
			return wait.Answer{}, fmt.Errorf("%q: %w", e.q.name, ErrClosed)
		}
	}
	round := e.begin()
	p := newParts(e.q)
	votes := make(chan vote, n) // so that nobody waits to tell a round that is over
	for i, m := range e.members {
		go func() {
			own, cancel := context.WithTimeout(ctx, e.limit(m))
			defer cancel()
			x, err := m.take(own, terms{0, e.lease, m.label}, e.lease == 0)
			if err != nil {
				e.refuse(round, i)
			}
			if err == nil && !p.add(i, x) {
				x.discard(ctx)
				return
			}
			votes <- vote{i, err == nil, err}
		}()
	}
	results := make([]error, n)
	answered := make([]bool, n)
	granted, failed := 0, 0
	for granted+failed < n {
		v := <-votes
		answered[v.i], results[v.i] = true, v.err
		if v.hold {
			granted++
		} else {
			failed++
		}
		if n-failed < e.q.need || granted >= e.q.need && !e.strangers(answered) {
			break
		}
	}
	for _, m := range e.members {
		m.c.metOnce.Store(true)
	}
	err := e.twins()
	if err == nil && granted >= e.q.need {
		if p.b.require(e.q.need) && time.Now().Before(p.until()) {
			e.win(p, granted == n)
			return wait.Answer{Granted: true}, nil
		}
		err = fmt.Errorf("%w: %q: the votes took longer than their lease", ErrUnavailable, e.q.name)
		if why := p.b.life.Err(); why != nil && !errors.Is(why, ErrLost) {
			err = why
		}
	}
	p.giveBack(ctx, e.patience())
	if err != nil {
		return wait.Answer{}, err
	}
	if granted > 0 {
		e.split++
	} else {
		e.split = 0
	}
	e.ended = time.Now()
	e.end()
	return e.count(answered, results, granted)
}

// splitOver is how long after a round that was split the next one needs no pause: nobody else comes from it any more.
const splitOver = 500 * time.Millisecond

// begin begins a round, and returns its number.
func (e *election) begin() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.round++
	e.asking = true
	e.refused, e.heard = make([]bool, len(e.members)), make([]bool, len(e.members))
	return e.round
}

// refuse notes that a member did not vote for us, which may become known after the round.
func (e *election) refuse(round, i int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if round == e.round {
		e.refused[i] = true
	}
}

// end ends a round that got no majority.
func (e *election) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asking = false
	e.look()
}

// hear takes in that a member may have been released.
func (e *election) hear(i int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard[i] = true
	if !e.asking {
		e.look()
	}
}

// look wakes the line in which we stand if a majority may be had now. While somebody holds one, those who wait take what is
// left of the votes and give it back; were each to look when another has given back, they would go on among themselves.
// Called with mu held.
func (e *election) look() {
	free := 0
	for i := range e.members {
		if !e.refused[i] || e.heard[i] {
			free++
		}
	}
	if free >= e.q.need && e.first != nil {
		e.first.Nudge(e.q.line)
	}
}

// patience is until when what a round has got is waited for to be given back: no longer than the round waited for votes, for
// a server that fell silent in between is to cost nothing.
func (e *election) patience() time.Time {
	limit := time.Duration(0)
	for _, m := range e.members {
		limit = max(limit, e.limit(m))
	}
	end := time.Now().Add(limit)
	if !e.until.IsZero() && e.until.After(e.began) && e.until.Before(end) {
		return e.until
	}
	return end
}

// strangers reports whether a member has not been heard whose server we have never met; it is given the time to answer
// once, so that two members of one server are told from the first acquisition on.
func (e *election) strangers(answered []bool) bool {
	for i, m := range e.members {
		if !answered[i] && m.c.run.Load() == 0 && !m.c.metOnce.Load() {
			return true
		}
	}
	return false
}

// twins refuses two members of one server.
func (e *election) twins() error {
	seen := map[int64]int{}
	for i, m := range e.members {
		run := m.c.run.Load()
		if j := seen[run]; run != 0 && j > 0 {
			return sameServer(j, i+1, e.members[j-1], m)
		}
		seen[run] = i + 1
	}
	return nil
}

// count says what a round means that got no majority.
func (e *election) count(answered []bool, results []error, granted int) (wait.Answer, error) {
	n := len(results)
	var held, away int
	var fatal, problems []error
	lefts := make([]time.Duration, granted, n) // until each is free, at the earliest
	for i, err := range results {
		var contended *NotAcquiredError
		switch {
		case !answered[i]:
			lefts = append(lefts, 0)
		case err == nil:
		case errors.Is(err, ErrClosed):
			return wait.Answer{}, fmt.Errorf("%q: %w", e.q.name, ErrClosed)
		case errors.As(err, &contended) && contended.cause == nil:
			held++
			if contended.HolderLease >= 0 {
				lefts = append(lefts, contended.HolderLease)
			}
		case script.Retryable(err), errors.As(err, &contended):
			away++
			e.unsure = e.unsure || errors.Is(err, ErrUnknownOutcome)
			problems = append(problems, err)
		default:
			fatal = append(fatal, err)
		}
	}
	slices.SortFunc(lefts, cmp.Compare[time.Duration])
	e.known = -1
	if len(lefts) >= e.q.need {
		e.known = lefts[e.q.need-1]
	}
	switch {
	case n-len(fatal) < e.q.need:
		return wait.Answer{}, fmt.Errorf("%q: %w", e.q.name, errors.Join(fatal...))
	case held > 0 && n-away-len(fatal) >= e.q.need:
		return wait.Answer{Left: e.known}, nil
	}
	problems = append(problems, fatal...)
	for i, err := range problems {
		if e.unsure {
			problems[i] = script.Unsure(err)
		}
	}
	kind := ErrUnavailable
	if e.unsure {
		kind = ErrUnknownOutcome
	}
	return wait.Answer{}, fmt.Errorf("%w: %q: %d of %d servers cannot vote: %w", kind, e.q.name, len(problems), n, errors.Join(problems...))
}

// win makes a round's parts the hold.
func (e *election) win(p *parts, all bool) {
	e.won = p
	if e.lease > 0 {
		return
	}
	// The plan must not keep the hold from being forgotten.
	b, weakly, members := p.b, weak.Make(p), e.members
	after := e.members[0].c.opts.WatchdogTimeout
	for _, m := range members {
		after = min(after, m.c.opts.WatchdogTimeout)
	}
	// At first soon: what was refused was perhaps just being released. Then every third of the lease.
	var mend func()
	tries := 0
	mend = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.mend == nil || b.mending != nil {
			return
		}
		pause := min(after/3, 10*time.Millisecond<<min(tries, 20))
		tries++
		b.mending = time.AfterFunc(pause-rand.N(pause/10+1), func() {
			p := weakly.Value()
			if p == nil || b.life.Err() != nil {
				return
			}
			p.fill(members)
			b.mu.Lock()
			b.mending = nil
			b.mu.Unlock()
			if len(p.missing()) > 0 { // also what was lost just now
				mend()
				return
			}
			b.mu.Lock()
			tries = 0
			b.mu.Unlock()
		})
	}
	b.mu.Lock()
	b.mend = mend
	b.mu.Unlock()
	if !all || len(p.missing()) > 0 {
		mend()
	}
}

// fill asks once more for the members that are missing.
func (p *parts) fill(members []member) {
	e := &election{q: p.of, members: members}
	var wg sync.WaitGroup
	for _, i := range p.missing() {
		m := members[i]
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(m.c.ctx, e.limit(m))
			defer cancel()
			x, err := m.take(ctx, terms{0, 0, m.label}, true)
			if err != nil {
				return
			}
			p.mu.Lock()
			old := p.holds[i]
			p.mu.Unlock()
			if !p.add(i, x) {
				x.discard(ctx)
			} else if old != nil {
				old.discard(ctx) // lost, which asks nobody
			}
		})
	}
	wg.Wait()
}

// pause is how long to sleep after a round unless something is heard.
func (e *election) pause(int) time.Duration {
	d := wait.MaxPoll // and PollCap, if that is less
	if e.ears.Load() == 0 {
		d = 4 * script.Backoff(e.rounds)
	}
	if e.known >= 0 {
		d = min(d, e.known+time.Millisecond+rand.N(time.Millisecond+e.known/50))
	}
	return d - rand.N(d/10+1)
}

// listen hears of releases on all members. Each channel that is heard, and each gap in it, may stand for one.
func (e *election) listen(ctx context.Context) {
	if e.first == nil {
		return
	}
	ctx, e.stop = context.WithCancel(context.WithoutCancel(ctx))
	for i, m := range e.members {
		if m.c.monitor != nil {
			m.c.monitor.watch(m.single)
		}
		if m.backoff != nil {
			continue // a Spin lock has no channel
		}
		e.hearing.Go(func() {
			sub, err := m.c.hub.Subscribe(ctx, m.channel)
			if err != nil {
				return
			}
			defer sub.Close()
			e.ears.Add(1)
			defer e.ears.Add(-1)
			for err == nil {
				e.hear(i)
				_, err = sub.Next(ctx)
			}
		})
	}
}

func (e *election) deafen() {
	if e.stop != nil {
		e.stop()
		e.hearing.Wait()
		for _, m := range e.members {
			if m.c.monitor != nil {
				m.c.monitor.unwatch(m.single)
			}
		}
	}
}
