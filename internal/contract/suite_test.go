package contract_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// grant is what an acquisition gives: a hold, a permit or a leadership.
type grant interface {
	Context(parent context.Context) context.Context
	Done() <-chan struct{}
	Err() error
	Until() time.Time
}

// terms are what an acquisition asks for. The zero value asks for a grant that is renewed until it is released.
type terms struct {
	// lease is fixed: the grant ends with it, unless it is extended.
	lease time.Duration
	label string
	// member asks for the object together with another of the caller's own, as a Multi.
	member bool
}

// acquisition takes an object, and keeps the grant in p.
type acquisition func(ctx context.Context, p *process, object string, t terms) (grant, error)

// primitive is the adapter of a kind of grant: it makes one object exclusive, so that of two processes one waits.
type primitive struct {
	name string
	// acquire waits until it has the object or ctx ends.
	acquire acquisition
	// try waits for waitTime at most. It is nil where only a context bounds the wait.
	try func(ctx context.Context, p *process, object string, waitTime time.Duration, t terms) (grant, error)
	// block takes the object in a way that lets others only wait for it: acquire, but a writer for readers.
	block acquisition
	// rival takes the object in a way that a grant of acquire keeps out: acquire, but a writer for readers.
	rival acquisition
	// do runs fn under a grant.
	do      func(ctx context.Context, p *process, object string, fn func(context.Context) error) error
	release func(ctx context.Context, g grant) error
	// extend is nil where a grant cannot be extended.
	extend func(ctx context.Context, g grant, d time.Duration) error
	// inspect is what Inspect shows of the holders, by default once for each member.
	inspect func(ctx context.Context, p *process, object string) ([]holder, error)
	// token is the fencing token of a grant. It is nil where a grant has none.
	token func(g grant) int64
	// servers is how many the primitive needs, and members how many objects it is made of: they are waited for one after
	// the other, and each logs what becomes of it. 0 is one.
	servers, members int
	// differs says, for the scenarios that do not apply to the primitive, or in which it promises something else, why.
	// The reason stands in the table of testdata/promises.md.
	differs map[string]string
	// known says, for the scenarios that the primitive does not pass yet, why. One that it passes fails the run.
	known map[string]string
}

// holder is one that has an object, as Inspect shows it.
type holder struct {
	process, label string
	lease          time.Duration
}

// scenario is a promise of all primitives, and a test of it.
type scenario struct {
	// promise is a sentence in which the primitive's object is "it", and the name of the subtest.
	promise string
	place   place
	run     func(t *testing.T, s *stage)
}

// place is where a scenario runs. On real servers a quorum is left out: its servers have to be up for a lease first.
type place uint8

const (
	simulated place = iota // in simulated time
	repeated               // on a real server, too: two primitives, and all of them with REDLATCH_LONG
	real                   // on a real server only, because processes or garbage are part of it
)

// stage is where a scenario plays: a primitive, and servers of which nothing is held.
type stage struct {
	primitive
	servers []*redistest.Server
}

// process is a client of each server of a stage, through a proxy of its own. Each is a process to the others.
type process struct {
	red     []*redlatch.Client // of each server: a quorum uses all, other primitives the first
	proxies []*redistest.Proxy

	mu   sync.Mutex
	kept []grant // in a bubble: see keeping
}

// newProcess is a process without clients.
func newProcess(t *testing.T) *process {
	p := &process{}
	t.Cleanup(p.left)
	return p
}

// keep is keeping of a grant of p, until the scenario has ended.
func (p *process) keep(g grant, err error) (grant, error) {
	if err == nil && redistest.InABubble() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.kept = append(p.kept, g)
	}
	return g, err
}

// left keeps for ever the grants that p has not released: the collector may find the others when the scenario is over.
func (p *process) left() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.kept {
		if run, ok := g.(*onceRun); ok {
			_ = run.end(redistest.Ended())
			continue
		}
		if !errors.Is(g.Err(), redlatch.ErrReleased) {
			keeping(g, nil)
		}
	}
}

// object is what a scenario acquires.
const object = "object"

// lasting is longer than everything in a scenario, and the timeout of calls that are not to fail on a busy machine.
const lasting = time.Minute

