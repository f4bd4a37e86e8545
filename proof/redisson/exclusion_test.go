package interop_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/redisson"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

func init() { roles["looper"] = beLooper }

// Exclusion is shown in two ways. Everybody notes when it was inside, on the one clock that all processes of a Linux
// machine share, and no two such intervals may overlap. That misses an overlap shorter than the way from the server to
// the holder. So everybody also reads a number and writes one more, in two requests, while it is inside: who is inside
// at the same time makes the other's count get lost, and at the end the number is too small.

// looped is what one thread or process did in a loop, as Driver.java has it.
type looped struct {
	who     string
	writes  int
	longest time.Duration // wait
	inside  []interval
}

type interval struct {
	shared     bool
	start, end int64
}

func parseLooped(t testing.TB, who, text string) looped {
	t.Helper()
	f := strings.SplitN(text, " ", 3)
	require.Len(t, f, 3, "%s said %q", who, text)
	x := looped{who: who}
	x.writes = redistest.NoError(strconv.Atoi(f[0]))(t)
	ns := redistest.NoError(strconv.ParseInt(f[1], 10, 64))(t)
	x.longest = time.Duration(ns)
	for _, s := range strings.Split(f[2], ",") {
		if s == "" {
			continue
		}
		a, b, _ := strings.Cut(s[1:], ":")
		i := interval{shared: s[0] == 'r'}
		i.start = redistest.NoError(strconv.ParseInt(a, 10, 64))(t)
		i.end = redistest.NoError(strconv.ParseInt(b, 10, 64))(t)
		x.inside = append(x.inside, i)
	}
	return x
}

// together checks that never more than capacity were inside at the same time; one who does not share counts for all.
// It returns the most.
func together(t testing.TB, all []looped, capacity int) int {
	t.Helper()
	if !redistest.OneClock {
		return 0
	}
	var inside redistest.Usage
	for _, x := range all {
		for _, i := range x.inside {
			weight := capacity
			if i.shared {
				weight = 1
			}
			require.LessOrEqual(t, i.start, i.end, x.who)
			inside.Add(time.Unix(0, i.start), time.Unix(0, i.end), weight)
		}
	}
	most := inside.Most()
	require.LessOrEqual(t, most, capacity)
	return most
}

// shares is how often each had been inside when the first of them was through with its rounds.
func shares(all []looped) []int {
	first := int64(math.MaxInt64)
	for _, x := range all {
		first = min(first, x.inside[len(x.inside)-1].end)
	}
	counts := make([]int, len(all))
	for i, x := range all {
		for _, in := range x.inside {
			if in.end <= first {
				counts[i]++
			}
		}
	}
	return counts
}

// looper is another process of this binary that loops on request.
type looper struct{ *redistest.Child }

func startLooper(t testing.TB, w *world) *looper {
	return &looper{redistest.Spawn(t, "looper", w.server)}
}

func (p *looper) send(kind, name string, rounds int, guard string, hold int) <-chan interop.Reply {
	c := make(chan interop.Reply, 1)
	fmt.Fprintln(p.In, kind, name, rounds, guard, hold)
	go func() {
		if p.Out.Scan() {
			c <- interop.Reply{Value: p.Out.Text()}
		} else {
			c <- interop.Reply{Err: errors.New("the process has ended")}
		}
	}()
	return c
}

func beLooper() error {
	return redistest.Try(func() {
		r, end, err := connect(rueidis.ClientOption{InitAddress: os.Args[1:]}, pollCap, loopLease)
		redistest.Must(err)
		defer end()
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			var kind, name, guard string
			var rounds, hold int
			redistest.Got(fmt.Sscan(in.Text(), &kind, &name, &rounds, &guard, &hold))
			fmt.Println(r.loop(context.Background(), kind, name, rounds, guard, time.Duration(hold)*time.Microsecond))
		}
	})
}

// places is the capacity of the semaphores that are looped on.
const places = 3

