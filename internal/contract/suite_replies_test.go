package contract_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// repliesScenarios are about requests and replies that are lost, late or doubled, about releases, and about Close.
// Leases are of an hour (leased), so that what is free within a minute was given back.
var repliesScenarios = []scenario{
	{"it is acquired once though a request or a reply is lost", repeated, func(t *testing.T, s *stage) {
		p, other := s.open(t, leased(0)), s.open(t, leased(0))
		for _, fate := range s.fates() {
			traps := p.trap(&redistest.Trap{Fate: fate})
			held := s.acquired(t, p, terms{})
			caught(t, traps)
			require.NoError(t, held.Err())
			s.taken(t, other)
			p.heal()
			s.released(t, held)
			s.free(t, other)
		}
	}},
	{"a try of unknown outcome says so, and is taken back", simulated, func(t *testing.T, s *stage) {
		p, other := s.open(t, leased(0)), s.open(t, leased(0))
		for _, fate := range s.fates() {
			if fate == redistest.RunTwice {
				continue
			}
			p.trap(&redistest.Trap{Fate: fate})
			err := errTry(s, t.Context(), p)
			require.ErrorIs(t, err, redlatch.ErrUnknownOutcome)
			require.NotErrorIs(t, err, redlatch.ErrUnavailable)
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired, "the server did not say that it is held")
			p.heal()
			s.free(t, other)
			time.Sleep(lasting) // what takes it back may be repeated
		}
	}},
	{"a try that the server refuses is ErrUnavailable", simulated, func(t *testing.T, s *stage) {
		p, other := s.open(t, leased(0)), s.open(t, leased(0))
		s.released(t, s.acquired(t, p, terms{}))
		for _, x := range []struct {
			what string
			lose bool
			wait time.Duration
		}{{"a refusal", false, 0}, {"refusals while it waits", false, time.Second},
			{"a lost request, then refusals", true, time.Second}} {
			if x.lose {
				p.trap(&redistest.Trap{Fate: redistest.LoseRequest})
			}
			p.refused("OOM command not allowed when used memory > 'maxmemory'.")
			_, err := s.try(t.Context(), p, object, x.wait, terms{})
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired, x.what)
			unknown := errors.Is(err, redlatch.ErrUnknownOutcome)
			require.NotEqual(t, errors.Is(err, redlatch.ErrUnavailable), unknown, "%s: %v", x.what, err)
			if x.wait == 0 || x.lose { // what is on its way when the wait ends may be in doubt
				require.Equal(t, x.lose, unknown, "%s: %v", x.what, err)
			}
			p.heal()
			s.free(t, other)
			time.Sleep(lasting) // what takes it back may be repeated
		}
	}},
	{"a grant that comes after its caller has left is taken back", simulated, func(t *testing.T, s *stage) {
		p, other := s.open(t, leased(0)), s.open(t, leased(0))
		s.released(t, s.acquired(t, p, terms{})) // the scripts are loaded
		for _, fate := range []redistest.Fate{redistest.HoldReply, redistest.HoldRequest} {
			arrive := make(chan struct{})
			traps := p.trap(&redistest.Trap{Fate: fate, Release: arrive})
			left := errors.New("left")
			ctx, leave := context.WithCancelCause(t.Context())
			a := s.waits(ctx, p, terms{})
			caught(t, traps)
			leave(left)
			<-a.done
			close(arrive)
			require.ErrorIs(t, a.err, left)
			require.ErrorIs(t, a.err, context.Canceled)
			if len(s.servers) > 1 { // without a majority of answers a Quorum does not know whether it is held
				require.ErrorIs(t, a.err, redlatch.ErrUnknownOutcome)
			} else {
				require.ErrorIs(t, a.err, redlatch.ErrNotAcquired)
				require.NotErrorIs(t, a.err, redlatch.ErrUnknownOutcome, "it is taken back, so the caller has only waited")
			}
			s.free(t, other)
		}
	}},
	{"a late request takes nothing, not even for a moment", simulated, func(t *testing.T, s *stage) {
		p, other := s.open(t, leased(100*time.Millisecond)), s.open(t, leased(0))
		s.released(t, s.acquired(t, p, terms{})) // it knows the server's clock
		time.Sleep(time.Second)                  // a Quorum gives its last vote back in the background
		arrive := make(chan struct{})
		p.trap(&redistest.Trap{Fate: redistest.HoldRequest, Release: arrive})
		require.ErrorIs(t, errTry(s, t.Context(), p), redlatch.ErrUnknownOutcome)
		time.Sleep(50 * time.Millisecond)
		p.trap(&redistest.Trap{Fate: redistest.LoseRequestSilently, Every: true}) // what would take it back
		close(arrive)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g := redistest.NoError(s.block(ctx, other, object, terms{}))(t)
		s.released(t, g)
		p.heal()
	}},
	{"a late reply does not take it from under its release", simulated, func(t *testing.T, s *stage) {
		p, other := s.unpipelined(t, leased(300*time.Millisecond)), s.open(t, leased(0))
		for range 3 {
			reply, request := make(chan struct{}), make(chan struct{})
			granted := p.trap(&redistest.Trap{Fate: redistest.HoldReply, Release: reply})
			held := s.acquired(t, p, terms{}) // by its second request
			caught(t, granted)
			releasing := p.trap(&redistest.Trap{Fate: redistest.HoldRequest, Release: request})
			released := make(chan error, 1)
			go func() { released <- s.release(t.Context(), held) }()
			caught(t, releasing)
			close(reply)
			time.Sleep(20 * time.Millisecond)
			close(request)
			require.NoError(t, <-released)
			s.free(t, other)
		}
	}},
	{"a grant that is slower than its lease is none", simulated, func(t *testing.T, s *stage) {
		p, other := s.open(t, leased(0)), s.open(t, leased(0))
		s.released(t, s.acquired(t, p, terms{}))
		time.Sleep(time.Second) // a Quorum gives its last vote back in the background
		for _, proxy := range p.proxies {
			proxy.Delay(0, 150*time.Millisecond)
		}
		_, err := s.try(t.Context(), p, object, 0, terms{lease: 100 * time.Millisecond})
		require.ErrorIs(t, err, redlatch.ErrUnknownOutcome)
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		p.heal()
		held := s.blocked(t, p)
		time.Sleep(10 * time.Second)
		s.taken(t, other) // what was taken back is not the later grant
		require.NoError(t, held.Err())
		s.released(t, held)
	}},
	{"a lost reply to its release is a release", repeated, func(t *testing.T, s *stage) {
		p, other := s.open(t, leased(0)), s.open(t, leased(0))
		for _, fate := range s.fates() {
			held := s.acquired(t, p, terms{})
			if len(s.servers) > 1 {
				time.Sleep(time.Second) // the last vote of a Quorum may be under way, and would be trapped
			}
			traps := p.trap(&redistest.Trap{Fate: fate})
			err := s.release(t.Context(), held)
			caught(t, traps)
			if fate == redistest.RunTwice && errors.Is(err, redlatch.ErrLost) {
				err = nil // the caller has the second answer
			}
			require.NoError(t, err)
			p.heal()
			s.free(t, other)
		}
	}},
	{"a lost reply to its extension is an extension", simulated, func(t *testing.T, s *stage) {
		o := leased(0)
		o.RetryTimeout = time.Minute // until the connection that is silent has ended
		p := s.open(t, o)
		held := s.acquired(t, p, terms{lease: time.Minute})
		for i, fate := range s.fates() {
			traps := p.trap(&redistest.Trap{Fate: fate})
			d := time.Duration(i+1) * 10 * time.Minute
			require.NoError(t, s.extend(t.Context(), held, d))
			caught(t, traps)
			require.Greater(t, time.Until(held.Until()), d-2*time.Minute)
			p.heal()
		}
		s.released(t, held)
	}},
	{"its second release changes nothing", simulated, func(t *testing.T, s *stage) {
		p, other := s.open(t, leased(0)), s.open(t, leased(0))
		held := s.acquired(t, p, terms{})
		s.released(t, held)
		next := s.blocked(t, other)
		s.released(t, held)
		require.ErrorIs(t, held.Err(), redlatch.ErrReleased)
		s.taken(t, p)
		s.released(t, next)
	}},
	{"a release of what was lost is ErrLost, and the next holder keeps it", simulated, func(t *testing.T, s *stage) {
		p, other := s.open(t, leased(0)), s.open(t, leased(0))
		held := s.acquired(t, p, terms{})
		for _, server := range s.servers {
			server.Embedded.FlushAll()
		}
		next := s.blocked(t, other)
		for range 2 {
			require.ErrorIs(t, s.release(t.Context(), held), redlatch.ErrLost)
		}
		s.taken(t, p)
		s.released(t, next)
	}},
	{"a caller whose context has ended can release it", simulated, func(t *testing.T, s *stage) {
		p, other := s.open(t, leased(0)), s.open(t, leased(0))
		held := s.acquired(t, p, terms{})
		require.NoError(t, s.release(redistest.Ended(), held))
		s.free(t, other)
		held = s.acquired(t, p, terms{})
		require.NoError(t, s.release(held.Context(t.Context()), held), "the release itself ends this context")
		s.free(t, other)
	}},
	{"a release that the server refuses goes on in the background", simulated, func(t *testing.T, s *stage) {
		p, other := s.open(t, leased(0)), s.open(t, leased(0))
		for _, lose := range []bool{false, true} {
			refused := 0
			for range 4 { // what is on its way when ctx ends may be in doubt
				held := s.acquired(t, p, terms{})
				if lose {
					p.trap(&redistest.Trap{Fate: redistest.LoseRequest})
				}
				p.refused("READONLY You can't write against a read only replica.")
				ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
				err := s.release(ctx, held)
				cancel()
				if !errors.Is(err, redlatch.ErrUnknownOutcome) {
					require.ErrorIs(t, err, redlatch.ErrUnavailable)
					refused++
				}
				require.EqualError(t, s.release(t.Context(), held), err.Error(), "the first result")
				require.Error(t, held.Err())
				p.heal()
				s.free(t, other)
			}
			if lose || len(s.servers) == 1 {
				require.Equal(t, !lose, refused > 0)
			}
		}
	}},
	{"Close ends waiters, and waits until it is released", simulated, func(t *testing.T, s *stage) {
		p, other := s.open(t, leased(0)), s.open(t, leased(0))
		theirs := s.blocked(t, other)
		waiter := s.waits(context.Background(), p, terms{})
		waitingIn(t, p, 1)
		mine := redistest.NoError(s.acquire(t.Context(), p, "mine", terms{}))(t)
		closed := make(chan error, 1)
		go func() { closed <- p.close(t.Context()) }()
		<-waiter.done
		require.ErrorIs(t, waiter.err, redlatch.ErrClosed)
		ends(t, mine, time.Second, redlatch.ErrClosed)
		_, err := s.acquire(t.Context(), p, "another", terms{})
		require.ErrorIs(t, err, redlatch.ErrClosed)
		require.Empty(t, closed, "it waits for the release")
		s.released(t, mine)
		require.NoError(t, <-closed)
		require.NoError(t, p.close(t.Context()), "the first result")
		s.released(t, theirs)
		s.free(t, other)
		s.released(t, must(s.block(t.Context(), other, "mine", terms{})))
	}},
	{"a Close that cannot wait names it, and nothing is sent afterwards", simulated, func(t *testing.T, s *stage) {
		p := s.open(t, leased(400*time.Millisecond))
		held := s.acquired(t, p, terms{})
		for i := range 20 { // what a request may have left is watched for as long as the request may still come
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			s.waits(ctx, p, terms{})
			defer cancel()
		}
		time.Sleep(10 * time.Millisecond)
		err := p.close(redistest.Ended())
		require.ErrorContains(t, err, object)
		require.ErrorIs(t, held.Err(), redlatch.ErrClosed)
		time.Sleep(time.Second)
		sent := 0
		for _, server := range s.servers {
			sent -= server.Embedded.CommandCount()
		}
		time.Sleep(2 * time.Hour)
		for _, server := range s.servers {
			sent += server.Embedded.CommandCount()
		}
		require.Zero(t, sent)
		s.free(t, s.open(t, leased(0)))
	}},
	{"Close while it is being granted leaves nothing", simulated, func(t *testing.T, s *stage) {
		other := s.open(t, leased(0))
		for round := range 10 {
			p := s.open(t, leased(0))
			for _, proxy := range p.proxies {
				proxy.Delay(time.Millisecond, time.Millisecond)
			}
			var closing atomic.Bool
			var callers sync.WaitGroup
			for range 5 {
				callers.Go(func() {
					for {
						g, err := s.acquire(context.Background(), p, object, terms{})
						if err != nil {
							assert.ErrorIs(t, err, redlatch.ErrClosed)
							return
						}
						closes := closing.Load()
						time.Sleep(100 * time.Microsecond) // or no time passes among callers of one process
						if closes {
							assert.ErrorIs(t, g.Err(), redlatch.ErrClosed)
						}
						assert.NoError(t, s.release(context.Background(), g))
					}
				})
			}
			time.Sleep(time.Duration(round) * 1700 * time.Microsecond)
			closing.Store(true)
			require.NoError(t, p.close(t.Context()))
			callers.Wait()
			s.free(t, other)
		}
	}},
	{"what too few replicas have is taken back, and no renewal", simulated, func(t *testing.T, s *stage) {
		replicas := func(n int) {
			for _, server := range s.servers {
				server.SetReplicas(n)
			}
		}
		o := leased(2 * time.Second)
		o.Locks = func(o *rlock.Options) { o.WatchdogTimeout, o.MinReplicas = time.Minute, 1 }
		o.Semaphores = func(o *rsemaphore.Options) { o.WatchdogTimeout, o.MinReplicas = time.Minute, 1 }
		o.Elections = func(o *election.Options) { o.WatchdogTimeout, o.MinReplicas = time.Minute, 1 }
		replicas(1)
		p, other := s.open(t, o), s.open(t, leased(0))
		held := s.acquired(t, p, terms{})
		first := held.Until()
		time.Sleep(3 * time.Minute)
		require.NoError(t, held.Err())
		require.Greater(t, held.Until(), first)
		replicas(0)
		_, err := s.acquire(t.Context(), p, "another", terms{})
		require.ErrorIs(t, err, redlatch.ErrNotReplicated)
		s.released(t, must(s.block(t.Context(), other, "another", terms{})))
		if s.extend != nil {
			require.ErrorIs(t, s.extend(t.Context(), held, time.Minute), redlatch.ErrNotReplicated)
		}
		ends(t, held, 2*time.Minute, redlatch.ErrLost) // renewals that no replica has do not count
	}},
}

