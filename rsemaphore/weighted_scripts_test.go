package rsemaphore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	internalwait "github.com/redlatch/redlatch/internal/wait"
)

// weightA is a base of 13 bytes, with what must not disturb a script in it.
const weightA = "aaaaaa\x00aaaaaa"

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

func scaleEntry(base string, n int) string {
	entry := internalwait.Entry{Mode: internalwait.EntryPermits, Amount: n, First: 5 * unit * time.Millisecond,
		Stale: 10_000 * time.Second, Process: "me", Rest: base}
	return entry.Text()
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

// TestWeightedUnits_LargerUnit_ServesAlike runs the same random load in several units: a number that stands for permits
// must not mean something else where permits are bytes. The replies are compared, so who is served, and when.
func TestWeightedUnits_LargerUnit_ServesAlike(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), patient)
	seeds := redistest.Sized(uint64(1), 1, 60)
	for seed := range seeds {
		var want []string
		for _, weight := range []int{1, 1 << 10, 1 << 20, 1 << 30, 1 << 40} {
			got := r.loadInUnits(t, seed, weight)
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, "seed %d, in units of %d", seed, weight)
		}
		served := strings.Join(want, " ")
		require.Contains(t, served, "large", "seed %d", seed)
	}
}

// loadInUnits has small requests come and go while large ones wait, and returns what each call said.
func (r *rig) loadInUnits(t *testing.T, seed uint64, weight int) (said []string) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	now := time.UnixMilli(1_700_000_000_000)
	r.must(t, append([]string{"DEL"}, weightedKeys...)...)
	var out []string // bases
	// A large one waits, and never has what it wants as long as the small ones are served.
	large, refused := false, false
	for i := range 400 {
		now = now.Add(time.Duration(random.IntN(60_000)) * time.Microsecond)
		r.server.Embedded.SetTime(now)
		var reply []string
		if len(out) > 12 || refused && len(out) > 0 && random.IntN(4) > 0 {
			k := random.IntN(len(out))
			reply = r.run(t, "weighted_release", unweighing(out[k], "0", "")...)
			out = slices.Delete(out, k, k+1)
			said = append(said, "release")
			reply = reply[1:]
		} else {
			base, n := fmt.Sprintf("small%08d", i), 1+random.IntN(7)
			if !large && i > 60 {
				base, n, large = fmt.Sprintf("large%08d", i), 60, true
			}
			reply = r.run(t, "weighted_acquire", weighing(64*weight, "1", base, n*weight)...)
			said = append(said, base, reply[6])
			if reply[6] == "-1" {
				out = append(out, base)
			}
			refused = !slices.Contains(append(reply[7:], out...), base)
			reply = append(reply[4:5], reply[7:]...)
		}
		said = append(said, reply[0]) // ms to look after
		for k := 1; k+1 < len(reply); k += 2 {
			out = append(out, reply[k+1])
			said = append(said, reply[k+1])
			large = large && !strings.HasPrefix(reply[k+1], "large")
		}
	}
	return said
}
