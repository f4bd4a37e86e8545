package stock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// pair is a primary and its replica, which can be cut off and promoted.
type pair struct {
	primary, replica *redistest.Server
	link             *redistest.Wire // between them
	admin, heir      rueidis.Client
}

func newPair(t testing.TB) *pair {
	t.Helper()
	// by default WAIT ends with the next 100 ms, whatever its timeout
	p := &pair{primary: redistest.Start(t, "--hz", "100")}
	p.link = redistest.NewWire(t, p.primary.Addr())
	host, port, err := net.SplitHostPort(p.link.Addr())
	require.NoError(t, err)
	p.replica = redistest.Start(t, "--replicaof", host, port)
	p.admin, p.heir = p.primary.Client(t), p.replica.Client(t)
	redistest.Eventually(t, 30*time.Second, "the replica is in step", func() bool {
		return strings.Contains(text(t, p.heir, "INFO", "replication"), "master_link_status:up")
	})
	return p
}

// promote makes the replica what clients find after a failover.
func (p *pair) promote(t testing.TB) {
	t.Helper()
	require.NoError(t, p.primary.Process.Kill())
	must(t, p.heir, "REPLICAOF", "NO", "ONE")
}

// Claims that are acknowledged while the replica is cut off are the ones a failover forgets: with MinReplicas none is.
func TestAFailoverForgetsNoConfirmedGrant(t *testing.T) {
	t.Parallel()
	for name, replicas := range map[string]int{"confirmed": 1, "not confirmed": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			o := stock.Options{CallTimeout: time.Second, MinReplicas: replicas, ReplicaTimeout: 50 * time.Millisecond}
			s := opened(t, on(t, p.primary.Client(t), o), "s", 1000)
			l := newLedger()
			crowd(20, 10, func(caller, i int) { // in good times
				u := "before" + strconv.Itoa(caller*10+i)
				g, err := s.Claim(ctx, u)
				for err != nil && replicas > 0 { // a replica may be slow: the same claim again
					g, err = s.Claim(ctx, u)
				}
				if err != nil {
					t.Error(err)
				}
				l.record(u, g)
			})
			redistest.Eventually(t, 30*time.Second, "all of it is on the replica", func() bool {
				return number(t, p.heir, "HLEN", "rc:{s}:u") == 200
			})
			p.link.Lead("")
			var acknowledged, refused atomic.Int64
			crowd(40, 5, func(caller, i int) {
				u := "during" + strconv.Itoa(caller*5+i)
				for range 2 { // and a retry is not confirmed by the first try's having been written
					g, err := s.Claim(ctx, u)
					switch {
					case err == nil:
						acknowledged.Add(1)
						l.record(u, g)
					case replicas > 0:
						refused.Add(1)
						if !isUnconfirmed(err) || g.Won() {
							t.Error(g, err)
						}
					default:
						t.Error(err)
					}
				}
			})
			p.promote(t)
			heir := on(t, p.replica.Client(t), exact).Stock("s")
			l.mu.Lock()
			told := map[string]int64{}
			for u, o := range l.winners {
				told[u] = o
			}
			l.mu.Unlock()
			twice := 0
			for i := range 200 {
				g := claimed(t, heir, "after"+strconv.Itoa(i))
				require.Equal(t, stock.Granted, g.Outcome)
				if by, taken := l.owners[g.Ordinal]; taken {
					require.NotEmpty(t, by)
					twice++
				}
			}
			forgotten := 0
			for u, was := range told {
				if g, found, err := lookup(heir, u); err != nil || !found || g.Ordinal != was {
					forgotten++
				}
			}
			t.Logf("during the cut: %d acknowledged, %d unconfirmed; after it: %d ordinals twice, %d grants forgotten",
				acknowledged.Load(), refused.Load(), twice, forgotten)
			if replicas > 0 {
				require.Zero(t, acknowledged.Load())
				require.EqualValues(t, 400, refused.Load())
				require.Zero(t, twice)
				require.Zero(t, forgotten)
				return
			}
			// without confirmation this test sees the harm, or it would prove nothing above
			require.Positive(t, twice)
			require.Positive(t, forgotten)
		})
	}
}

