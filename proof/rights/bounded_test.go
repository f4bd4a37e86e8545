package rights_test

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/stretchr/testify/require"
)

// shot is a call of a script and what its keys held just before.
type shot struct {
	file       string
	keys, args []string
	kinds      string
	dumps      []string // "" for a key that was not there
	large      []int    // of the keys, by index: collections
	at         time.Time
}

// typesAndDumps copies all keys at once.
const typesAndDumps = `local all = {}
for i, key in ipairs(KEYS) do
  all[2 * i - 1], all[2 * i] = redis.call('TYPE', key).ok, redis.call('DUMP', key) or ''
end
return all`

// takeShots uses all of the library, and returns calls of each script whose keys held something.
func takeShots(t *testing.T, scripts map[string]lua) (shots map[string][]shot) {
	t.Helper()
	ctx := context.Background()
	s := redistest.Start(t)
	admin := s.Client(t)
	do := func(words ...string) rueidis.RedisResult { return admin.Do(ctx, admin.B().Arbitrary(words...).Build()) }
	require.NoError(t, do("ACL", "SETUSER", "redlatch", "on", ">secret", "~*", "&*", "+@all").Error())
	take := func(file string, keys, args []string) shot {
		one := shot{file: file, keys: slices.Clone(keys), args: slices.Clone(args), at: time.Now()}
		held, err := do(slices.Concat([]string{"EVAL", typesAndDumps, strconv.Itoa(len(keys))}, keys)...).AsStrSlice()
		if err != nil {
			t.Error(file, err)
		}
		for i := 0; i < len(held); i += 2 {
			one.kinds += held[i] + " "
			one.dumps = append(one.dumps, held[i+1])
			if held[i] != "none" && held[i] != "string" {
				one.large = append(one.large, i/2)
			}
		}
		return one
	}
	shots = map[string][]shot{}
	has := map[string]bool{} // the same verb, and keys of the same kinds
	var mu sync.Mutex
	look := func(words []string) bool {
		if !redistest.IsScript(words) {
			return false
		}
		sha := words[1]
		if words[0] == "EVAL" {
			sum := sha1.Sum([]byte(words[1]))
			sha = hex.EncodeToString(sum[:])
		}
		mu.Lock()
		defer mu.Unlock()
		if scripts[sha].file == "" {
			return false
		}
		n, _ := strconv.Atoi(words[2])
		one := take(scripts[sha].file, words[3:3+n], words[3+n:])
		if len(one.args) > 0 && verb.MatchString(one.args[0]) {
			one.kinds += one.args[0]
		}
		if !has[one.file+one.kinds] {
			shots[one.file] = append(shots[one.file], one)
		}
		has[one.file+one.kinds] = true
		return false
	}
	proxy := redistest.NewProxy(t, s)
	proxy.Trap(&redistest.Trap{Match: look, Every: true})
	o := proxy.Server().Option()
	for range 3 { // on a busy machine a hold of fractions of a second may be lost
		err := everything(o)
		if err == nil {
			break
		}
		t.Log(err)
		require.NoError(t, do("FLUSHALL").Error())
	}
	require.NoError(t, one(o, "", "elections"))
	mu.Lock()
	defer mu.Unlock()
	drawShots(t, do, func(file string, keys, args []string) { shots[file] = append(shots[file], take(file, keys, args)) })
	return shots
}

// verb is the first argument of a script that has several verbs.
var verb = regexp.MustCompile(`^[a-z]{3,8}$`)

// owner is one of the library's.
const owner = "48988598-0b82-8000-87de-6121d0fbac37:7"

// drawn are calls that are seldom made: see the file.
//
//go:embed testdata/drawn.txt
var drawn string