// loop is Driver.java's, with our own clients. An error ends the process: see redistest.Try.
func (r *rig) loop(ctx context.Context, kind, name string, rounds int, guard string, hold time.Duration) string {
	writes, longest := 0, int64(0)
	var inside []string
	for i := range rounds {
		asked := redistest.Monotonic()
		reads := kind == "rw" && i%3 != 0
		shared := reads || kind == "sem" || kind == "permit"
		give := redistest.Got(r.take(ctx, kind, name, reads))
		start := redistest.Monotonic()
		longest = max(longest, start-asked)
		switch {
		case !shared:
			next := strconv.FormatInt(redistest.Got(r.number(ctx, guard))+1, 10)
			redistest.Must(r.redis.Do(ctx, r.redis.B().Set().Key(guard).Value(next).Build()).Error())
			writes++
		case reads:
			was := redistest.Got(r.number(ctx, guard))
			if is := redistest.Got(r.number(ctx, guard)); is != was {
				redistest.Must(fmt.Errorf("a writer and a reader at the same time: %d became %d", was, is))
			}
		}
		time.Sleep(hold)
		end := redistest.Monotonic()
		redistest.Must(give(ctx))
		mark := "w"
		if shared {
			mark = "r"
		}
		inside = append(inside, fmt.Sprintf("%s%d:%d", mark, start, end))
	}
	return fmt.Sprintf("%d %d %s", writes, longest, strings.Join(inside, ","))
}

func (r *rig) take(ctx context.Context, kind, name string, reads bool) (give func(context.Context) error, err error) {
	switch kind {
	case "sem":
		s := counting.New(r.sems, name)
		return func(ctx context.Context) error { return s.Release(ctx, 1) }, s.Acquire(ctx, 1)
	case "permit":
		p, err := r.sems.Semaphore(name, places).Acquire(ctx, 1)
		if err != nil {
			return nil, err
		}
		return p.Release, nil
	}
	if kind == "rw" {
		kind = "write"
		if reads {
			kind = "read"
		}
	}
	var h *rlock.Hold
	if h, err = r.lock(kind, name).Lock(ctx); err != nil {
		return nil, err
	}
	return h.Unlock, nil
}

