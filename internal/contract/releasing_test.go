package contract_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// outcome is everything that a release says and leaves, in words. "" does not matter.
type outcome struct {
	release string // what the release returns
	err     string // what Err says, and the cause of a context
	events  string // what the observer hears of each name
	left    string // whether another process gets the object when the release has returned: "free" or "taken"
	close   string // what a Close says that is called then; "ok": it waited for nothing but pending releases
	end     string // what is left then
}

// released is the outcome of a release in peace.
var released = outcome{"ok", "released", "released ok", "free", "ok", "free"}

// releasing is a grant that a process is about to release, and what may go wrong with that.
type releasing struct {
	*testing.T
	*stage
	p, other *process
	grant
	work    context.Context // of the grant
	closing chan error      // of a Close that has begun

	mu     sync.Mutex
	events map[string][]string // of each name that is held
	once   sync.Once           // for atEnd
	early  chan error          // the result of a release in atEnd
	got    chan struct{}       // closed when grant is there
	atEnd  func()              // is called when the grant has ended and its holder does not know yet
}

// outlasting is the client of a hub, which it outlasts: as one that a program has made for itself.
type outlasting struct{ rueidis.Client }

// Close does nothing.
func (outlasting) Close() {}

// releasingTerms are the options of a process, and what its grant asks for.
type releasingTerms struct {
	watchdog, call, maxHold, lease time.Duration
	label                          string
	atEnd                          func(r *releasing)
}

// Enabled, Handle, WithAttrs and WithGroup make r a log handler: the line about an end is written before the holder
// learns of the end.
func (r *releasing) Enabled(context.Context, slog.Level) bool { return true }

func (r *releasing) Handle(_ context.Context, line slog.Record) error {
	if line.Message == "redlatch: hold ended" && r.atEnd != nil {
		r.once.Do(r.atEnd)
	}
	return nil
}

func (r *releasing) WithAttrs([]slog.Attr) slog.Handler { return r }
func (r *releasing) WithGroup(string) slog.Handler      { return r }

func (r *releasing) observe(kind, name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch kind {
	case "acquired":
		r.events[name] = nil
	case "ended", "released":
		r.events[name] = append(r.events[name], kind+" "+word(err))
	}
}

// heard is what the observer has heard. The names of one grant have the same events in the end.
func (r *releasing) heard() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, events := range r.events {
		all = append(all, strings.Join(events, ", "))
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " / ")
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
		{errs.ErrReleased, "released"}, {errs.ErrUnavailable, "unavailable"}, {errs.ErrUnknownOutcome, "unknown"},
		{errs.ErrDenied, "denied"}, {errs.ErrClosed, "closed"}, {errs.ErrNotAcquired, "not acquired"},
	} {
		if errors.Is(err, s.err) {
			all = append(all, s.word)
		}
	}
	if text := err.Error(); all == nil && strings.Contains(text, "unconfirmed releases given up") &&
		!strings.Contains(text, "still held") {
		return "unconfirmed"
	} else if all == nil {
		return text
	}
	return strings.Join(all, "+")
}

// release opens a process that has a grant on such terms.
func (s *stage) releasing(t *testing.T, on releasingTerms) *releasing {
	t.Helper()
	r := &releasing{T: t, stage: s, events: map[string][]string{}, early: make(chan error, 1), got: make(chan struct{})}
	if on.atEnd != nil {
		r.atEnd = func() { <-r.got; on.atEnd(r) }
	}
	locks := func(ctx context.Context, e rlock.Event) context.Context {
		r.observe(string(e.Kind), e.Name, e.Err)
		return ctx
	}
	r.other = s.open(t, redlatch.Options{})
	s.released(t, s.acquired(t, r.other, terms{})) // the servers have the scripts
	r.p = s.open(t, redlatch.Options{CallTimeout: on.call, Logger: slog.New(r),
		Hub: func(o *pubsub.Options) {
			o.NewClient = func(o rueidis.ClientOption) (rueidis.Client, error) {
				c, err := rueidis.NewClient(o)
				require.NoError(t, err)
				t.Cleanup(c.Close)
				return outlasting{c}, nil
			}
		},
		Locks: func(o *rlock.Options) {
			o.WatchdogTimeout, o.MaxHold, o.Observer = on.watchdog, on.maxHold, locks
		},
		Elections: func(o *election.Options) {
			o.WatchdogTimeout, o.MaxHold, o.Observer = on.watchdog, on.maxHold, locks
		},
		Semaphores: func(o *rsemaphore.Options) {
			o.WatchdogTimeout, o.MaxHold = on.watchdog, on.maxHold
			o.Observer = func(ctx context.Context, e rsemaphore.Event) context.Context {
				r.observe(string(e.Kind), e.Name, e.Err)
				return ctx
			}
		}})
	r.grant = s.acquired(t, r.p, terms{lease: on.lease, label: on.label})
	r.work = r.grant.Context(t.Context())
	close(r.got)
	return r
}

