package rcounter_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

// age has the ids that AddOnce remembers for the counter k as if d had passed.
func age(t *testing.T, c rueidis.Client, d time.Duration) {
	for _, key := range slices.DeleteFunc(keys(t, c), func(key string) bool { return key == "k" }) {
		left := number(t, c, "PTTL", key) - d.Milliseconds()
		if left <= 0 {
			must(t, c, "DEL", key)
			continue
		}
		must(t, c, "HINCRBY", key, "from", dec(-d.Milliseconds()))
		must(t, c, "PEXPIRE", key, dec(left))
	}
}

// An id is remembered for as long as it must be, and not much longer.
func TestAddOnce_TimeOver_ForgetsTheID(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		k := on(t, c, patient).Counter("k", rcounter.CounterOptions{})
		added := map[string]time.Duration{} // id -> age
		sum, n := int64(0), 0
		random := rand.New(rand.NewPCG(1, 2))
		for range redistest.Sized(80, 80, 300) {
			d := time.Duration(random.Int64N(int64(25 * time.Minute)))
			age(t, c, d)
			for id := range added {
				added[id] += d
			}
			n++
			fresh := strconv.Itoa(n)
			v, replayed, err := k.AddOnce(ctx, fresh, 3)
			require.NoError(t, err)
			require.False(t, replayed)
			sum += 3
			require.Equal(t, sum, v)
			added[fresh] = 0
			remembered := 0
			for _, key := range slices.DeleteFunc(keys(t, c), func(key string) bool { return key == "k" }) {
				if left := number(t, c, "PTTL", key); left != -2 {
					require.GreaterOrEqual(t, left, int64(0)) // 0 in its last millisecond
					require.LessOrEqual(t, left, (2*time.Hour + 64*time.Second).Milliseconds())
				}
				for f := range hash(t, c, key) {
					if f == "from" {
						continue
					}
					remembered++
					require.LessOrEqual(t, added[f[1:]], 2*time.Hour+25*time.Minute)
				}
			}
			for id, age := range added {
				if age > time.Hour-time.Minute { // a minute for a busy machine
					if age > 3*time.Hour {
						delete(added, id)
					}
					continue
				}
				_, replayed, err := k.AddOnce(ctx, id, 3)
				require.NoError(t, err)
				require.True(t, replayed, "%s after %v", id, age)
			}
			require.Equal(t, dec(sum), text(t, c, "GET", "k"))
		}
	})
}
