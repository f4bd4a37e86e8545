package rsemaphore_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// scriptCase is one line of a script's table. KEY, RECORD and CHANNEL stand for the row's own, NOW+n and NOW-n for a
// time n ms from the server's when the row began; in what is compared every such time is T.
type scriptCase struct {
	name   string
	before []string // commands, words separated by spaces
	args   []string
	reply  []string
	again  []string // the reply of a second run; nil: as the first
	after  map[string]string
	later  map[string]string // after the second run; nil: as after the first
	ttl    map[string]int64  // ms, to 30 s; a key that is not named has none, or is not there
	told   []string          // payloads
	retold []string          // of the second run
}

// runCases runs each row's script twice, with the keys that a row's names stand for.
func runCases(t *testing.T, script string, keys func(i int) (map[string]string, []string), cases []scriptCase) {
	src := source(t, script)
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rsemaphore.Options{})
		for i, k := range cases {
			t.Run(k.name, func(t *testing.T) {
				names, list := keys(i)
				began := r.now(t)
				fill := func(text string) string {
					for from, to := range names {
						text = strings.ReplaceAll(text, from, to)
					}
					return relative.ReplaceAllStringFunc(text, func(m string) string {
						d, _ := strconv.ParseInt(m[3:], 10, 64)
						return strconv.FormatInt(began+d, 10)
					})
				}
				for _, cmd := range k.before {
					words := strings.Split(cmd, " ")
					for i := range words {
						words[i] = fill(strings.ReplaceAll(words[i], "_", " "))
					}
					r.must(t, words...)
				}
				args := make([]string, len(k.args))
				for i := range args {
					args[i] = fill(k.args[i])
				}
				want := k.reply
				for run, told := range [][]string{k.told, k.retold} {
					if run == 1 && k.again != nil {
						want = k.again
					}
					if run == 1 && k.later != nil {
						k.after = k.later
					}
					var got []string
					heard := r.heardWhile(t, names["CHANNEL"], func() { got = r.evalTexts(t, src, list, args) })
					require.Equal(t, want, timeless(got), "run %d", run+1)
					require.Equal(t, told, heard, "run %d", run+1)
					after := map[string]string{}
					for _, key := range list {
						name := key
						for short, long := range names {
							if long == key {
								name = short
							}
						}
						if text := r.contents(t, key); text != "" {
							after[name] = text
							left := r.number(t, "PTTL", key)
							if ends, ok := k.ttl[name]; ok {
								require.LessOrEqual(t, left, ends, "%s, run %d", name, run+1)
								require.Greater(t, left, ends-30_000, "%s, run %d", name, run+1)
							} else {
								require.EqualValues(t, -1, left, "%s, run %d", name, run+1)
							}
						}
					}
					require.Equal(t, withNone(k.after), after, "run %d", run+1)
				}
			})
		}
	})
}

var (
	relative = regexp.MustCompile(`NOW[+-]\d+`)
	instant  = regexp.MustCompile(`\b1[6-9]\d{11}\b`)
)

// timeless replaces instants by T, and rounds durations up to half a minute.
func timeless(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = instant.ReplaceAllString(s, "T")
		if n, err := strconv.ParseInt(s, 10, 64); err == nil && n > 10_000 && out[i] != "T" {
			out[i] = strconv.FormatInt((n+29_999)/30_000*30_000, 10)
		}
	}
	return out
}

