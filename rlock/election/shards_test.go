package election_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock/election"
)

// division is who has which shard, by the functions that run. It fails if two have one, or a token does not grow.
type division struct {
	t      *testing.T
	mu     sync.Mutex
	owner  map[int]string
	tokens map[int]int64
	begun  int
}

func newDivision(t *testing.T) *division {
	return &division{t: t, owner: map[int]string{}, tokens: map[int]int64{}}
}

// work is a function of Run. It has the shard until its context ends.
func (d *division) work(name string) func(context.Context, *election.Shard) error {
	return func(ctx context.Context, s *election.Shard) error {
		d.mu.Lock()
		if other, taken := d.owner[s.Index()]; taken {
			d.t.Errorf("shard %d is %s's and %s's", s.Index(), other, name)
		}
		if s.Token() <= d.tokens[s.Index()] {
			d.t.Errorf("shard %d: token %d after %d", s.Index(), s.Token(), d.tokens[s.Index()])
		}
		d.owner[s.Index()], d.tokens[s.Index()] = name, s.Token()
		d.begun++
		d.mu.Unlock()
		<-ctx.Done()
		d.mu.Lock()
		delete(d.owner, s.Index())
		d.mu.Unlock()
		return ctx.Err()
	}
}

// now is how many shards each has, and how many functions have begun so far.
func (d *division) now() (each map[string]int, begun int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	each = map[string]int{}
	for _, name := range d.owner {
		each[name]++
	}
	return each, d.begun
}

// balanced requires that these have all n shards, and as many each.
func (d *division) balanced(n int, names []string, why string) {
	d.t.Helper()
	each, _ := d.now()
	all := 0
	for _, name := range names {
		all += each[name]
		require.LessOrEqual(d.t, each[name], (n+len(names)-1)/len(names), "%s: %v", why, each)
		require.GreaterOrEqual(d.t, each[name], n/len(names), "%s: %v", why, each)
	}
	require.Equal(d.t, n, all, "%s: %v", why, each)
	require.Len(d.t, each, min(n, len(names)), "%s: %v", why, each)
}

// place is a process behind a network of its own.
type place struct {
	name  string
	proxy *redistest.Proxy
	*process
	leave context.CancelFunc
	ended chan error
}

// settled is within how many seconds (heartbeats) of a change the shards are divided, by the contract.
const settled = 11 * time.Second

// Workers that come, leave, are cut off, come back and are drained: a shard has one owner, all are owned and divided
// evenly after a while, and what moves is what has to.
func TestShards_WorkersComeAndGo_AreDividedEvenly(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	steps := redistest.Sized(5, 8, 8)
	if redistest.RaceEnabled {
		steps = 2 // in a longer bubble Go 1.26's race detector crashes by itself at times
	}
	for seed := range uint64(redistest.Sized(1, 2, 30)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				r := rand.New(rand.NewPCG(seed, 1))
				const n = 13
				d := newDivision(t)
				var there, away []*place
				names := func() (all []string) {
					for _, p := range there {
						all = append(all, p.name)
					}
					return all
				}
				come := func(i int) {
					proxy := redistest.NewProxy(t, servers[0])
					p := &place{name: fmt.Sprint("w", i), proxy: proxy, process: start(t, proxy.Server(),
						election.Options{CallTimeout: 500 * time.Millisecond}), ended: make(chan error, 1)}
					var ctx context.Context
					ctx, p.leave = context.WithCancel(context.Background())
					go func() { p.ended <- p.elections.Shards("jobs", n).Run(ctx, p.name, d.work(p.name)) }()
					there = append(there, p)
				}
				take := func() (p *place) {
					i := r.IntN(len(there))
					p = there[i]
					there = append(there[:i:i], there[i+1:]...)
					return p
				}
				come(0)
				come(1)
				time.Sleep(settled)
				d.balanced(n, names(), "two came")
				_, begun := d.now()
				require.Equal(t, n, begun, "they came together: nothing has moved")
				for step := range steps {
					each, before := d.now()
					moves, what := 0, ""
					switch k := r.IntN(4); {
					case k == 0 && len(there) < 5 || len(there) == 1:
						what = "one came"
						come(step + 2)
						var view []election.Member
						for _, p := range there {
							has := make([]bool, n)
							for i := range each[p.name] {
								has[i] = true
							}
							view = append(view, election.Member{Has: has})
						}
						moves = least(n, view)
					case k == 1:
						p := take()
						what, moves = p.name+" left", each[p.name]
						p.leave()
						require.ErrorIs(t, <-p.ended, context.Canceled)
					case k == 2:
						p := take()
						what, moves = p.name+" was cut off", each[p.name]
						p.proxy.Cut()
						p.proxy.Refuse()
						away = append(away, p)
					default:
						p := there[r.IntN(len(there))]
						what, moves = p.name+" was drained", each[p.name]
						other := there[(r.IntN(len(there)))]
						soon, cancel := context.WithTimeout(t.Context(), settled)
						require.NoError(t, other.elections.Shards("jobs", n).Drain(soon, p.name, time.Minute))
						cancel()
						rest, _ := d.now()
						require.Zero(t, rest[p.name])
						time.Sleep(settled)
						still, _ := d.now()
						require.Zero(t, still[p.name], "it rests")
						if len(there) > 1 {
							_, begun := d.now()
							require.LessOrEqual(t, begun-before, moves, what)
						}
						time.Sleep(time.Minute)
						continue
					}
					time.Sleep(settled)
					d.balanced(n, names(), what)
					_, begun := d.now()
					require.LessOrEqual(t, begun-before, moves, "seed %d: %s, %v before", seed, what, each)
					if len(away) > 0 && r.IntN(2) == 0 {
						away[0].proxy.Heal()
						there, away = append(there, away[0]), away[1:]
						time.Sleep(2 * settled)
						d.balanced(n, names(), "one is back")
					}
				}
				for _, p := range append(there, away...) {
					p.proxy.Heal()
					p.leave()
					<-p.ended
				}
			})
		})
	}
}

