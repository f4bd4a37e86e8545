package rlock_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// While a service moves from redsync or Plain to a lock that is a hash, or back, both kinds are under one name at
// once. A lock of the other kind is contention; what is not a lock is ErrWrongType.

const (
	javaOwner = "285475da-9152-4c83-822a-67ee2f116a79:52"
	nobody    = "9c1d2e3f-0a4b-5c5d-ce6f-7a8b9c0d1e2f:-1" // with no version, of a thread with a negative id
)

// TestTheOtherKindScriptTable: what each script that acquires says of a key that is another kind's lock, or none.
func TestTheOtherKindScriptTable(t *testing.T) {
	hashes := map[string]struct{ keys, args []string }{
		"acquire":        {[]string{"l", "q"}, []string{alice, "300000", "0"}},
		"acquire queued": {[]string{"l", "q"}, []string{alice, "300000", "0", "PUBLISH", "g:", entryOf(alice)}},
		"fenced_acquire": {[]string{"l", "q", "token"}, []string{alice, "300000", "0", "PUBLISH", "g:", "", "300000"}},
		"vote_acquire":   {[]string{"l", "q"}, []string{alice, "300000", "0", "PUBLISH", "g:", "-5000"}},
		"several_acquire": {[]string{"free", "freequeue", "l", "q"},
			[]string{"300000", "0", "PUBLISH", alice, "g:", bob, "g:"}},
		"fair_acquire": {[]string{"l", "list", "timeouts", "places"},
			[]string{alice, "300000", "0", "PUBLISH", "c", "3000", "g:", ""}},
		"rw_write": {[]string{"l", "ends", "q"}, []string{alice, "300000", "0", "c", "PUBLISH", "g:", entryOf(alice)}},
		"rw_read": {[]string{"l", "ends", "q", "timeout"},
			[]string{alice, "300000", "0", "c", "", "", "PUBLISH", "g:", entryOf(alice)}},
	}
	plains := map[string]struct{ keys, args []string }{
		"plain_acquire":        {[]string{"l", "line"}, []string{alice, "300000", "0", "c", "PUBLISH"}},
		"plain_acquire queued": {[]string{"l", "line", "q"}, []string{alice, "300000", "0", "c", "PUBLISH", alice + " 20"}},
	}
	ms := "100000"
	for _, c := range []struct {
		name  string
		setup [][]string
		of    map[string]struct{ keys, args []string }
		want  int64 // the holder, as the script says it; 0: WRONGTYPE
	}{
		{"a Plain lock", [][]string{{"SET", "l", bob, "PX", ms}}, hashes, 2},
		{"a lock of redsync", [][]string{{"SET", "l", "b64==", "PX", ms}}, hashes, 3},
		{"a string without an end", [][]string{{"SET", "l", bob}}, hashes, 0},
		{"a list", [][]string{{"RPUSH", "l", bob}, {"PEXPIRE", "l", ms}}, hashes, 0},
		{"a set", [][]string{{"SADD", "l", bob}, {"PEXPIRE", "l", ms}}, hashes, 0},
		{"a Reentrant lock", [][]string{{"HSET", "l", bob, "1"}, {"PEXPIRE", "l", ms}}, plains, 2},
		{"a joined lock", [][]string{{"HSET", "l", bob, "1", bob + "!", "5"}, {"PEXPIRE", "l", ms}}, plains, 2},
		{"a labelled lock", [][]string{{"HSET", "l", bob + ":backup", "1"}, {"PEXPIRE", "l", ms}}, plains, 2},
		{"a reader", [][]string{{"HSET", "l", "mode", "read", bob, "1"}, {"PEXPIRE", "l", ms}}, plains, 2},
		{"a writer", [][]string{{"HSET", "l", "mode", "write", bob + ":write", "1"}, {"PEXPIRE", "l", ms}}, plains, 2},
		{"a lock of Redisson's", [][]string{{"HSET", "l", javaOwner, "1"}, {"PEXPIRE", "l", ms}}, plains, 3},
		{"a writer of Redisson's",
			[][]string{{"HSET", "l", "mode", "write", javaOwner + ":write", "1"}, {"PEXPIRE", "l", ms}},
			plains, 3},
		{"any long as thread", [][]string{{"HSET", "l", nobody, "1"}, {"PEXPIRE", "l", ms}}, plains, 3},
		{"one of ours, one of Redisson's", [][]string{{"HSET", "l", "mode", "read", bob, "1", javaOwner, "1"},
			{"PEXPIRE", "l", ms}}, plains, 3},
		{"a hash of somebody's", [][]string{{"HSET", "l", "name", "x"}, {"PEXPIRE", "l", ms}}, plains, 0},
		{"a hash with an owner among others", [][]string{{"HSET", "l", bob, "1", "name", "x"}, {"PEXPIRE", "l", ms}},
			plains, 0},
		{"a hash without an end", [][]string{{"HSET", "l", bob, "1"}}, plains, 0},
		{"a list", [][]string{{"RPUSH", "l", bob}, {"PEXPIRE", "l", ms}}, plains, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				g := newScriptRig(t, s)
				for _, name := range slices.Sorted(maps.Keys(c.of)) {
					call := c.of[name]
					g.must(t, "FLUSHALL")
					for _, words := range c.setup {
						g.must(t, words...)
					}
					script, queued := name, false
					if cut, found := strings.CutSuffix(name, " queued"); found {
						script, queued = cut, true
					}
					dump := func() any {
						typ, err := g.do(t, "TYPE", "l").ToString()
						require.NoError(t, err)
						if typ == "string" || typ == "hash" {
							return g.look(t, "l")
						}
						return typ
					}
					before := dump()
					for run := range 2 {
						got, err := eval(t, g.c, source(t, script), call.keys, call.args...)
						if c.want == 0 {
							require.ErrorContains(t, err, "WRONGTYPE", name)
							n, err := g.do(t, "DBSIZE").AsInt64()
							require.NoError(t, err)
							require.EqualValues(t, 1, n, "%s: nothing was done", name)
							continue
						}
						require.NoError(t, err, name)
						require.Zero(t, got[0], "%s: %v", name, got)
						require.InDelta(t, 100_000, got[1], 30_000, "%s: %v", name, got)
						if script == "several_acquire" {
							require.EqualValues(t, 2, got[3], "which")
							require.Empty(t, g.look(t, "free").hash)
						} else {
							require.Equal(t, c.want, got[4], "%s, run %d: %v", name, run+1, got)
						}
						if queued {
							require.Equal(t, []string{alice}, g.queue(t, "q").line, name)
							require.NotZero(t, got[3], "it has a place")
						}
						if script == "fenced_acquire" {
							require.EqualValues(t, -2, g.queue(t, "token").left, "no token is made")
						}
					}
					after := dump()
					if x, ok := after.(snapshot); ok {
						requireTTL(t, untouched, before.(snapshot), x)
						x.left = before.(snapshot).left
						after = x
					}
					require.Equal(t, before, after, name)
				}
			})
		})
	}
}