// The same where sentinels or the Cluster do it, and clients find the new primary by themselves: a claim that is
// repeated until it is confirmed has one ordinal forever, and no other claimant has it.
func TestConfirmedGrantsStayThroughFailovers(t *testing.T) {
	redistest.InFull(t, "TestAFailoverForgetsNoConfirmedGrant")
	t.Parallel()
	for name, begin := range map[string]func(testing.TB) *redistest.Replicated{"Sentinel": redistest.Sentinel,
		"Cluster": redistest.ReplicatedCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := begin(t)
			const limit = 1 << 20
			o := stock.Options{CallTimeout: time.Second, MinReplicas: 1, ReplicaTimeout: 100 * time.Millisecond}
			dial := func() *stock.Client {
				h, err := pubsub.Dial(t.Context(), srv.Option(), pubsub.Options{})
				require.NoError(t, err)
				t.Cleanup(func() { h.Close(context.Background()) })
				if o.RetryTimeout == 0 {
					o.RetryTimeout = redistest.Retries(o.CallTimeout)
				}
				c, err := stock.New(h, o)
				require.NoError(t, err)
				t.Cleanup(func() { c.Close(ctx) })
				return c
			}
			first := dial().Stock("s")
			redistest.Eventually(t, 20*time.Second, "open", func() bool {
				_, err := first.Open(ctx, spec(limit))
				return err == nil || errors.Is(err, errs.ErrAlreadyOpen)
			})
			l := newLedger()
			var stop atomic.Bool
			var confirmed, repeated atomic.Int64
			var wg sync.WaitGroup
			for process := range 4 {
				s := dial().Stock("s")
				for caller := range 4 {
					wg.Go(func() {
						for i := 0; !stop.Load(); i++ {
							user := strconv.Itoa(process) + "/" + strconv.Itoa(caller) + "/" + strconv.Itoa(i)
							g, err := s.Claim(ctx, user)
							for err != nil && !stop.Load() {
								repeated.Add(1)
								g, err = s.Claim(ctx, user)
							}
							if err == nil {
								confirmed.Add(1)
								l.record(user, g)
							}
						}
					})
				}
			}
			p := srv.Of("rc:{s}")
			more := func(n int64) func() bool {
				from := confirmed.Load()
				return func() bool { return confirmed.Load() >= from+n }
			}
			redistest.Eventually(t, 30*time.Second, "claims", more(200))
			for range 2 {
				srv.Switch(t, p)
				p.Primary, p.Replica = p.Replica, p.Primary
				redistest.Eventually(t, 40*time.Second, "claims after a change of places", more(200))
			}
			stop.Store(true)
			wg.Wait()
			t.Logf("%d confirmed, %d times repeated", confirmed.Load(), repeated.Load())
			for user, was := range l.winners {
				g, found, err := lookup(first, user)
				require.NoError(t, err)
				require.True(t, found, user)
				require.Equal(t, was, g.Ordinal, user)
			}
			require.Empty(t, l.wrong)
		})
	}
}

func isUnconfirmed(err error) bool { return errors.Is(err, errs.ErrNotReplicated) }

func TestAnUnconfirmedGrantIsConfirmedByARetry(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	c := on(t, p.primary.Client(t),
		stock.Options{CallTimeout: 5 * time.Second, MinReplicas: 1, ReplicaTimeout: 50 * time.Millisecond})
	s := c.Stock("s")
	o := spec(100)
	o.PerUser = 5
	_, err := s.Open(ctx, o)
	require.NoError(t, err)
	p.link.Lead("")
	for name, ask := range map[string]func() error{
		"Claim":     func() error { _, err := s.Claim(ctx, "ann"); return err },
		"ClaimOnce": func() error { _, err := s.Claim(ctx, "bob", stock.Request{ID: "r", N: 2}); return err },
		"Reserve":   func() error { _, err := s.Reserve(ctx, "bob", stock.Request{ID: "h", N: 1}, time.Hour); return err },
		"ClaimAny":  func() error { _, err := s.ClaimAny(ctx, 3); return err },
	} {
		require.ErrorIs(t, ask(), errs.ErrNotReplicated, name)
	}
	_, err = s.Confirm(ctx, "h")
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	redistest.Eventually(t, 20*time.Second, "ClaimAny's units are returned", func() bool {
		st, err := s.Inspect(ctx)
		return err == nil && st.Sold == 4
	})
	p.link.Lead(p.primary.Addr())
	redistest.Eventually(t, 60*time.Second, "the replica is back", func() bool {
		g, err := s.Claim(ctx, "ann")
		return err == nil && g.Ordinal > 0
	})
	var g stock.Grant
	redistest.Eventually(t, 20*time.Second, "the request is confirmed", func() bool {
		g, err = s.Claim(ctx, "bob", stock.Request{ID: "r", N: 2})
		return err == nil
	})
	require.Equal(t, stock.Replayed, g.Outcome)
	redistest.Eventually(t, 20*time.Second, "the sale is confirmed", func() bool {
		g, err = s.Confirm(ctx, "h")
		return err == nil
	})
	require.Equal(t, stock.Replayed, g.Outcome)
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 4, st.Sold)
}