func TestWorkers_WithShards_AreSeen(t *testing.T) {
	t.Parallel()
	bubble(t, 2, election.Options{}, func(t *testing.T, s *redistest.Server, all []*process) {
		d := newDivision(t)
		ctx, cancel := context.WithCancel(t.Context())
		jobs := all[1].elections.Shards("jobs", 5)
		none := redistest.NoError(jobs.Workers(t.Context()))(t)
		require.Empty(t, none)
		var ended sync.WaitGroup
		for i, name := range []string{"bob the second", "ann"} {
			ended.Go(func() {
				err := all[i].elections.Shards("jobs", 5).Run(ctx, name, d.work(name))
				require.ErrorIs(t, err, context.Canceled)
			})
		}
		for workers, err := range jobs.Observe(ctx) {
			require.NoError(t, err)
			if len(workers) == 2 && len(workers[0].Shards)+len(workers[1].Shards) == 5 {
				require.Equal(t, "ann", workers[0].Name)
				require.Equal(t, "bob the second", workers[1].Name)
				each, _ := d.now()
				require.Len(t, workers[0].Shards, each["ann"])
				break
			}
		}
		seen := errors.New("seen")
		watch, stop := context.WithCancelCause(ctx)
		stop(seen)
		for _, err := range jobs.Observe(watch) {
			require.ErrorIs(t, err, seen)
		}
		_, begun := d.now()
		s.Embedded.Del("jobs:3") // it is lost, and acquired again by the same worker or the other
		time.Sleep(settled)
		d.balanced(5, []string{"ann", "bob the second"}, "a shard was lost")
		_, after := d.now()
		require.Equal(t, begun+1, after)
		cancel()
		ended.Wait()
		none = redistest.NoError(jobs.Workers(t.Context()))(t)
		require.Empty(t, none, "they have left")
	})
}

func TestShardsRun_WorkFails_EndsWithItsError(t *testing.T) {
	t.Parallel()
	bubble(t, 2, election.Options{}, func(t *testing.T, _ *redistest.Server, all []*process) {
		broken := errors.New("broken")
		running := 0
		var mu sync.Mutex
		err := all[0].elections.Shards("jobs", 4).Run(t.Context(), "ann",
			func(ctx context.Context, s *election.Shard) error {
				mu.Lock()
				running++
				mu.Unlock()
				defer func() { mu.Lock(); running--; mu.Unlock() }()
				switch s.Index() {
				case 0:
					return nil // there is nothing to do
				case 1:
					time.Sleep(time.Minute)
					return broken
				}
				<-ctx.Done()
				time.Sleep(time.Second)
				return ctx.Err()
			})
		require.ErrorIs(t, err, broken)
		require.Zero(t, running)
		d, ran := newDivision(t), make(chan error, 1)
		go func() { ran <- all[1].elections.Shards("jobs", 4).Run(context.Background(), "bob", d.work("bob")) }()
		time.Sleep(settled)
		d.balanced(4, []string{"bob"}, "all were released")
		require.NoError(t, all[1].elections.Close(t.Context()))
		require.ErrorIs(t, <-ran, errs.ErrClosed)
	})
}

func TestSlot_SeveralProcesses_HaveDifferentOnes(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	bubble(t, 3, election.Options{}, func(t *testing.T, _ *redistest.Server, all []*process) {
		var slots []*election.Shard
		seen := map[int]bool{}
		for i := range 4 {
			s := redistest.NoError(all[i%3].elections.Shards("ids", 4).Slot(t.Context(), "ann"))(t)
			require.False(t, seen[s.Index()])
			require.Positive(t, time.Until(s.Until()))
			seen[s.Index()] = true
			slots = append(slots, s)
		}
		soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := all[0].elections.Shards("ids", 4).Slot(soon, "bob")
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		go func() {
			time.Sleep(time.Minute)
			slots[2].Release(context.Background())
		}()
		s := redistest.NoError(all[0].elections.Shards("ids", 4).Slot(t.Context(), "bob"))(t)
		require.Equal(t, slots[2].Index(), s.Index())
		require.Greater(t, s.Token(), slots[2].Token())
		slots[2] = s
		for _, s := range slots {
			require.NoError(t, s.Context(t.Context()).Err())
			require.NoError(t, s.Release(t.Context()))
		}
	})
}
