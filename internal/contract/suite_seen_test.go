package contract_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// follower is an observer of locks, leaders and permits that gives each acquisition and each release a number of its
// own, and notes what is told under which, and what is sent.
type follower struct{ redistest.Steps }

func (f *follower) observe(ctx context.Context, e redlatch.Event) context.Context {
	name := e.Name
	if e.N > 0 { // permits
		name = fmt.Sprint(e.N, " of ", name)
	}
	switch e.Kind {
	case redlatch.EventAcquiring:
		return f.Begin(ctx, "acquires %s", name)
	case redlatch.EventReleasing:
		return f.Begin(ctx, "releases %s of %d", name, f.Step(e.Acquisition))
	case redlatch.EventWaiting, redlatch.EventAcquired, redlatch.EventNotAcquired:
		f.Note("%d %s %s", f.Step(ctx), e.Kind, name)
	case redlatch.EventReleased:
		f.Note("%d released %s: %v", f.Step(ctx), name, e.Err == nil)
	case redlatch.EventEnded:
		f.Note("%d lost %s", f.Step(ctx), name)
	case redlatch.EventAwaited:
		f.Note("waited for %s: %t", name, e.Err == nil)
	}
	return ctx
}

// options are those of a process that f follows.
func (f *follower) options() redlatch.Options {
	return redlatch.Options{
		Hub: func(o *pubsub.Options) {
			o.NewClient = func(o rueidis.ClientOption) (rueidis.Client, error) {
				c, err := rueidis.NewClient(o)
				return &stepped{c, f}, err
			}
		},
		Locks:      func(o *rlock.Options) { o.WatchdogTimeout = 5 * time.Minute },
		Elections:  func(o *election.Options) { o.WatchdogTimeout = 5 * time.Minute },
		Semaphores: func(o *rsemaphore.Options) { o.WatchdogTimeout = 5 * time.Minute },
		Observer:   f.observe,
	}
}

// stepped is a client that notes under which step each script was sent. The watchdog looks at a lock that it begins to
// track: that is no step's, and may come at any time.
type stepped struct {
	rueidis.Client
	f *follower
}

func (c *stepped) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if n := c.f.Step(ctx); n > 0 && cmd.Commands()[0] == "EVALSHA" {
		c.f.Note("%d sent", n)
	}
	return c.Client.Do(ctx, cmd)
}

// followed fails unless each acquisition and each release that was begun has ended once, under its own number, and each
// release has the number of what it releases. It returns how many events there are, by the words.
func followed(t *testing.T, notes []string) map[string]int {
	t.Helper()
	open, held, n := map[string]bool{}, map[string]bool{}, map[string]int{}
	for _, note := range notes {
		words := strings.Fields(note)
		of, what := words[0], words[1]
		if what == "not" {
			what = "not acquired"
		}
		n[what]++
		switch what {
		case "acquires":
			open[of] = true
		case "releases":
			open[of] = true
			require.True(t, held[words[len(words)-1]], "%s: %q", note, notes)
		case "acquired", "not acquired", "released":
			require.True(t, open[of], "%s: %q", note, notes)
			open[of], held[of] = false, what == "acquired"
		case "waiting", "sent":
			require.True(t, open[of], "%s: %q", note, notes)
		}
	}
	for of, still := range open {
		require.False(t, still, "%s: %q", of, notes)
	}
	require.Equal(t, n["acquires"], n["acquired"]+n["not acquired"], "%q", notes)
	return n
}

// stats are how many p holds, how many callers wait, and how many releases the server has not confirmed.
func (p *process) stats() (held, waiting, pending int) {
	for _, red := range p.red {
		l, s, e := red.Locks().Stats(), red.Semaphores().Stats(), red.Elections().Stats()
		held += l.Held + s.Held + e.Leading
		waiting += l.Waiting + s.Waiting + e.Campaigning
		pending += l.PendingReleases + s.PendingReleases + e.PendingReleases
	}
	return held, waiting, pending
}

// parts is of how many holds a grant is made.
func (s *stage) parts() int { return max(1, s.members, s.primitive.servers) }

