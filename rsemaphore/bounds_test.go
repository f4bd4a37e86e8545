package rsemaphore_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// How much one script does is bounded, however many permits, waiters and leases there are.

// baseOf is the base number i of a kind.
func baseOf(kind string, i int) string { return fmt.Sprintf("%s\x80%06d", strings.Repeat(kind, 6), i) }

// members adds many members to a sorted set.
func (r *rig) members(t *testing.T, key string, n int, member func(i int) (score int64, text string)) {
	t.Helper()
	for i := 0; i < n; {
		args := []string{"ZADD", key}
		for ; i < n && len(args) < 2000; i++ {
			score, text := member(i)
			args = append(args, strconv.FormatInt(score, 10), text)
		}
		r.must(t, args...)
	}
}

// counted is how many commands scripts make while fn runs, by name.
func (r *rig) counted(t *testing.T, fn func()) map[string]int {
	t.Helper()
	before := redistest.CommandCalls(t, r.redis)
	fn()
	after := redistest.CommandCalls(t, r.redis)
	for command := range after {
		after[command] -= before[command]
	}
	return after
}

func TestPoll_LargeRequests_LooksForOneIDOfEach(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	r.put(t, sem{count: "0", ttl: 50, out: map[string]int{idA: 50}, outTTL: 50,
		notes: map[string]string{"keep": "1", "capacity": "2000"}, noteTTL: 50})
	r.must(t, "SET", "s", "1999", "KEEPTTL")
	r.must(t, "EVAL", "for i = 2, 2000 do redis.call('ZADD', KEYS[1], ARGV[1], 'x' .. string.format('%015d', i)) end "+
		"redis.call('SET', KEYS[2], '0', 'KEEPTTL')",
		"2", "{s}:timeout", "s", strconv.FormatInt(r.now(t)+50*unit, 10))
	var entries []string
	for i := range 128 {
		entries = append(entries, entry(baseOf("w", i), 1000, process, ""))
	}
	args := asking(2000, process, entries...)
	args[1] = strconv.FormatInt(r.now(t)+100*unit, 10) // a client's first call has none, and tries the rights of a release
	first := r.run(t, "acquire", args...)
	var again []string
	calls := r.counted(t, func() { again = r.run(t, "acquire", args...) })
	require.Equal(t, first[6:], again[6:], "they keep their tickets")
	require.Zero(t, calls["zmscore"], "of ids that nobody has: %v", calls)
	require.LessOrEqual(t, calls["zscore"], 3*128, "%v", calls)
}

func TestAcquire_ManyPermits_TakesAThousandInACall(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		const capacity = 5000
		r.put(t, sem{count: strconv.Itoa(capacity), ttl: 50})
		var entries []string
		for i := range 5 {
			entries = append(entries, entry(baseOf("w", i), 900, process, ""))
		}
		r.heard(t, process, func() {
			served := map[int]bool{}
			for calls := 0; len(served) < len(entries); calls++ {
				require.Less(t, calls, 6)
				reply := r.run(t, "acquire", asking(capacity, process, entries...)...)
				out := r.number(t, "ZCARD", "{s}:timeout")
				require.LessOrEqual(t, out, int64(calls+1)*2000, "each call takes so many at most")
				require.EqualValues(t, capacity, out+r.number(t, "GET", "s"))
				for i, word := range reply[6 : 6+len(entries)] {
					switch word {
					case "-1":
						served[i] = true
					case "-3":
						served[i] = true // it is out, and is to ask again
					}
				}
			}
			require.EqualValues(t, 4500, r.number(t, "ZCARD", "{s}:timeout"))
			require.Equal(t, []string{"-1", "-3", "-3", "-3", "-3"},
				r.run(t, "acquire", asking(capacity, process, entries...)...)[6:], "what is confirmed in one call")
		})
	})
}

