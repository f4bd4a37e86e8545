package contract_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// brief is for how long a lease is renewed at a time, and pollCap how often a waiter asks, by default.
const (
	brief   = 6 * time.Second
	pollCap = time.Second
)

// holding are options of all that is held.
type holding struct {
	lease, maxHold, beat time.Duration
	ended                func(name string, err error) // the observer of ends
	acquired             func()                       // and of grants
}

func (x holding) options() redlatch.Options {
	o := redlatch.Options{CallTimeout: 2 * time.Second}
	observe := func(ctx context.Context, e redlatch.Event) context.Context {
		if x.ended != nil && e.Kind == redlatch.EventEnded {
			x.ended(e.Name, e.Err)
		}
		if x.acquired != nil && e.Kind == redlatch.EventAcquired {
			x.acquired()
		}
		return ctx
	}
	o.Locks = func(o *rlock.Options) {
		o.WatchdogTimeout, o.MaxHold, o.Observer = x.lease, x.maxHold, observe
		o.Liveness, o.Heartbeat = x.beat > 0, x.beat
	}
	o.Elections = func(o *election.Options) {
		o.WatchdogTimeout, o.MaxHold, o.Observer, o.Heartbeat = x.lease, x.maxHold, observe, x.beat
	}
	o.Semaphores = func(o *rsemaphore.Options) {
		o.WatchdogTimeout, o.MaxHold = x.lease, x.maxHold
		o.Liveness, o.Heartbeat = x.beat > 0, x.beat
		o.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
			if x.ended != nil && e.Kind == redlatch.EventEnded {
				x.ended(e.Name, e.Err)
			}
			if x.acquired != nil && e.Kind == redlatch.EventAcquired {
				x.acquired()
			}
			return ctx
		}
	}
	return o
}

// ends fails unless g ends within limit, for the reason why, which its contexts have, too.
func ends(t *testing.T, g grant, limit time.Duration, why error) {
	t.Helper()
	ctx := g.Context(t.Context())
	select {
	case <-g.Done():
	case <-time.After(limit):
		t.Fatalf("not over within %v", limit)
	}
	require.ErrorIs(t, g.Err(), why)
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
		t.Fatal("its context lasts")
	}
	require.Equal(t, g.Err(), context.Cause(ctx))
}

// lost fails unless g has ended, and says so whatever is done with it.
func (s *stage) lost(t *testing.T, g grant, limit time.Duration) {
	t.Helper()
	ends(t, g, limit, errs.ErrLost)
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	if s.extend != nil {
		require.ErrorIs(t, s.extend(ctx, g, time.Minute), errs.ErrLost)
	}
	require.ErrorIs(t, s.release(ctx, g), errs.ErrLost)
}

// keepsOut fails if another process gets what g has before d is over, or g ends.
func (s *stage) keepsOut(t *testing.T, other *process, g grant, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	_, err := s.rival(ctx, other, object, terms{})
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	require.NoError(t, g.Err())
	require.True(t, time.Now().Before(g.Until()))
}

// passes fails unless another process gets what g has when that is released.
func (s *stage) passes(t *testing.T, other *process, g grant) {
	t.Helper()
	s.released(t, g)
	s.released(t, atOnce(t, s.rival, other, terms{}))
}

// times is d, once for each of the objects that a waiter waits for, one after the other.
func (s *stage) times(d time.Duration) time.Duration { return time.Duration(max(1, s.members)) * d }

// eachKey has all keys of the object be deleted, or become something else at once.
func eachKey(script string) func(t *testing.T, c rueidis.Client) {
	return func(t *testing.T, c rueidis.Client) {
		for _, key := range rig.Keys(t, c) {
			if !strings.Contains(key, object) {
				continue
			}
			rig.Must(t, c, "EVAL", "redis.call('DEL', KEYS[1]) "+script, "1", key)
		}
	}
}

func emptied(t *testing.T, c rueidis.Client) { rig.Must(t, c, "FLUSHALL") }

var overwritten = eachKey("return redis.call('XADD', KEYS[1], '*', 'f', 'v')")

// recordLosses are the ways in which a server loses what it knows of an object.
var recordLosses = []struct {
	name string
	lose func(t *testing.T, c rueidis.Client)
	is   error // besides ErrLost
}{
	{"deleted", eachKey("return 1"), errs.ErrLost},
	{"overwritten", overwritten, errs.ErrWrongType},
	{"emptied", emptied, errs.ErrLost},
}