// A mover waits for the replicas: it neither moves what they do not have nor ends.
func TestALedgerThatReplicasDoNotConfirmIsMovedWhenTheyDo(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	unconfirmed := make(chan error, 1000)
	s := on(t, p.primary.Client(t),
		stock.Options{CallTimeout: 5 * time.Second, MinReplicas: 1, ReplicaTimeout: 50 * time.Millisecond,
			Observer: func(_ context.Context, e stock.Event) {
				if e.Kind == stock.EventBackgroundFailed {
					select {
					case unconfirmed <- e.Err:
					default:
					}
				}
			}}).Stock("s")
	o := spec(100)
	o.Ledger = true
	_, err := s.Open(ctx, o)
	require.NoError(t, err)
	p.link.Lead("")
	_, err = s.Claim(ctx, "ann")
	require.ErrorIs(t, err, errs.ErrNotReplicated)

	keeping, stop := context.WithCancel(ctx)
	defer stop()
	moved, ended := make(chan stock.Entry, 10), make(chan error, 1)
	go func() {
		ended <- s.KeepLedger(keeping, time.Millisecond, 10, func(_ context.Context, entries []stock.Entry) error {
			for _, e := range entries {
				moved <- e
			}
			return nil
		})
	}()
	for range 3 {
		select {
		case err := <-unconfirmed:
			require.ErrorIs(t, err, errs.ErrNotReplicated)
		case err := <-ended:
			t.Fatal("the mover ended: ", err)
		}
	}
	require.Empty(t, moved)
	p.link.Lead(p.primary.Addr())
	select {
	case e := <-moved:
		require.Equal(t, "ann", e.Claimant)
	case err := <-ended:
		t.Fatal("the mover ended: ", err)
	case <-time.After(time.Minute):
		t.Fatal("nothing is moved")
	}
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// tally is a ledger for very many claims: what each user was told first, and who has each ordinal.
type tally struct {
	told   []atomic.Int64 // by user: the ordinal
	owner  []atomic.Int64 // by ordinal: the user and 1
	wrong  atomic.Int64
	claims atomic.Int64
	once   sync.Once
	first  string
}

func (c *tally) fault(what string, v ...any) {
	c.wrong.Add(1)
	c.once.Do(func() { c.first = what + strings.Repeat(" %v", len(v)) })
}

func (c *tally) record(user int, g stock.Grant) {
	c.claims.Add(1)
	if !g.Won() {
		if c.told[user].Load() != 0 {
			c.fault("a winner was told " + string(g.Outcome))
		}
		return
	}
	if g.Ordinal < 1 || g.Ordinal >= int64(len(c.owner)) {
		c.fault("an ordinal out of bounds: " + strconv.FormatInt(g.Ordinal, 10))
		return
	}
	if !c.told[user].CompareAndSwap(0, g.Ordinal) && c.told[user].Load() != g.Ordinal {
		c.fault("a changed answer")
	}
	if !c.owner[g.Ordinal].CompareAndSwap(0, int64(user)+1) && c.owner[g.Ordinal].Load() != int64(user)+1 {
		c.fault("an ordinal twice")
	}
}

// A million claims (under the race detector fewer) while connections are killed, the server pauses, its scripts are
// flushed, replies are dropped and, in the middle, the primary dies and its replica goes on: no unit too many, no
// ordinal twice, no answer changed.
func TestAMillionClaimsThroughEveryFault(t *testing.T) {
	redistest.InFull(t, "TestOneClaimantGetsOneUnitFromAThousandClaims")
	t.Parallel()
	users, each, limit, callers := 100_000, 10, 40_000, 512
	if redistest.RaceEnabled {
		users, each, limit, callers = 4_000, 5, 1_500, 96
	}
	p := newPair(t)
	front := redistest.NewProxy(t, p.primary)
	o := stock.Options{CallTimeout: time.Second, MinReplicas: 1, ReplicaTimeout: 500 * time.Millisecond,
		MaxCalls: 8} // every flight that waits for a replica has a connection of its own
	local := o
	o.SoldOutTrust = -1 // two processes that ask the server to the end, one that knows by itself
	opened(t, on(t, p.admin, patient), "s", int64(limit))
	processes := []*stock.Client{on(t, front.Server().Client(t), o), on(t, front.Server().Client(t), o),
		on(t, front.Server().Client(t), local)}
	c := &tally{told: make([]atomic.Int64, users), owner: make([]atomic.Int64, limit+1)}

	// ask claims for each user in some order until answered, from many callers; it gives up what is asked when ctx ends.
	ask := func(ctx context.Context, processes []*stock.Client, each int) {
		var next atomic.Int64
		var wg sync.WaitGroup
		for i := range callers {
			s := processes[i%len(processes)].Stock("s")
			wg.Go(func() {
				for ctx.Err() == nil {
					n := int(next.Add(1) - 1)
					if n >= users*each {
						return
					}
					user := int(uint64(n) * 7919 % uint64(users)) // 7919 is a prime: every user once in a round
					for ctx.Err() == nil {
						short, cancel := context.WithTimeout(ctx, 5*time.Second)
						g, err := s.Claim(short, "user-"+strconv.Itoa(user))
						cancel()
						if err == nil {
							c.record(user, g)
							break
						}
					}
				}
			})
		}
		wg.Wait()
	}

	began := time.Now()
	faults := map[string]int{}
	running, stop := context.WithCancel(ctx)
	first := make(chan struct{})
	go func() { ask(running, processes, each); close(first) }()
	target := int64(users * each / 2)
	for c.claims.Load() < target {
		if time.Since(began) > 3*time.Minute {
			t.Fatalf("only %d claims", c.claims.Load())
		}
		fault := []string{"kill", "pause", "flush", "drop", "silence"}[rand.IntN(5)]
		faults[fault]++
		switch fault {
		case "kill":
			raw(p.admin, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		case "pause":
			raw(p.admin, "CLIENT", "PAUSE", "40")
		case "flush":
			raw(p.admin, "SCRIPT", "FLUSH")
		case "drop":
			front.Trap(&redistest.Trap{Match: redistest.With("rc:{s}"), Fate: redistest.LoseReply})
		case "silence":
			front.Trap(&redistest.Trap{Match: redistest.With("rc:{s}"), Fate: redistest.LoseReplySilently})
			time.Sleep(20 * time.Millisecond)
			front.Heal()
		}
		// the next fault when there has been progress, or a slow machine would see nothing but faults
		next := c.claims.Load() + rand.N(target/20)
		for end := time.Now().Add(5 * time.Second); c.claims.Load() < min(next, target) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	p.promote(t) // while claims are in the air: none of those is acknowledged
	stop()
	<-first
	before := c.claims.Load()

	heirs := []*stock.Client{on(t, p.replica.Client(t), exact), on(t, p.replica.Client(t), patient)}
	ask(ctx, heirs, each-each/2)
	ask(ctx, heirs[:1], 1) // and everybody once more, so that every answer is compared

	require.Zero(t, c.wrong.Load(), c.first)
	winners := 0
	for i := range c.told {
		if c.told[i].Load() > 0 {
			winners++
		}
	}
	st, err := heirs[0].Stock("s").Inspect(ctx)
	require.NoError(t, err)
	require.EqualValues(t, limit, st.Sold)
	require.EqualValues(t, limit, st.Seq)
	require.Equal(t, limit, winners)
	require.GreaterOrEqual(t, c.claims.Load(), int64(users*each))
	requireEnds(t, p.heir)
	t.Logf("%d claims in %v, %d of them before the failover, through %v", c.claims.Load(),
		time.Since(began).Round(time.Millisecond), before, faults)
}