// open starts a process.
func (s *stage) open(t *testing.T, o redlatch.Options) *process {
	t.Helper()
	if o.CallTimeout == 0 {
		// A request that is lost is taken back until it cannot run any more: on a real server Close waits for that.
		o.CallTimeout = 3 * time.Second
		if redistest.InABubble() {
			o.CallTimeout = 10 * time.Second
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := newProcess(t)
	for _, server := range s.servers {
		proxy := redistest.NewProxy(t, server)
		p.proxies = append(p.proxies, proxy)
		if !redistest.InABubble() {
			p.red = append(p.red, open(t, proxy.Server(), o))
			continue
		}
		red := connected(t, proxy.Server(), o) // its grants are kept, so Close has no garbage to collect
		closesWithin(t, red, time.Second)
		p.red = append(p.red, red)
	}
	return p
}

// acquired is a grant that p has at once.
func (s *stage) acquired(t *testing.T, p *process, on terms) grant {
	t.Helper()
	return atOnce(t, s.acquire, p, on)
}

// blocked is a grant of p for which all others have to wait.
func (s *stage) blocked(t *testing.T, p *process) grant {
	t.Helper()
	return atOnce(t, s.block, p, terms{})
}

func atOnce(t *testing.T, acquire acquisition, p *process, on terms) grant {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	g := redistest.NoError(acquire(ctx, p, object, on))(t)
	return g
}

// released fails unless g is released without an error.
func (s *stage) released(t *testing.T, g grant) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	require.NoError(t, s.release(ctx, g))
}

// attempt is an acquisition that is on its way.
type attempt struct {
	done chan struct{}
	got  grant
	err  error
}

// waits begins an acquisition, which ends with ctx.
func (s *stage) waits(ctx context.Context, p *process, on terms) *attempt {
	return attempts(ctx, s.acquire, p, on)
}

func attempts(ctx context.Context, acquire acquisition, p *process, on terms) *attempt {
	a := &attempt{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.got, a.err = acquire(ctx, p, object, on)
	}()
	return a
}

// granted is what the attempt gets within limit.
func (a *attempt) granted(t *testing.T, limit time.Duration) grant {
	t.Helper()
	select {
	case <-a.done:
		require.NoError(t, a.err)
	case <-time.After(limit):
		t.Fatalf("not granted within %v", limit)
	}
	return a.got
}

// waits fails if the attempt has ended.
func (a *attempt) waits(t *testing.T) {
	t.Helper()
	select {
	case <-a.done:
		t.Fatalf("it does not wait: %v", a.err)
	default:
	}
}

// waiting fails unless n callers of p wait for an object.
func waitingIn(t *testing.T, p *process, n int) {
	t.Helper()
	redistest.Eventually(t, lasting, fmt.Sprint(n, " callers wait"), func() bool {
		return p.red[0].Locks().Stats().Waiting+p.red[0].Semaphores().Stats().Waiting+
			p.red[0].Elections().Stats().Campaigning == n
	})
}

// locked is the adapter of a kind of lock.
func locked(name string, of func(p *process, object string) *rlock.Lock) primitive {
	on := func(p *process, object string, t terms) *rlock.Lock {
		l := of(p, object)
		if t.member {
			l = must(rlock.Multi(l, p.red[0].Locks().Reentrant(fmt.Sprintf("{%s}%p", object, l))))
		}
		if t.label != "" {
			l = l.WithLabel(t.label)
		}
		return l
	}
	return primitive{
		name: name, servers: 1,
		acquire: func(ctx context.Context, p *process, object string, t terms) (grant, error) {
			l := on(p, object, t)
			if t.lease > 0 {
				l = l.WithLease(t.lease)
			}
			return p.keep(grantOf(l.Lock(ctx)))
		},
		try: func(ctx context.Context, p *process, object string, waitTime time.Duration, t terms) (grant, error) {
			return p.keep(grantOf(on(p, object, t).TryLock(ctx, waitTime, t.lease)))
		},
		do: func(ctx context.Context, p *process, object string, fn func(context.Context) error) error {
			return of(p, object).Do(ctx, fn)
		},
		release: func(ctx context.Context, g grant) error { return g.(*rlock.Hold).Unlock(ctx) },
		extend:  func(ctx context.Context, g grant, d time.Duration) error { return g.(*rlock.Hold).Extend(ctx, d) },
		inspect: func(ctx context.Context, p *process, object string) (all []holder, _ error) {
			state, err := of(p, object).Inspect(ctx)
			for _, one := range append(state.Members, state) {
				for _, h := range one.Holders {
					all = append(all, holder{h.Process, h.Label, h.Lease})
				}
			}
			return all, err
		},
		differs: map[string]string{},
	}
}

// permitted is the adapter of a kind of semaphore, of which a caller asks for all n.
func permitted(name string, n int, of func(c *rsemaphore.Client, object string) *rsemaphore.Semaphore) primitive {
	on := func(p *process, object string, t terms) *rsemaphore.Semaphore {
		s := of(p.red[0].Semaphores(), object)
		if t.label != "" {
			s = s.WithLabel(t.label)
		}
		return s
	}
	return primitive{
		name: name, servers: 1,
		acquire: func(ctx context.Context, p *process, object string, t terms) (grant, error) {
			if t.lease > 0 {
				return p.keep(grantOf(on(p, object, t).TryAcquire(ctx, n, lasting, t.lease)))
			}
			return p.keep(grantOf(on(p, object, t).Acquire(ctx, n)))
		},
		try: func(ctx context.Context, p *process, object string, waitTime time.Duration, t terms) (grant, error) {
			return p.keep(grantOf(on(p, object, t).TryAcquire(ctx, n, waitTime, t.lease)))
		},
		do: func(ctx context.Context, p *process, object string, fn func(context.Context) error) error {
			return on(p, object, terms{}).Do(ctx, n, fn)
		},
		release: func(ctx context.Context, g grant) error { return g.(*rsemaphore.Permit).Release(ctx) },
		extend: func(ctx context.Context, g grant, d time.Duration) error {
			return g.(*rsemaphore.Permit).Extend(ctx, d)
		},
		inspect: func(ctx context.Context, p *process, object string) (all []holder, _ error) {
			state, err := on(p, object, terms{}).Inspect(ctx)
			for _, h := range state.Permits {
				all = append(all, holder{h.Process, h.Label, h.Lease})
			}
			return all, err
		},
		differs: map[string]string{},
	}
}

// grantOf is a grant that is nil if there is none.
func grantOf[G interface {
	comparable
	grant
}](g G, err error) (grant, error) {
	var none G
	if g == none {
		return nil, err
	}
	return g, err
}

// renewed says why an election has no leases.
const renewed = "A leadership is renewed until the leader resigns."

func elected() primitive {
	const noTry = "Campaign waits for as long as its context, and has no waitTime."
	return primitive{
		name: "election", servers: 1,
		acquire: func(ctx context.Context, p *process, object string, t terms) (grant, error) {
			return p.keep(grantOf(p.red[0].Elections().Election(object).Campaign(ctx, cmp.Or(t.label, "label"))))
		},
		do: func(ctx context.Context, p *process, object string, fn func(context.Context) error) error {
			return p.red[0].Elections().Election(object).Run(ctx, "candidate",
				func(ctx context.Context, _ *election.Leadership) error { return fn(ctx) })
		},
		release: func(ctx context.Context, g grant) error { return g.(*election.Leadership).Resign(ctx) },
		token:   func(g grant) int64 { return g.(*election.Leadership).Token() },
		inspect: func(ctx context.Context, p *process, object string) ([]holder, error) {
			state, err := p.red[0].Locks().Fenced(object).Inspect(ctx)
			if len(state.Holders) == 0 {
				return nil, err
			}
			h := state.Holders[0]
			return []holder{{h.Process, h.Label, h.Lease}}, err
		},
		differs: map[string]string{
			"a lease of its own ends it, and the next process has it": renewed,
			"Extend makes it last for longer, and never for less":     renewed,
			"the work of Do ends with it, and Do returns both errors": "Run campaigns again after a loss.",
			"a second process does not get it":                        noTry,
			"a try of unknown outcome says so, and is taken back":     noTry,
			"a try that the server refuses is ErrUnavailable":         noTry,
			"a late request takes nothing, not even for a moment":     noTry,
			"a grant that is slower than its lease is none":           "Campaign has no leaseTime.",
			"a lost reply to its extension is an extension":           renewed,
			"its release is tried for as long as its longest lease":   renewed,
			"a process without heartbeats keeps it for its lease":     "All leaders and candidates have heartbeats.",
		},
	}
}

// of is a lock of one client.
func of(kind func(c *rlock.Client, name string) *rlock.Lock) func(p *process, object string) *rlock.Lock {
	return func(p *process, object string) *rlock.Lock { return kind(p.red[0].Locks(), object) }
}

// must is v, of a constructor that is used as its doc says.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// primitives are all kinds of grants, in the order of the columns of testdata/promises.md.
func primitives() []primitive {
	fenced := locked("fenced", of((*rlock.Client).Fenced))
	fenced.token = func(g grant) int64 { token, _ := g.(*rlock.Hold).Token(); return token }
	multi := locked("multi", func(p *process, object string) *rlock.Lock {
		c := p.red[0].Locks()
		return must(rlock.Multi(c.Reentrant("{"+object+"}1"), c.Plain("{"+object+"}2"), c.Fair("{"+object+"}3")))
	})
	multi.members = 3
	const onOne = "Shown on one real server; the members of a quorum do the same."
	const told = "an observer is told once of each call that waits, and of no other"
	multi.differs[told] = "Each member that is waited for is told."
	quorum := locked("quorum", func(p *process, object string) *rlock.Lock {
		var members []*rlock.Lock
		for _, red := range p.red {
			members = append(members, red.Locks().NonReentrant(object))
		}
		return must(rlock.Quorum(members...))
	})
	quorum.servers = 3
	quorum.differs[told] = "EventWaiting of a Quorum has the caller's context: the acquisitions of its members wait for " +
		"nothing."
	quorum.differs["a server that is away for less than the lease changes nothing"] = "A server that was started again " +
		"has no vote for a lease, so most must stay up."
	quorum.differs["a late reply does not take it from under its release"] =
		"A Quorum asks each server once, and gives its votes back before it asks again."
	quorum.differs["whatever finds first that its record is another type says so, and that it is lost"] =
		"A release says that most members have lost it, and not why."
	quorum.differs["a process that is killed loses it to the next, and one that was stopped learns so"] = onOne
	quorum.differs["a handle that is forgotten is renewed no more, and logged once"] = onOne
	read := locked("read", of(func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Read() }))
	write := locked("write", of(func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Write() }))
	read.block, read.rival = write.acquire, write.acquire
	all := []primitive{
		locked("reentrant", of((*rlock.Client).Reentrant)),
		locked("non-reentrant", of((*rlock.Client).NonReentrant)),
		fenced,
		locked("fair", of((*rlock.Client).Fair)),
		read,
		write,
		locked("plain", of((*rlock.Client).Plain)),
		locked("spin", of(func(c *rlock.Client, name string) *rlock.Lock { return c.Spin(name, 0, 0) })),
		multi,
		quorum,
		permitted("semaphore", 3, func(c *rsemaphore.Client, object string) *rsemaphore.Semaphore {
			return c.Semaphore(object, 3)
		}),
		permitted("weighted", 1000, func(c *rsemaphore.Client, object string) *rsemaphore.Semaphore {
			return c.WeightedSemaphore(object, 1000)
		}),
		permitted("tenant", 3, func(c *rsemaphore.Client, object string) *rsemaphore.Semaphore {
			return c.Semaphore(object, 6).For("one of all").WithMax(3) // its maximum excludes, and not the capacity
		}),
		permitted("tenants", 1000, func(c *rsemaphore.Client, object string) *rsemaphore.Semaphore {
			return c.WeightedSemaphore(object, 1000).For(fmt.Sprintf("process %p", c))
		}),
		elected(),
		ran(),
	}
	for i := range all {
		if all[i].block == nil {
			all[i].block = all[i].acquire
		}
		if all[i].rival == nil {
			all[i].rival = all[i].acquire
		}
		all[i].known = map[string]string{}
		all[i].ofTaking()
		all[i].ofTerms()
	}
	return all
}

