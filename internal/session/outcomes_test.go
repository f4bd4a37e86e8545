package session_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// primitive is one of those whose handles are released the same way.
type primitive struct {
	name    string
	reenter bool
	members int // names that are held, and that the observer is told of
	open    func(*pubsub.Hub, settings) (client, error)
}

// settings are the options that the packages share.
type settings struct {
	watchdog, call, maxHold time.Duration
	story                   *story
	log                     *slog.Logger // nil: none
}

func (s settings) logger() *slog.Logger {
	if s.log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.log
}

type client struct {
	acquire func(ctx context.Context, name string, lease time.Duration) (*held, error)
	// probe acquires, at once and for itself, what nobody else can hold beside the name, and gives it back.
	probe func(ctx context.Context, name string) error
	close func(context.Context) error
}

// held is a hold or a permit.
type held struct {
	handle
	release func(context.Context) error
}

type handle interface {
	Err() error
	Done() <-chan struct{}
	Context(context.Context) context.Context
}

// story is what the observer is told, by name.
type story struct {
	mu   sync.Mutex
	told map[string][]string
}

func (s *story) tell(name, event string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[name] = append(s.told[name], event+" "+word(err))
}

func (s *story) of(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.told[name], ", ")
}

// word names the sentinels that an error is.
func word(err error) string {
	if err == nil {
		return "ok"
	}
	var all []string
	for _, s := range []struct {
		err  error
		word string
	}{
		{errs.ErrLost, "lost"}, {errs.ErrWrongType, "wrong type"}, {errs.ErrMaxHold, "max hold"},
		{errs.ErrReleased, "released"}, {errs.ErrUnavailable, "unavailable"},
		{errs.ErrUnknownOutcome, "unknown"}, {errs.ErrDenied, "denied"}, {errs.ErrClosed, "closed"},
		{errs.ErrNotAcquired, "not acquired"},
	} {
		if errors.Is(err, s.err) {
			all = append(all, s.word)
		}
	}
	if all == nil {
		return err.Error()
	}
	return strings.Join(all, "+")
}

func locking(name string, reenter bool, make func(c *rlock.Client, name string) *rlock.Lock) primitive {
	return lockingOf(name, 1, reenter, make, make)
}

func lockingOf(name string, members int, reenter bool,
	make, probe func(c *rlock.Client, name string) *rlock.Lock) primitive {
	return primitive{name, reenter, members, func(hub *pubsub.Hub, o settings) (client, error) {
		c, err := rlock.New(hub, rlock.Options{
			WatchdogTimeout: o.watchdog, CallTimeout: o.call, MaxHold: o.maxHold, Logger: o.logger(),
			Observer: func(_ context.Context, e rlock.Event) context.Context {
				if e.Kind == rlock.EventEnded || e.Kind == rlock.EventReleased {
					o.story.tell(e.Name, string(e.Kind), e.Err)
				}
				return nil
			},
		})
		if err != nil {
			return client{}, err
		}
		return client{
			acquire: func(ctx context.Context, name string, lease time.Duration) (*held, error) {
				h, err := make(c, name).WithLease(lease).Lock(ctx)
				if err != nil {
					return nil, err
				}
				return &held{h, h.Unlock}, nil
			},
			probe: func(ctx context.Context, name string) error {
				h, err := probe(c, name).TryLock(ctx, 0, time.Minute)
				if err != nil {
					return err
				}
				return h.Unlock(ctx)
			},
			close: c.Close,
		}, nil
	}}
}

func permitting(name string, n int) primitive {
	const capacity = 3
	return primitive{name, false, 1, func(hub *pubsub.Hub, o settings) (client, error) {
		c, err := rsemaphore.New(hub, rsemaphore.Options{
			WatchdogTimeout: o.watchdog, CallTimeout: o.call, MaxHold: o.maxHold, Logger: o.logger(),
			Observer: func(_ context.Context, e rsemaphore.Event) context.Context {
				if e.Kind == rsemaphore.EventEnded || e.Kind == rsemaphore.EventReleased {
					o.story.tell(e.Name, string(e.Kind), e.Err)
				}
				return nil
			},
		})
		if err != nil {
			return client{}, err
		}
		try := func(ctx context.Context, name string, n int, lease time.Duration) (*held, error) {
			p, err := c.Semaphore(name, capacity).TryAcquire(ctx, n, 0, lease)
			if err != nil {
				return nil, err
			}
			return &held{p, p.Release}, nil
		}
		return client{
			acquire: func(ctx context.Context, name string, lease time.Duration) (*held, error) {
				return try(ctx, name, n, lease)
			},
			probe: func(ctx context.Context, name string) error {
				h, err := try(ctx, name, capacity, time.Minute)
				if err != nil {
					return err
				}
				return h.release(ctx)
			},
			close: c.Close,
		}, nil
	}}
}