// leased are the options of a process whose leases no scenario waits for. A callTimeout of 0 does not matter.
func leased(callTimeout time.Duration) redlatch.Options {
	if callTimeout == 0 && redistest.InABubble() {
		callTimeout = 2 * time.Second
	}
	return redlatch.Options{CallTimeout: callTimeout,
		Locks:      func(o *rlock.Options) { o.WatchdogTimeout = time.Hour },
		Semaphores: func(o *rsemaphore.Options) { o.WatchdogTimeout = time.Hour },
		// A leadership that is not confirmed for three heartbeats is lost: silence is to be shorter.
		Elections: func(o *election.Options) { o.WatchdogTimeout, o.Heartbeat = time.Hour, 10*time.Second }}
}

// fates are what becomes of a call whose caller is to learn the truth all the same. A real server shows those that take
// no time, and a Quorum those that it hears of: it does not wait for a majority that is silent.
func (s *stage) fates() []redistest.Fate {
	all := []redistest.Fate{redistest.LoseReply, redistest.LoseRequest, redistest.RunTwice}
	if redistest.InABubble() && len(s.servers) == 1 {
		all = append(all, redistest.LoseReplySilently, redistest.LoseRequestSilently)
	}
	return all
}

// aboutIt matches the scripts about the object.
func aboutIt(words []string) bool {
	return redistest.IsScript(words) && slices.ContainsFunc(words[3:], func(w string) bool {
		return strings.Contains(w, object)
	})
}