// scenarios are the promises of all that is held, in the order of the rows of testdata/promises.md.
var scenarios = slices.Concat(
	takingScenarios,
	termsScenarios,
	losingScenarios,
	repliesScenarios,
	seenScenarios,
)

func TestContract_EveryPrimitive_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, x := range scenarios {
		require.False(t, known[x.promise], "%s is there twice", x.promise)
		known[x.promise] = true
		if x.promise == spoiled {
			continue // it has a test of its own
		}
		t.Run(x.promise, func(t *testing.T) {
			t.Parallel()
			x.onEvery(t)
		})
	}
	for _, p := range primitives() {
		for _, promises := range []map[string]string{p.differs, p.known} {
			for promise := range promises {
				require.True(t, known[promise], "%s differs in %q, which is no scenario", p.name, promise)
			}
		}
	}
}

// onEvery runs the scenario on every primitive, and with -short on two or three of them in simulated time, other ones
// for each scenario. On real servers nearly all of the time is spent waiting, so all primitives wait side by side.
func (x scenario) onEvery(t *testing.T) {
	onReal := map[string]primitive{}
	for i, p := range primitives() {
		_, differs := p.differs[x.promise]
		chosen := (i+len(x.promise))%6 == 0
		if differs || testing.Short() && !chosen {
			continue
		}
		if p.servers == 1 && !testing.Short() && (x.place == real || x.place == repeated && (chosen || redistest.Long())) {
			onReal[p.name+" on a real server"] = p
		}
		if x.place == real {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			redistest.Simulated(t, p.servers, func(t *testing.T, servers []*redistest.Server) {
				x.run(t, &stage{primitive: p, servers: servers})
			})
		})
	}
	redistest.SideBySide(t, onReal, func(t *testing.T, _ string, p primitive) {
		x.run(t, &stage{primitive: p, servers: []*redistest.Server{redistest.Start(t)}})
	})
}