// Of an acquisition whose reply was lost the first permit was released by its id. It asks for a place, and is served.
func TestAcquire_PartOfItsIDsAnew_LosesNoPermit(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for _, free := range []string{"3", "2", "0"} {
			r := newRig(t, s, patient)
			r.must(t, "DEL", queueKey)
			before, _ := strconv.Atoi(free)
			r.put(t, sem{count: free, ttl: 50, out: map[string]int{idA2: 50, idA3: 50, idB: 50}, outTTL: 50})
			capacity := before + 3
			r.heard(t, process, func() { r.run(t, "acquire", asking(capacity, process, entry(baseA, 3, process, ""))...) })
			require.EqualValues(t, capacity, r.number(t, "ZCARD", "{s}:timeout")+r.number(t, "GET", "s"), "%s were free", free)
			r.heard(t, process, func() {
				redistest.NoError(r.script(t, "release", releaseKeys, giving("0", owner(baseB, 1))...))(t)
			})
			require.EqualValues(t, capacity, r.number(t, "ZCARD", "{s}:timeout")+r.number(t, "GET", "s"), "%s were free", free)
		}
	})
}

func TestPermits_ManyDeadProcesses_ReturnInManyScripts(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		const over = 2500
		r.put(t, sem{count: "0", ttl: 50, out: map[string]int{idB: -1}, outTTL: 50})
		past := r.now(t) - 1000
		r.members(t, "{s}:timeout", over, func(i int) (int64, string) { return past, baseOf("x", i) + "\x00\x00\x00" })
		capacity := over + 1
		for i, want := range []int64{1501, 501, 0} {
			redistest.NoError(r.script(t, "acquire", semaphoreKeys, taking(capacity, 30, baseOf("n", i), 1000-i*499)...))(t)
			left := r.number(t, "ZCOUNT", "{s}:timeout", "-inf", strconv.FormatInt(past+1000, 10))
			require.Equal(t, want, left, "after %d scripts", i+1)
			require.EqualValues(t, capacity, r.number(t, "ZCARD", "{s}:timeout")+r.number(t, "GET", "s"))
		}
	})
}

func TestWeights_ManyDeadProcesses_ReturnInManyScripts(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		const over = 2500
		r.putScale(t, scale{main: map[string]string{"capacity": strconv.Itoa(2 * over), "used": strconv.Itoa(2 * over)},
			leases: map[string]int{}})
		past := r.now(t) - 1000
		r.members(t, weightedKeys[1], over, func(i int) (int64, string) { return past, baseOf("x", i) })
		r.must(t, "PEXPIRE", weightedKeys[1], strconv.Itoa(100*unit))
		for i := 0; i < over; {
			args := []string{"HSET", weightedKeys[0]}
			for ; i < over && len(args) < 2000; i++ {
				args = append(args, baseOf("x", i), "2 me")
			}
			r.must(t, args...)
		}
		for _, want := range []string{"3000", "1000", "5000"} {
			m := redistest.NoError(r.script(t, "weighted_acquire", weightedKeys, weighing(2*over, "0", weightA, 2*over)...))(t)
			require.Equal(t, want, r.text(t, "HGET", weightedKeys[0], "used"))
			reply := r.numbers(t, m)
			if want == "5000" {
				require.EqualValues(t, -1, reply[6], "and then all is there")
			} else {
				require.EqualValues(t, 1, reply[3], "more are over: it asks at once")
			}
		}
		require.EqualValues(t, 1, r.number(t, "ZCARD", weightedKeys[1]))
	})
}

// 2,000 waiters of a killed process are first in line, and one of a process that lives is last.
func TestWait_BehindManyDead_IsServed(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		const dead, gone = 2000, "33333333-3333-8333-8333-333333333333"
		r.must(t, "DEL", queueKey)
		r.put(t, sem{count: "0", ttl: 50, out: map[string]int{idA: 50, idB: 50}, outTTL: 50})
		r.heard(t, processTwo, func() {
			now := r.now(t) * 1000
			r.members(t, queueKey, dead, func(i int) (int64, string) {
				return now - 1e6 + int64(i), entry(baseOf("g", i), 1, gone, "")
			})
			r.must(t, "ZADD", queueKey, strconv.FormatInt(-now/1000, 10), "!"+gone)
			last := entry(baseC, 1, processTwo, "")
			r.must(t, "ZADD", queueKey, strconv.FormatInt(now, 10), last, strconv.FormatInt(-now/1000, 10), "!"+processTwo)
			var told []string
			for _, m := range r.heard(t, processTwo, func() { r.run(t, "release", giving("0", owner(baseA, 1))...) }) {
				told = append(told, grantsIn(t, m)...)
			}
			left := r.number(t, "ZCOUNT", queueKey, "1", "+inf")
			require.Less(t, left, int64(dead), "a release takes some out")
			require.Greater(t, left, int64(dead-1000), "and not all")
			require.Equal(t, []string{"look c"}, told, "and has one that lives go on")
			for calls := 0; ; calls++ {
				require.Less(t, calls, 10)
				reply := r.run(t, "acquire", asking(2, processTwo, last)...)
				if served := servedIn(t, reply[7:]); len(served) > 0 {
					require.Equal(t, []string{"c 4"}, served)
					break
				}
				require.Equal(t, "0", reply[4], "it asks again at once")
			}
			require.Zero(t, r.number(t, "EXISTS", queueKey))
		})
	})
}

