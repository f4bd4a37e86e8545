package rsemaphore_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// Three bases of 13 bytes, with what must not disturb a script in them.
const (
	weightA = "aaaaaa\x00aaaaaa"
	weightB = "bb\r\nbb\xff\xfebbbbb"
	weightC = "ccccccccccccc"
)

// scale is a semaphore of weights on the server. Times are units from the server's now.
type scale struct {
	main   map[string]string
	leases map[string]int // base -> its end
	line   []string       // entries, first come first; stamps are left out
}

func (r *rig) putScale(t *testing.T, s scale) {
	t.Helper()
	r.must(t, append([]string{"DEL"}, weightedKeys...)...)
	for f, v := range s.main {
		r.must(t, "HSET", weightedKeys[0], f, v)
	}
	for base, end := range s.leases {
		r.must(t, "ZADD", weightedKeys[1], strconv.FormatInt(r.now(t)+int64(end)*unit, 10), base)
	}
	for _, key := range weightedKeys[:2] {
		r.must(t, "PEXPIRE", key, strconv.Itoa(100*unit))
	}
	for i, entry := range s.line {
		r.must(t, "ZADD", weightedKeys[2], strconv.FormatInt((r.now(t)-1000)*1000+int64(i), 10), entry)
	}
}

func (r *rig) getScale(t *testing.T) (s scale) {
	t.Helper()
	main, err := r.do(t, "HGETALL", weightedKeys[0]).AsStrMap()
	require.NoError(t, err)
	if len(main) > 0 {
		s.main = main
		require.Positive(t, r.number(t, "PTTL", weightedKeys[0]), "it has an end")
	}
	v, err := r.do(t, "ZRANGE", weightedKeys[1], "0", "-1", "WITHSCORES").AsZScores()
	require.NoError(t, err)
	now := r.now(t)
	for _, z := range v {
		if s.leases == nil {
			s.leases = map[string]int{}
		}
		s.leases[z.Member] = units(int64(z.Score) - now)
		require.Positive(t, r.number(t, "PTTL", weightedKeys[1]), "it has an end")
	}
	s.line, err = r.do(t, "ZRANGEBYSCORE", weightedKeys[2], "(0", "+inf").AsStrSlice()
	require.NoError(t, err)
	if len(s.line) == 0 {
		s.line = nil
	}
	return s
}

func scaleEntry(base string, n int) string {
	return base + " " + strconv.Itoa(n) + " " + strconv.Itoa(5*unit) + " 10000000 me "
}

// weighing are the arguments of an acquisition: capacity, a place or none, base and weight of each.
func weighing(capacity int, place string, each ...any) []string {
	args := []string{strconv.Itoa(capacity), "0", "redisson_sc:{s}", "PUBLISH", "0", "redlatch_grant:", "me", place}
	for i := 0; i < len(each); i += 2 {
		args = append(args, scaleEntry(each[i].(string), each[i+1].(int)), strconv.Itoa(30*unit))
	}
	return args
}

func unweighing(base, kept, entry string) []string {
	return []string{base, kept, "redisson_sc:{s}", "PUBLISH", "redlatch_grant:", "me", entry}
}