// drawShots makes the calls of the file on keys of their own.
func drawShots(t *testing.T, do func(words ...string) rueidis.RedisResult,
	take func(file string, keys, args []string)) {
	now := time.Now()
	fill := strings.NewReplacer("ME", owner, "END", fmt.Sprint(now.Add(time.Minute).UnixMilli()), "NOW",
		fmt.Sprint(now.UnixMicro()), "LATE", fmt.Sprint(now.UnixMicro()+3e15))
	words := func(text string) []string { return strings.Split(fill.Replace(text), "|") }
	for line := range strings.SplitSeq(drawn, "\n") {
		command, before := strings.CutPrefix(line, "before ")
		fields := strings.Split(line, "\t")
		switch {
		case line == "":
			require.NoError(t, do("FLUSHALL").Error())
		case before:
			require.NoError(t, do(words(command)...).Error(), command)
		case len(fields) == 3:
			take(fields[0], words(fields[1]), words(fields[2]))
		}
	}
}

// unbounded are scripts that touch more of some collections, and why. docs/operations.md says so, too.
var unbounded = map[string]string{
	"rlock/inspect":               "the answer is all that there is",
	"rcounter/stock/inspect":      "the answer is all items, of which there are 1,024 at most",
	"rsemaphore/inspect":          "the answer is all that there is",
	"rsemaphore/weighted_inspect": "the answer is all that there is",
	"rlock/fair_release":          "Redisson's own list is searched with LREM, as Redisson does",
	"rlock/fair_acquire":          "Redisson's own list is read if its other key was deleted or evicted alone",
	"rlock/election/workers":      "each worker has to know all others, to take its part of the shards",
	"rsemaphore/barrier":          "a generation ends for all of its parties, of which there are 10,000 at most",
}

// few is the first argument with which an unbounded script is bounded: it looks at so many.
var few = map[string]string{"rsemaphore/inspect": "10", "rsemaphore/weighted_inspect": "10"}

// mostTouched is how many records one command of a script may touch in all its calls: 1,000 permits that are over, 512
// waiters that are gone, and those of the call. HSCAN returns a bucket of the hash table as a whole, and a bucket of a
// table that grows has tens of records.
const mostTouched = 2048 + 256

// serverTime is a time of the server in ms, as scripts get it.
var serverTime = regexp.MustCompile(`^1[6-9]\d{11}$`)

// bench is where the calls are made once more.
type bench struct {
	c       rueidis.Client
	records int
	times   map[string]bool // whether there are times in a key that has many records
}

// try makes a call with many more records in some of its keys, by index, and returns what rig.Touched does. past: those
// are long over. times: that makes a difference.
func (b *bench) try(t *testing.T, one shot, text string, large []int, past bool) (touched map[string]int64,
	took time.Duration, times bool, err error) {
	t.Helper()
	rig.Must(t, b.c, append([]string{"UNLINK"}, one.keys...)...)
	for i, dump := range one.dumps {
		switch {
		case dump == "":
		case !slices.Contains(one.large, i):
			rig.Must(t, b.c, "RESTORE", one.keys[i], "7200000", dump, "REPLACE")
		case slices.Contains(large, i):
			times = b.copy(t, one, i, b.records, past) || times
		default: // its own times alone are made later
			b.copy(t, one, i, 0, past)
		}
	}
	args := slices.Clone(one.args)
	for i, arg := range args { // what is too late is refused at once
		if ms, err := strconv.ParseInt(arg, 10, 64); err == nil && serverTime.MatchString(arg) {
			args[i] = strconv.FormatInt(ms+3_600_000, 10)
		}
	}
	touched, took, err = rig.Touched(t, b.c, text, one.keys, args)
	return touched, took, times, err
}

// copy makes a key of a call from one that has n records more, which is made once.
func (b *bench) copy(t *testing.T, one shot, i, n int, past bool) (times bool) {
	t.Helper()
	from := fmt.Sprintf("{%x}:%d:%v", sha1.Sum([]byte(one.dumps[i])), n, past)
	if _, made := b.times[from]; !made {
		rig.Must(t, b.c, "RESTORE", from, "7200000", one.dumps[i])
		b.times[from] = inflate(t, b.c, from, n, past, time.Since(one.at))
	}
	rig.Must(t, b.c, "COPY", from, one.keys[i])
	return b.times[from]
}

//go:embed testdata/inflate.lua
var inflateText string