func (r *releasing) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	r.Cleanup(cancel)
	return ctx
}

func (r *releasing) release() error { return r.stage.release(r.within(lasting), r.grant) }

// releaseBriefly releases for less than two call timeouts.
func (r *releasing) releaseBriefly() error {
	return r.stage.release(r.within(150*time.Millisecond), r.grant)
}

func (r *releasing) releaseTwice() error {
	err := r.release()
	require.Equal(r, err, r.release())
	return err
}

// releaseTogether releases eight times at once.
func (r *releasing) releaseTogether() error {
	results := make(chan error, 8)
	for range cap(results) {
		go func() { results <- r.release() }()
	}
	err := <-results
	for range cap(results) - 1 {
		require.Equal(r, word(err), word(<-results))
	}
	return err
}

// during releases, and has f be called between the sending and the arrival of the release.
func (r *releasing) during(f func()) error {
	arrive := make(chan struct{})
	traps := r.p.trap(&redistest.Trap{Fate: redistest.HoldRequest, Every: true, Release: arrive})
	got := make(chan error, 1)
	go func() { got <- r.release() }()
	<-r.Done()
	caught(r.T, traps)
	f()
	close(arrive)
	return <-got
}

func (r *releasing) silence() { r.p.each(func(p *redistest.Proxy) { p.BlackHole(redistest.Up) }) }

func (r *releasing) heal() { r.p.heal() }

// lose has the next script about the object meet a fate.
func (r *releasing) lose(fate redistest.Fate) { r.p.trap(&redistest.Trap{Fate: fate}) }

func (r *releasing) deny() {
	r.p.refused("NOPERM this user has no permissions to run the 'evalsha' command")
}

// spoil deletes all keys, and puts lists in the place of those of objects if overwrite is set.
func (r *releasing) spoil(overwrite bool) {
	for _, s := range r.servers {
		keys := s.Embedded.Keys()
		s.Embedded.FlushAll()
		for _, key := range redistest.Objects(keys) {
			if overwrite {
				_, err := s.Embedded.Push(key, "x")
				require.NoError(r, err)
			}
		}
	}
}

// ended waits until the grant is over without a release, and its observer knows.
func (r *releasing) ended() {
	<-r.Done()
	redistest.Eventually(r.T, lasting, "the observer hears of all ends", func() bool {
		heard := r.heard()
		return strings.Count(heard, "ended") == 1 && !strings.Contains(heard, "/")
	})
}

func (r *releasing) closeHub() {
	require.NoError(r, r.p.red[0].Hub().Close(r.within(lasting)))
}

func (r *releasing) beginClose() {
	r.closing = make(chan error, 1)
	go func() { r.closing <- r.p.close(r.within(lasting)) }()
	r.ended()
}

// left is whether another process gets the object.
func (r *releasing) left(matters string) string {
	if matters == "" {
		return ""
	}
	g, err := r.block(r.within(time.Second), r.other, object, terms{})
	if err == nil {
		r.released(r.T, g)
		return "free"
	}
	require.ErrorIs(r, err, errs.ErrNotAcquired)
	return "taken"
}