// TestScriptsOfTwoKindsHandTheLockOver: what a release of a Plain lock does for those that wait for a hash, and the
// reverse. Those that came first are first.
func TestScriptsOfTwoKindsHandTheLockOver(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		plainKeys, hashKeys := []string{"l", "line", "q"}, []string{"l", "q"}
		const dave = "3c4d5e6f-5a1e-8c61-9d0a-6f4f3a2b1c0d:4" // its process is gone
		heard, _ := overhear(t, g.c, []string{"g:" + alice[:36], "g:" + bob[:36], "g:" + carol[:36]}, "")
		run := func(script string, keys []string, args ...string) []int64 {
			t.Helper()
			got, err := eval(t, g.c, source(t, script), keys, args...)
			require.NoError(t, err, script)
			return got
		}
		hash := func(owner string) []int64 {
			return run("acquire", hashKeys, owner, "300000", "0", "PUBLISH", "g:", entryOf(owner))
		}
		plain := func(owner string) []int64 {
			return run("plain_acquire", plainKeys, owner, "300000", "0", "c", "PUBLISH", owner+" 150")
		}
		leaveHash := func(owner, entry string) ([]int64, error) {
			return eval(t, g.c, source(t, "release"), hashKeys, owner, "rc", "PUBLISH", "g:", entry)
		}
		leavePlain := func(owner, entry string) ([]int64, error) {
			return eval(t, g.c, source(t, "plain_release"), plainKeys, owner, "c", "PUBLISH", "g:", entry)
		}
		exists := func(key string) bool {
			n, err := g.do(t, "EXISTS", key).AsInt64()
			require.NoError(t, err)
			return n == 1
		}
		told := func(owner string) string { return "g:" + owner[:36] + " 0 0 " + owner }
		begin := func(what string) {
			g.must(t, "FLUSHALL")
			heard()
			t.Log(what)
		}

		begin("a Plain release hands the lock to one that waits for a hash")
		require.Len(t, plain(alice), 1)
		ticket := hash(bob)[3]
		got, err := leavePlain(alice, "")
		require.NoError(t, err)
		require.Equal(t, []int64{1}, got)
		require.Equal(t, map[string]string{bob: "1"}, g.look(t, "l").hash)
		require.Equal(t, []string{fmt.Sprintf("g:%s %d %d %s", bob[:36], ticket, first, bob)}, heard())
		got, err = leavePlain(alice, "")
		require.NoError(t, err)
		require.Equal(t, []int64{0}, got, "a second run finds the other's, and leaves it")
		require.Equal(t, map[string]string{bob: "1"}, g.look(t, "l").hash)
		require.Empty(t, heard())

		begin("of both, the one that came first is served")
		plain(alice)
		plain(carol)
		hash(bob)
		got, err = leavePlain(alice, "")
		require.NoError(t, err)
		require.Equal(t, []int64{1}, got)
		require.False(t, exists("l"))
		require.Equal(t, []string{told(carol)}, heard())
		require.Len(t, plain(carol), 1)
		_, err = leavePlain(carol, "")
		require.NoError(t, err)
		require.Equal(t, map[string]string{bob: "1"}, g.look(t, "l").hash)

		begin("the process of the first is gone: the next, of the other kind, is served")
		plain(alice)
		plain(dave)
		hash(bob)
		_, err = leavePlain(alice, "")
		require.NoError(t, err)
		require.Equal(t, map[string]string{bob: "1"}, g.look(t, "l").hash)
		begin("and the reverse")
		plain(alice)
		hash(dave)
		plain(carol)
		_, err = leavePlain(alice, "")
		require.NoError(t, err)
		require.False(t, exists("l"))
		require.Equal(t, []string{told(carol)}, heard())
		require.False(t, exists("q"))

		begin("a release of a hash leaves the lock to one that waits for a Plain lock, in its turn")
		require.Len(t, hash(alice), 1)
		require.EqualValues(t, 2, plain(bob)[4])
		require.EqualValues(t, 2, plain(bob)[4], "it asks again, and keeps its place")
		hash(carol)
		got, err = leaveHash(alice, "")
		require.NoError(t, err)
		require.Equal(t, []int64{1}, got)
		require.False(t, exists("l"))
		require.Equal(t, []string{told(bob)}, heard())
		state := g.queue(t, "q")
		require.Equal(t, []string{carol}, state.line)
		require.InDelta(t, g.now(t)+150, state.open, 150)
		if got := hash(carol); len(got) > 1 && got[0] == 0 { // or the time is over, on a busy machine
			require.LessOrEqual(t, got[1], int64(150))
			require.Len(t, plain(bob), 1, "it is free for the one that was notified")
			require.EqualValues(t, 2, hash(carol)[4])
			require.False(t, exists("line"))
		}

		begin("it was the only one: nothing is left beside the lock")
		hash(alice)
		plain(bob)
		_, err = leaveHash(alice, "")
		require.NoError(t, err)
		left := g.queue(t, "q").left
		require.True(t, left == -2 || left >= 0 && left <= 150, "the mark ends with the reservation: %d", left)
		require.Len(t, plain(bob), 1)
		require.False(t, exists("line"))

		begin("a hash request that finds the lock free and a Plain waiter first keeps the order")
		hash(alice)
		plain(bob)
		g.must(t, "DEL", "l")
		refused := hash(carol)
		require.Zero(t, refused[0])
		require.GreaterOrEqual(t, refused[1], int64(0), "for as long as it is left to the other")
		require.LessOrEqual(t, refused[1], int64(150))
		require.Equal(t, []string{told(bob)}, heard())

		begin("who gives up leaves nothing, whatever holds the lock")
		plain(alice)
		hash(bob)
		got, err = leaveHash(bob, entryOf(bob))
		require.NoError(t, err)
		require.Equal(t, []int64{0}, got)
		require.False(t, exists("q"))
		begin("")
		hash(alice)
		plain(bob)
		plain(bob)
		got, err = leavePlain(bob, bob+" 150")
		require.NoError(t, err)
		require.Equal(t, []int64{0}, got)
		require.False(t, exists("q"))
		require.False(t, exists("line"))
		begin("and one that was notified has the next served")
		hash(alice)
		plain(bob)
		hash(carol)
		_, err = leaveHash(alice, "")
		require.NoError(t, err)
		_, err = leavePlain(bob, bob+" 150")
		require.NoError(t, err)
		require.Equal(t, map[string]string{carol: "1"}, g.look(t, "l").hash)
		begin("a waiter of a Fair lock, too")
		plain(alice)
		fair := []string{"l", "list", "timeouts", "places"}
		run("fair_acquire", fair, bob, "300000", "0", "PUBLISH", "fc", "3000", "g:", "")
		require.True(t, exists("list"))
		require.Equal(t, []int64{0}, run("fair_release", fair, bob, "fc", "PUBLISH", "1", "g:"))
		require.False(t, exists("list"))

		begin("a forced Plain lock goes on in the same way")
		plain(alice)
		hash(bob)
		require.Equal(t, []int64{1}, run("plain_force", plainKeys, "c", "PUBLISH", "g:", alice))
		require.Equal(t, map[string]string{bob: "1"}, g.look(t, "l").hash)
	})
}