var primitives = []primitive{
	locking("Reentrant", true, (*rlock.Client).Reentrant),
	locking("NonReentrant", false, (*rlock.Client).NonReentrant),
	locking("Fenced", true, (*rlock.Client).Fenced),
	locking("Spin", true, func(c *rlock.Client, name string) *rlock.Lock { return c.Spin(name, 0, 0) }),
	locking("Fair", true, (*rlock.Client).Fair),
	locking("Plain", false, func(c *rlock.Client, name string) *rlock.Lock { return c.Plain(name) }),
	// The readers of a process share a hold, so a re-entry and its release ask nobody; with a label each has its own.
	lockingOf("Read", 1, false, func(c *rlock.Client, name string) *rlock.Lock {
		return c.ReadWrite(name).Read()
	}, writeSide),
	lockingOf("labelled Read", 1, true, func(c *rlock.Client, name string) *rlock.Lock {
		return c.ReadWrite(name).Read().WithLabel("r")
	}, writeSide),
	locking("Write", true, writeSide),
	lockingOf("Multi", 2, true, both, both),
	permitting("one permit", 1),
	permitting("two permits", 2),
}

func writeSide(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Write() }

func both(c *rlock.Client, name string) *rlock.Lock {
	l, err := rlock.Multi(c.Reentrant(name), c.Reentrant(member(name, 1)))
	if err != nil {
		panic(err)
	}
	return l
}

// member is the n-th of the names that are held as name.
func member(name string, n int) string {
	if n == 0 {
		return name
	}
	return fmt.Sprint(name, "-", n)
}

// scene is one handle and what may go wrong with it.
type outcomeRig struct {
	*testing.T
	of     primitive
	name   string
	proxy  *redistest.Proxy
	root   rueidis.Client // past the proxy
	hub    *pubsub.Hub
	direct client // past the proxy, too
	client
	*held
	told    func() string
	closing chan error // of a close that has begun
}

func (s *outcomeRig) within() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	s.Cleanup(cancel)
	return ctx
}

func newScene(t *testing.T, server *redistest.Server, p primitive, name string, o settings,
	lease time.Duration) *outcomeRig {
	s := &outcomeRig{T: t, of: p, name: name, proxy: redistest.NewProxy(t, server), root: server.Client(t)}
	if server.Process != nil {
		s.rights("on", "nopass", "~*", "&*", "+@all")
	}
	o.story = &story{told: map[string][]string{}}
	hub := func(server *redistest.Server, user string) *pubsub.Hub {
		co := server.Option()
		if user != "" && server.Process != nil {
			co.Username, co.Password = user, "any"
		}
		c, err := rueidis.NewClient(co)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		h, err := pubsub.New(c, pubsub.Options{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { h.Close(context.Background()) })
		return h
	}
	var err error
	s.hub = hub(s.proxy.Server(), name)
	if o.call == 0 && o.watchdog == 0 {
		o.call = 5 * time.Second // where it is not what is tested, no machine is so busy that a call is given up
	}
	s.client, err = p.open(s.hub, o)
	require.NoError(t, err)
	s.direct, err = p.open(hub(server, ""), settings{call: 10 * time.Second, story: &story{told: map[string][]string{}}})
	require.NoError(t, err)
	t.Cleanup(func() {
		s.proxy.Heal() // a client's Close waits for what its connections have sent
		s.proxy.Cut()
		ended, end := context.WithCancel(context.Background())
		end()
		s.close(ended)
		s.direct.close(ended)
	})
	// the server has the scripts: else it is the answer that it has not which gets lost
	warm, err := s.direct.acquire(s.within(), "warm "+name, 0)
	require.NoError(t, err)
	require.NoError(t, warm.release(s.within()))
	require.Eventually(t, func() bool { // a short lease may be over before its grant is known
		s.held, err = s.acquire(s.within(), name, lease)
		return err == nil
	}, 20*time.Second, time.Millisecond, "%v", err)
	s.told = func() (all string) {
		for n := range p.members {
			told := o.story.of(member(name, n))
			if n > 0 && told != all {
				told = all + " / " + told
			}
			all = told
		}
		return all
	}
	return s
}

func (s *outcomeRig) do(args ...string) rueidis.RedisResult {
	return s.root.Do(s.within(), s.root.B().Arbitrary(args...).Build())
}

func (s *outcomeRig) rights(rules ...string) {
	require.NoError(s, s.do(append([]string{"ACL", "SETUSER", s.name}, rules...)...).Error())
}

// delete removes all that the server has of the name.
func (s *outcomeRig) delete() {
	keys, err := s.do("KEYS", "*"+s.name+"*").AsStrSlice()
	require.NoError(s, err)
	if len(keys) > 0 {
		require.NoError(s, s.do(append([]string{"DEL"}, keys...)...).Error())
	}
}

func (s *outcomeRig) overwrite() {
	for n := range s.of.members {
		key := member(s.name, n)
		require.NoError(s, s.do("EVAL", "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'x')", "1",
			key).Error())
	}
}

// calls matches what the client sends about the name.
func (s *outcomeRig) calls(words []string) bool {
	for _, w := range words {
		if strings.Contains(w, s.name) {
			return true
		}
	}
	return false
}

func (s *outcomeRig) blackHole() { s.proxy.BlackHole(redistest.Up) }

func (s *outcomeRig) beginClose() {
	s.closing = make(chan error, 1)
	go func() { s.closing <- s.close(s.within()) }()
}

// ended waits until the handle is over without a release, all its members.
func (s *outcomeRig) ended() {
	s.over()
	redistest.Eventually(s.T, 20*time.Second, "all are told of", func() bool {
		return strings.Count(s.told(), "ended") == 1 && !strings.Contains(s.told(), "/")
	})
}

func (s *outcomeRig) over() {
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		s.Fatal("not over")
	}
}

