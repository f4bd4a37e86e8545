package contract_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// disturbances are what a release may meet, besides what the scenarios of the suite have.
var disturbances = map[string]func(t *testing.T, s *stage){
	"with its own context": func(t *testing.T, s *stage) {
		p := s.open(t, leased(0))
		for _, of := range []func(context.Context) context.Context{
			func(ctx context.Context) context.Context { return ctx },
			rlock.Detach,
			func(ctx context.Context) context.Context {
				ctx, cancel := context.WithCancel(rlock.Detach(ctx))
				t.Cleanup(cancel)
				return ctx
			},
		} {
			held := s.acquired(t, p, terms{})
			require.NoError(t, s.release(of(held.Context(t.Context())), held))
		}
	},
	"a loss on its way": func(t *testing.T, s *stage) {
		p := s.open(t, leased(0))
		for _, x := range recordLosses {
			held := s.acquired(t, p, terms{})
			err := s.releasedWhile(t, p, held, func() { x.lose(t, s.servers[0].Client(t)) })
			require.ErrorIs(t, err, errs.ErrLost, x.name)
			require.ErrorIs(t, err, x.is, x.name)
			require.ErrorIs(t, held.Err(), errs.ErrReleased, x.name)
			s.flush()
		}
	},
	"other releases": func(t *testing.T, s *stage) {
		p, other := s.open(t, leased(100*time.Millisecond)), s.open(t, leased(0))
		held := s.acquired(t, p, terms{})
		require.NoError(t, s.releasedWhile(t, p, held, func() {
			require.ErrorIs(t, s.releaseBriefly(held), errs.ErrUnknownOutcome)
		}))
		for want, lost := range map[string]bool{"ok": false, "lost": true} {
			held, results := s.acquired(t, p, terms{}), make(chan error, 8)
			if lost {
				s.flush()
			}
			for range cap(results) {
				go func() { results <- s.release(context.Background(), held) }()
			}
			for range cap(results) {
				require.Equal(t, want, redlatch.Reason(<-results))
			}
			s.free(t, other)
		}
	},
	"no answer, or no right": func(t *testing.T, s *stage) {
		other := s.open(t, leased(0))
		for want, breaks := range map[error]func(p *process){
			errs.ErrUnknownOutcome: func(p *process) { p.each(cuts[0]) },
			errs.ErrDenied:         func(p *process) { p.refused("NOPERM this user has no permissions") },
		} {
			for _, heals := range []bool{true, false} {
				p := s.open(t, leased(100*time.Millisecond))
				held := s.acquired(t, p, terms{})
				breaks(p)
				require.ErrorIs(t, s.releaseBriefly(held), want)
				require.ErrorIs(t, held.Err(), errs.ErrReleased)
				s.taken(t, other)
				if heals {
					p.heal()
					require.NoError(t, p.close(t.Context()), "it waits for what is not confirmed")
					s.free(t, other)
					continue
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				err := p.close(ctx)
				require.ErrorContains(t, err, "unconfirmed releases given up")
				require.NotContains(t, err.Error(), "still held")
				s.taken(t, other)
				s.flush()
			}
		}
	},
	"the end of MaxHold before": func(t *testing.T, s *stage) {
		o := holding{lease: time.Hour, maxHold: time.Second}.options()
		o.CallTimeout = 100 * time.Millisecond
		p, other := s.open(t, o), s.open(t, leased(0))
		held := s.acquired(t, p, terms{})
		ends(t, held, 2*time.Second, errs.ErrMaxHold)
		s.flush()
		err := s.release(t.Context(), held)
		require.ErrorIs(t, err, errs.ErrLost)
		require.ErrorIs(t, err, errs.ErrMaxHold)
		held = s.acquired(t, p, terms{})
		ends(t, held, 2*time.Second, errs.ErrMaxHold)
		p.each(cuts[0])
		require.ErrorIs(t, s.releaseBriefly(held), errs.ErrUnknownOutcome)
		require.ErrorIs(t, held.Err(), errs.ErrMaxHold)
		s.taken(t, other)
		p.heal()
		s.free(t, other)
	},
	"Close, then a loss": func(t *testing.T, s *stage) {
		p, closed := s.open(t, holding{lease: brief}.options()), make(chan error, 1)
		held := s.acquired(t, p, terms{})
		go func() { closed <- p.close(context.Background()) }()
		ends(t, held, time.Second, errs.ErrClosed)
		p.each(cuts[0])
		require.NoError(t, <-closed, "it does not wait for what is lost")
		p.heal()
		require.ErrorIs(t, s.release(t.Context(), held), errs.ErrLost)
		require.ErrorIs(t, held.Err(), errs.ErrClosed)
	},
	"a hub that is closed": func(t *testing.T, s *stage) {
		for _, answered := range []bool{true, false} {
			o, other := leased(100*time.Millisecond), s.open(t, leased(0))
			o.Hub = func(o *pubsub.Options) {
				o.NewClient = func(o rueidis.ClientOption) (rueidis.Client, error) {
					c := redistest.NoError(rueidis.NewClient(o))(t)
					t.Cleanup(c.Close)
					return outlasting{c}, nil
				}
			}
			p := s.open(t, o)
			held := s.acquired(t, p, terms{})
			require.NoError(t, p.red[0].Hub().Close(t.Context()))
			if answered {
				s.released(t, held)
				continue
			}
			p.each(cuts[0])
			err := s.releaseBriefly(held)
			require.ErrorIs(t, err, errs.ErrUnknownOutcome)
			require.ErrorIs(t, err, errs.ErrClosed)
			p.heal()
			s.free(t, other)
		}
	},
}

// outlasting is a client that its hub does not close: as one that a program has made for itself.
type outlasting struct{ rueidis.Client }

// Close does nothing.
func (outlasting) Close() {}

// releaseBriefly releases g for less than two call timeouts of 100 ms.
func (s *stage) releaseBriefly(g grant) error {
	ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
	defer cancel()
	return s.release(ctx, g)
}

// releasedWhile is the result of a release of g that does not arrive before f has returned.
func (s *stage) releasedWhile(t *testing.T, p *process, g grant, f func()) error {
	t.Helper()
	arrive, result := make(chan struct{}), make(chan error, 1)
	traps := p.trap(&redistest.Trap{Fate: redistest.HoldRequest, Every: true, Release: arrive})
	go func() { result <- s.release(context.Background(), g) }()
	<-g.Done()
	caught(t, traps)
	f()
	close(arrive)
	defer p.heal()
	return <-result
}

// TestRelease_Disturbed_SaysWhatBecameOfIt: a release may meet a loss, a Close, a missing right, or a network that
// fails. The members of a Quorum end each alone.
func TestRelease_Disturbed_SaysWhatBecameOfIt(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for name, run := range disturbances {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario{name, simulated, func(t *testing.T, s *stage) {
				if len(s.servers) == 1 {
					run(t, s)
				}
			}}.onEvery(t)
		})
	}
}

// TestRelease_OfAReentry_LeavesTheOuterGrant: it asks nobody, or is made up for by the release of the outer one.
func TestRelease_OfAReentry_LeavesTheOuterGrant(t *testing.T) {
	t.Parallel()
	for _, p := range primitives() {
		on := terms{}
		switch p.name {
		case "read":
			on.label = "r" // without a label the readers of a process share a hold
		case "reentrant", "fenced", "fair", "write", "spin":
		default:
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				s := &stage{primitive: p, servers: servers}
				p := s.open(t, leased(200*time.Millisecond))
				for _, breaks := range []func(){func() {}, func() { p.each(cuts[0]) }, func() { p.refused("NOPERM") }} {
					outer := s.acquired(t, p, on)
					inner := redistest.NoError(s.acquire(outer.Context(t.Context()), p, object, on))(t)
					breaks()
					s.released(t, inner)
					p.heal()
					require.NoError(t, outer.Err())
					s.released(t, outer)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				require.NoError(t, p.close(ctx), "nothing is pending")
			})
		})
	}
}