// seenScenarios are about what a process, an observer and an operator see of it.
var seenScenarios = []scenario{
	{"an observer follows each acquisition and release by its context", simulated, func(t *testing.T, s *stage) {
		f := &follower{}
		p := s.open(t, f.options())
		s.released(t, s.acquired(t, p, terms{}))
		time.Sleep(time.Second)
		f.Take() // the scripts were sent
		held := s.blocked(t, p)
		time.Sleep(time.Second) // a quorum's last member comes later
		n := followed(t, f.Take())
		require.Equal(t, s.parts(), n["acquired"])
		require.Positive(t, n["sent"])
		s.released(t, held)
		s.released(t, held) // has that result, and is not told
		time.Sleep(time.Second)
		notes := append([]string{}, f.Take()...)
		n = map[string]int{}
		for _, note := range notes {
			n[strings.Fields(note)[1]]++
		}
		require.Equal(t, []int{s.parts(), s.parts()}, []int{n["releases"], n["released"]}, "%q", notes)
		if s.parts() == 1 {
			require.Positive(t, n["sent"], "%q", notes)
			require.Contains(t, notes[0], " of 3", "the acquisition that it ends: %q", notes)
		}
	}},
	{"an observer is told once of each call that waits, and of no other", simulated, func(t *testing.T, s *stage) {
		f := &follower{}
		o, waited := f.options(), atomic.Int64{}
		o.Observer = redlatch.Observer(o.Observer).And(func(ctx context.Context, e redlatch.Event) context.Context {
			if e.Waited {
				waited.Add(1)
			}
			return ctx
		})
		first, p := s.open(t, redlatch.Options{}), s.open(t, o)
		held := s.blocked(t, first)
		if s.try != nil {
			_, err := s.try(t.Context(), p, object, 0, terms{})
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			n := followed(t, f.Take())
			require.Zero(t, n["waiting"])
			require.Positive(t, n["not acquired"])
		}
		var all sync.WaitGroup
		const waiters = 3
		for range waiters {
			all.Go(func() {
				assert.NoError(t, s.do(t.Context(), p, object, func(context.Context) error { return nil }))
			})
		}
		time.Sleep(time.Second)
		s.released(t, held)
		all.Wait()
		notes := f.Take()
		require.Equal(t, waiters, followed(t, notes)["waiting"], "%q", notes)
		told := map[string]int{}
		for _, note := range notes {
			if strings.Contains(note, " waiting ") {
				told[note]++
			}
		}
		require.Len(t, told, waiters, "%q", notes)
		require.EqualValues(t, waiters, waited.Load(), "and the end of each says so")
	}},
	{"Stats count what is held and waited for", simulated, func(t *testing.T, s *stage) {
		p := s.open(t, redlatch.Options{})
		is := func(held, waiting int) {
			t.Helper()
			redistest.Eventually(t, lasting, fmt.Sprint(held, " held, ", waiting, " waiting"), func() bool {
				h, w, _ := p.stats()
				return h == held*s.parts() && w == waiting
			})
		}
		is(0, 0)
		held := s.blocked(t, p)
		is(1, 0)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				assert.NoError(t, s.do(t.Context(), p, object, func(context.Context) error { return nil }))
			})
		}
		is(1, 5)
		s.released(t, held)
		all.Wait()
		is(0, 0)
	}},
	{"Stats count a release that the server has not confirmed", simulated, func(t *testing.T, s *stage) {
		f := &follower{}
		p := s.open(t, f.options())
		held := s.acquired(t, p, terms{})
		for _, proxy := range p.proxies {
			proxy.Refuse()
			proxy.Cut()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.Error(t, s.release(ctx, held))
		redistest.Eventually(t, lasting, "the releases are counted", func() bool {
			_, _, pending := p.stats()
			return pending == s.parts()
		})
		require.Contains(t, strings.Join(f.Take(), "\n"), ": false", "an observer has the error of the release")
		for _, proxy := range p.proxies {
			proxy.Heal()
		}
		redistest.Eventually(t, lasting, "the releases are confirmed", func() bool {
			_, _, pending := p.stats()
			return pending == 0
		})
	}},
	{"an outage is logged once by those who wait for it, and so is its end", simulated, func(t *testing.T, s *stage) {
		var book redistest.Logbook
		o := leased(500 * time.Millisecond)
		o.Logger = book.Logger()
		p := s.open(t, o)
		held := s.blocked(t, s.open(t, leased(0)))
		ctx, leave := context.WithCancel(t.Context())
		const waiters = 50
		var all []*attempt
		for range waiters {
			all = append(all, s.waits(ctx, p, terms{}))
		}
		waitingIn(t, p, waiters)
		logged := func() [2]int {
			return [2]int{book.Count("does not answer waiting calls"), book.Count("answers waiting calls again")}
		}
		require.Zero(t, logged())
		p.each(func(p *redistest.Proxy) { p.Hold(redistest.Up) })
		time.Sleep(lasting)
		require.Equal(t, [2]int{1, 0}, logged(), &book)
		p.heal()
		time.Sleep(lasting)
		require.Equal(t, [2]int{1, 1}, logged(), &book)
		leave()
		for _, a := range all {
			<-a.done
		}
		s.released(t, held)
	}},
	{spoiled, simulated, besideAnotherType},
}