// losingScenarios are about how long a grant lasts, and how it ends.
var losingScenarios = []scenario{
	{"it is lost when its record is deleted, overwritten, or gone with all others", repeated,
		func(t *testing.T, s *stage) {
			p, second := s.open(t, holding{lease: brief}.options()), s.open(t, redlatch.Options{})
			for _, x := range recordLosses {
				g := s.acquired(t, p, terms{})
				beside := redistest.NoError(s.acquire(t.Context(), p, "another", terms{}))(t)
				for _, server := range s.servers {
					x.lose(t, server.Client(t))
				}
				var next grant
				if x.name == "emptied" {
					next = atOnce(t, s.rival, second, terms{})
				}
				s.lost(t, g, 20*time.Second)
				require.ErrorIs(t, g.Err(), x.is, x.name)
				if redistest.InABubble() {
					time.Sleep(2 * brief) // what is beside it is renewed, and what was lost is not made anew
				}
				if next == nil {
					next = beside
				}
				require.NoError(t, next.Err())
				s.released(t, next)
				for _, server := range s.servers {
					emptied(t, server.Client(t))
				}
			}
		}},
	{"whatever finds first that its record is another type says so, and that it is lost", simulated,
		func(t *testing.T, s *stage) {
			finds := map[string]func(g grant) error{
				"release": func(g grant) error { return s.release(t.Context(), g) },
				"context": func(g grant) error {
					ctx := g.Context(t.Context())
					<-ctx.Done()
					return context.Cause(ctx)
				},
			}
			if s.extend != nil {
				finds["extension"] = func(g grant) error { return s.extend(t.Context(), g, brief) }
			}
			p := s.open(t, redlatch.Options{})
			for name, find := range finds {
				g := s.acquired(t, p, terms{})
				for _, server := range s.servers {
					overwritten(t, server.Client(t))
				}
				for _, err := range []error{find(g), s.release(t.Context(), g), g.Err()} {
					if errors.Is(err, redlatch.ErrReleased) && name == "release" {
						continue
					}
					require.ErrorIs(t, err, errs.ErrLost, name)
					require.ErrorIs(t, err, errs.ErrWrongType, name)
				}
				s.flush()
			}
		}},
	{"it is renewed for as long as it is held", simulated, func(t *testing.T, s *stage) {
		first, second := s.open(t, redlatch.Options{}), s.open(t, redlatch.Options{})
		held := s.acquired(t, first, terms{})
		s.keepsOut(t, second, held, 2*time.Minute)
		s.passes(t, second, held)
	}},
	{"a lease of its own ends it, and the next process has it", simulated, func(t *testing.T, s *stage) {
		first, second := s.open(t, redlatch.Options{}), s.open(t, redlatch.Options{})
		const lease = 10 * time.Second
		began := time.Now()
		held := s.acquired(t, first, terms{lease: lease})
		next := attempts(t.Context(), s.rival, second, terms{})
		ends(t, held, lease, errs.ErrLost)
		require.False(t, time.Now().Before(held.Until()))
		require.Greater(t, time.Since(began), lease*9/10)
		got := next.granted(t, lease/10+2*pollCap)
		require.GreaterOrEqual(t, time.Since(began), lease)
		s.lost(t, held, time.Second)
		require.NoError(t, got.Err(), "a late release is no other's")
		s.released(t, got)
	}},
	{"Extend makes it last for longer, and never for less", simulated, func(t *testing.T, s *stage) {
		first, second := s.open(t, redlatch.Options{}), s.open(t, redlatch.Options{})
		const lease, longer = 10 * time.Second, 25 * time.Second
		held := s.acquired(t, first, terms{lease: lease})
		for _, d := range []time.Duration{longer, time.Second} {
			require.NoError(t, s.extend(t.Context(), held, d))
			require.Greater(t, time.Until(held.Until()), 2*lease)
		}
		require.ErrorIs(t, s.extend(t.Context(), held, 0), redlatch.ErrInvalidOption)
		s.keepsOut(t, second, held, 2*lease)
		ends(t, held, longer-2*lease, errs.ErrLost)
		s.released(t, atOnce(t, s.rival, second, terms{}))
	}},
	{"MaxHold ends it, and it is kept from others until it is released", simulated, func(t *testing.T, s *stage) {
		var seen atEnd
		const maxHold = 5 * time.Second
		first, second := s.open(t, holding{maxHold: maxHold, ended: seen.see}.options()), s.open(t, redlatch.Options{})
		held := s.acquired(t, first, terms{})
		began := time.Now()
		ends(t, held, maxHold+time.Millisecond, redlatch.ErrMaxHold)
		require.GreaterOrEqual(t, time.Since(began), maxHold-time.Second)
		next := attempts(t.Context(), s.rival, second, terms{})
		time.Sleep(2 * pollCap)
		next.waits(t)
		s.released(t, held)
		s.released(t, next.granted(t, 2*pollCap))
		seen.once(t, len(s.servers), redlatch.ErrMaxHold)
	}},
	{"a process that is cut off has lost it before another has it", simulated, func(t *testing.T, s *stage) {
		second := s.open(t, redlatch.Options{})
		for i, cut := range cuts {
			first := s.open(t, holding{lease: brief}.options())
			held := s.acquired(t, first, terms{})
			next := attempts(t.Context(), s.rival, second, terms{})
			time.Sleep(time.Duration(i) * time.Second)
			first.each(cut)
			ends(t, held, brief, errs.ErrLost)
			next.waits(t)
			s.released(t, next.granted(t, s.times(brief/3+2*pollCap)))
			first.each((*redistest.Proxy).Heal)
			require.ErrorIs(t, s.release(t.Context(), held), errs.ErrLost)
		}
	}},
	{"with Liveness, too, and the next has it after about three heartbeats", simulated, func(t *testing.T, s *stage) {
		const beat = 500 * time.Millisecond
		o := holding{lease: time.Hour, beat: beat}.options()
		second := s.open(t, o)
		for i, x := range []struct {
			handed bool          // over by a release
			after  time.Duration // it was acquired
			late   bool          // the next comes when it is over
		}{{after: beat / 5, late: true}, {after: 10 * beat}, {handed: true, after: 10*beat + beat/3}} {
			first := s.open(t, o)
			var held grant
			if x.handed {
				before := s.blocked(t, second)
				waiter := s.waits(t.Context(), first, terms{})
				waitingIn(t, first, 1)
				s.released(t, before)
				held = waiter.granted(t, beat)
			} else {
				held = s.acquired(t, first, terms{})
			}
			var next *attempt
			if !x.late {
				next = attempts(t.Context(), s.rival, second, terms{})
			}
			time.Sleep(x.after)
			first.each(cuts[i])
			ends(t, held, 4*beat, errs.ErrLost)
			if x.late {
				next = attempts(t.Context(), s.rival, second, terms{})
			}
			next.waits(t)
			s.released(t, next.granted(t, s.times(4*beat)))
			first.each((*redistest.Proxy).Heal)
			require.ErrorIs(t, s.release(t.Context(), held), errs.ErrLost)
		}
	}},
	{"with Liveness a process that lives keeps it, though its heartbeats are deleted", simulated,
		func(t *testing.T, s *stage) {
			const beat = 500 * time.Millisecond
			o := holding{lease: time.Hour, beat: beat}.options()
			first, second := s.open(t, o), s.open(t, o)
			held := s.acquired(t, first, terms{})
			deleted := 0
			var deletes sync.WaitGroup
			deletes.Go(func() {
				for range 10 {
					// two in a row would be seen as a process without heartbeats
					time.Sleep(2 * beat)
					for _, server := range s.servers {
						for _, key := range server.Embedded.Keys() {
							if strings.HasPrefix(key, "redlatch_alive:") {
								server.Embedded.Del(key)
								deleted++
							}
						}
					}
				}
			})
			s.keepsOut(t, second, held, 21*beat)
			deletes.Wait()
			require.GreaterOrEqual(t, deleted, 10)
			s.passes(t, second, held)
		}},
	{"a process without heartbeats keeps it for its lease", simulated,
		func(t *testing.T, s *stage) {
			const lease, beat = 20 * time.Second, 500 * time.Millisecond
			first := s.open(t, holding{lease: lease}.options())
			second := s.open(t, holding{lease: time.Hour, beat: beat}.options())
			held := s.acquired(t, first, terms{})
			next := attempts(t.Context(), s.rival, second, terms{})
			time.Sleep(2 * time.Second) // by then it has said which process it is, which is no heartbeat
			first.each(cuts[0])
			time.Sleep(10 * beat)
			next.waits(t)
			ends(t, held, lease, errs.ErrLost)
			s.released(t, next.granted(t, s.times(lease/3+2*pollCap)))
		}},
	{"with Liveness what a living process has lost is given back by its release", simulated,
		func(t *testing.T, s *stage) {
			const beat = 500 * time.Millisecond
			o := holding{lease: time.Hour, beat: beat}.options()
			first, second := s.open(t, o), s.open(t, o)
			held := s.acquired(t, first, terms{})
			time.Sleep(5 * beat)
			first.each(cuts[0])
			ends(t, held, 4*beat, errs.ErrLost)
			first.each((*redistest.Proxy).Heal)
			another, err := s.acquire(t.Context(), first, "another", terms{}) // so that there are heartbeats
			require.NoError(t, err)
			require.ErrorIs(t, s.release(t.Context(), held), errs.ErrLost)
			s.released(t, atOnce(t, s.rival, second, terms{}))
			s.released(t, another)
		}},
	{"a waiter that was cut off for long takes it from nobody, and has it in the end", simulated,
		func(t *testing.T, s *stage) {
			const beat = 500 * time.Millisecond
			o := holding{lease: time.Hour, beat: beat}.options()
			first, second, cut := s.open(t, o), s.open(t, o), s.open(t, o)
			held := s.blocked(t, first)
			waiter := s.waits(t.Context(), cut, terms{})
			waitingIn(t, cut, 1)
			time.Sleep(beat)
			cut.each(func(p *redistest.Proxy) { p.Hold(redistest.Down) })
			s.released(t, held) // to the process that is cut off
			got := atOnce(t, s.rival, second, terms{})
			cut.each((*redistest.Proxy).Heal)
			time.Sleep(10 * beat) // it is not taken for what the waiter was handed before
			waiter.waits(t)
			require.NoError(t, got.Err())
			s.released(t, got)
			s.released(t, waiter.granted(t, s.times(lasting)))
		}},
	{"its release is tried for as long as its longest lease", simulated, func(t *testing.T, s *stage) {
		first, second := s.open(t, redlatch.Options{}), s.open(t, redlatch.Options{})
		held := s.acquired(t, first, terms{lease: brief})
		require.NoError(t, s.extend(t.Context(), held, 30*time.Second))
		first.each(cuts[2])
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, s.release(ctx, held))
		next := attempts(t.Context(), s.rival, second, terms{})
		time.Sleep(20 * time.Second) // longer than its first lease, and than any call
		next.waits(t)
		first.each((*redistest.Proxy).Heal)
		s.released(t, next.granted(t, s.times(2*pollCap)))
	}},
	{"a process that is killed loses it to the next, and one that was stopped learns so", real,
		func(t *testing.T, s *stage) {
			const beat, brief = 400 * time.Millisecond, time.Second
			for _, x := range []struct {
				signal os.Signal
				lease  time.Duration
				beat   time.Duration
			}{{syscall.SIGKILL, time.Hour, beat}, {redistest.SigStop, time.Hour, beat}, {redistest.SigStop, brief, 0}} {
				if x.beat == 0 && s.extend == nil {
					continue
				}
				var lost error
				for range 3 { // a busy machine may starve the second process for three beats, too
					child := redistest.Spawn(t, "holder", s.servers[0], s.name, x.lease.String(), x.beat.String())
					require.Equal(t, "held", child.Line(t))
					second := s.open(t, holding{lease: time.Hour, beat: 4 * beat}.options())
					next := attempts(t.Context(), s.rival, second, terms{})
					child.Signal(t, x.signal)
					got := next.granted(t, lasting)
					if x.signal == redistest.SigStop {
						child.Signal(t, redistest.SigCont)
						require.Equal(t, "lost", child.Line(t))
						require.Equal(t, "its release finds that: true", child.Line(t))
					}
					// It is released after a loss, too: the process beats again, so nobody else ends its lease of an hour.
					if lost = errors.Join(got.Err(), s.release(t.Context(), got)); lost == nil {
						break
					}
					require.ErrorIs(t, lost, errs.ErrLost)
				}
				require.NoError(t, lost)
			}
		}},
	{"a server that is away for less than the lease changes nothing", simulated, func(t *testing.T, s *stage) {
		o := holding{}.options()
		o.Elections = func(o *election.Options) { o.Heartbeat = 10 * time.Second } // of which three may be missed
		first, second := s.open(t, o), s.open(t, o)
		held := s.acquired(t, first, terms{})
		const away = 15 * time.Second
		first.each(func(p *redistest.Proxy) { p.Hold(redistest.Up) })
		time.Sleep(away)
		first.each((*redistest.Proxy).Heal)
		s.keepsOut(t, second, held, 20*time.Second)
		for _, server := range s.servers {
			server.Kill(t)
		}
		time.Sleep(away)
		for _, server := range s.servers {
			server.Revive(t, false)
		}
		s.keepsOut(t, second, held, 20*time.Second)
		s.passes(t, second, held)
	}},
	{"a step of the server's clock that is shorter than the lease changes nothing", simulated,
		func(t *testing.T, s *stage) {
			first, second := s.open(t, redlatch.Options{}), s.open(t, redlatch.Options{})
			held := s.acquired(t, first, terms{})
			for _, step := range []time.Duration{10 * time.Second, -10 * time.Second} {
				ctx, cancel := context.WithCancel(t.Context())
				var clock sync.WaitGroup
				clock.Go(func() {
					for script.Pause(ctx, 100*time.Millisecond) {
						for _, server := range s.servers {
							server.Embedded.SetTime(time.Now().Add(step))
						}
					}
				})
				s.keepsOut(t, second, held, 40*time.Second)
				cancel()
				clock.Wait()
			}
			s.passes(t, second, held)
		}},
	{"a handle that is forgotten is renewed no more, and logged once", real, func(t *testing.T, s *stage) {
		var book redistest.Logbook
		o := holding{lease: 5 * time.Second}.options() // a busy machine stands still for some of them
		o.Logger = book.Logger()
		first, second := s.open(t, o), s.open(t, redlatch.Options{})
		var done <-chan struct{}
		func() {
			over := atOnce(t, s.acquire, first, terms{label: "over"})
			emptied(t, s.servers[0].Client(t))
			<-over.Done()
			redistest.Eventually(t, 20*time.Second, "all members are over", func() bool {
				return first.red[0].Locks().Stats().Held == 0
			})
			runtime.KeepAlive(over)
		}()
		work := func() context.Context {
			held := atOnce(t, s.acquire, first, terms{label: "leaky"})
			done = held.Done()
			return held.Context(context.WithoutCancel(held.Context(held.Context(t.Context()))))
		}()
		for range 3 {
			runtime.GC()
		}
		require.NoError(t, work.Err())
		require.Zero(t, book.Count("dropped without"), "one of its contexts is in use")
		lines := max(1, s.members)
		runtime.KeepAlive(work)
		work = nil
		next := attempts(t.Context(), s.rival, second, terms{})
		redistest.Eventually(t, 20*time.Second, "it is over, and logged", func() bool {
			collect()
			select {
			case <-done:
				return book.Count("dropped without") == lines
			default:
				return false
			}
		})
		s.released(t, next.granted(t, lasting))
		if s.extend != nil { // a lease of its own may be left to its end on purpose
			done = atOnce(t, s.acquire, first, terms{lease: time.Second}).Done()
			redistest.Eventually(t, 20*time.Second, "it is over", func() bool {
				collect()
				select {
				case <-done:
					return true
				default:
					return false
				}
			})
		}
		require.GreaterOrEqual(t, book.Count("label=leaky"), lines, "what was over was not forgotten")
		require.Equal(t, lines, book.Count("dropped without"))
		ctx, cancel := context.WithTimeout(t.Context(), lasting)
		defer cancel()
		require.NoError(t, first.red[0].Close(ctx), "nothing is waited for")
	}},
	{"its contexts end with it, and with their parents", simulated, func(t *testing.T, s *stage) {
		held := s.acquired(t, s.open(t, redlatch.Options{}), terms{})
		type key struct{}
		parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		one, other := held.Context(parent), held.Context(t.Context())
		require.Equal(t, "v", one.Value(key{}))
		child, stop := context.WithTimeout(one, time.Hour)
		defer stop()
		cancel()
		<-child.Done()
		require.ErrorIs(t, context.Cause(one), context.Canceled)
		require.NoError(t, other.Err())
		require.NoError(t, held.Err())
		s.released(t, held)
		<-held.Done()
		for _, ctx := range []context.Context{other, held.Context(t.Context())} {
			require.Error(t, ctx.Err())
			require.Equal(t, redlatch.ErrReleased, context.Cause(ctx))
		}
		require.ErrorIs(t, context.Cause(one), context.Canceled, "the first cause")
	}},
	{"the work of Do ends with it, and Do returns both errors", simulated, func(t *testing.T, s *stage) {
		p, work := s.open(t, holding{lease: brief}.options()), errors.New("work")
		err := s.do(t.Context(), p, object, func(ctx context.Context) error {
			for _, server := range s.servers {
				server.Embedded.FlushAll()
			}
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), errs.ErrLost)
			return work
		})
		require.ErrorIs(t, err, work)
		require.ErrorIs(t, err, errs.ErrLost)
	}},
	{"a call whose context is over before its grant has nothing, and does nothing", simulated,
		func(t *testing.T, s *stage) {
			why := errors.New("the customer left")
			var leave func() // as it is granted
			p := s.open(t, holding{acquired: func() {
				if leave != nil {
					leave()
				}
			}}.options())
			other := s.open(t, redlatch.Options{})
			do := func(ctx context.Context, p *process) (ran bool, err error) {
				err = s.do(ctx, p, object, func(context.Context) error { ran = true; return nil })
				return ran, err
			}
			verbs := map[string]func(ctx context.Context, p *process) (ran bool, err error){
				"acquire": func(ctx context.Context, p *process) (bool, error) {
					g, err := s.acquire(ctx, p, object, terms{})
					return g != nil, err
				},
				"do": do,
			}
			if s.try != nil {
				verbs["try"] = func(ctx context.Context, p *process) (bool, error) {
					g, err := s.try(ctx, p, object, lasting, terms{lease: lasting})
					return g != nil, err
				}
			}
			refused := func(name string, ran bool, err error) {
				require.False(t, ran, "%s: %v", name, err)
				s.notAcquired(t, err)
				require.ErrorIs(t, err, why, name)
				s.free(t, other)
			}
			for name, call := range verbs {
				ctx, end := context.WithCancelCause(t.Context())
				end(why)
				ran, err := call(ctx, p)
				refused(name, ran, err)
				for n := range 4 { // released in its process, or in another; alone, or before another caller
					by, next := []*process{p, other}[n%2], (*attempt)(nil)
					held := s.blocked(t, by)
					ctx, end := context.WithCancelCause(t.Context())
					done := make(chan struct{})
					go func() { defer close(done); ran, err = call(ctx, p) }()
					waitingIn(t, p, 1)
					if n/2 == 1 {
						next = s.waits(t.Context(), other, terms{})
						waitingIn(t, other, 1)
					}
					end(why) // in the instant before it is there
					s.released(t, held)
					<-done
					if next != nil {
						s.released(t, next.granted(t, lasting))
					}
					refused(name, ran, err)
				}
			}
			ctx, end := context.WithCancelCause(t.Context())
			leave = func() { end(why) }
			ran, err := do(ctx, p)
			leave = nil
			refused("do", ran, err)
		}},
	{"it is released though its work panics", simulated, func(t *testing.T, s *stage) {
		p := s.open(t, redlatch.Options{})
		require.PanicsWithValue(t, "oops", func() {
			s.do(t.Context(), p, object, func(ctx context.Context) error {
				require.NoError(t, ctx.Err())
				panic("oops")
			})
		})
		s.released(t, atOnce(t, s.rival, s.open(t, redlatch.Options{}), terms{}))
	}},
	{"why it ended is the same for ever, and observed once", simulated, func(t *testing.T, s *stage) {
		for _, x := range []struct {
			why  error
			end  func(p *process)
			more func(p *process)
		}{
			{errs.ErrMaxHold, func(*process) {}, func(p *process) { s.flush(); quit(p) }},
			{errs.ErrLost, func(*process) { s.flush() }, quit},
			{errs.ErrClosed, quit, func(*process) { s.flush() }},
		} {
			var seen atEnd
			h := holding{lease: brief, ended: seen.see}
			if errors.Is(x.why, errs.ErrMaxHold) {
				h.maxHold = time.Second
			}
			p := s.open(t, h.options())
			held := s.acquired(t, p, terms{})
			x.end(p)
			ends(t, held, brief, x.why)
			err := held.Err()
			x.more(p)
			time.Sleep(2 * brief)
			s.release(t.Context(), held)
			require.Equal(t, err, held.Err())
			require.Equal(t, err, context.Cause(held.Context(t.Context())))
			seen.once(t, len(s.servers), x.why)
		}
	}},
	{"Inspect shows it while it lasts", simulated, func(t *testing.T, s *stage) {
		o := redlatch.Options{Process: "holder"}
		first, second := s.open(t, o), s.open(t, redlatch.Options{})
		none := redistest.NoError(s.inspect(t.Context(), second, object))(t)
		require.Empty(t, none)
		held := s.acquired(t, first, terms{label: "label"})
		time.Sleep(2 * time.Second) // by then it has said which process it is
		shown := redistest.NoError(s.inspect(t.Context(), second, object))(t)
		require.NotEmpty(t, shown)
		for _, h := range shown {
			require.Equal(t, "holder", h.process)
			require.Equal(t, "label", h.label)
			require.Greater(t, h.lease, time.Until(held.Until()))
			require.LessOrEqual(t, h.lease, 30*time.Second)
		}
		s.released(t, held)
		time.Sleep(time.Second) // a Quorum is released before all of its servers have answered
		none = redistest.NoError(s.inspect(t.Context(), second, object))(t)
		require.Empty(t, none)
	}},
}