func (r *rig) number(ctx context.Context, key string) (int64, error) {
	n, err := r.redis.Do(ctx, r.redis.B().Get().Key(key).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	return n, err
}

// starved is longer than anybody may wait for a lock that is always released again within a millisecond.
//
// It is not shorter because of Redisson's read-write lock: of the message of a writer's release only those threads get
// anything that sleep already, so that one which has asked just before sleeps for the lease that it was told, on a free
// lock, if nobody else comes by. (It was seen between two threads of one Java client, with MONITOR.) Therefore the
// leases are short here.
const (
	starved   = 20 * time.Second
	loopLease = 5 * time.Second
)

// lanes are Java threads of one Redisson client that renews leases of loopLease.
func (w *world) lanes(t testing.TB, n int) []*lane {
	first := w.other(t, loopLease)
	all := []*lane{first}
	for len(all) < n {
		all = append(all, &lane{first.jvm, unique(t, "lane"), first.client})
	}
	return all
}

// contend has everybody loop on one name at the same time, and checks what they say.
func contend(t *testing.T, r *rig, kind string, capacity, rounds int, loopers []*looper, lanes []*lane,
	prepare func(name string)) {
	t.Helper()
	name, guard := unique(t, kind), unique(t, "guard")
	if kind == "multi" {
		name += "," + unique(t, kind)
	}
	if prepare != nil {
		prepare(name)
	}
	type reply struct {
		who string
		c   <-chan interop.Reply
	}
	var replies []reply
	hold := 0 // µs, beside what is done under the guard
	if kind == "sem" || kind == "permit" {
		hold = 500
	}
	began := time.Now()
	for i, l := range lanes {
		replies = append(replies, reply{fmt.Sprint("java ", i), l.send("loop", kind, name, rounds, 0, guard, hold)})
	}
	for i, p := range loopers {
		replies = append(replies, reply{fmt.Sprint("go ", i), p.send(kind, name, rounds, guard, hold)})
	}
	var all []looped
	var longest time.Duration
	writes, inside := 0, 0
	for _, c := range replies {
		text, _ := got(t, c.c)
		x := parseLooped(t, c.who, text)
		require.Len(t, x.inside, rounds)
		require.Less(t, x.longest, starved, "%s starved", x.who)
		longest, writes, inside = max(longest, x.longest), writes+x.writes, inside+len(x.inside)
		all = append(all, x)
	}
	most := together(t, all, capacity)
	n := redistest.NoError(r.number(within(t), guard))(t)
	require.EqualValues(t, writes, n, "counts were lost: two were inside at the same time")
	if shared := kind == "sem" || kind == "permit"; redistest.OneClock && shared {
		require.Equal(t, capacity, most, "all places were used")
	}
	if redistest.OneClock {
		// Where waiters queue, nobody is left out while the others want the lock, too.
		switch least := slices.Min(shares(all)); kind {
		case "lock", "fenced":
			if redistest.Long() { // a short race may be over before a slow starter has begun
				require.Greater(t, least, rounds/20, "somebody hardly ever gets it: %v", shares(all))
			}
		case "fair":
			require.Greater(t, least, rounds/3, "in turns: %v", shares(all))
		}
	}
	t.Logf("%d acquisitions in %v, longest wait %v, at most %d inside, %v until the first was through", inside,
		time.Since(began).Round(time.Millisecond), longest.Round(time.Millisecond), most, shares(all))
}

func TestExclusion_GoProcessesAndJavaThreads_NeverOverlap(t *testing.T) {
	many := map[place]map[string]int{
		newestAlone: {"lock": 400, "fenced": 150, "fair": 150, "spin": 40, "rw": 150, "write": 150, "sem": 150,
			"permit": 150, "multi": 60},
		newestCluster: {"lock": 200, "fair": 100, "rw": 100, "sem": 100, "permit": 100, "multi": 60},
		olderAlone:    {"lock": 200, "fair": 100, "rw": 100, "permit": 100, "multi": 60},
		olderCluster:  {"lock": 400},
	}
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		var loopers []*looper
		lanes := w.lanes(t, 4)
		for range 4 {
			loopers = append(loopers, startLooper(t, w))
		}
		rounds := many[place{w.release, w.kind}]
		for _, kind := range []string{"lock", "fenced", "fair", "spin", "rw", "write", "sem", "permit", "multi"} {
			if rounds[kind] == 0 {
				continue
			}
			t.Run(kind, func(t *testing.T) {
				capacity, prepare := 1, func(string) {}
				switch kind {
				case "rw":
					capacity = 1000
				case "sem":
					capacity = places
					prepare = func(name string) { lanes[0].do(t, "sem.set", name, places) }
				case "permit":
					capacity = places
					prepare = func(name string) { lanes[0].do(t, "permit.set", name, places) }
				}
				n := rounds[kind]
				contend(t, r, kind, capacity, redistest.Sized(n, min(n, max(100, n/3)), n), loopers, lanes, prepare)
			})
		}
	})
}

// TestExclusion_TwoRedissonReleasesAndGo_ShareALock: threads of both releases and Go processes at once.
func TestExclusion_TwoRedissonReleasesAndGo_ShareALock(t *testing.T) {
	driver(t)
	for _, kind := range []string{"lock", "fair", "rw"} {
		t.Run(kind, func(t *testing.T) {
			a, b := newWorld(t, interop.Newest, "standalone"), newWorld(t, interop.Older, "standalone")
			require.NotEqual(t, a.jvm.Version, b.jvm.Version)
			capacity := 1
			if kind == "rw" {
				capacity = 1000
			}
			contend(t, a.rig(t), kind, capacity, 100, []*looper{startLooper(t, a), startLooper(t, a)},
				append(a.lanes(t, 2), b.lanes(t, 2)...), nil)
		})
	}
}