func withNone(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// evalTexts runs a script and returns its reply as texts.
func (r *rig) evalTexts(t testing.TB, src string, keys, args []string) []string {
	t.Helper()
	m, err := r.redis.Do(within(t),
		r.redis.B().Eval().Script(src).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToMessage()
	require.NoError(t, err)
	list, err := m.ToArray()
	if err != nil {
		list = []rueidis.RedisMessage{m}
	}
	var out []string
	for _, v := range list {
		if n, err := v.AsInt64(); err == nil {
			out = append(out, strconv.FormatInt(n, 10))
			continue
		}
		s, err := v.ToString()
		require.NoError(t, err)
		out = append(out, s)
	}
	return out
}

// contents is all that a key holds, "" if there is none.
func (r *rig) contents(t testing.TB, key string) string {
	t.Helper()
	switch kind := r.text(t, "TYPE", key); kind {
	case "none":
		return ""
	case "string":
		return r.text(t, "GET", key)
	case "hash":
		m, err := r.do(t, "HGETALL", key).AsStrMap()
		require.NoError(t, err)
		var fields []string
		for _, f := range slices.Sorted(maps.Keys(m)) {
			fields = append(fields, f+"="+m[f])
		}
		return instant.ReplaceAllString(strings.Join(fields, ", "), "T")
	case "zset":
		m, err := r.do(t, "ZRANGE", key, "0", "-1", "WITHSCORES").AsZScores()
		require.NoError(t, err)
		var members []string
		for _, z := range m {
			members = append(members, z.Member+"="+strconv.FormatFloat(z.Score, 'f', -1, 64))
		}
		return instant.ReplaceAllString(strings.Join(members, ", "), "T")
	default:
		return kind
	}
}

// heardWhile is what is published on channel while fn runs. A message of our own marks the end: a channel keeps its
// order.
func (r *rig) heardWhile(t testing.TB, channel string, fn func()) (got []string) {
	t.Helper()
	sub, err := r.hub.Subscribe(within(t), channel)
	require.NoError(t, err)
	defer sub.Close()
	fn()
	_, err = r.hub.Publish(within(t), channel, "end of test")
	require.NoError(t, err)
	for {
		m, err := sub.Next(within(t))
		require.NoError(t, err)
		if m.Payload == "end of test" {
			return got
		}
		got = append(got, m.Payload)
	}
}

// countingKeys are the keys of a row about a counting semaphore.
func countingKeys(i int) (map[string]string, []string) {
	key := fmt.Sprintf("s%d", i)
	return map[string]string{"KEY": key, "CHANNEL": "redisson_sc:{" + key + "}"},
		[]string{key, "{" + key + "}:timeout", "{" + key + "}:latch"}
}

// is is what the key holds.
func is(v string) map[string]string { return map[string]string{"KEY": v} }

func TestCountingAcquireScriptTable(t *testing.T) {
	t.Parallel()
	args := func(n, notAfter string) []string { return []string{n, notAfter} }
	runCases(t, "counting_acquire", countingKeys, []scriptCase{
		{name: "of a missing key nothing can be had", args: args("1", "0"), reply: []string{"0", "T"}},
		{name: "what is free is taken, at every run", before: []string{"SET KEY 5"}, args: args("2", "0"),
			reply: []string{"1", "T"}, after: is("3"), later: is("1")},
		{name: "to the last", before: []string{"SET KEY 2"}, args: args("2", "0"), reply: []string{"1", "T"},
			again: []string{"0", "T"}, after: is("0")},
		{name: "all or nothing", before: []string{"SET KEY 1"}, args: args("2", "0"), reply: []string{"0", "T"},
			after: is("1")},
		{name: "a debt is not free", before: []string{"SET KEY -3"}, args: args("1", "0"), reply: []string{"0", "T"},
			after: is("-3")},
		{name: "an expiry is kept", before: []string{"SET KEY 5 PX 100000"}, args: args("5", "0"), reply: []string{"1", "T"},
			again: []string{"0", "T"}, after: is("0"), ttl: map[string]int64{"KEY": 100_000}},
		{name: "in time", before: []string{"SET KEY 1"}, args: args("1", "NOW+600000"), reply: []string{"1", "T"},
			again: []string{"0", "T"}, after: is("0")},
		{name: "too late does nothing", before: []string{"SET KEY 1"}, args: args("1", "NOW-600000"),
			reply: []string{"2", "T"}, after: is("1")},
		{name: "no integer", before: []string{"SET KEY 1e3"}, args: args("1", "0"), reply: []string{"3", "T"},
			after: is("1e3")},
		{name: "no integer as INCRBY sees it", before: []string{"SET KEY 007"}, args: args("1", "0"),
			reply: []string{"3", "T"}, after: is("007")},
	})
}

func TestCountingAddScriptTable(t *testing.T) {
	t.Parallel()
	args := func(n string) []string { return []string{"CHANNEL", "PUBLISH", n} }
	runCases(t, "counting_add", countingKeys, []scriptCase{
		{name: "a release makes the key, and says what is free now, at every run", args: args("2"), reply: []string{"2"},
			again: []string{"4"}, after: is("2"), later: is("4"), told: []string{"2"}, retold: []string{"4"}},
		{name: "added to what is there, and the expiry is kept", before: []string{"SET KEY 3 PX 100000"}, args: args("1"),
			reply: []string{"4"}, again: []string{"5"}, after: is("4"), later: is("5"), told: []string{"4"},
			retold: []string{"5"}, ttl: map[string]int64{"KEY": 100_000}},
		{name: "taken without asking, below zero, tells nobody", before: []string{"SET KEY 1"}, args: args("-2"),
			reply: []string{"-1"}, again: []string{"-3"}, after: is("-1"), later: is("-3")},
		{name: "a release into a debt tells nobody until something is free", before: []string{"SET KEY -1"}, args: args("1"),
			reply: []string{"0"}, again: []string{"1"}, after: is("0"), later: is("1"), retold: []string{"1"}},
	})
}

func TestCountingSetScriptTable(t *testing.T) {
	t.Parallel()
	args := func(n, ttl string) []string { return []string{"CHANNEL", "PUBLISH", n, ttl} }
	runCases(t, "counting_set", countingKeys, []scriptCase{
		{name: "set once, and waiters are told how many", args: args("7", "0"), reply: []string{"1"}, again: []string{"0"},
			after: is("7"), told: []string{"7"}},
		{name: "with a TTL", args: args("7", "300000"), reply: []string{"1"}, again: []string{"0"}, after: is("7"),
			told: []string{"7"}, ttl: map[string]int64{"KEY": 300_000}},
		{name: "none are nothing to tell", args: args("0", "0"), reply: []string{"1"}, again: []string{"0"}, after: is("0")},
		{name: "what is there stays", before: []string{"SET KEY 0"}, args: args("7", "300000"), reply: []string{"0"},
			after: is("0")},
	})
}