// Every kind waits for a lock of redsync's, which releases without a word, and no kind is kept out for long.
func TestEveryKindWaitsForALockThatIsAString(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for kind, of := range withMulti(t) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, s, rlock.Options{PollCap: 100 * time.Millisecond})
			name := "x" + kind
			set := r.redis.B().Set().Key(name).Value("b64==").Nx().Px(time.Minute).Build()
			require.NoError(t, r.redis.Do(within(t), set).Error())
			_, err := of(r.locks, name).TryLock(within(t), 0, 0)
			var held *rlock.NotAcquiredError
			require.ErrorAs(t, err, &held)
			require.NotErrorIs(t, err, errs.ErrWrongType)
			if kind != "Plain" && kind != "Multi" {
				require.Equal(t, "string", held.Kind)
				require.True(t, held.Foreign)
				require.ErrorContains(t, err, "another kind of lock: its key is a string")
			}
			_, err = of(r.locks, name).TryLock(within(t), 150*time.Millisecond, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			redistest.Eventually(t, 10*time.Second, "who gave up leaves nothing", func() bool {
				return !slices.ContainsFunc(keys(t, r.redis), func(k string) bool {
					return k != name && (k == "redlatch_queue:{"+name+"}" || k == "redisson_lock_queue:{"+name+"}")
				})
			})
			got := make(chan result, 1)
			ctx := within(t)
			go func() {
				h, err := of(r.locks, name).Lock(ctx)
				got <- result{h, err, time.Now()}
			}()
			redistest.Eventually(t, 20*time.Second, "it waits", func() bool { return r.locks.Lines() > 0 })
			require.NoError(t, r.redis.Do(within(t), r.redis.B().Del().Key(name).Build()).Error())
			x := <-got
			require.NoError(t, x.err)
			require.NoError(t, x.hold.Unlock(within(t)))
		})
	}
}

