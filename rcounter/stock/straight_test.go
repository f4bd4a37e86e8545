package stock_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// noting is what stands before a script that is to find the time of the key "now" on the server, and to note in the
// list "commands" which it ran.
const noting = `local real = redis
local redis = {error_reply = real.error_reply, call = function(...)
  local words = {...}
  if words[1] == 'TIME' then return real.call('HMGET', 'now', 's', 'us') end
  real.call('RPUSH', 'commands', words[1] .. ' ' .. (words[3] or ''))
  return real.call(...)
end}
`

// TestActs_StraightLine_DoesWhatTheRestDoes runs the same calls of acts on two stocks, once by the whole script, and
// once without the straight line before its libraries. The replies are the same, and so is everything that is on the
// server afterwards.
func TestActs_StraightLine_DoesWhatTheRestDoes(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	whole := stock.Source("acts")
	before, rest, ok := strings.Cut(whole, "\nrepeat\n")
	require.True(t, ok)
	_, rest, ok = strings.Cut(rest, "\nuntil true\n")
	require.True(t, ok)
	straight, calls, verbs := 0, 0, map[string]int{}
	seeds := []uint64{0, 1, 2, 6} // of 6 a stock that is sold out has units back
	if redistest.Long() {
		seeds = redistest.Seeds(t, 150)
	}
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 19))
		ledger, remember := seed%2 == 1, time.Duration(0)
		if seed%4 >= 2 {
			remember = 100 * time.Second
		}
		must(t, raw, "FLUSHALL")
		c := on(t, raw, exact)
		for _, name := range []string{"whole", "rest"} {
			_, err := c.Stock(name).Open(ctx,
				stock.Spec{Limit: 5 + 24*int64(seed%3), PerUser: 4, OpenFor: time.Hour, Ledger: ledger, Remember: remember})
			require.NoError(t, err)
		}
		began, err := strconv.ParseInt(hash(t, raw, "rc:{whole}")["start"], 10, 64)
		require.NoError(t, err)
		now := time.Duration(began+1000) * time.Millisecond
		for _, name := range []string{"whole", "rest"} {
			must(t, raw, "HSET", "rc:{"+name+"}", "start", "0", "end", fmt.Sprint((now + 10*time.Minute).Milliseconds()))
			_, err = c.Stock(name).ClaimAs(ctx, "first", "u0")
			require.NoError(t, err)
		}
		for i := range 60 {
			now += time.Duration(rng.Int64N(int64(3 * time.Second))).Truncate(time.Microsecond)
			held, err := raw.Do(ctx, raw.B().Zrange().Key("rc:{rest}:h").Min("0").Max("-1").Build()).AsStrSlice()
			require.NoError(t, err)
			args := deeds(rng, i, now, held)
			run := func(name, text string) ([]int64, []string) {
				replies := raw.DoMulti(ctx, raw.B().Del().Key("commands").Build(),
					raw.B().Hset().Key("now").FieldValue().FieldValue("s", fmt.Sprint(int64(now/time.Second))).
						FieldValue("us", fmt.Sprint((now%time.Second).Microseconds())).Build(),
					raw.B().Eval().Script(noting+text).Numkeys(7).Key(keysOf("rc:{"+name+"}")...).Arg(args...).Build(),
					raw.B().Lrange().Key("commands").Start(0).Stop(-1).Build())
				v, err := replies[2].AsIntSlice()
				require.NoError(t, err, "seed %d, call %d: %q", seed, i, args)
				ran, err := replies[3].AsStrSlice()
				require.NoError(t, err)
				return v, ran
			}
			want, _ := run("rest", before+"\n"+rest)
			got, ran := run("whole", whole)
			require.Equal(t, epochless(want), epochless(got), "seed %d, call %d: %q", seed, i, args)
			calls++
			if !slices.Contains(ran, "HMGET limit") { // with which the rest begins
				straight++
				require.Equal(t, everything(t, raw, "rc:{rest}"), everything(t, raw, "rc:{whole}"), "seed %d, call %d: %q", seed,
					i, args)
				for _, verb := range strings.Split("ROVUCX", "") {
					if slices.Contains(args, verb) {
						verbs[verb]++
					}
				}
				if len(got) > 2 && got[2] == 0 {
					verbs["nothing left"]++
				}
				if slices.Contains(got[4:], 7) {
					verbs["limit"]++
				}
			}
		}
	}
	t.Logf("%d of %d calls in the straight line: %v", straight, calls, verbs)
	require.Greater(t, straight, calls/10)
	require.Less(t, straight, calls*9/10)
}