// inflate adds n records to a key, copies of the records that it has; past: with scores and times of long ago. Times
// of the server are made later by the time given, and the ends of leases by an hour more. It reports whether there are
// any.
func inflate(t testing.TB, c rueidis.Client, key string, n int, past bool, later time.Duration) (times bool) {
	t.Helper()
	how := "same"
	if past {
		how = "past"
	}
	const part = 100_000 // a server that is busy for seconds is given up
	for from := 0; from == 0 || from < n; from += part {
		times = rig.Number(t, c, "EVAL", inflateText, "2", key, "{"+key+"}:inflated", strconv.Itoa(from),
			strconv.Itoa(min(n, from+part)), strconv.Itoa(n), how, strconv.FormatInt(later.Milliseconds(), 10)) == 1 || times
	}
	return times
}

// worst makes all calls of a script, with many records in all of their collections, and in each alone: of processes
// that are gone, that listen, or long over. It returns the most that a command touched, and where.
func (b *bench) worst(t *testing.T, shots []shot, text string) (most int64, by string, slowest time.Duration,
	calls int) {
	t.Helper()
	for _, one := range shots {
		sets := [][]int{one.large}
		for _, i := range one.large {
			if len(one.large) > 1 {
				sets = append(sets, []int{i})
			}
		}
		for _, large := range sets {
			note := func(how, text string, past bool) (times bool) {
				touched, took, times, err := b.try(t, one, text, large, past)
				if err != nil {
					t.Logf("%q, %s %v: %v", one.kinds, how, large, err)
				}
				calls++
				slowest = max(slowest, took)
				for name, n := range touched {
					if n > most {
						most, by = n, fmt.Sprintf("%s of %q, %s %v", name, one.kinds, how, large)
					}
				}
				return times
			}
			if note("gone", text, false) {
				note("over", text, true)
			}
			if len(large) > 0 && strings.Contains(text, "PUBSUB") {
				note("listening", rig.Heard+text, false)
			}
		}
	}
	return most, by, slowest, calls
}

// Every script touches a bounded number of records, however many its keys hold. The library is used in full; each of
// its calls is made once more on another server, where each collection among its keys has many more records like those
// that it had, or as many that are long over. Counts are compared, not times.
func TestScripts_HugeKeys_TouchFewRecords(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	records := redistest.Sized(5_000, 5_000, 100_000)
	if n, err := strconv.Atoi(os.Getenv("REDLATCH_RECORDS")); err == nil {
		records = n
	}
	scripts := allScripts(t)
	shots := takeShots(t, scripts)
	o := redistest.Start(t).Option()
	o.ConnWriteTimeout = 5 * time.Minute // unbounded scripts are slow
	c := redistest.NoError(rueidis.NewClient(o))(t)
	t.Cleanup(c.Close)
	rig.Must(t, c, "CONFIG", "SET", "slowlog-log-slower-than", "0")
	all := 0
	byFile := func(a, b lua) int { return strings.Compare(a.file, b.file) }
	for _, l := range slices.SortedFunc(maps.Values(scripts), byFile) {
		t.Run(l.file, func(t *testing.T) {
			require.NotEmpty(t, shots[l.file], "no call of it was seen")
			rig.Must(t, c, "FLUSHALL")
			b := bench{c: c, records: records, times: map[string]bool{}}
			if few[l.file] != "" {
				some := slices.DeleteFunc(slices.Clone(shots[l.file]), func(one shot) bool { return one.args[0] != few[l.file] })
				require.NotEmpty(t, some)
				most, by, _, _ := b.worst(t, some, l.text)
				require.LessOrEqual(t, most, int64(mostTouched), by)
			}
			most, by, slowest, calls := b.worst(t, shots[l.file], l.text)
			all += calls
			t.Logf("%2d calls, %3d tries, at most %6d records of one command, %v: %s", len(shots[l.file]), calls, most,
				slowest, by)
			if unbounded[l.file] == "" {
				require.LessOrEqual(t, most, int64(mostTouched))
			}
		})
	}
	t.Logf("%d tries of %d scripts, %d records in each key", all, len(scripts), records)
}