// The holder's key ends while the others wait: they do not sleep for longer than its lease.
func TestTheEndOfALockThatIsAStringIsWaitedForByATimer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{PollCap: time.Minute})
	set := r.redis.B().Set().Key("x").Value("b64==").Nx().Px(500 * time.Millisecond).Build()
	require.NoError(t, r.redis.Do(within(t), set).Error())
	h, err := r.locks.Reentrant("x").Lock(within(t))
	require.NoError(t, err)
	require.NoError(t, h.Unlock(within(t)))
}

// Processes of both kinds want one lock at once, as in a rolling update: one at a time holds it, none gets any error,
// all get their share, and the waiting is by messages: PollCap is longer than the test.
func TestProcessesOfTwoKindsTakeTurns(t *testing.T) {
	t.Parallel()
	redistest.SideBySide(t, map[string]func(testing.TB) *redistest.Server{
		"redis": func(t testing.TB) *redistest.Server { return redistest.Start(t) }, "cluster": redistest.Cluster,
	}, func(t *testing.T, _ string, start func(testing.TB) *redistest.Server) { takeTurns(t, start(t)) })
}

// twoKinds is the lock "x" of n processes that hardly poll: a Plain one and a Reentrant one in turn.
func twoKinds(t *testing.T, s *redistest.Server, n int) (all []*rlock.Lock) {
	t.Helper()
	for i := range n {
		locks := newRig(t, s, rlock.Options{PollCap: time.Minute}).locks
		if i%2 == 0 {
			all = append(all, locks.Plain("x"))
		} else {
			all = append(all, locks.Reentrant("x"))
		}
	}
	return all
}