// trap sets a trap on the way to each server for the next script about the object.
func (p *process) trap(like *redistest.Trap) (all []*redistest.Trap) {
	for _, proxy := range p.proxies {
		all = append(all, proxy.Trap(&redistest.Trap{Match: aboutIt, Fate: like.Fate, Every: like.Every,
			Release: like.Release, Says: like.Says}))
	}
	return all
}

// refused has all scripts about the object answered by an error.
func (p *process) refused(says string) {
	p.trap(&redistest.Trap{Fate: redistest.RefuseRequest, Every: true, Says: func([]string) string { return says }})
}

func caught(t *testing.T, traps []*redistest.Trap) {
	t.Helper()
	for _, trap := range traps {
		trap.Wait(t)
	}
}

func (p *process) heal() {
	for _, proxy := range p.proxies {
		proxy.Heal()
	}
}

// close closes the clients of the process at the same time.
func (p *process) close(ctx context.Context) error {
	all := make([]error, len(p.red))
	var clients sync.WaitGroup
	for i, red := range p.red {
		clients.Go(func() { all[i] = red.Close(ctx) })
	}
	clients.Wait()
	return errors.Join(all...)
}

// unpipelined is open of a process whose calls have a connection each, so that none waits behind another.
func (s *stage) unpipelined(t *testing.T, o redlatch.Options) *process {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	p := newProcess(t)
	for _, server := range s.servers {
		proxy := redistest.NewProxy(t, server)
		with := proxy.Server().Option()
		with.DisableAutoPipelining = true
		red := redistest.NoError(redlatch.Open(t.Context(), with, o))(t)
		t.Cleanup(func() { red.Close(redistest.Ended()) })
		p.proxies, p.red = append(p.proxies, proxy), append(p.red, red)
	}
	return p
}

// errTry is the error of an acquisition that does not wait.
func errTry(s *stage, ctx context.Context, p *process) error {
	_, err := s.try(ctx, p, object, 0, terms{})
	return err
}

// taken fails if p gets the object for itself at once.
func (s *stage) taken(t *testing.T, p *process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.block(ctx, p, object, terms{})
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
}

// free fails unless p gets the object for itself within a minute.
func (s *stage) free(t *testing.T, p *process) {
	t.Helper()
	s.released(t, s.blocked(t, p))
}