// cuts are the ways in which a process is cut off from its server, or dies.
var cuts = []func(*redistest.Proxy){
	func(p *redistest.Proxy) { p.BlackHole(redistest.Up) },
	func(p *redistest.Proxy) { p.BlackHole(redistest.Down) },
	func(p *redistest.Proxy) { p.Refuse(); p.Cut() },
}

// atEnd are the ends that an observer has seen.
type atEnd struct {
	mu   sync.Mutex
	errs map[string][]error // by name
}

func (e *atEnd) see(name string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.errs == nil {
		e.errs = map[string][]error{}
	}
	e.errs[name] = append(e.errs[name], err)
}

// once fails unless what was held has ended once in each of n clients, for the reason why. A grant of several objects
// ends with one of these, and the others may end later, for another reason.
func (e *atEnd) once(t *testing.T, n int, why error) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	because := 0
	for name, all := range e.errs {
		require.LessOrEqual(t, len(all), n, name)
		for _, err := range all {
			if errors.Is(err, why) {
				because++
			}
		}
	}
	require.Positive(t, because, "%v: %v", why, e.errs)
}

// flush empties all servers of a bubble.
func (s *stage) flush() {
	for _, server := range s.servers {
		server.Embedded.FlushAll()
	}
}

// quit closes p, and waits for none of its grants.
func quit(p *process) { _ = p.close(redistest.Ended()) }