func takeTurns(t *testing.T, s *redistest.Server) {
	const each, rounds = 3, 15
	var holders, overlaps atomic.Int64
	shares := make([]atomic.Int64, 2*each)
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	var wg sync.WaitGroup
	var errors sync.Map
	for i, l := range twoKinds(t, s, 2*each) {
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					h, err := l.Lock(ctx)
					if err != nil {
						if ctx.Err() == nil {
							errors.Store(err.Error(), i)
						}
						return
					}
					if holders.Add(1) > 1 {
						overlaps.Add(1)
					}
					time.Sleep(time.Millisecond)
					holders.Add(-1)
					shares[i].Add(1)
					if err := h.Unlock(context.Background()); err != nil {
						errors.Store(err.Error(), i)
					}
				}
			})
		}
	}
	redistest.Eventually(t, 60*time.Second, "every process has had it", func() bool {
		for i := range shares {
			if shares[i].Load() < rounds {
				return false
			}
		}
		return true
	})
	stop()
	wg.Wait()
	errors.Range(func(err, i any) bool {
		t.Errorf("process %d: %v", i, err)
		return true
	})
	require.Zero(t, overlaps.Load())
	all := ""
	for i := range shares {
		all += " " + strconv.FormatInt(shares[i].Load(), 10)
	}
	t.Log("turns of each process:" + all)
}

