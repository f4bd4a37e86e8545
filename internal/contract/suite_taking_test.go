package contract_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// takingScenarios are about who has the object, and how a caller that waits gets it.
var takingScenarios = []scenario{
	{"a second process does not get it", repeated, func(t *testing.T, s *stage) {
		first, second := s.open(t, redlatch.Options{}), s.open(t, redlatch.Options{})
		held := s.blocked(t, first)
		_, err := s.try(t.Context(), second, object, 0, terms{})
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, held.Err())
		s.released(t, held)
		s.released(t, s.acquired(t, second, terms{}))
	}},
	{"a waiter has it when it is released", repeated, func(t *testing.T, s *stage) {
		o := redlatch.Options{
			Locks:      func(o *rlock.Options) { o.PollCap = lasting },
			Elections:  func(o *election.Options) { o.PollCap = lasting },
			Semaphores: func(o *rsemaphore.Options) { o.PollCap = lasting }}
		first, second := s.open(t, redlatch.Options{}), s.open(t, o)
		for _, cut := range []bool{false, true} {
			held := s.blocked(t, first)
			ctx, cancel := context.WithTimeout(t.Context(), lasting)
			defer cancel()
			waiter := s.waits(ctx, second, terms{})
			waitingIn(t, second, 1)
			if cut { // it hears nothing of the release
				second.each(cuts[2])
			}
			s.released(t, held)
			second.each((*redistest.Proxy).Heal)
			s.released(t, waiter.granted(t, 20*time.Second))
		}
	}},
	{"a waiter whose messages are lost has it within PollCap", simulated, func(t *testing.T, s *stage) {
		first, second := s.open(t, redlatch.Options{}), s.open(t, redlatch.Options{})
		held := s.blocked(t, first)
		ctx, cancel := context.WithTimeout(t.Context(), lasting)
		defer cancel()
		waiter := s.waits(ctx, second, terms{})
		waitingIn(t, second, 1)
		time.Sleep(10 * pollCap)
		for _, p := range second.proxies {
			p.SwallowPushes()
		}
		s.released(t, held)
		s.released(t, waiter.granted(t, pollCap))
		if s.name != "spin" { // it has no messages
			require.Positive(t, second.proxies[0].Swallowed())
		}
	}},
	{"a call ends when its waitTime is over", simulated, func(t *testing.T, s *stage) {
		first, second := s.open(t, redlatch.Options{}), s.open(t, redlatch.Options{})
		held := s.blocked(t, first)
		for _, waitTime := range []time.Duration{0, 50 * time.Millisecond, 5 * time.Second} {
			began := time.Now()
			_, err := s.try(t.Context(), second, object, waitTime, terms{})
			took := time.Since(began)
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, object)
			r := refusalOf(t, err)
			require.Contains(t, r.name, object)
			require.GreaterOrEqual(t, r.waited, waitTime)
			require.LessOrEqual(t, r.waited, took)
			require.LessOrEqual(t, took, waitTime+20*time.Millisecond)
			require.Greater(t, r.lease, 15*time.Second)
			require.LessOrEqual(t, r.lease, 30*time.Second)
		}
		s.released(t, held)
	}},
	{"a caller that has waited in vain learns who has it", simulated, func(t *testing.T, s *stage) {
		first, second := s.open(t, redlatch.Options{Process: "holder"}), s.open(t, redlatch.Options{})
		held := s.blocked(t, first)
		time.Sleep(10 * time.Second) // from a second on its process is known
		_, err := s.try(t.Context(), second, object, 300*time.Millisecond, terms{})
		require.Equal(t, []string{"holder"}, refusalOf(t, err).holders)
		require.ErrorContains(t, err, "held by holder")
		const patience = 2 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		began := time.Now()
		_, err = s.acquire(ctx, second, object, terms{})
		require.LessOrEqual(t, time.Since(began), patience, "its end is not put off")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []string{"holder"}, refusalOf(t, err).holders)
		require.Regexp(t, `held by holder .*leases? ends? in [12]`, err.Error())
		s.released(t, held)
	}},
	{circle, simulated, func(t *testing.T, s *stage) {
		const other, poll = "other", time.Second
		first, second := s.open(t, redlatch.Options{}), s.open(t, redlatch.Options{})
		held := s.blocked(t, first)
		ctx, cancel := context.WithTimeout(t.Context(), lasting)
		defer cancel()
		mine := redistest.NoError(s.block(ctx, second, other, terms{}))(t)
		older := make(chan error, 1)
		go func() {
			g, err := s.acquire(held.Context(ctx), first, other, terms{})
			if err == nil {
				err = s.release(ctx, g)
			}
			older <- err
		}()
		time.Sleep(poll / 10)
		began := time.Now()
		_, err := s.acquire(mine.Context(ctx), second, object, terms{})
		var deadlock *rlock.DeadlockError
		require.ErrorAs(t, err, &deadlock)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.Len(t, deadlock.Cycle, 2)
		require.LessOrEqual(t, time.Since(began), 2*poll)
		s.released(t, mine)
		require.NoError(t, <-older)
		s.released(t, held)
	}},
	{"a caller whose ctx ends learns the cause", repeated, func(t *testing.T, s *stage) {
		first, second := s.open(t, redlatch.Options{}), s.open(t, redlatch.Options{})
		held := s.blocked(t, first)
		why := errors.New("the customer left")
		ctx, cancel := context.WithCancelCause(t.Context())
		waiter := s.waits(ctx, second, terms{})
		waitingIn(t, second, 1)
		cancel(why)
		<-waiter.done
		late, cancelLate := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancelLate()
		_, err := s.acquire(late, second, object, terms{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, again := s.acquire(ctx, second, object, terms{}) // that has ended before
		for _, err := range []error{waiter.err, again} {
			require.ErrorIs(t, err, why)
			require.ErrorIs(t, err, context.Canceled)
		}
		for _, err := range []error{waiter.err, err, again} {
			s.notAcquired(t, err)
			require.NotErrorIs(t, err, redlatch.ErrUnavailable)
		}
		require.NoError(t, held.Err())
		s.released(t, held)
		s.released(t, s.acquired(t, second, terms{}))
	}},
	{"a caller that leaves at any instant leaves it free", simulated, func(t *testing.T, s *stage) {
		leaver, next := s.away(t), s.away(t)
		before := s.warm(t, leaver, next)
		for at := time.Duration(0); at <= 5*time.Millisecond; at += halfway {
			s.leaves(t, leaver, at).given(t, s)
			s.released(t, s.waits(t.Context(), next, terms{}).granted(t, pollCap/2))
		}
		s.nothingLeft(t, before, leaver, next)
	}},
	{"a waiter that leaves at any instant leaves it to the next", simulated, func(t *testing.T, s *stage) {
		holder, leaver, next := s.away(t), s.away(t), s.away(t)
		before := s.warm(t, holder, leaver, next)
		for _, from := range []*process{holder, leaver} {
			for at := time.Duration(0); at <= 14*time.Millisecond; at += redistest.Sized(2*halfway, halfway, halfway) {
				held := s.blocked(t, from)
				a := s.leaves(t, leaver, at)
				b := s.waits(t.Context(), next, terms{})
				time.Sleep(6 * time.Millisecond)
				s.released(t, held)
				a.given(t, s)
				s.released(t, b.granted(t, pollCap/2))
			}
		}
		s.nothingLeft(t, before, holder, leaver, next)
	}},
	{"Close ends a wait at any instant, and leaves it to the next", simulated, func(t *testing.T, s *stage) {
		holder, next := s.away(t), s.away(t)
		before := s.warm(t, holder, next)
		closed := 0
		step := redistest.Sized(4*time.Millisecond, 2*time.Millisecond, time.Millisecond)
		for at := time.Duration(0); at <= 14*time.Millisecond; at += step {
			held := s.blocked(t, holder)
			leaver := s.away(t)
			a := s.waits(t.Context(), leaver, terms{})
			b := s.waits(t.Context(), next, terms{})
			done := make(chan error, 1)
			closing, cancel := context.WithTimeout(t.Context(), lasting)
			defer cancel()
			time.AfterFunc(at, func() { done <- leaver.close(closing) })
			time.Sleep(6 * time.Millisecond)
			s.released(t, held)
			<-a.done
			if a.err == nil {
				_ = s.release(t.Context(), a.got) // Close may have been first
			} else {
				closed++
				require.ErrorIs(t, a.err, redlatch.ErrClosed)
			}
			require.NoError(t, <-done)
			s.released(t, b.granted(t, pollCap/2))
		}
		require.Positive(t, closed)
		s.nothingLeft(t, before, holder, next)
	}},
	{"with Liveness a waiter that was cut off for any time has it alone", simulated, func(t *testing.T, s *stage) {
		const beat = 500 * time.Millisecond
		o := holding{lease: time.Hour, beat: beat}.options()
		first, cut, third := s.open(t, o), s.open(t, o), s.open(t, o)
		for off := beat; off <= 6*beat; off += redistest.Sized(2*beat, beat/2, beat/4) {
			held := s.blocked(t, first)
			a := s.waits(t.Context(), cut, terms{})
			waitingIn(t, cut, 1)
			time.Sleep(2 * beat)
			cut.each(func(p *redistest.Proxy) { p.Hold(redistest.Down) })
			time.Sleep(beat / 4)
			s.released(t, held) // to the waiter, it may be, and the third sees whether it lives
			b := attempts(t.Context(), s.rival, third, terms{})
			time.Sleep(off)
			cut.each((*redistest.Proxy).Heal)
			var inside atomic.Int32
			var all sync.WaitGroup
			for _, a := range []*attempt{a, b} {
				all.Go(func() {
					<-a.done
					if a.err != nil || inside.Add(1) != 1 {
						t.Errorf("cut off for %v: %v, %d inside", off, a.err, inside.Load())
						return
					}
					select { // a grant that is hardly trusted is soon lost
					case <-a.got.Done():
					case <-time.After(2 * beat):
					}
					inside.Add(-1)
					_ = s.release(t.Context(), a.got)
				})
			}
			all.Wait()
		}
	}},
	{"it is not idle while callers give up", simulated, func(t *testing.T, s *stage) {
		var all []*process
		var takes []redistest.Take
		for range 3 {
			p := s.away(t)
			all, takes = append(all, p), append(takes, s.taking(p, terms{}))
		}
		before := s.warm(t, all...)
		redistest.NotIdle(t, pollCap/2, "", takes...)
		s.nothingLeft(t, before, all...)
	}},
	{"all that wait have it, one after the other", simulated, func(t *testing.T, s *stage) {
		var all []*process
		for range 3 {
			all = append(all, s.away(t))
		}
		before := s.warm(t, all...)
		held := s.blocked(t, all[0])
		ctx, cancel := context.WithTimeout(t.Context(), lasting)
		defer cancel()
		var inside, most atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			for _, p := range all {
				wg.Go(func() {
					if err := s.do(ctx, p, object, func(context.Context) error {
						most.Store(max(most.Load(), inside.Add(1)))
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						return nil
					}); err != nil {
						t.Error(err)
					}
				})
			}
		}
		for _, p := range all {
			waitingIn(t, p, 4)
		}
		s.released(t, held)
		wg.Wait()
		if s.name != "read" { // its waiters are let in together
			require.EqualValues(t, 1, most.Load())
		}
		s.nothingLeft(t, before, all...)
	}},
	{"processes have it in the order in which they asked", simulated, func(t *testing.T, s *stage) {
		var all []*process
		for range 5 {
			all = append(all, s.away(t))
		}
		s.warm(t, all...)
		held := s.blocked(t, all[0])
		order := make(chan int, len(all))
		var want, got []int
		for i, p := range all[1:] {
			a := s.waits(t.Context(), p, terms{})
			go func() {
				<-a.done
				order <- i
				_ = s.release(t.Context(), a.got)
			}()
			want = append(want, i)
			waitingIn(t, p, 1)
			time.Sleep(20 * time.Millisecond)
		}
		s.released(t, held)
		for range want {
			got = append(got, <-order)
		}
		require.Equal(t, want, got)
	}},
}

