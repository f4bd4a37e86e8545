package rsemaphore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	internalwait "github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/rsemaphore"
)

// backlog starts n calls of a semaphore that wait, and awaits their entries. order receives name at each grant. Each
// permit is released at once when next is received from.
func backlog(t *testing.T, r *rig, s *rsemaphore.Semaphore, name string, n int, order chan<- string,
	next <-chan struct{}) *sync.WaitGroup {
	t.Helper()
	var wg sync.WaitGroup
	before := waiting(r)
	for range n {
		wg.Go(func() {
			p, err := s.Acquire(context.Background(), 1)
			if err != nil {
				t.Error(err)
				return
			}
			order <- name
			<-next
			if err := p.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	redistest.Eventually(t, 30*time.Second, "all wait", func() bool { return waiting(r) == before+n })
	return &wg
}

// shareEntry is the entry of a waiter of a tenant for one permit, with the default share.
func shareEntry(base, tenant string) string {
	entry := internalwait.Entry{Mode: internalwait.EntryShare, Amount: 1, First: 4 * unit * time.Millisecond,
		Stale: 5 * unit * time.Millisecond, Process: process, Rest: fmt.Sprintf("%s1 0 0 %d %s", base, len(tenant), tenant)}
	return entry.Text()
}

// waiting returns how many entries of waiters the queue has.
func waiting(r *rig) int {
	n, _ := r.do(nil, "ZCOUNT", queueKey, "1000000000000000", "+inf").AsInt64()
	return int(n)
}

// serve returns the names of the next grants to callers of backlog.
func serve(grants int, order <-chan string, next chan<- struct{}) (names []string) {
	for range grants {
		names = append(names, <-order)
		next <- struct{}{}
	}
	return names
}

// Without shares the caller of the light tenant would wait for the whole backlog.
func TestFor_BacklogOfAnother_DelaysTheFirstCallByTwoPermitsAtMost(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 1)
		held := acquire(t, sem, 1)
		order, next := make(chan string), make(chan struct{})
		calls := redistest.Sized(200, 200, 1_000)
		heavy := backlog(t, r, sem.For("heavy"), "heavy", calls, order, next)
		light := backlog(t, r, sem.For("light"), "light", 1, order, next)
		release(t, held)
		names := serve(calls+1, order, next)
		heavy.Wait()
		light.Wait()
		require.Contains(t, names[:3], "light")
		require.Equal(t, 0, waiting(r))
	})
}

// Tenants that always wait get permits in proportion to their weights.
func TestFor_Weights_SharesAreInProportion(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 1)
		held := acquire(t, sem, 1)
		order, next := make(chan string), make(chan struct{})
		var all []*sync.WaitGroup
		for weight := 1; weight <= 3; weight++ {
			tenant := fmt.Sprint("t", weight)
			all = append(all, backlog(t, r, sem.For(tenant).WithWeight(weight), tenant, 60, order, next))
		}
		all = append(all, backlog(t, r, sem, "plain", 60, order, next))
		release(t, held)
		got := map[string]int{}
		for _, name := range serve(240, order, next)[:70] {
			got[name]++
		}
		for _, wg := range all {
			wg.Wait()
		}
		require.InDelta(t, 10, got["plain"], 1, got)
		require.InDelta(t, 10, got["t1"], 1, got)
		require.InDelta(t, 20, got["t2"], 1, got)
		require.InDelta(t, 30, got["t3"], 1, got)
	})
}

// A tenant that holds its maximum is passed over, and has the next permit when it gives one back.
func TestFor_MaximumIsHeld_OthersAreServedAndThenTheTenant(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for _, kind := range []func(*rsemaphore.Client) *rsemaphore.Semaphore{
			func(c *rsemaphore.Client) *rsemaphore.Semaphore { return c.Semaphore("s", 4) },
			func(c *rsemaphore.Client) *rsemaphore.Semaphore { return c.WeightedSemaphore("s", 4) },
		} {
			r := newRig(t, s, patient)
			sem := kind(r.c)
			capped := sem.For("capped").WithMax(2)
			first, second := acquire(t, capped, 1), acquire(t, capped, 1)
			_, err := capped.TryAcquire(within(t), 1, 0, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired, "without a wait")
			got := make(chan *rsemaphore.Permit, 10)
			for range 3 {
				go func() { got <- acquire(t, capped, 1) }()
			}
			redistest.Eventually(t, 30*time.Second, "they wait", func() bool {
				return redistest.NoError(sem.Inspect(within(t)))(t).Tenants["capped"].Waiting == 3
			})
			other := acquire(t, sem.For("other"), 1)
			plain := redistest.NoError(sem.TryAcquire(within(t), 1, 0, 0))(t)
			state := redistest.NoError(sem.Inspect(within(t)))(t)
			require.Equal(t, map[string]rsemaphore.Tenant{"capped": {Held: 2, Waiting: 3}, "other": {Held: 1}}, state.Tenants)
			require.Empty(t, got)
			release(t, other)
			release(t, plain)
			require.Empty(t, got)
			for _, held := range []*rsemaphore.Permit{first, second} {
				release(t, held)
				release(t, <-got)
			}
			release(t, <-got)
			state = redistest.NoError(sem.Inspect(within(t)))(t)
			require.Empty(t, state.Tenants)
		}
	})
}

