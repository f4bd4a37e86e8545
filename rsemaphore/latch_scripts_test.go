package rsemaphore_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	touching "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/script"
)

// The record of a latch may have a million participants. Each script looks at some of them, and all of those that are
// of latches before the last two are gone in the end.
func TestLatchRecord_ManyParticipants_SweptInParts(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	keys := []string{"l", "{l}:latch", "{l}:timeout"}
	n := redistest.Sized(20_000, 20_000, 100_000)
	run := func(name string, args ...string) {
		text := redistest.NoError(script.Compose(os.DirFS("."), name))(t)
		touched, took, err := touching.Touched(t, r.redis, text, keys, args)
		require.NoError(t, err)
		for command, some := range touched {
			require.LessOrEqual(t, some, int64(1100), "%s: %s, %v", name, command, took)
		}
	}
	calls := 0
	set := func(count int) {
		calls++
		call := strconv.Itoa(calls)
		run("latch_set", strconv.Itoa(count), "0", "set"+call, "60000", "c", "PUBLISH", "o"+call)
	}
	down := func(who string) {
		run("latch_down", who, "call"+who, "86400000", "60000", "c", "PUBLISH")
	}
	set(2)
	down("first")
	r.must(t, "EVAL", `local v = redis.call('HGET', KEYS[1], 'p:first')
for i = 1, tonumber(ARGV[1]) do redis.call('HSET', KEYS[1], 'p:old' .. i, v) end`, "1", keys[1], strconv.Itoa(n))
	down("last")
	var latest string
	for i := range n/10 + 3 { // the next latches, of one participant each, and the fourth of many
		count := 1
		if i == 3 {
			count = n/5 + 10
		}
		set(count)
		for j := range count {
			latest = fmt.Sprintf("%d-%d", i, j)
			down(latest)
		}
		if i > 3 && r.number(t, "HLEN", keys[1]) < 100 {
			break
		}
		if i == 3 {
			// The sweep went past some of them while they were of the last two latches. The next sweep removes these.
			require.Less(t, r.number(t, "HLEN", keys[1]), int64(count+n/10), "swept while others came")
			require.Zero(t, r.number(t, "HEXISTS", keys[1], "swept"))
		}
		if i < 2 {
			require.EqualValues(t, 1, r.number(t, "HEXISTS", keys[1], "p:old1"), "one of the last two is known")
		}
	}
	require.Less(t, r.number(t, "HLEN", keys[1]), int64(100))
	require.EqualValues(t, 1, r.number(t, "HEXISTS", keys[1], "p:"+latest))
}