// deeds are the arguments of the random call with the number i, or of the one before it, once more.
func deeds(rng *rand.Rand, i int, now time.Duration, held []string) []string {
	args := []string{fmt.Sprint("call", i-rng.IntN(2)), fmt.Sprint(rng.IntN(2)),
		fmt.Sprint((now + time.Minute).Milliseconds())}
	if rng.IntN(20) == 0 {
		args[2] = fmt.Sprint((now - time.Millisecond).Milliseconds()) // it comes late
	}
	verbs := "RRRRRROOCCCXXX"
	if rng.IntN(4) == 0 {
		verbs += "VUEEBXX"
	}
	used, last := map[string]bool{}, fmt.Sprint((now + time.Minute).Milliseconds())
	for range 1 + rng.IntN(4) {
		verb := string(verbs[rng.IntN(len(verbs))])
		id, claimant, n := fmt.Sprint("id", max(0, i-rng.IntN(12)), ".", rng.IntN(3)), fmt.Sprint("u", rng.IntN(30)),
			fmt.Sprint(1+rng.IntN(3))
		if strings.Contains("ROVU", verb) && rng.IntN(8) > 0 {
			id = fmt.Sprint("id", i, ".", rng.IntN(3)) // a new one
		}
		if strings.Contains("CXE", verb) && len(held) > 0 && rng.IntN(10) > 0 {
			id = held[rng.IntN(len(held))]
		}
		if used[id] {
			continue
		}
		used[id] = true
		own := last
		if rng.IntN(20) == 0 {
			// this one comes late, or just in time
			own = fmt.Sprint((now - time.Duration(rng.IntN(2))*time.Millisecond).Milliseconds())
		}
		switch verb {
		case "R", "V":
			args = append(args, verb, id, own, claimant, n, fmt.Sprint(2000+1000*rng.IntN(40)))
		case "O", "U":
			args = append(args, verb, id, own, claimant, n)
		case "C":
			args = append(args, verb, id, own, []string{"0", "0", "0", n}[rng.IntN(4)])
		case "B":
			args = append(args, verb, id, own, n)
		case "E":
			args = append(args, verb, id, own, "90000")
		default:
			args = append(args, verb, id, own)
		}
	}
	return args
}

// epochless is a reply without the epoch.
func epochless(v []int64) []int64 {
	v = slices.Clone(v)
	if len(v) > 3 {
		v[1] = 0
	}
	return v
}

// everything is what is on the server of a stock, but for its names, and whether its keys have an end.
func everything(t testing.TB, c rueidis.Client, key string) map[string]any {
	t.Helper()
	is := map[string]any{}
	var types, reads rueidis.Commands
	for _, k := range keysOf(key) {
		types = append(types, c.B().Type().Key(k).Build())
	}
	kinds := map[string]string{}
	for i, r := range c.DoMulti(ctx, types...) {
		kind, err := r.ToString()
		require.NoError(t, err)
		k := keysOf(key)[i]
		read := map[string]rueidis.Completed{
			"hash":   c.B().Hgetall().Key(k).Build(),
			"zset":   c.B().Zrange().Key(k).Min("0").Max("-1").Withscores().Build(),
			"list":   c.B().Lrange().Key(k).Start(0).Stop(-1).Build(),
			"string": c.B().Get().Key(k).Build(),
			"stream": c.B().Xrange().Key(k).Start("-").End("+").Build(),
		}
		if cmd, there := read[kind]; there {
			kinds[k] = kind
			reads = append(reads, cmd, c.B().Pttl().Key(k).Build())
		}
	}
	replies := c.DoMulti(ctx, reads...)
	for _, k := range keysOf(key) {
		var v any
		kind, there := kinds[k]
		if !there {
			continue
		}
		got, ttl := replies[0], replies[1]
		replies = replies[2:]
		switch kind {
		case "hash":
			h, err := got.AsStrMap()
			require.NoError(t, err)
			for _, field := range []string{"epoch", "token", "start", "revision", "gone"} {
				delete(h, field)
			}
			v = h
		case "zset":
			z, err := got.AsZScores()
			require.NoError(t, err)
			v = z
		case "list":
			l, err := got.AsStrSlice()
			require.NoError(t, err)
			v = l
		case "string":
			s, err := got.ToString()
			require.NoError(t, err)
			_, v, _ = strings.Cut(s, ";")
		case "stream":
			m, err := got.AsXRange()
			require.NoError(t, err)
			for i := range m {
				delete(m[i].FieldValues, "e")
				if i == 0 {
					delete(m[i].FieldValues, "at") // of the claim
				}
			}
			v = m
		}
		left, err := ttl.AsInt64()
		require.NoError(t, err)
		is[strings.TrimPrefix(k, key)] = []any{v, left > 0}
	}
	return is
}