func TestWait_ManySmallWeights_AsksWhenTheyEnd(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		main, leases := map[string]string{"capacity": "100", "used": "100"}, map[string]int{}
		for i := range 100 {
			main[baseOf("x", i)], leases[baseOf("x", i)] = "1 ", 30
		}
		r.putScale(t, scale{main: main, leases: leases})
		m := redistest.NoError(r.script(t, "weighted_acquire", weightedKeys, weighing(100, "0", weightA, 100)...))(t)
		require.Equal(t, []int64{1, -7, 100, 30 * unit, -1, 0, 0}, r.numbers(t, m))
	})
}

func TestSemaphore_HostileNumber_IsWrongType(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		for _, text := range []string{"1e3", "0x10", " 5", "5.5", "+3", "007", "-0", "nan", "inf", "-inf", "",
			"9007199254740994", "99999999999999999999"} {
			for key, spoil := range map[string]func(){
				"count": func() { r.must(t, "SET", "s", text) },
				"resized": func() {
					r.must(t, "SET", "s", "3")
					r.must(t, "HSET", "{s}:notes", "capacity", text, "keep", "600000")
				},
				"kept":     func() { r.must(t, "SET", "s", "3"); r.must(t, "HSET", "{s}:notes", "capacity", "3", "keep", text) },
				"used":     func() { r.must(t, "HSET", "{s}:weighted", "capacity", "3", "used", text) },
				"capacity": func() { r.must(t, "HSET", "{s}:weighted", "capacity", text, "used", "1") },
			} {
				r.must(t, "FLUSHALL")
				spoil()
				dump := r.text(t, "GET", "s") + fmt.Sprint(r.number(t, "EXISTS", "{s}:timeout", "{s}:weights"))
				acts := map[string]func() error{}
				if key == "used" || key == "capacity" {
					w := r.c.WeightedSemaphore("s", 3)
					acts["acquire"] = func() error { _, err := w.TryAcquire(within(t), 1, 0, 0); return err }
					acts["look"] = func() error { _, err := w.Available(within(t)); return err }
					acts["resize"] = func() error { _, err := w.Resize(within(t), 4); return err }
				} else {
					for kind, s := range map[string]*rsemaphore.Semaphore{"": r.c.Semaphore("s", 3),
						" shared": r.c.Semaphore("s", 3).Shared(), " of a revision": r.c.Semaphore("s", 3).WithRevision(1)} {
						if kind == " of a revision" && key != "count" {
							continue // it writes both anew
						}
						acts["acquire"+kind] = func() error { _, err := s.TryAcquire(within(t), 1, 0, 0); return err }
					}
					plain := r.c.Semaphore("s", 3)
					if key != "kept" {
						acts["look"] = func() error { _, err := plain.Available(within(t)); return err }
						acts["inspect"] = func() error { _, err := plain.Inspect(within(t)); return err }
						acts["resize"] = func() error { _, err := plain.Resize(within(t), 4); return err }
					}
				}
				for name, act := range acts {
					require.ErrorIs(t, act(), errs.ErrWrongType, "%s, %s is %q", name, key, text)
				}
				require.Equal(t, dump, r.text(t, "GET", "s")+fmt.Sprint(r.number(t, "EXISTS", "{s}:timeout", "{s}:weights")),
					"%s is %q", key, text)
			}
		}
	})
}