// play releases r as a case says, and returns the outcome. want tells what of it matters.
func (r *releasing) play(c releaseCase) (got outcome) {
	if c.before != nil {
		c.before(r)
	}
	if c.release == nil {
		c.release = (*releasing).release
	}
	got.release = word(c.release(r))
	got.err = word(r.Err())
	require.Equal(r, got.err, word(context.Cause(r.work)))
	got.left = r.left(c.want.left)
	if c.after != nil {
		c.after(r)
	}
	if r.closing == nil {
		r.closing = make(chan error, 1)
		if c.hurried {
			r.closing <- r.p.close(r.within(50 * time.Millisecond))
		} else {
			r.closing <- r.p.close(r.within(lasting))
		}
	}
	got.close = word(<-r.closing)
	got.events = r.heard()
	got.end = r.left(c.want.end)
	return got
}

// releaseCase is a release, and what goes wrong with it.
type releaseCase struct {
	on      releasingTerms
	before  func(r *releasing)
	release func(r *releasing) error // nil: with time
	after   func(r *releasing)       // the release has returned
	hurried bool                     // the Close after that has no time
	want    outcome
}

const shortLease = 300 * time.Millisecond

// releaseCases are the ways in which a release can go.
func releaseCases() map[string]releaseCase {
	quick := releasingTerms{call: 100 * time.Millisecond}
	atMost := releasingTerms{call: 100 * time.Millisecond, maxHold: shortLease}
	short := releasingTerms{call: 100 * time.Millisecond, watchdog: shortLease}
	lost := outcome{"lost", "lost", "ended lost, released lost", "", "ok", "free"}
	unknown := outcome{"unknown", "released", "released unknown", "taken", "ok", "free"}
	forgotten := outcome{"unknown", "released", "released unknown", "taken", "unconfirmed", "taken"}
	denied := outcome{"denied", "released", "released denied", "taken", "ok", "free"}
	deniedForGood := outcome{"denied", "released", "released denied", "taken", "unconfirmed", "taken"}
	return map[string]releaseCase{
		"held": {want: released},
		"with its own context": {want: released, release: func(r *releasing) error {
			return r.stage.release(r.grant.Context(r.T.Context()), r.grant)
		}},
		"with a context that has ended": {want: released, release: func(r *releasing) error {
			return r.stage.release(r.within(0), r.grant)
		}},
		"twice": {want: released, release: (*releasing).releaseTwice},
		"lost before": {on: short, want: lost, before: func(r *releasing) {
			r.silence()
			r.ended()
			r.heal()
		}},
		"lost before, with a lease of its own, twice": {on: releasingTerms{lease: shortLease}, want: lost,
			before: (*releasing).ended, release: (*releasing).releaseTwice},
		"lost while releasing": {want: outcome{"lost", "released", "released lost", "free", "ok", "free"},
			release: func(r *releasing) error { return r.during(func() { r.spoil(false) }) }},
		"overwritten while releasing": {
			want:    outcome{"lost+wrong type", "released", "released lost+wrong type", "", "ok", ""},
			release: func(r *releasing) error { return r.during(func() { r.spoil(true) }) }},
		"a reply is lost":   {want: released, before: func(r *releasing) { r.lose(redistest.LoseReply) }},
		"a request is lost": {want: released, before: func(r *releasing) { r.lose(redistest.LoseRequest) }},
		"a reply is lost in silence": {on: quick, want: released, before: func(r *releasing) {
			r.lose(redistest.LoseReplySilently)
			time.AfterFunc(50*time.Millisecond, r.heal)
		}},
		"unanswered while ctx lasts": {on: quick, before: (*releasing).silence, release: (*releasing).releaseBriefly,
			after: (*releasing).heal, want: unknown},
		"unanswered until the lease is over": {on: releasingTerms{call: quick.call, lease: shortLease},
			before: (*releasing).silence, want: outcome{"unknown", "released", "released unknown", "", "ok", "free"}},
		"unanswered, and nobody waits": {on: quick, before: (*releasing).silence, release: (*releasing).releaseBriefly,
			hurried: true, want: forgotten},
		"denied": {before: (*releasing).deny, after: (*releasing).heal,
			want: denied},
		"denied, and nobody waits": {before: (*releasing).deny, hurried: true,
			want: deniedForGood},
		"past MaxHold": {on: releasingTerms{maxHold: shortLease}, before: (*releasing).ended,
			want: outcome{"ok", "max hold", "ended max hold, released ok", "free", "ok", "free"}},
		"past MaxHold, then lost": {on: releasingTerms{maxHold: shortLease}, before: func(r *releasing) {
			r.ended()
			r.spoil(false)
		}, want: outcome{"lost+max hold", "max hold", "ended max hold, released lost+max hold", "free", "ok", "free"}},
		"past MaxHold, and unanswered": {on: atMost, before: func(r *releasing) { r.ended(); r.silence() },
			release: (*releasing).releaseBriefly, after: (*releasing).heal,
			want: outcome{"unknown", "max hold", "ended max hold, released unknown", "taken", "ok", "free"}},
		"closed": {before: (*releasing).beginClose,
			want: outcome{"ok", "closed", "ended closed, released ok", "free", "ok", "free"}},
		"closed, then lost": {on: short, before: func(r *releasing) {
			r.beginClose()
			r.silence()
			require.NoError(r, <-r.closing, "Close does not wait for what is lost")
			r.closing <- nil
			r.heal()
		}, want: outcome{"lost", "closed", "ended closed, released lost", "", "ok", ""}},
		"many at a time": {want: released, release: (*releasing).releaseTogether},
		"many at a time, and lost": {want: outcome{"lost", "released", "released lost", "free", "ok", "free"},
			before: func(r *releasing) { r.spoil(false) }, release: (*releasing).releaseTogether},
		"beside another that has less time": {want: released, release: func(r *releasing) error {
			return r.during(func() { require.ErrorIs(r, r.releaseBriefly(), errs.ErrUnknownOutcome) })
		}},
		// The watchdog has let go of the lease, and its holder does not know yet: the server has it until it is released.
		"between the end of MaxHold and its news": {
			on:      releasingTerms{maxHold: shortLease, atEnd: func(r *releasing) { r.early <- r.release() }},
			release: func(r *releasing) error { return <-r.early },
			want:    outcome{"ok", "released", "released ok, ended max hold", "free", "ok", "free"}},
		"hub closed": {want: released, before: (*releasing).closeHub},
		"hub closed, and unanswered": {on: quick, before: func(r *releasing) { r.closeHub(); r.silence() },
			after: (*releasing).heal,
			want:  outcome{"unknown+closed", "released", "released unknown+closed", "taken", "ok", "free"}},
	}
}