// lockKeys are the keys beside a lock, of all kinds.
var lockKeys = []string{"redlatch_queue:{" + object + "}", "redlatch_rw:{" + object + "}",
	"redlatch_rwq:{" + object + "}",
	"redisson_lock_token:{" + object + "}", "redisson_lock_queue:{" + object + "}",
	"redisson_lock_timeout:{" + object + "}", "redlatch_fair:{" + object + "}"}

const spoiled = "another program's key beside it leaves nothing taken"

func TestSpoiledKey_OfEveryPrimitive_LeavesNothingTaken(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	scenario{spoiled, simulated, besideAnotherType}.onEvery(t)
}

// accounts are the keys of permits that are out.
var accounts = []string{"semaphore object", "semaphore {object}:timeout", "weighted {object}:weighted",
	"weighted {object}:weights", "tenant object", "tenant {object}:timeout", "tenants {object}:weighted",
	"tenants {object}:weights"}

// besideAnotherType spoils each key of an object, before it is acquired, while it is held, and while another waits.
func besideAnotherType(t *testing.T, s *stage) {
	options := redlatch.Options{CallTimeout: 5 * time.Second,
		Locks:      func(o *rlock.Options) { o.WatchdogTimeout, o.PollCap = time.Hour, 50*time.Millisecond },
		Elections:  func(o *election.Options) { o.WatchdogTimeout, o.PollCap = time.Hour, 50*time.Millisecond },
		Semaphores: func(o *rsemaphore.Options) { o.WatchdogTimeout, o.PollCap = time.Hour, 50*time.Millisecond }}
	first, second, third := s.open(t, options), s.open(t, options), s.open(t, options)
	server := s.servers[0].Embedded
	wait := func(p *process, limit time.Duration) *attempt {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		a := attempts(ctx, s.block, p, terms{label: "mine"}) // which has a key of its own
		go func() {
			<-a.done
			cancel()
		}()
		return a
	}
	give := func(a *attempt) {
		<-a.done
		if a.err != nil {
			return
		}
		if err := s.release(t.Context(), a.got); err != nil {
			require.True(t, errorIsAny(err, errs.ErrWrongType, errs.ErrLost), "%v", err)
		}
	}
	held, waiter := wait(first, lasting), (*attempt)(nil)
	<-held.done
	waiter = wait(second, lasting)
	time.Sleep(time.Second)
	keys := redistest.Objects(server.Keys())
	give(held)
	give(waiter)
	require.NotEmpty(t, keys)
	refused, used := 0, len(keys)
	if packageOf(s.name) == "rlock" && s.members == 0 {
		keys = append(keys, lockKeys...)
	}
	for i, key := range keys {
		for _, command := range []string{"SET", "RPUSH"} {
			for _, moment := range []string{"free", "held", "awaited"} {
				if moment != "free" && (i >= used || slices.Contains(accounts, s.name+" "+key)) {
					continue // without it nothing is held
				}
				what := fmt.Sprint(command, " ", key, " while it is ", moment)
				server.FlushAll()
				var all []*attempt
				if moment != "free" {
					all = append(all, wait(first, lasting))
					<-all[0].done
				}
				if moment == "awaited" {
					all = append(all, wait(second, lasting))
					time.Sleep(time.Second)
				}
				server.Del(key)
				if command == "SET" {
					server.Set(key, "a")
				} else {
					server.Push(key, "a")
				}
				third := wait(third, time.Second)
				<-third.done
				if ends := key == "redlatch_rw:{"+object+"}" && moment == "free"; ends && (s.name == "read" || s.name == "write") {
					require.ErrorIs(t, third.err, errs.ErrWrongType, "the ends of its holds could not be kept")
				}
				if third.err != nil {
					require.True(t, errorIsAny(third.err, errs.ErrWrongType, context.DeadlineExceeded, errs.ErrNotAcquired,
						errs.ErrUnknownOutcome), "%s: %v", what, third.err)
					refused++
				} else {
					give(third)
				}
				if len(all) > 0 {
					give(all[0])
				}
				server.Del(key)
				for _, a := range all {
					give(a)
				}
				next := wait(second, 20*time.Second)
				<-next.done
				require.NoError(t, next.err, what)
				give(next)
			}
		}
	}
	require.Positive(t, refused, "the keys are those that it uses")
}

func errorIsAny(err error, all ...error) bool {
	return slices.ContainsFunc(all, func(is error) bool { return assert.ErrorIs(new(testing.T), err, is) })
}