// outcome is everything that a release says and leaves.
type outcome struct {
	release string // what Unlock or Release returns
	err     string // what Err, and the cause of a context, say
	told    string // what the observer is told
	left    string // on the server when the release returns
	close   string // what Close says that is called then; "ok": it waited for nothing but pending releases
	end     string // what is left then
}

func TestHoldsAndPermitsAreReleasedAlike(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	const short = 300 * time.Millisecond
	quick := settings{call: 100 * time.Millisecond}
	done := outcome{"ok", "released", "released ok", "free", "ok", "free"}
	lost := outcome{"lost", "lost", "ended lost, released lost", "", "ok", "free"}
	cases := []struct {
		name     string
		settings settings
		lease    time.Duration
		before   func(s *outcomeRig)                           // the release
		release  func(s *outcomeRig) error                     // nil: with a ctx that has time
		after    func(s *outcomeRig)                           // the release has returned
		close    func(s *outcomeRig) (context.Context, func()) // nil: with time
		want     outcome
	}{
		{name: "held", want: done},
		{name: "with its own context", want: done, release: func(s *outcomeRig) error {
			return s.release(s.held.Context(s.within()))
		}},
		{name: "with a context that has ended", want: done, release: func(s *outcomeRig) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return s.release(ctx)
		}},
		{name: "twice", want: done, release: func(s *outcomeRig) error {
			err := s.release(s.within())
			require.Equal(s, err, s.release(s.within()))
			return err
		}},
		{name: "lost before", settings: settings{watchdog: short, call: 100 * time.Millisecond}, want: lost,
			before: func(s *outcomeRig) {
				s.blackHole()
				s.ended()
				s.proxy.Heal()
			}},
		{name: "lost before, with a lease of its own, twice", lease: short, want: lost, before: (*outcomeRig).ended,
			release: func(s *outcomeRig) error {
				err := s.release(s.within())
				require.Equal(s, err, s.release(s.within()))
				return err
			}},
		{name: "lost while releasing", want: outcome{"lost", "released", "released lost", "free", "ok", "free"},
			release: func(s *outcomeRig) error {
				return s.during(func() { s.delete() })
			}},
		{name: "overwritten while releasing",
			want: outcome{"lost+wrong type", "released", "released lost+wrong type", "", "ok", ""},
			release: func(s *outcomeRig) error {
				return s.during(func() { s.overwrite() })
			}},
		{name: "a reply is lost", want: done, before: func(s *outcomeRig) {
			s.proxy.Trap(&redistest.Trap{Match: s.calls, Fate: redistest.LoseReply})
		}},
		{name: "a request is lost", want: done, before: func(s *outcomeRig) {
			s.proxy.Trap(&redistest.Trap{Match: s.calls, Fate: redistest.LoseRequest})
		}},
		{name: "a reply is lost in silence", settings: quick, want: done, before: func(s *outcomeRig) {
			s.proxy.Trap(&redistest.Trap{Match: s.calls, Fate: redistest.LoseReplySilently})
		}, release: func(s *outcomeRig) error {
			heal := time.AfterFunc(50*time.Millisecond, s.proxy.Heal)
			defer heal.Stop()
			return s.release(s.within())
		}},
		{name: "unanswered while ctx lasts", settings: quick, before: (*outcomeRig).blackHole,
			release: (*outcomeRig).releaseBriefly,
			after:   func(s *outcomeRig) { s.proxy.Heal() },
			want:    outcome{"unknown", "released", "released unknown", "taken", "ok", "free"}},
		{name: "unanswered until the lease is over", settings: quick, lease: short, before: (*outcomeRig).blackHole,
			want: outcome{"unknown", "released", "released unknown", "", "ok", "free"}},
		{name: "unanswered, and nobody waits", settings: quick, before: (*outcomeRig).blackHole,
			release: (*outcomeRig).releaseBriefly,
			close:   briefly,
			want:    outcome{"unknown", "released", "released unknown", "taken", "unconfirmed", "taken"}},
		{name: "denied", before: func(s *outcomeRig) {
			s.rights("-evalsha")
		}, after: func(s *outcomeRig) { s.rights("+evalsha") },
			want: outcome{"denied", "released", "released denied", "taken", "ok", "free"}},
		{name: "denied, and nobody waits", before: func(s *outcomeRig) { s.rights("-evalsha") }, close: briefly,
			want: outcome{"denied", "released", "released denied", "taken", "unconfirmed", "taken"}},
		{name: "past MaxHold", settings: settings{maxHold: short}, before: (*outcomeRig).ended,
			want: outcome{"ok", "max hold", "ended max hold, released ok", "free", "ok", "free"}},
		{name: "past MaxHold, then lost", settings: settings{maxHold: short}, before: func(s *outcomeRig) {
			s.ended()
			s.delete()
		},
			want: outcome{"lost+max hold", "max hold", "ended max hold, released lost+max hold", "free", "ok", "free"}},
		{name: "past MaxHold, and unanswered", settings: settings{maxHold: short, call: 100 * time.Millisecond},
			before:  func(s *outcomeRig) { s.ended(); s.blackHole() },
			release: (*outcomeRig).releaseBriefly, after: func(s *outcomeRig) { s.proxy.Heal() },
			want: outcome{"unknown", "max hold", "ended max hold, released unknown", "taken", "ok", "free"}},
		{name: "client closed", before: func(s *outcomeRig) { s.beginClose(); s.ended() },
			want: outcome{"ok", "closed", "ended closed, released ok", "free", "ok", "free"}},
		{name: "client closed, then lost", settings: settings{watchdog: short, call: 100 * time.Millisecond},
			before: func(s *outcomeRig) {
				s.beginClose()
				s.ended()
				s.blackHole()
				require.NoError(s, <-s.closing, "it does not wait for what is lost")
				s.closing <- nil
				s.proxy.Heal()
			}, want: outcome{"lost", "closed", "ended closed, released lost", "", "ok", ""}},
		{name: "hub closed", before: func(s *outcomeRig) {
			require.NoError(s, s.hub.Close(context.Background()))
		}, want: done},
		{name: "hub closed, and unanswered", settings: quick, before: func(s *outcomeRig) {
			require.NoError(s, s.hub.Close(context.Background()))
			s.blackHole()
		}, after: func(s *outcomeRig) { s.proxy.Heal() },
			want: outcome{"unknown+closed", "released", "released unknown+closed", "taken", "ok", "free"}},
	}
	for i, p := range primitives {
		for j, c := range cases {
			play := func(t *testing.T, server *redistest.Server) {
				s := newScene(t, server, p, fmt.Sprintf("p%dc%d.", i, j), c.settings, c.lease)
				work := s.held.Context(context.Background())
				if c.before != nil {
					c.before(s)
				}
				if c.release == nil {
					c.release = func(s *outcomeRig) error { return s.release(s.within()) }
				}
				var got outcome
				got.release = word(c.release(s))
				got.err = word(s.Err())
				require.Equal(t, got.err, word(context.Cause(work)))
				got.left = s.left(c.want.left)
				if c.after != nil {
					c.after(s)
				}
				if s.closing == nil {
					ctx, cancel := s.within(), func() {}
					if c.close != nil {
						ctx, cancel = c.close(s)
					}
					got.close = closed(s.close(ctx))
					cancel()
				} else {
					got.close = closed(<-s.closing)
				}
				got.told = s.told()
				got.end = s.left(c.want.end)
				require.Equal(t, c.want, got)
			}
			t.Run(p.name+"/"+c.name, func(t *testing.T) {
				if redistest.Long() || strings.HasPrefix(c.name, "denied") { // the server in a bubble knows no rights
					t.Parallel()
					play(t, redistest.Start(t))
					return
				}
				redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) { play(t, servers[0]) })
			})
		}
	}
}

