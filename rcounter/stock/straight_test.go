package stock_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// cutStraight is a script without its straight line, and the script with one that counts how often it answered.
func cutStraight(t *testing.T, file string) (rest, counting string) {
	t.Helper()
	text := stock.Source(file)
	before, after, ok := strings.Cut(text, "\nuntil true\n")
	require.True(t, ok)
	head, line, ok := strings.Cut(before, "\nrepeat\n")
	require.True(t, ok)
	line = strings.ReplaceAll(line, "return out", "redis.call('INCR', KEYS[7]) return out")
	line = strings.ReplaceAll(line, "return {0,", "redis.call('INCR', KEYS[7]) return {0,")
	return head + "\n" + after, head + "\nrepeat\n" + line + "\nuntil true\n" + after
}

// The straight lines of act.lua and buy.lua do what the rest does. The same calls run on two servers, by the scripts
// with and without them. All replies and all keys are compared.
func TestStraightLines_RandomCalls_DoWhatTheRestDoes(t *testing.T) {
	t.Parallel()
	sides := [2]rueidis.Client{}
	forwards := [2]*redistest.Server{}
	for i := range sides {
		forwards[i] = redistest.Embedded(t)
		sides[i] = forwards[i].Client(t)
	}
	now := time.Now()
	clock := func() {
		for _, s := range forwards {
			s.Embedded.SetTime(now)
		}
	}
	clock()
	scripts := map[string][2]string{}
	for _, file := range []string{"act", "buy"} {
		rest, counting := cutStraight(t, file)
		scripts[file] = [2]string{rest, counting}
	}
	rnd := rand.New(rand.NewPCG(49, 1))
	pick := func(texts ...string) string { return texts[rnd.IntN(len(texts))] }
	const last = "9007199254740991"
	answered := int64(0)
	for n := range 24 {
		keys := on(t, sides[0], exact).Sale(fmt.Sprint("s", n)).Keys()
		for _, c := range sides {
			s := spec(int64(20 + rnd.IntN(2)*rnd.IntN(200)))
			s.PerUser, s.Ledger = 4, n%3 == 0
			s.Limit = int64(20 + n*5)
			require.NoError(t, on(t, c, exact).Sale(fmt.Sprint("s", n)).Open(ctx, s))
			rig.Must(t, c, "HSET", keys[0], "remember", "9000")
		}
		for step := range 50 {
			now = now.Add(time.Duration(rnd.IntN(8)*rnd.IntN(400)) * time.Millisecond)
			clock()
			file, args := "act", []string{pick("0", "1"), last}
			if n%4 == 1 || step%20 == 0 {
				file, args = "buy", args[:1]
			}
			seen := map[string]bool{}
			for range 1 + rnd.IntN(4) {
				id := fmt.Sprint("o", rnd.IntN(60))
				if seen[id] {
					continue
				}
				seen[id] = true
				user := pick("ann", "bob", "", id)
				if n%2 == 0 && user == id {
					user = "cy"
				}
				switch {
				case file == "buy":
					args = append(args, id)
				case rnd.IntN(5) < 3:
					args = append(args, pick("B", "R"), id, last, user, pick("", "+")+pick(",1", ",1", ",2"))
					if args[len(args)-5] == "R" {
						args = append(args, pick("1000", "20000"))
					}
				default:
					args = append(args, [][]string{{"P", id, last, "", "1"}, {"C", id, last, "1"}, {"P", id, last, ",1", "1"},
						{"G", id, last, "", "1"},
						{"E", id, last, "30000"}}[rnd.IntN(10)%8%5]...)
				}
			}
			var got [2]string
			for i, c := range sides {
				call := append([]string{"EVAL", scripts[file][i], "7"}, append(keys[:6:6], "straight")...)
				m := redistest.NoError(rig.Raw(c, append(call, args...)...).ToArray())(t)
				for _, part := range m {
					if n, err := part.AsInt64(); err == nil {
						got[i] += fmt.Sprint(" ", n)
					} else {
						text := redistest.NoError(part.ToString())(t)
						got[i] += " " + text
					}
				}
				for _, key := range keys[:6] {
					got[i] += "\n" + dump(t, c, key)
				}
			}
			require.Equal(t, got[0], got[1], "%s %v", file, args)
		}
	}
	answered = rig.Number(t, sides[1], "GET", "straight")
	require.Greater(t, answered, int64(200))
	t.Log(answered, "calls were answered in a straight line")
}

// dump is a key as text, with its end.
func dump(t *testing.T, c rueidis.Client, key string) string {
	t.Helper()
	const text = `local is, out = redis.call('TYPE', KEYS[1]).ok, {}
if is == 'hash' then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do out[#out + 1] = all[i] .. '=' .. all[i + 1] end
  table.sort(out)
elseif is == 'zset' then out = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
elseif is == 'list' then out = redis.call('LRANGE', KEYS[1], 0, -1)
  table.sort(out)
elseif is == 'stream' then
  for _, e in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do out[#out + 1] = e[1] .. table.concat(e[2], ' ') end
end
return key_of .. table.concat(out, '|') .. redis.call('PTTL', KEYS[1])`
	return rig.Text(t, c, "EVAL", strings.Replace(text, "key_of", "'"+key+" '", 1), "1", key)
}