// TestRelease_Disturbed_SaysWhatBecameOfIt: a release may meet a loss, a Close, a missing right, or a network that
// fails.
func TestRelease_Disturbed_SaysWhatBecameOfIt(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for name, c := range releaseCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, p := range primitives() {
				if p.servers > 1 || c.on.lease > 0 && p.extend == nil {
					continue // the members of a Quorum end each alone; a leadership has no lease of its own
				}
				t.Run(p.name, func(t *testing.T) {
					redistest.Simulated(t, p.servers, func(t *testing.T, servers []*redistest.Server) {
						s := &stage{primitive: p, servers: servers}
						require.Equal(t, c.want, s.releasing(t, c.on).play(c))
					})
				})
			}
		})
	}
}

// TestRelease_OfAReentry_LeavesTheOuterGrant: it asks nobody, or is made up for by the release of the outer one.
func TestRelease_OfAReentry_LeavesTheOuterGrant(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(r *releasing){
		"held":       func(*releasing) {},
		"unanswered": (*releasing).silence,
		"denied":     (*releasing).deny,
	} {
		for _, p := range primitives() {
			on := releasingTerms{call: 200 * time.Millisecond}
			switch p.name {
			case "read":
				on.label = "r" // without a label the readers of a process share a hold
			case "reentrant", "fenced", "fair", "write", "spin":
			default:
				continue
			}
			t.Run(name+"/"+p.name, func(t *testing.T) {
				redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
					r := (&stage{primitive: p, servers: servers}).releasing(t, on)
					ctx := r.grant.Context(r.within(lasting))
					inner, err := r.acquire(ctx, r.p, object, terms{label: on.label})
					require.NoError(t, keeping(inner, err))
					breaks(r)
					require.NoError(t, r.stage.release(r.within(lasting), inner))
					r.heal()
					require.NoError(t, r.Err())
					require.NoError(t, r.release())
					require.NoError(t, r.p.close(r.within(50*time.Millisecond)), "nothing is pending")
					require.Equal(t, "released ok, released ok", r.heard())
				})
			})
		}
	}
}