// circle is the promise about deadlocks.
const circle = "of two callers that wait for each other's the younger learns that within two PollCaps"

// ofTaking notes in which of the promises of takingScenarios the primitive differs.
func (p *primitive) ofTaking() {
	const holder = "a caller that has waited in vain learns who has it"
	const order = "processes have it in the order in which they asked"
	switch p.name {
	case "election":
		const noTry = "Campaign waits for as long as its context, and has no waitTime."
		p.differs[circle] = "A candidate carries no holds: it waits for as long as another leads."
		p.differs[holder], p.differs["a call ends when its waitTime is over"] = noTry, noTry
	case "semaphore", "weighted", "tenant", "tenants":
		p.differs[circle] = "Permits have no owner, and any process may release them."
	case "quorum":
		p.differs[circle] = "The members of a Quorum have no common owner."
		p.differs[holder] = "The error of a Quorum does not name its holder. Inspect does."
		p.differs[order] = compete
	case "plain", "spin":
		p.differs[order] = compete
	case "read":
		p.differs[order] = "Readers that wait are let in together."
	case "multi":
		p.differs[order] = "The waiters of a Multi compete for its members."
	}
}

// compete says why there is no order, and no share.
const compete = "It is not handed over: its waiters compete."

// halfway is half of the way to the server, of processes that are away.
const halfway = 500 * time.Microsecond