// update writes the table of the suite into its page.
var update = flag.Bool("update", false, "write testdata/promises.md")

// TestContract_Page_HasItsTables compares testdata/promises.md with the suite.
func TestContract_Page_HasItsTables(t *testing.T) {
	const page = "testdata/promises.md"
	text := redistest.NoError(os.ReadFile(page))(t)
	want := string(text)
	for name, table := range map[string]string{"table": table(), "verbs": verbTable(t)} {
		begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
		before, rest, ok := strings.Cut(want, begin)
		require.True(t, ok, name)
		_, after, ok := strings.Cut(rest, end)
		require.True(t, ok, name)
		want = before + begin + table + end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(text), "go test ./internal/contract -run Page -update writes it")
}

// table is scenario × primitive: a number is the footnote that says why it is not shown, known is not kept yet.
func table() string {
	page := promiseTable{}
	all := primitives()
	for _, p := range all {
		page.columns = append(page.columns, p.name)
	}
	for _, x := range scenarios {
		page.add(x.promise, func(column int) (prefix, why string) {
			if why, isKnown := all[column].known[x.promise]; isKnown {
				return "known ", why
			}
			return "", all[column].differs[x.promise]
		})
	}
	return page.text("promise")
}

// promiseTable is a table of the page, with its footnotes.
type promiseTable struct {
	columns []string
	rows    strings.Builder
	notes   []string
}

// add writes a row: ✓ where why is empty, otherwise the footnote of why behind prefix.
func (p *promiseTable) add(promise string, mark func(column int) (prefix, why string)) {
	p.rows.WriteString("| " + promise + " |")
	for column := range p.columns {
		prefix, why := mark(column)
		if why == "" {
			p.rows.WriteString(" ✓ |")
			continue
		}
		i := slices.Index(p.notes, why)
		if i < 0 {
			i, p.notes = len(p.notes), append(p.notes, why)
		}
		fmt.Fprintf(&p.rows, " %s%d |", prefix, i+1)
	}
	p.rows.WriteString("\n")
}

func (p *promiseTable) text(title string) string {
	var b strings.Builder
	b.WriteString("| " + title + " | " + strings.Join(p.columns, " | ") + " |\n|---" +
		strings.Repeat("|:-:", len(p.columns)) + "|\n" + p.rows.String() + "\n")
	for i, why := range p.notes {
		fmt.Fprintf(&b, "%d. %s\n", i+1, why)
	}
	return b.String()
}