// Most callers give up within 5 ms, in every state, and come again.
func TestImpatientCallersOfTwoKindsLeaveNothingAndStarveNobody(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	ctx, stop := context.WithTimeout(within(t), redistest.Sized(time.Second, time.Second, 20*time.Second))
	defer stop()
	var holders, overlaps, refused atomic.Int64
	var turns [6]int             // of the patient caller of each process
	var longest [6]time.Duration // that it waited
	var wg sync.WaitGroup
	for i, l := range twoKinds(t, s, len(longest)) {
		for w := range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					patience := time.Duration(rand.IntN(5000)) * time.Microsecond
					if w == 0 {
						patience = time.Minute
					}
					began := time.Now()
					h, err := l.TryLock(ctx, patience, 0)
					if w == 0 {
						longest[i] = max(longest[i], time.Since(began))
					}
					if err != nil {
						refused.Add(1)
						continue
					}
					if w == 0 {
						turns[i]++
					}
					if holders.Add(1) > 1 {
						overlaps.Add(1)
					}
					holders.Add(-1)
					if err := h.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d refused; the patient had %v turns, and waited for up to %v", refused.Load(), turns, longest)
	require.Zero(t, overlaps.Load())
	require.Positive(t, refused.Load())
	require.Positive(t, slices.Min(turns[:]))
	require.Less(t, slices.Max(longest[:]), 8*time.Second, "in full: nobody waits for a poll")
	c := s.Client(t)
	redistest.Eventually(t, 20*time.Second, "nothing is left", func() bool {
		return len(redistest.Objects(keys(t, c))) == 0
	})
}

// Those that came while the lock was a string stand in its line only. Where it is handed to one that waits for a hash,
// the hash's waiters would go on among themselves until one of the line polls.
func TestThoseWhoCameWhileTheLockWasAStringAreServedInTheirTurn(t *testing.T) {
	t.Parallel()
	bubble(t, 6, rlock.Options{PollCap: time.Minute}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		h := lock(t, rigs[0].locks.Plain("x"), ctx)
		served := make(chan int, 2*len(rigs))
		for i, r := range rigs[1:] {
			l := r.locks.Plain("x")
			if i == 0 || i == 4 {
				l = r.locks.Reentrant("x")
			}
			go func() {
				if l.Do(ctx, func(context.Context) error { served <- i; return nil }) != nil {
					served <- -1
				}
			}()
			time.Sleep(100 * time.Millisecond)
		}
		began := time.Now()
		require.NoError(t, h.Unlock(ctx))
		for i := range rigs[1:] {
			require.Equal(t, i, <-served, "in the order in which they came")
		}
		require.Less(t, time.Since(began), time.Second, "nobody polls")
	})
}

// The reply to a release is lost, and its second run finds a lock of the other kind, which the first has made way for:
// nothing was lost.
func TestAReleaseThatMadeWayForTheOtherKindIsNoLoss(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	plain, reentrant := (*rlock.Client).Plain, (*rlock.Client).Reentrant
	for name, of := range map[string][2]func(*rlock.Client, string) *rlock.Lock{
		"Plain, then Reentrant": {plain, reentrant}, "Reentrant, then Plain": {reentrant, plain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s)
			r := newRig(t, p.Server(), rlock.Options{CallTimeout: 300 * time.Millisecond})
			other := newRig(t, s, rlock.Options{})
			h := lock(t, of[0](r.locks, name), within(t))
			got := make(chan result, 1)
			ctx := within(t)
			go func() {
				h, err := of[1](other.locks, name).Lock(ctx)
				got <- result{h, err, time.Now()}
			}()
			redistest.Eventually(t, 20*time.Second, "it queues", func() bool {
				n, err := other.redis.Do(ctx, other.redis.B().Exists().Key("redlatch_queue:{"+name+"}").Build()).AsInt64()
				return err == nil && n == 1
			})
			p.Trap(&redistest.Trap{Match: redistest.With(string(h.Owner())), Fate: redistest.LoseReply})
			require.NoError(t, h.Unlock(within(t)))
			x := <-got
			require.NoError(t, x.err)
			require.NoError(t, x.hold.Err())
			require.NoError(t, x.hold.Unlock(within(t)))
		})
	}
}

// What is seen of waiters of two kinds.
func TestInspectShowsWaitersOfBothKindsOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder := newRig(t, s, rlock.Options{})
	h := lock(t, holder.locks.Reentrant("x"), within(t))
	var wg sync.WaitGroup
	for _, of := range []func(*rlock.Client, string) *rlock.Lock{(*rlock.Client).Reentrant, (*rlock.Client).Plain} {
		r := newRig(t, s, rlock.Options{})
		wg.Go(func() {
			h, err := of(r.locks, "x").Lock(within(t))
			if err == nil {
				err = h.Unlock(within(t))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	redistest.Eventually(t, 20*time.Second, "both wait", func() bool {
		state, err := holder.locks.Plain("x").Inspect(within(t))
		require.NoError(t, err)
		return len(state.Waiters) == 2
	})
	members, err := holder.redis.Do(within(t), holder.redis.B().Zcard().Key("redlatch_queue:{x}").Build()).AsInt64()
	require.NoError(t, err)
	require.GreaterOrEqual(t, members, int64(2))
	require.NoError(t, h.Unlock(within(t)))
	wg.Wait()
}