// refusal is what a NotAcquiredError says.
type refusal struct {
	name          string
	lease, waited time.Duration
	holders       []string // their processes
}

func refusalOf(t *testing.T, err error) (r refusal) {
	t.Helper()
	var refused *redlatch.NotAcquiredError
	require.ErrorAs(t, err, &refused)
	r = refusal{name: refused.Name, lease: refused.Lease, waited: refused.Waited}
	for _, h := range refused.Holders {
		r.holders = append(r.holders, h.Process)
	}
	if refused.N > 0 { // each permit has a holder
		r.holders = slices.Compact(r.holders)
	}
	return r
}

// away starts a process that is a millisecond away from the server, so that calls are under way at some instants.
func (s *stage) away(t *testing.T) *process {
	t.Helper()
	p := s.open(t, redlatch.Options{})
	for _, proxy := range p.proxies {
		proxy.Delay(time.Millisecond, time.Millisecond)
	}
	return p
}

// warm has each of the processes have the object, after it has waited for it, and returns what is then there.
func (s *stage) warm(t *testing.T, all ...*process) (keys []string) {
	t.Helper()
	for i, p := range all {
		held := s.blocked(t, p)
		a := s.waits(t.Context(), all[(i+1)%len(all)], terms{})
		time.Sleep(50 * time.Millisecond)
		s.released(t, held)
		s.released(t, a.granted(t, lasting))
	}
	time.Sleep(100 * time.Millisecond)
	return s.keys()
}