// left is whether the name is free; "" if that does not matter.
func (s *outcomeRig) left(matters string) string {
	if matters == "" {
		return ""
	}
	err := s.direct.probe(s.within(), s.name)
	if err == nil {
		return "free"
	}
	require.ErrorIs(s, err, errs.ErrNotAcquired)
	return "taken"
}

func closed(err error) string {
	if err != nil && strings.Contains(err.Error(), "unconfirmed releases given up") &&
		!strings.Contains(err.Error(), "still held") {
		return "unconfirmed"
	}
	return word(err)
}

// during releases, with what f does between the sending and the server's getting it.
func (s *outcomeRig) during(f func()) error {
	arrive := make(chan struct{})
	trap := s.proxy.Trap(&redistest.Trap{Match: s.calls, Fate: redistest.HoldRequest, Every: true, Release: arrive})
	got := make(chan error, 1)
	go func() { got <- s.release(s.within()) }()
	s.over()
	trap.Wait(s.T)
	f()
	close(arrive)
	return <-got
}

func (s *outcomeRig) releaseBriefly() error {
	ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
	defer cancel()
	return s.release(ctx)
}

func briefly(*outcomeRig) (context.Context, func()) {
	return context.WithTimeout(context.Background(), 50*time.Millisecond)
}

func TestReleasesAtTheSameTimeHaveOneResult(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for i, p := range primitives {
		for _, lose := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/lost %v", p.name, lose), func(t *testing.T) {
				t.Parallel()
				s := newScene(t, server, p, fmt.Sprintf("p%dt%v.", i, lose), settings{}, 0)
				want := "ok"
				if lose {
					s.delete()
					want = "lost"
				}
				var all sync.WaitGroup
				results := make([]string, 8)
				for n := range results {
					all.Go(func() { results[n] = word(s.release(s.within())) })
				}
				all.Wait()
				for _, got := range results {
					require.Equal(t, want, got)
				}
				require.Equal(t, 1, strings.Count(s.told(), "released"), "%s", s.told())
			})
		}
	}
}