// The permits of a tenant that come back without a word about the tenant: by their ids, and when their lease is over.
func TestFor_PermitsComeBackOtherwise_MaximumIsFreeAgain(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for how, leaseTime := range map[string]time.Duration{"by ids": 0, "by its lease": 300 * time.Millisecond} {
			r, other := newRig(t, s, patient), newRig(t, s, patient)
			sem := r.c.Semaphore("s", 5)
			capped := sem.For("capped").WithMax(3)
			held := redistest.NoError(other.c.Semaphore("s", 5).For("capped").TryAcquire(within(t), 3, 0, leaseTime))(t)
			got := make(chan *rsemaphore.Permit, 1)
			go func() { got <- acquire(t, capped, 3) }()
			if how == "by ids" {
				redistest.Eventually(t, 30*time.Second, "it waits", func() bool { return r.c.Stats().Waiting == 1 })
				require.NoError(t, sem.ReleaseIDs(within(t), held.IDs()...))
			}
			release(t, <-got)
			forgo(t, held)
		}
	})
}

// A call with a priority goes before others, of its tenant, too; but no stream of such calls starves them.
func TestFor_Priority_IsAHeadStartAndAges(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 1)
		held := acquire(t, sem, 1)
		order, next := make(chan string), make(chan struct{})
		all := []*sync.WaitGroup{
			backlog(t, r, sem.For("t"), "batch", 5, order, next),
			backlog(t, r, sem, "plain", 5, order, next),
			backlog(t, r, sem.For("t").WithPriority(1), "urgent", 20, order, next),
		}
		release(t, held)
		var got []string
		for range 30 {
			got = append(got, <-order)
			next <- struct{}{}
		}
		for _, wg := range all {
			wg.Wait()
		}
		require.Equal(t, "urgent", got[0], got)
		require.Contains(t, got[:6], "batch", got)
		require.Contains(t, got[:6], "plain", got)
	})
}

// Many tenants that come once do not starve a tenant that was served before.
func TestShares_StreamOfNewTenants_StarvesNobody(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 1)
		held := acquire(t, sem, 1)
		order, next := make(chan string), make(chan struct{})
		old := backlog(t, r, sem.For("old"), "old", 3, order, next)
		var all []*sync.WaitGroup
		fresh := func() {
			tenant := fmt.Sprint("fresh", len(all))
			all = append(all, backlog(t, r, sem.For(tenant).WithPriority(1), tenant, 1, order, next))
		}
		fresh()
		fresh()
		release(t, held)
		got := 0
		for i := range 60 {
			require.Less(t, i, 50, "the old tenant starves")
			if <-order == "old" {
				got++
			} else {
				fresh() // there are always two that have just come
			}
			next <- struct{}{}
			if got == 3 {
				break
			}
		}
		for range 2 {
			<-order
			next <- struct{}{}
		}
		old.Wait()
		for _, wg := range all {
			wg.Wait()
		}
	})
}