// leaves begins an acquisition, on terms that depend on when its ctx ends.
func (s *stage) leaves(t *testing.T, p *process, at time.Duration) *attempt {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(at, cancel)
	return s.waits(ctx, p, []terms{{}, {lease: lasting}, {label: "label"}}[at/halfway%3])
}

// given releases what the attempt got, if it got it in time.
func (a *attempt) given(t *testing.T, s *stage) {
	t.Helper()
	<-a.done
	if a.err == nil {
		s.released(t, a.got)
		return
	}
	require.ErrorIs(t, a.err, context.Canceled)
	s.notAcquired(t, a.err)
}

// notAcquired is what a caller is told whose context ends while it waits. A Quorum says that the outcome is unknown if
// too few servers have answered by then.
func (s *stage) notAcquired(t *testing.T, err error) {
	t.Helper()
	if s.name == "quorum" && errors.Is(err, redlatch.ErrUnknownOutcome) {
		return
	}
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	require.NotErrorIs(t, err, redlatch.ErrUnknownOutcome)
}

// taking takes the object for callers that wait for that long, or until their ctx ends.
func (s *stage) taking(p *process, on terms) redistest.Take {
	return func(ctx context.Context, wait time.Duration) (func(), error) {
		var g grant
		var err error
		switch {
		case wait == 0:
			g, err = s.acquire(ctx, p, object, on)
		case s.try != nil:
			g, err = s.try(ctx, p, object, wait, on)
		default:
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, wait)
			defer cancel()
			g, err = s.acquire(ctx, p, object, on)
		}
		return func() { _ = s.release(context.WithoutCancel(ctx), g) }, err
	}
}

// keys are those of all objects, on all servers.
func (s *stage) keys() (all []string) {
	for _, server := range s.servers {
		all = append(all, redistest.Objects(server.Embedded.Keys())...)
	}
	slices.Sort(all)
	return all
}

// nothingLeft waits until no process waits for anything or has a release pending, and only those keys are there.
func (s *stage) nothingLeft(t *testing.T, keys []string, all ...*process) {
	t.Helper()
	for _, p := range all {
		waitingIn(t, p, 0)
		for _, red := range p.red {
			redistest.Eventually(t, lasting, "no release is pending", func() bool {
				return red.Locks().Stats().PendingReleases+red.Semaphores().Stats().PendingReleases+
					red.Elections().Stats().PendingReleases == 0
			})
			require.Zero(t, red.Locks().Stats().Held+red.Semaphores().Stats().Held+red.Elections().Stats().Leading)
		}
	}
	redistest.Eventually(t, 10*time.Second, "nothing is left", func() bool { return slices.Equal(keys, s.keys()) })
}