func TestAReleaseBesideAnotherEndsWithItsOwnContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for i, p := range primitives {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, server, p, fmt.Sprintf("p%d.", i), settings{}, 0)
			require.NoError(t, s.during(func() { require.Equal(t, "unknown", word(s.releaseBriefly())) }))
			require.Equal(t, "released ok", s.told())
		})
	}
}

func TestTheReleaseOfAReentryLeavesTheOuterHold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for i, p := range primitives {
		if !p.reenter {
			continue
		}
		for j, c := range []struct {
			name         string
			before       func(s *outcomeRig)
			after        func(s *outcomeRig)
			inner, outer string // what the releases say
			err          string // the outer hold's, in between
			told         string
		}{
			{"held", nil, nil, "ok", "ok", "ok", "released ok, released ok"},
			{"unanswered", (*outcomeRig).blackHole, func(s *outcomeRig) {
				s.proxy.Heal()
			}, "ok", "ok", "ok", "released ok, released ok"},
			{"denied", func(s *outcomeRig) {
				s.rights("-evalsha")
			}, func(s *outcomeRig) { s.rights("+evalsha") }, "ok", "ok", "ok", "released ok, released ok"},
		} {
			t.Run(p.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, server, p, fmt.Sprintf("p%dr%d.", i, j), settings{call: 200 * time.Millisecond}, 0)
				inner, err := s.acquire(s.held.Context(s.within()), s.name, 0)
				require.NoError(t, err)
				if c.before != nil {
					c.before(s)
				}
				ctx := s.within()
				if c.inner == "unknown" {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
					defer cancel()
				}
				require.Equal(t, c.inner, word(inner.release(ctx)))
				if c.after != nil {
					c.after(s)
				}
				require.Equal(t, c.err, word(s.Err()))
				require.Equal(t, c.outer, word(s.release(s.within())))
				require.Equal(t, "ok", closed(s.close(s.within())), "nothing is pending")
				require.Equal(t, c.told, s.told())
			})
		}
	}
}