// Callers of a tenant that give up at once take nothing from its patient caller, and nothing from others.
func TestFor_ImpatientCallers_DelayNobody(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, patient)
	sem := r.c.Semaphore("s", 1)
	held := acquire(t, sem, 1)
	ctx, stop := context.WithCancel(context.Background())
	var storm sync.WaitGroup
	var leavers atomic.Int32
	for range 32 {
		storm.Go(func() {
			for ctx.Err() == nil {
				p, err := sem.For("t").TryAcquire(ctx, 1, 2*time.Millisecond, 0)
				leavers.Add(1)
				if err == nil {
					if err := p.Release(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	redistest.Eventually(t, 30*time.Second, "many have given up", func() bool {
		return r.number(t, "ZCARD", queueKey) > 3
	})
	got := make(chan *rsemaphore.Permit, 2)
	for _, tenant := range []string{"t", "other"} {
		go func() { got <- acquire(t, sem.For(tenant), 1) }()
	}
	before := leavers.Load()
	redistest.Eventually(t, 30*time.Second, "many come and go", func() bool { return leavers.Load() > before+300 })
	release(t, held)
	release(t, <-got)
	release(t, <-got)
	stop()
	storm.Wait()
	redistest.Eventually(t, 30*time.Second, "nothing is left", func() bool {
		return r.c.Owed() == 0 && r.number(t, "EXISTS", queueKey, "{s}:shares") == 0
	})
}

// The queue or the places of the tenants are lost: each poll writes its part again.
func TestFor_KeysAreLost_WaitersAreServed(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for _, lost := range []string{queueKey, "{s}:shares", "{s}:notes"} {
			o := patient
			o.PollCap = 50 * time.Millisecond
			r := newRig(t, s, o)
			sem := r.c.Semaphore("s", 2)
			capped := sem.For("t").WithMax(1)
			held := acquire(t, capped, 1)
			order, next := make(chan string), make(chan struct{})
			wg := backlog(t, r, capped, "t", 3, order, next)
			r.must(t, "DEL", lost)
			if lost == "{s}:notes" { // its holder is not known as the tenant's any more
				require.Equal(t, "t", <-order)
				next <- struct{}{}
			} else {
				redistest.Eventually(t, 30*time.Second, "they wait again", func() bool {
					return r.number(t, "ZCARD", "{s}:shares") == 3 && waiting(r) == 3
				})
			}
			release(t, held)
			for range map[bool]int{true: 2, false: 3}[lost == "{s}:notes"] {
				require.Equal(t, "t", <-order)
				next <- struct{}{}
			}
			wg.Wait()
		}
	})
}

// Tenants that came once are forgotten while others wait, however many came in a second.
func TestFor_ManyTenantsCameOnce_TheirFinishesAreRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	r.put(t, sem{count: "0", ttl: 50, out: map[string]int{idA: 50}, outTTL: 50})
	r.heard(t, process, func() {
		ask := func(i int) { r.run(t, "acquire", asking(1, process, shareEntry(baseOf("t", i), "tenant"))...) }
		ask(0)
		r.must(t, "ZADD", queueKey, "-20", "!v")
		r.members(t, queueKey, 500, func(i int) (score int64, text string) { return -15, fmt.Sprint("!flong ago ", i) })
		for i := range 400 { // one in 16 removes 100; each second has one that does, too
			ask(i)
		}
		require.EqualValues(t, 0, r.number(t, "ZCOUNT", queueKey, "-15", "-15"))
	})
}

// Each call removes a bounded number of flows whose waiters were lost, and asks for the next call, until one has a
// waiter.
func TestFor_PlacesOfManyAreLost_EachCallRemovesFew(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		r.put(t, sem{count: "0", ttl: 50, out: map[string]int{idA: 50}, outTTL: 50})
		r.members(t, queueKey, 200, func(i int) (score int64, text string) {
			tenant := fmt.Sprint("lost ", i)
			return 1, fmt.Sprintf("~0%d:%s", len(tenant), tenant)
		})
		r.heard(t, process, func() {
			base := baseOf("t", 1)
			ask := func() []string { return r.run(t, "acquire", asking(1, process, shareEntry(base, "tenant"))...) }
			flows := func() int64 { return r.number(t, "ZCOUNT", queueKey, "(0", "(1000000000000000") }
			require.Equal(t, "0", ask()[4], "the next call")
			require.EqualValues(t, 201-64, flows())
			require.Equal(t, []string{"1", "0"}, r.run(t, "release", giving("0", owner(baseA, 1))...), "the next call")
			require.EqualValues(t, 201-2*64, flows())
			require.Equal(t, "0", ask()[4], "the next call")
			require.EqualValues(t, 201-3*64, flows())
			require.Contains(t, ask(), base)
			require.EqualValues(t, 0, r.number(t, "EXISTS", queueKey, "{s}:shares"))
		})
	})
}

// What a permit costs the server does not grow with the tenants that wait.
func TestFor_ManyTenants_CommandsDoNotGrow(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	perPermit := map[int]int{}
	for _, tenants := range []int{10, redistest.Sized(10_000, 10_000, 100_000)} {
		r.must(t, "FLUSHALL")
		r.put(t, sem{count: "0", ttl: 50, out: map[string]int{idA: 50}, outTTL: 50})
		r.heard(t, process, func() {
			for first := 0; first < tenants; first += 100 {
				var entries []string
				for i := first; i < min(first+100, tenants); i++ {
					entries = append(entries, shareEntry(baseOf("t", i), fmt.Sprint("tenant ", i)))
				}
				r.run(t, "acquire", asking(1, process, entries...)...)
			}
			calls := r.counted(t, func() { r.run(t, "release", giving("0", owner(baseA, 1))...) })
			for command, n := range calls {
				if command[0] == 'z' || command == "hset" || command == "hget" || command == "hdel" || command == "hincrby" {
					perPermit[tenants] += n
				}
			}
		})
		require.EqualValues(t, tenants-1, r.number(t, "ZCARD", "{s}:shares"))
	}
	t.Logf("commands of a release that serves a tenant, by tenants: %v", perPermit)
	for _, n := range perPermit {
		require.Equal(t, perPermit[10], n)
	}
}