// each does something to the network of p.
func (p *process) each(do func(*redistest.Proxy)) {
	for _, proxy := range p.proxies {
		do(proxy)
	}
}

// beHolder is a process that holds an object as it is told, and says what becomes of that.
func beHolder() error {
	i := slices.IndexFunc(primitives(), func(p primitive) bool { return p.name == os.Args[2] })
	kind := primitives()[i]
	lease, err := time.ParseDuration(os.Args[3])
	if err != nil {
		return err
	}
	beat, err := time.ParseDuration(os.Args[4])
	if err != nil {
		return err
	}
	o := holding{lease: lease, beat: beat}.options()
	o.CallTimeout, o.Logger = 10*time.Second, slog.New(slog.DiscardHandler)
	ctx := context.Background()
	red, err := redlatch.Open(ctx, rueidis.ClientOption{InitAddress: []string{os.Args[1]}}, o)
	if err != nil {
		return err
	}
	held, err := kind.acquire(ctx, &process{red: []*redlatch.Client{red}}, object, terms{})
	if err != nil {
		return err
	}
	fmt.Println("held")
	<-held.Done()
	fmt.Println(held.Err())
	fmt.Println("its release finds that:", errors.Is(kind.release(ctx, held), errs.ErrLost))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// collected is when collect ran last.
var collected struct {
	sync.Mutex
	at time.Time
}

// collect collects garbage for all who poll for it, at most ten times a second: the heap is that of the whole suite.
func collect() {
	collected.Lock()
	defer collected.Unlock()
	if time.Since(collected.at) > 100*time.Millisecond {
		runtime.GC()
		collected.at = time.Now()
	}
}