func TestTheScriptsOfWeightsDoWhatTheirTablesSay(t *testing.T) {
	t.Parallel()
	type fields = map[string]string
	type ends = map[string]int
	ten := func(used string, more ...string) fields {
		f := fields{"capacity": "10", "used": used}
		for i := 0; i < len(more); i += 2 {
			f[more[i]] = more[i+1]
		}
		return f
	}
	cases := []struct {
		name   string
		before scale
		script string
		args   []string
		reply  []int64 // times are -7, tickets 7
		after  scale
		again  []int64 // the second run's reply, if it is another one
	}{
		// acquire: status, server ms, capacity, ms until enough, ms to look after, 0, then of each
		{"the first", scale{}, "weighted_acquire", weighing(10, "1", weightA, 4), []int64{1, -7, 10, -1, -1, 0, -1},
			scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 30}}, nil},
		{"several", scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}}, "weighted_acquire",
			weighing(10, "1", weightB, 1, weightC, 5), []int64{1, -7, 10, -1, -1, 0, -1, -1},
			scale{main: ten("10", weightA, "4 ", weightB, "1 ", weightC, "5 "),
				leases: ends{weightA: 50, weightB: 30, weightC: 30}}, nil},
		{"one that has released a part", scale{main: ten("3", weightA, "3 "), leases: ends{weightA: 10}}, "weighted_acquire",
			weighing(10, "1", weightA, 8), []int64{1, -7, 10, -1, -1, 0, -1},
			scale{main: ten("3", weightA, "3 "), leases: ends{weightA: 30}}, nil},
		{"too much for now, and no place", scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}},
			"weighted_acquire", weighing(10, "0", weightB, 7), []int64{1, -7, 10, 50 * unit, -1, 0, 0},
			scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}}, nil},
		{"more than there is", scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}}, "weighted_acquire",
			weighing(10, "1", weightB, 11), []int64{1, -7, 10, -1, -1, 0, -2},
			scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}}, nil},
		{"another capacity", scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}}, "weighted_acquire",
			weighing(11, "1", weightB, 1), []int64{3, -7, 10, -1, -1, 0},
			scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}}, nil},
		{"another capacity after a resize", scale{main: ten("4", weightA, "4 ", "before", "c 3"), leases: ends{weightA: 50}},
			"weighted_acquire", weighing(11, "1", weightB, 1), []int64{1, -7, 10, -1, -1, 0, -1},
			scale{main: ten("5", weightA, "4 ", weightB, "1 ", "before", "c 3"), leases: ends{weightA: 50, weightB: 30}}, nil},
		{"what is over is given back",
			scale{main: ten("9", weightA, "4 ", weightB, "5 l"), leases: ends{weightA: -1, weightB: 50}}, "weighted_acquire",
			weighing(10, "1", weightC, 5), []int64{1, -7, 10, -1, -1, 0, -1},
			scale{main: ten("10", weightB, "5 l", weightC, "5 "), leases: ends{weightB: 50, weightC: 30}}, nil},
		{"the leases were deleted", scale{main: ten("9", weightA, "9 ")}, "weighted_acquire", weighing(10, "1", weightC, 10),
			[]int64{1, -7, 10, -1, -1, 0, -1},
			scale{main: ten("10", weightC, "10 "), leases: ends{weightC: 30}}, nil},
		{"the weights were deleted", scale{leases: ends{weightA: 50}}, "weighted_acquire", weighing(10, "1", weightC, 10),
			[]int64{1, -7, 10, -1, -1, 0, -1},
			scale{main: ten("10", weightC, "10 "), leases: ends{weightC: 30}}, nil},
		{"the most there can be", // the reply is rounded to units
			scale{main: fields{"capacity": "9007199254740991", "used": "9007199254740990", weightA: "9007199254740990 "},
				leases: ends{weightA: 50}}, "weighted_acquire",
			weighing(9007199254740991, "1", weightB, 1), []int64{1, -7, 9007199254800000, -1, -1, 0, -1},
			scale{main: fields{"capacity": "9007199254740991", "used": "9007199254740991", weightA: "9007199254740990 ",
				weightB: "1 "}, leases: ends{weightA: 50, weightB: 30}}, nil},

		// release: held, ms to look after
		{"all of it", scale{main: ten("9", weightA, "4 ", weightB, "5 l"), leases: ends{weightA: 50, weightB: 50}},
			"weighted_release", unweighing(weightA, "0", ""), []int64{4, -1},
			scale{main: ten("5", weightB, "5 l"), leases: ends{weightB: 50}}, []int64{0, -1}},
		{"a part", scale{main: ten("9", weightA, "4 ", weightB, "5 l"), leases: ends{weightA: 50, weightB: 50}},
			"weighted_release", unweighing(weightB, "2", ""), []int64{5, -1},
			scale{main: ten("6", weightA, "4 ", weightB, "2 l"), leases: ends{weightA: 50, weightB: 50}}, []int64{2, -1}},
		{"a part that comes after a later one", scale{main: ten("2", weightB, "2 l"), leases: ends{weightB: 50}},
			"weighted_release", unweighing(weightB, "4", ""), []int64{2, -1},
			scale{main: ten("2", weightB, "2 l"), leases: ends{weightB: 50}}, nil},
		{"one that is over", scale{main: ten("4", weightA, "4 "), leases: ends{weightA: -1}}, "weighted_release",
			unweighing(weightA, "0", ""), []int64{0, -1},
			scale{main: ten("0")}, nil},
		{"of nothing", scale{}, "weighted_release", unweighing(weightA, "0", ""), []int64{0, -1}, scale{}, nil},
		{"an entry goes with it",
			scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}, line: []string{scaleEntry(weightB, 7)}},
			"weighted_release", unweighing(weightB, "0", scaleEntry(weightB, 7)), []int64{0, -1},
			scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}}, nil},

		{"several that leave together, one of them served, one of them neither",
			scale{main: ten("9", weightA, "4 ", weightB, "5 l"), leases: ends{weightA: 50, weightB: 50},
				line: []string{scaleEntry(weightC, 7)}}, "weighted_release",
			append(unweighing(weightC, "0", scaleEntry(weightC, 7)), weightB, scaleEntry(weightB, 5), "ddddddddddddd", ""),
			[]int64{0, -1},
			scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}}, nil},

		{"two by their ids", scale{main: ten("10", weightA, "4 ", weightB, "5 l", weightC, "1 "),
			leases: ends{weightA: 50, weightB: 50, weightC: 50}}, "weighted_release",
			append(unweighing(weightA, "-1", ""), weightB, ""), []int64{4, -1},
			scale{main: ten("1", weightC, "1 "), leases: ends{weightC: 50}}, []int64{-1, -1}},
		{"two by their ids, one of them over",
			scale{main: ten("10", weightA, "4 ", weightB, "5 l", weightC, "1 "),
				leases: ends{weightA: 50, weightB: -1, weightC: 50}}, "weighted_release",
			append(unweighing(weightA, "-1", ""), weightB, ""), []int64{-1, -1},
			scale{main: ten("5", weightA, "4 ", weightC, "1 "), leases: ends{weightA: 50, weightC: 50}}, nil},
		{"two by their ids, the first not out", scale{main: ten("5", weightB, "5 l"), leases: ends{weightB: 50}},
			"weighted_release", append(unweighing(weightA, "-1", ""), weightB, ""), []int64{-1, -1},
			scale{main: ten("5", weightB, "5 l"), leases: ends{weightB: 50}}, nil},

		// extend: 1 or 0
		{"an extension by ids", scale{main: ten("9", weightA, "4 ", weightB, "5 "), leases: ends{weightA: 10, weightB: 50}},
			"weighted_extend", []string{thirty, weightA, weightB}, []int64{1},
			scale{main: ten("9", weightA, "4 ", weightB, "5 "), leases: ends{weightA: 30, weightB: 50}}, nil},
		{"an extension of what is over",
			scale{main: ten("9", weightA, "4 ", weightB, "5 "), leases: ends{weightA: 10, weightB: -1}}, "weighted_extend",
			[]string{thirty, weightA, weightB}, []int64{0},
			scale{main: ten("9", weightA, "4 ", weightB, "5 "), leases: ends{weightA: 10, weightB: -1}}, nil},
		{"an extension of what is gone", scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 10, weightB: 50}},
			"weighted_extend", []string{thirty, weightA, weightB}, []int64{0},
			scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 10, weightB: 50}}, nil},

		// renew: 1 or 0
		{"a renewal", scale{main: ten("9", weightA, "4 ", weightB, "5 "), leases: ends{weightA: 10, weightB: 10}},
			"weighted_renew", []string{weightA, thirty}, []int64{1},
			scale{main: ten("9", weightA, "4 ", weightB, "5 "), leases: ends{weightA: 30, weightB: 10}}, nil},
		{"a renewal shortens nothing", scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}}, "weighted_renew",
			[]string{weightA, thirty}, []int64{1},
			scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}}, nil},
		{"a renewal of what is over", scale{main: ten("4", weightA, "4 "), leases: ends{weightA: -1}}, "weighted_renew",
			[]string{weightA, thirty}, []int64{0},
			scale{main: ten("4", weightA, "4 "), leases: ends{weightA: -1}}, nil},
		{"a renewal of what is gone", scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}}, "weighted_renew",
			[]string{weightB, thirty}, []int64{0},
			scale{main: ten("4", weightA, "4 "), leases: ends{weightA: 50}}, nil},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				keys := weightedKeys
				if c.script == "weighted_renew" || c.script == "weighted_extend" {
					keys = keys[:2]
				}
				r.putScale(t, c.before)
				m, err := r.script(t, c.script, keys, c.args...)
				require.NoError(t, err)
				require.Equal(t, c.reply, r.numbers(t, m))
				after := r.getScale(t)
				require.Equal(t, c.after, after)
				m, err = r.script(t, c.script, keys, c.args...)
				require.NoError(t, err)
				if c.again == nil {
					c.again = c.reply
				}
				require.Equal(t, c.again, r.numbers(t, m), "the second run's reply")
				require.Equal(t, after, r.getScale(t), "a second run changes nothing")
			})
		}

		t.Run("a release serves the first in line, and its process is told", func(t *testing.T) {
			r.putScale(t, scale{main: ten("10", weightA, "10 "), leases: ends{weightA: 50},
				line: []string{scaleEntry(weightB, 6), scaleEntry(weightC, 9)}})
			m, err := r.script(t, "weighted_release", weightedKeys, unweighing(weightA, "0", "")...)
			require.NoError(t, err)
			v, err := m.ToArray()
			require.NoError(t, err)
			require.Len(t, v, 4, "held, ms to look after, lease and base of the one that was served")
			require.EqualValues(t, 10, must1[int64](t)(v[0].AsInt64()))
			require.Equal(t, 5*unit, int(must1[int64](t)(v[1].AsInt64())), "when the lease of that one ends")
			require.Equal(t, weightB, must1[string](t)(v[3].ToString()))
			require.Equal(t, scale{main: ten("6", weightB, "6 "), leases: ends{weightB: 5},
				line: []string{scaleEntry(weightC, 9)}}, r.getScale(t))
		})
		t.Run("who is in line is not passed by who has no place", func(t *testing.T) {
			r.putScale(t, scale{main: ten("5", weightA, "5 "), leases: ends{weightA: 50},
				line: []string{scaleEntry(weightB, 6)}})
			_, err := r.script(t, "weighted_acquire", weightedKeys, weighing(10, "0", weightC, 5)...)
			require.NoError(t, err)
			require.Equal(t, []string{scaleEntry(weightB, 6)}, r.getScale(t).line)
			require.Equal(t, ends{weightA: 50}, r.getScale(t).leases)
		})
		t.Run("scripts refuse keys of another kind", func(t *testing.T) {
			r.putScale(t, scale{})
			r.must(t, "SET", weightedKeys[0], "v")
			_, err := r.c.WeightedSemaphore("s", 3).TryAcquire(within(t), 1, 0, 0)
			require.ErrorContains(t, err, "another type")
			require.Len(t, r.keys(t), 1, "nothing was made")
			r.must(t, "DEL", weightedKeys[0])
		})
	})
}

func TestEveryScriptOfWeightsSaysWhatASecondRunDoes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"acquire", "release", "renew", "resize", "inspect", "extend"} {
		text := source(t, "weighted_"+name)
		header, _, _ := strings.Cut(text, "\nlocal")
		for _, part := range []string{"-- KEYS", "-- Reply", "-- Twice: "} {
			require.Contains(t, header, part, name)
		}
	}
}
