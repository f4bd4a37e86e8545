package rsemaphore_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// Bases of 13 bytes, with what must not disturb a script in them, and their ids.
const (
	baseA = "aaaaa\x00\x80a\n%zaa"
	baseB = "bbbb\r\n\x8f\xff\xfebbbb"
	baseC = "cccccc\x80cccccc"
	baseD = "dddddd\x80dddddd"

	idA, idA2, idA3 = baseA + "\x00\x00\x00", baseA + "\x00\x00\x01", baseA + "\x00\x00\x02"
	idB             = baseB + "\x00\x00\x00"
	idC             = baseC + "\x00\x00\x00"
	idD             = baseD + "\x00\x00\x00"

	idJava = "jjjj\r\njjjj\xff\xfejjjj" // Redisson's are random
)

var (
	semaphoreKeys = []string{"s", "{s}:timeout", "{s}:notes", "{s}:latch", "redlatch_queue:{s}"}
	releaseKeys   = []string{"s", "{s}:timeout", "{s}:notes", "redlatch_queue:{s}"}
)

// unit of the times in the tables, ms: so long that no stall of the machine blurs them.
const unit = 60_000

// units are ms in units, rounded up.
func units(ms int64) int {
	if ms > 0 {
		ms += unit - 1
	}
	return int(ms / unit)
}

// sem is a semaphore on the server. Times are units from the server's now; 0 for an expiry: none.
type sem struct {
	count   string         // "" absent
	ttl     int            // of the count
	out     map[string]int // id -> its end
	outTTL  int
	notes   map[string]string
	noteTTL int
}

const always = 1 << 30 // an end that Redisson gives a permit without a lease

func (r *rig) put(t *testing.T, s sem) {
	t.Helper()
	r.must(t, append([]string{"DEL"}, semaphoreKeys...)...)
	expire := func(key string, n int) {
		if n > 0 {
			r.must(t, "PEXPIRE", key, strconv.Itoa(n*unit))
		}
	}
	if s.count != "" {
		r.must(t, "SET", "s", s.count)
		expire("s", s.ttl)
	}
	for id, end := range s.out {
		score := strconv.FormatInt(r.now(t)+int64(end)*unit, 10)
		if end == always {
			score = "922337203685477"
		}
		r.must(t, "ZADD", "{s}:timeout", score, id)
	}
	if len(s.out) > 0 {
		expire("{s}:timeout", s.outTTL)
	}
	for f, v := range s.notes {
		r.must(t, "HSET", "{s}:notes", f, v)
	}
	if len(s.notes) > 0 {
		expire("{s}:notes", s.noteTTL)
	}
}

// get is the inverse of put, its times rounded up to whole units.
func (r *rig) get(t *testing.T) sem {
	t.Helper()
	s := sem{}
	if v := r.text(t, "GET", "s"); v != "(nil)" {
		s.count = v
	}
	ttl := func(key string) int {
		ms := r.number(t, "PTTL", key)
		if ms < 0 {
			return 0
		}
		return units(ms - 1) // a lease has its keys last a millisecond longer
	}
	s.ttl, s.outTTL, s.noteTTL = ttl("s"), ttl("{s}:timeout"), ttl("{s}:notes")
	v, err := r.do(t, "ZRANGE", "{s}:timeout", "0", "-1", "WITHSCORES").AsZScores()
	require.NoError(t, err)
	now := r.now(t)
	for _, z := range v {
		if s.out == nil {
			s.out = map[string]int{}
		}
		s.out[z.Member] = units(int64(z.Score) - now)
		if z.Score == 922337203685477 {
			s.out[z.Member] = always
		}
	}
	notes, err := r.do(t, "HGETALL", "{s}:notes").AsStrMap()
	require.NoError(t, err)
	if len(notes) > 0 {
		s.notes = notes
	}
	if added, ok := notes["added"]; ok { // whose calls have a server time
		notes["added"] = regexp.MustCompile(` \d{10,};`).ReplaceAllString(added, " -7;")
	}
	return s
}

// sources are what source has composed: name -> text.
var sources sync.Map

// source is what is sent for a script.
func source(t testing.TB, name string) string {
	t.Helper()
	if text, ok := sources.Load(name); ok {
		return text.(string)
	}
	text, err := script.Compose(os.DirFS("."), name)
	require.NoError(t, err)
	sources.Store(name, text)
	return text
}

func (r *rig) script(t *testing.T, name string, keys []string, args ...string) (rueidis.RedisMessage, error) {
	t.Helper()
	return r.redis.Do(within(t),
		r.redis.B().Eval().Script(source(t, name)).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToMessage()
}

// numbers of a reply; server times and others that no table can know are -7.
func (r *rig) numbers(t *testing.T, m rueidis.RedisMessage) []int64 {
	t.Helper()
	v, err := []int64{0}, error(nil)
	if m.IsInt64() {
		v[0], err = m.AsInt64()
	} else {
		v, err = m.AsIntSlice()
	}
	require.NoError(t, err)
	now := r.now(t)
	for i := range v {
		if v[i] > now-unit && v[i] < now+unit {
			v[i] = -7
		} else if v[i] > unit { // a lease in ms
			v[i] = int64(units(v[i])) * unit
		}
	}
	return v
}

// told returns what is published on the semaphore's channel while fn runs, up to a mark of our own.
func (r *rig) told(t *testing.T, fn func()) (payloads []string) {
	t.Helper()
	ctx := within(t)
	got := make(chan string, 100)
	conn, release := r.redis.Dedicate()
	defer release()
	conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) { got <- m.Message }})
	require.NoError(t, conn.Do(ctx, conn.B().Subscribe().Channel("redisson_sc:{s}").Build()).Error())
	fn()
	r.must(t, "PUBLISH", "redisson_sc:{s}", "mark")
	for {
		select {
		case m := <-got:
			if m == "mark" {
				conn.Close()
				return payloads
			}
			payloads = append(payloads, m)
		case <-ctx.Done():
			t.Fatal("no message")
		}
	}
}

// process is whose calls are made, and process two another's.
const process, processTwo = "11111111-1111-8111-8111-111111111111", "22222222-2222-8222-8222-222222222222"

// self are the last arguments of all scripts that serve.
func self() []string { return []string{"redlatch_grant:", process} }

// entry is what a waiter of a process has in the queue: a first lease of 4 units, stale after 5.
func entry(base string, n int, of, label string) string {
	return fmt.Sprintf("%s %d %d %d %s %s", base, n, 4*unit, 5*unit, of, label)
}

// acquire's arguments: capacity, lease in units, base, number.
func taking(capacity, lease int, base string, n int) []string {
	return takingAs("", "0", "0", capacity, lease, base, n)
}

func takingAs(label, notAfter, shared string, capacity, lease int, base string, n int) []string {
	args := append([]string{strconv.Itoa(capacity), notAfter, "redisson_sc:{s}", "PUBLISH", shared}, self()...)
	return append(args, "0", entry(base, n, process, label), strconv.Itoa(lease*unit))
}

// acquire's replies: to the common case, and to the others.
var plain = []int64{-7}

func granted(capacity int64) []int64      { return []int64{1, -7, capacity, -1, -1, 0, -1} }
func tooFew(capacity, left int64) []int64 { return []int64{1, -7, capacity, left, -1, 0, 0} }
func tooMany(capacity int64) []int64      { return []int64{1, -7, capacity, -1, -1, 0, -2} }
func another(capacity int64) []int64      { return []int64{3, -7, capacity, -1, -1, 0} }

// keysOf are the keys of a script.
func keysOf(name string) []string {
	switch name {
	case "release":
		return releaseKeys
	case "recheck":
		return []string{"s", "{s}:timeout", "redlatch_queue:{s}"}
	}
	return semaphoreKeys
}

func owner(base string, n int) string { return base + strconv.Itoa(n) }

// release's arguments: all, then ids or an owner.
func giving(all string, ids ...string) []string {
	return append(append([]string{strings.Join(ids, ""), all, "redisson_sc:{s}", "PUBLISH"}, self()...), "")
}

const thirty = "1800000" // units

const keptUnits = "36000000" // 600 units

func resizing(capacity, declared int) []string { return resizingBy("0", "0", "0", capacity, declared) }

// resizingBy are resize's arguments; relative: "1" adds to the capacity.
func resizingBy(notAfter, shared, relative string, capacity, declared int) []string {
	return append([]string{strconv.Itoa(capacity), strconv.Itoa(declared), keptUnits, notAfter, "redisson_sc:{s}",
		"PUBLISH", shared, "call1", relative}, self()...)
}

func TestTheScriptsDoWhatTheirTablesSay(t *testing.T) {
	t.Parallel()
	type ends = map[string]int
	resized := func(n string) map[string]string { return map[string]string{"keep": keptUnits, "capacity": n} }
	addedTo := func(n, before string) map[string]string {
		return map[string]string{"keep": keptUnits, "capacity": n, "before": "call1 " + before,
			"added": "call1 " + before + " -7;"}
	}
	resizedFrom := func(n, before string) map[string]string {
		return map[string]string{"keep": keptUnits, "capacity": n, "before": "call1 " + before}
	}
	cases := []struct {
		name   string
		before sem
		script string
		args   []string
		reply  []int64
		after  sem
		told   []string
		again  []int64 // the reply of a second run, which must change nothing; nil: the same
	}{
		// acquire
		{"the first acquisition writes the capacity", sem{}, "acquire", taking(5, 30, baseA, 1),
			granted(5), sem{count: "4", ttl: 30, out: ends{idA: 30}, outTTL: 30}, nil, nil},
		{"several at once", sem{}, "acquire", taking(3, 30, baseA, 3),
			granted(3), sem{count: "0", ttl: 30, out: ends{idA: 30, idA2: 30, idA3: 30}, outTTL: 30}, nil, nil},
		{"a longer lease has all keys last longer", sem{count: "4", ttl: 10, out: ends{idA: 10}, outTTL: 10}, "acquire",
			taking(5, 30, baseB, 1),
			plain, sem{count: "3", ttl: 30, out: ends{idA: 10, idB: 30}, outTTL: 30}, nil, granted(5)},
		{"a shorter lease shortens nothing", sem{count: "4", ttl: 50, out: ends{idA: 50}, outTTL: 50}, "acquire",
			taking(5, 30, baseB, 1),
			plain, sem{count: "3", ttl: 50, out: ends{idA: 50, idB: 30}, outTTL: 50}, nil, granted(5)},
		{"the last one", sem{count: "1", ttl: 20, out: ends{idA: 20}, outTTL: 20}, "acquire", taking(2, 20, baseB, 1),
			plain, sem{count: "0", ttl: 20, out: ends{idA: 20, idB: 20}, outTTL: 20}, nil, granted(2)},
		{"not enough, and the nearest end", sem{count: "0", ttl: 50, out: ends{idA: 50, idB: 20}, outTTL: 50}, "acquire",
			taking(2, 30, baseC, 1),
			tooFew(2, 20*unit), sem{count: "0", ttl: 50, out: ends{idA: 50, idB: 20}, outTTL: 50}, nil, nil},
		{"not enough for two until the second end", sem{count: "0", ttl: 50, out: ends{idA: 50, idB: 20}, outTTL: 50},
			"acquire", taking(2, 30, baseC, 2),
			tooFew(2, 50*unit), sem{count: "0", ttl: 50, out: ends{idA: 50, idB: 20}, outTTL: 50}, nil, nil},
		{"not enough of several takes none", sem{count: "1", ttl: 50, out: ends{idA: 50}, outTTL: 50}, "acquire",
			taking(2, 30, baseC, 2),
			tooFew(2, 50*unit), sem{count: "1", ttl: 50, out: ends{idA: 50}, outTTL: 50}, nil, nil},
		{"not enough, and no end", sem{count: "0", out: ends{idA: always}}, "acquire", taking(1, 30, baseC, 1),
			[]int64{1, -7, 1, -1, -1, 1, 0}, sem{count: "0", out: ends{idA: always}}, nil, nil},
		{"what is over is taken", sem{count: "0", ttl: 50, out: ends{idA: 50, idB: -1}, outTTL: 50}, "acquire",
			taking(2, 30, baseC, 1),
			granted(2), sem{count: "0", ttl: 50, out: ends{idA: 50, idC: 30}, outTTL: 50}, nil, nil},
		{"all that is over is given back, and said",
			sem{count: "0", ttl: 50, out: ends{idA: -5, idB: -1, idD: -2}, outTTL: 50,
				notes: map[string]string{idA: "x", idD: "y"}, noteTTL: 50},
			"acquire", taking(3, 30, baseC, 1), granted(3), sem{count: "2", ttl: 50, out: ends{idC: 30}, outTTL: 50},
			[]string{"2"}, nil},
		{"given back also when it is not enough",
			sem{count: "-2", ttl: 50, out: ends{idA: 50, idB: 50, idC: -1}, outTTL: 50, notes: resized("1"), noteTTL: 50},
			"acquire", taking(1, 30, baseD, 1), tooFew(1, 50*unit),
			sem{count: "-1", ttl: 50, out: ends{idA: 50, idB: 50}, outTTL: 50, notes: resized("1"), noteTTL: 50}, nil, nil},
		{"another capacity", sem{count: "4", ttl: 50, out: ends{idA: 50}, outTTL: 50}, "acquire", taking(6, 30, baseC, 1),
			another(5), sem{count: "4", ttl: 50, out: ends{idA: 50}, outTTL: 50}, nil, nil},
		{"another capacity after a resize",
			sem{count: "4", ttl: 50, out: ends{idA: 50}, outTTL: 50, notes: resized("5"), noteTTL: 50}, "acquire",
			taking(6, 30, baseC, 1),
			granted(5), sem{count: "3", ttl: 600, out: ends{idA: 50, idC: 30}, outTTL: 600, notes: resized("5"), noteTTL: 600},
			nil, nil},
		{"a resized one whose count is gone", sem{out: ends{idA: 50}, outTTL: 50, notes: resized("3"), noteTTL: 50},
			"acquire", taking(6, 30, baseC, 1),
			granted(3), sem{count: "1", ttl: 600, out: ends{idA: 50, idC: 30}, outTTL: 600, notes: resized("3"), noteTTL: 600},
			nil, nil},
		{"more than there is after a resize",
			sem{count: "1", ttl: 50, out: ends{idA: 50}, outTTL: 50, notes: resized("2"), noteTTL: 50}, "acquire",
			taking(3, 30, baseB, 3),
			tooMany(2), sem{count: "1", ttl: 50, out: ends{idA: 50}, outTTL: 50, notes: resized("2"), noteTTL: 50}, nil, nil},
		{"a count that is gone leaves out what is out", sem{out: ends{idA: 50, idB: 50}, outTTL: 50}, "acquire",
			taking(3, 30, baseC, 1),
			granted(3), sem{count: "0", ttl: 50, out: ends{idA: 50, idB: 50, idC: 30}, outTTL: 50}, nil, nil},
		{"a count that is gone with all out", sem{out: ends{idA: 50}, outTTL: 50}, "acquire", taking(1, 30, baseC, 1),
			tooFew(1, 50*unit), sem{out: ends{idA: 50}, outTTL: 50}, nil, nil},
		{"given back and not enough, others are told", sem{count: "0", ttl: 50, out: ends{idA: 50, idB: -1}, outTTL: 50},
			"acquire", taking(2, 30, baseC, 2),
			tooFew(2, 50*unit), sem{count: "1", ttl: 50, out: ends{idA: 50}, outTTL: 50}, []string{"1"}, nil},
		{"a count that is gone is not made by what is over", sem{out: ends{idA: 50, idB: -1}, outTTL: 50}, "acquire",
			taking(1, 30, baseC, 1),
			tooFew(1, 50*unit), sem{out: ends{idA: 50}, outTTL: 50}, nil, nil},
		{"permits that are gone close it until the count is", sem{count: "1", ttl: 50}, "acquire", taking(3, 30, baseC, 1),
			another(1), sem{count: "1", ttl: 50}, nil, nil},
		{"of a resized one whose permits are gone all are there", sem{count: "1", ttl: 50, notes: resized("3"), noteTTL: 50},
			"acquire", taking(3, 30, baseC, 1),
			granted(3), sem{count: "2", ttl: 600, out: ends{idC: 30}, outTTL: 600, notes: resized("3"), noteTTL: 600},
			[]string{"2"}, nil},
		{"some of the permits of a resized one are gone, and those who wait are told",
			sem{count: "0", ttl: 50, out: ends{idA: 50}, outTTL: 50, notes: resized("3"), noteTTL: 50}, "acquire",
			taking(3, 30, baseB, 3),
			tooFew(3, 50*unit), sem{count: "2", ttl: 50, out: ends{idA: 50}, outTTL: 50, notes: resized("3"), noteTTL: 50},
			[]string{"2"}, nil},
		{"a count of a resized one that is too high grants nothing beyond the capacity",
			sem{count: "5", ttl: 50, out: ends{idA: 50, idB: 50}, outTTL: 50, notes: resized("2"), noteTTL: 50}, "acquire",
			taking(3, 30, baseC, 1),
			tooFew(2, 50*unit), sem{count: "0", ttl: 50, out: ends{idA: 50, idB: 50}, outTTL: 50, notes: resized("2"),
				noteTTL: 50}, nil, nil},
		{"also where its keys need not be prolonged",
			sem{count: "5", ttl: 600, out: map[string]int{idA: 50, idB: 50}, outTTL: 600, notes: resized("2"), noteTTL: 600},
			"acquire", taking(3, 30, baseC, 1),
			tooFew(2, 50*unit), sem{count: "0", ttl: 600, out: map[string]int{idA: 50, idB: 50}, outTTL: 600,
				notes: resized("2"), noteTTL: 600}, nil, nil},
		{"a resized one whose keys need not be prolonged",
			sem{count: "4", ttl: 600, out: map[string]int{idA: 50}, outTTL: 600, notes: resized("5"), noteTTL: 600}, "acquire",
			taking(6, 30, baseC, 1),
			plain, sem{count: "3", ttl: 600, out: map[string]int{idA: 50, idC: 30}, outTTL: 600, notes: resized("5"),
				noteTTL: 600}, nil, granted(5)},
		{"without an end it is Java that may have set the permits of a resized one",
			sem{count: "1", notes: resized("3"), noteTTL: 50}, "acquire", taking(3, 30, baseC, 1),
			granted(1), sem{count: "0", out: ends{idC: 30}, notes: resized("3"), noteTTL: 600}, nil, nil},
		{"of a shared one any capacity will do", sem{count: "5"}, "acquire", takingAs("", "0", "1", 2, 30, baseA, 3),
			granted(5), sem{count: "2", out: ends{idA: 30, idA2: 30, idA3: 30}}, nil, nil},
		{"and more than that cannot be had", sem{count: "2"}, "acquire", takingAs("", "0", "1", 5, 30, baseA, 3),
			tooMany(2), sem{count: "2"}, nil, nil},
		{"Redisson's keys without an end stay so", sem{count: "5"}, "acquire", taking(5, 30, baseA, 1),
			plain, sem{count: "4", out: ends{idA: 30}}, nil, granted(5)},
		{"a Java permit outlasts a count made anew", sem{out: ends{idA: 50, idB: always}}, "acquire", taking(4, 30, baseC, 1),
			granted(4), sem{count: "1", ttl: 30, out: ends{idA: 50, idB: always, idC: 30}}, nil, nil},
		{"a longer permit outlasts a count made anew", sem{out: ends{idA: 50}}, "acquire", taking(4, 30, baseC, 1),
			granted(4), sem{count: "2", ttl: 30, out: ends{idA: 50, idC: 30}, outTTL: 50}, nil, nil},
		{"shared with Redisson", sem{}, "acquire", takingAs("who", "0", "1", 5, 30, baseA, 1),
			granted(5), sem{count: "4", out: ends{idA: 30}, notes: map[string]string{idA: "who"}, noteTTL: 30}, nil, nil},
		{"shared from now on", sem{count: "4", ttl: 50, out: ends{idB: 50}, outTTL: 50}, "acquire",
			takingAs("", "0", "1", 5, 30, baseA, 1),
			granted(5), sem{count: "3", out: ends{idA: 30, idB: 50}}, nil, nil},
		{"a label", sem{}, "acquire", takingAs("me", "0", "0", 5, 30, baseA, 2),
			granted(5), sem{count: "3", ttl: 30, out: ends{idA: 30, idA2: 30}, outTTL: 30,
				notes: map[string]string{idA: "me", idA2: "me"}, noteTTL: 30}, nil, nil},
		{"a repeated request raises its own lease and takes nothing",
			sem{count: "3", ttl: 20, out: ends{idA: 20, idA2: 50}, outTTL: 50}, "acquire", taking(5, 30, baseA, 2),
			granted(5), sem{count: "3", ttl: 30, out: ends{idA: 30, idA2: 50}, outTTL: 50}, nil, nil},
		{"a repeated request takes what it has lost", sem{count: "3", ttl: 20, out: ends{idA: 20, idC: 20}, outTTL: 20},
			"acquire", taking(5, 30, baseA, 2),
			granted(5), sem{count: "2", ttl: 30, out: ends{idA: 30, idA2: 30, idC: 20}, outTTL: 30}, nil, nil},
		{"all are free", sem{count: "5", ttl: 20}, "acquire", taking(5, 30, baseA, 1),
			plain, sem{count: "4", ttl: 30, out: ends{idA: 30}, outTTL: 30}, nil, granted(5)},
		{"all are free, and the count has a longer end", sem{count: "5", ttl: 50}, "acquire", taking(5, 30, baseA, 1),
			plain, sem{count: "4", ttl: 50, out: ends{idA: 30}, outTTL: 50}, nil, granted(5)},
		{"another capacity where all are free", sem{count: "5", ttl: 50}, "acquire", taking(6, 30, baseA, 1),
			another(5), sem{count: "5", ttl: 50}, nil, nil},
		{"another capacity that what is free and not over adds up to",
			sem{count: "3", ttl: 50, out: ends{idA: 50, idB: -1}, outTTL: 50}, "acquire", taking(4, 30, baseC, 1),
			another(5), sem{count: "4", ttl: 50, out: ends{idA: 50}, outTTL: 50}, nil, nil},
		{"of a shared one any capacity will do, and no key gets an end", sem{count: "4", out: ends{idB: 50}}, "acquire",
			takingAs("", "0", "1", 2, 30, baseA, 1),
			plain, sem{count: "3", out: ends{idA: 30, idB: 50}}, nil, granted(5)},
		{"permits without an end get one beside a count that has one", sem{count: "4", ttl: 20, out: ends{idB: 50}},
			"acquire", taking(5, 30, baseA, 1),
			granted(5), sem{count: "3", ttl: 30, out: ends{idA: 30, idB: 50}, outTTL: 50}, nil, nil},
		{"a repeated request for one raises its lease", sem{count: "4", ttl: 20, out: ends{idA: 20}, outTTL: 20}, "acquire",
			taking(5, 30, baseA, 1),
			granted(5), sem{count: "4", ttl: 30, out: ends{idA: 30}, outTTL: 30}, nil, nil},
		{"in time", sem{}, "acquire", takingAs("", "99999999999999", "0", 5, 30, baseA, 1),
			granted(5), sem{count: "4", ttl: 30, out: ends{idA: 30}, outTTL: 30}, nil, nil},
		{"too late", sem{out: ends{idB: -1}}, "acquire", takingAs("", "1600000000000", "0", 5, 30, baseA, 1),
			[]int64{2, -7, 0, -1, -1, 0}, sem{out: ends{idB: -1}}, nil, nil},

		// release: how many were held
		{"a release", sem{count: "3", ttl: 50, out: ends{idA: 50, idB: 50}, outTTL: 50}, "release",
			giving("0", owner(baseA, 1)),
			[]int64{1}, sem{count: "4", ttl: 50, out: ends{idB: 50}, outTTL: 50}, []string{"4"}, []int64{0, -1}},
		{"the last release", sem{count: "4", ttl: 50, out: ends{idA: 50}, outTTL: 50, notes: map[string]string{idA: "me"},
			noteTTL: 50}, "release", giving("1", idA),
			[]int64{1, -1}, sem{count: "5", ttl: 50}, []string{"5"}, []int64{-1, -1}},
		{"of several", sem{count: "0", out: ends{idA: 50, idB: 50, idC: always}}, "release", giving("1", idA, idC),
			[]int64{2, -1}, sem{count: "2", out: ends{idB: 50}}, []string{"2"}, []int64{-1, -1}},
		{"all or none: none", sem{count: "4", ttl: 50, out: ends{idA: 50}, outTTL: 50}, "release", giving("1", idA, idB),
			[]int64{-1, -1}, sem{count: "4", ttl: 50, out: ends{idA: 50}, outTTL: 50}, nil, nil},
		{"all or none: one is over", sem{count: "3", ttl: 50, out: ends{idA: 50, idB: -1}, outTTL: 50}, "release",
			giving("1", idA, idB),
			[]int64{-1, -1}, sem{count: "3", ttl: 50, out: ends{idA: 50, idB: -1}, outTTL: 50}, nil, nil},
		{"whatever is there", sem{count: "4", ttl: 50, out: ends{idA: 50}, outTTL: 50}, "release",
			giving("0", owner(baseA, 2)),
			[]int64{1, -1}, sem{count: "5", ttl: 50}, []string{"5"}, []int64{0, -1}},
		{"one that is over is given back, and was not held", sem{count: "4", ttl: 50, out: ends{idA: -1}, outTTL: 50},
			"release", giving("0", owner(baseA, 1)),
			[]int64{0, -1}, sem{count: "5", ttl: 50}, []string{"5"}, nil},
		{"others that are over are given back too", sem{count: "3", ttl: 50, out: ends{idA: 50, idB: -1}, outTTL: 50},
			"release", giving("0", owner(baseA, 1)),
			[]int64{1, -1}, sem{count: "5", ttl: 50}, []string{"5"}, []int64{0, -1}},
		{"of nothing", sem{count: "5", ttl: 50}, "release", giving("0", owner(baseA, 1)),
			[]int64{0, -1}, sem{count: "5", ttl: 50}, nil, nil},
		{"of a semaphore that is gone makes none", sem{}, "release", giving("0", owner(baseA, 1)), []int64{0, -1}, sem{},
			nil, nil},
		{"of a count that is gone makes none", sem{out: ends{idA: 50, idB: 50}, outTTL: 50}, "release",
			giving("0", owner(baseA, 1)),
			[]int64{1, -1}, sem{out: ends{idB: 50}, outTTL: 50}, []string{"1"}, []int64{0, -1}},
		{"draining tells nobody", sem{count: "-2", ttl: 50, out: ends{idA: 50, idB: 50, idC: 50}, outTTL: 50}, "release",
			giving("0", owner(baseA, 1)),
			[]int64{1}, sem{count: "-1", ttl: 50, out: ends{idB: 50, idC: 50}, outTTL: 50}, nil, []int64{0, -1}},

		// renew: 1, 0 or -1
		{"a renewal", sem{count: "4", ttl: 10, out: ends{idA: 10}, outTTL: 10}, "renew", []string{owner(baseA, 1), thirty},
			[]int64{1}, sem{count: "4", ttl: 30, out: ends{idA: 30}, outTTL: 30}, nil, nil},
		{"a renewal of several",
			sem{count: "2", ttl: 10, out: ends{idA: 10, idA2: 10, idC: 5}, outTTL: 10, notes: map[string]string{idA: "x"},
				noteTTL: 10}, "renew", []string{owner(baseA, 2), thirty},
			[]int64{1}, sem{count: "2", ttl: 30, out: ends{idA: 30, idA2: 30, idC: 5}, outTTL: 30,
				notes: map[string]string{idA: "x"}, noteTTL: 30}, nil, nil},
		{"a renewal shortens nothing", sem{count: "4", ttl: 50, out: ends{idA: 50}, outTTL: 50}, "renew",
			[]string{owner(baseA, 1), thirty},
			[]int64{1}, sem{count: "4", ttl: 50, out: ends{idA: 50}, outTTL: 50}, nil, nil},
		{"a look", sem{count: "4", ttl: 10, out: ends{idA: 10}, outTTL: 10}, "renew", []string{owner(baseA, 1), "0"},
			[]int64{1}, sem{count: "4", ttl: 10, out: ends{idA: 10}, outTTL: 10}, nil, nil},
		{"of one that is gone", sem{count: "4", ttl: 10, out: ends{idA: 10}, outTTL: 10}, "renew",
			[]string{owner(baseB, 1), thirty},
			[]int64{0}, sem{count: "4", ttl: 10, out: ends{idA: 10}, outTTL: 10}, nil, nil},
		{"of one that is over", sem{count: "4", ttl: 10, out: ends{idA: -1}, outTTL: 10}, "renew",
			[]string{owner(baseA, 1), thirty},
			[]int64{0}, sem{count: "4", ttl: 10, out: ends{idA: -1}, outTTL: 10}, nil, nil},
		{"of one that is partly gone", sem{count: "4", ttl: 10, out: ends{idA: 10}, outTTL: 10}, "renew",
			[]string{owner(baseA, 2), thirty},
			[]int64{0}, sem{count: "4", ttl: 10, out: ends{idA: 10}, outTTL: 10}, nil, nil},
		{"of a resized one", sem{count: "4", ttl: 10, out: ends{idA: 10}, outTTL: 10, notes: resized("5"), noteTTL: 10},
			"renew", []string{owner(baseA, 1), thirty},
			[]int64{1}, sem{count: "4", ttl: 600, out: ends{idA: 30}, outTTL: 600, notes: resized("5"), noteTTL: 600}, nil, nil},
		{"without an end", sem{count: "4", out: ends{idA: 10}}, "renew", []string{owner(baseA, 1), thirty},
			[]int64{1}, sem{count: "4", out: ends{idA: 30}}, nil, nil},

		// extend: 1 or 0
		{"an extension", sem{count: "4", ttl: 10, out: ends{idA: 10}, outTTL: 10}, "extend", []string{thirty, idA},
			[]int64{1}, sem{count: "4", ttl: 30, out: ends{idA: 30}, outTTL: 30}, nil, nil},
		{"an extension shortens nothing", sem{count: "3", ttl: 50, out: ends{idA: 50, idB: 10}, outTTL: 50}, "extend",
			[]string{thirty, idA, idB},
			[]int64{1}, sem{count: "3", ttl: 50, out: ends{idA: 50, idB: 30}, outTTL: 50}, nil, nil},
		{"an extension of one that is over", sem{count: "3", ttl: 10, out: ends{idA: -1, idB: 10}, outTTL: 10}, "extend",
			[]string{thirty, idB, idA},
			[]int64{0}, sem{count: "3", ttl: 10, out: ends{idA: -1, idB: 10}, outTTL: 10}, nil, nil},
		{"an extension of one that is gone", sem{count: "4", ttl: 10, out: ends{idB: 10}, outTTL: 10}, "extend",
			[]string{thirty, idB, idA},
			[]int64{0}, sem{count: "4", ttl: 10, out: ends{idB: 10}, outTTL: 10}, nil, nil},

		// resize: status, before, server ms
		{"more", sem{count: "0", ttl: 50, out: ends{idA: 50, idB: 50}, outTTL: 50}, "resize", resizing(5, 2),
			[]int64{1, 2, -7, -1},
			sem{count: "3", ttl: 600, out: ends{idA: 50, idB: 50}, outTTL: 600, notes: resizedFrom("5", "2"), noteTTL: 600},
			[]string{"3"}, nil},
		{"fewer", sem{count: "1", ttl: 50, out: ends{idA: 50, idB: 50}, outTTL: 50}, "resize", resizing(1, 3),
			[]int64{1, 3, -7, -1},
			sem{count: "-1", ttl: 600, out: ends{idA: 50, idB: 50}, outTTL: 600, notes: resizedFrom("1", "3"), noteTTL: 600},
			nil, nil},
		{"one not in use", sem{}, "resize", resizing(4, 3),
			[]int64{1, 3, -7, -1}, sem{count: "4", ttl: 600, notes: resizedFrom("4", "3"), noteTTL: 600}, []string{"4"}, nil},
		{"one without an end", sem{count: "4", out: ends{idA: always}}, "resize", resizing(4, 3),
			[]int64{1, 5, -7, -1}, sem{count: "3", out: ends{idA: always}, notes: resizedFrom("4", "5"), noteTTL: 600}, nil,
			nil},
		{"and what is over is given back", sem{count: "0", ttl: 50, out: ends{idA: 50, idB: -1}, outTTL: 50}, "resize",
			resizing(2, 2),
			[]int64{1, 2, -7, -1},
			sem{count: "1", ttl: 600, out: ends{idA: 50}, outTTL: 600, notes: resizedFrom("2", "2"), noteTTL: 600},
			[]string{"1"}, nil},
		{"a resized one whose permits are gone", sem{count: "1", ttl: 600, notes: resized("3"), noteTTL: 600}, "resize",
			resizing(3, 2),
			[]int64{1, 3, -7, -1}, sem{count: "3", ttl: 600, notes: resizedFrom("3", "3"), noteTTL: 600}, []string{"3"}, nil},
		{"shared from the resize on", sem{count: "1", ttl: 50, out: ends{idA: 50}, outTTL: 50}, "resize",
			resizingBy("0", "1", "0", 5, 2),
			[]int64{1, 2, -7, -1}, sem{count: "4", out: ends{idA: 50}, notes: resizedFrom("5", "2"), noteTTL: 600},
			[]string{"4"}, nil},
		{"another call after it",
			sem{count: "3", ttl: 600, notes: map[string]string{"keep": keptUnits, "capacity": "3", "before": "call0 9"},
				noteTTL: 600}, "resize", resizing(5, 2),
			[]int64{1, 3, -7, -1}, sem{count: "5", ttl: 600, notes: resizedFrom("5", "3"), noteTTL: 600}, []string{"5"}, nil},
		{"a resize that comes too late", sem{count: "4", ttl: 50}, "resize", resizingBy("1600000000000", "0", "0", 9, 4),
			[]int64{2, 0, -7, -1}, sem{count: "4", ttl: 50}, nil, nil},

		// resize by a difference
		{"two more", sem{count: "1", ttl: 50, out: ends{idA: 50, idB: 50}, outTTL: 50}, "resize",
			resizingBy("0", "0", "1", 2, 3),
			[]int64{1, 3, -7, -1},
			sem{count: "3", ttl: 600, out: ends{idA: 50, idB: 50}, outTTL: 600, notes: addedTo("5", "3"), noteTTL: 600},
			[]string{"3"}, nil},
		{"one fewer of a resized one", sem{count: "4", ttl: 50, notes: resized("4"), noteTTL: 50}, "resize",
			resizingBy("0", "0", "1", -1, 9),
			[]int64{1, 4, -7, -1}, sem{count: "3", ttl: 600, notes: addedTo("3", "4"), noteTTL: 600}, nil, nil},
		{"as many fewer as there are", sem{count: "4", ttl: 50}, "resize", resizingBy("0", "0", "1", -4, 4),
			[]int64{3, 4, -7, -1}, sem{count: "4", ttl: 50}, nil, nil},
		{"more than there can be", sem{}, "resize", resizingBy("0", "0", "1", 1<<31-1, 4),
			[]int64{3, 4, -7, -1}, sem{}, nil, nil},

		// query: there, available, out, capacity of a resize
		{"a look at nothing", sem{}, "query", nil, []int64{0, 0, 0, 0}, sem{}, nil, nil},
		{"a look counts what is over as available", sem{count: "2", ttl: 50, out: ends{idA: 50, idB: -1}, outTTL: 50},
			"query", nil,
			[]int64{1, 3, 1, 0}, sem{count: "2", ttl: 50, out: ends{idA: 50, idB: -1}, outTTL: 50}, nil, nil},
		{"a look at a resized one whose permits are gone",
			sem{count: "1", ttl: 50, out: ends{idB: -1}, outTTL: 50, notes: resized("7"), noteTTL: 50}, "query", nil,
			[]int64{1, 7, 0, 7}, sem{count: "1", ttl: 50, out: ends{idB: -1}, outTTL: 50, notes: resized("7"), noteTTL: 50},
			nil, nil},
		{"a look at a resized one", sem{out: ends{idA: 50}, outTTL: 50, notes: resized("7"), noteTTL: 50}, "query", nil,
			[]int64{0, 0, 1, 7}, sem{out: ends{idA: 50}, outTTL: 50, notes: resized("7"), noteTTL: 50}, nil, nil},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				r.put(t, c.before)
				told := r.told(t, func() {
					m, err := r.script(t, c.script, keysOf(c.script), c.args...)
					require.NoError(t, err)
					require.Equal(t, c.reply, r.numbers(t, m))
				})
				after := r.get(t)
				require.Equal(t, c.after, after)
				require.Equal(t, c.told, told)
				m, err := r.script(t, c.script, keysOf(c.script), c.args...)
				require.NoError(t, err)
				if c.again == nil {
					c.again = c.reply
				}
				require.Equal(t, c.again, r.numbers(t, m), "the second run's reply")
				require.Equal(t, after, r.get(t), "a second run changes nothing")
			})
		}
	})
}

func TestScriptsRefuseKeysOfAnotherKind(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		for name, spoil := range map[string][]string{
			"a count that is a hash":       {"HSET", "s", "f", "v"},
			"a count that is no number":    {"SET", "s", "many"},
			"permits that are a string":    {"SET", "{s}:timeout", "v"},
			"notes that are a string":      {"SET", "{s}:notes", "v"},
			"permits that are a plain set": {"SADD", "{s}:timeout", "v"},
		} {
			t.Run(name, func(t *testing.T) {
				r.put(t, sem{})
				r.must(t, spoil...)
				_, err := r.c.Semaphore("s", 3).TryAcquire(within(t), 1, 0, 0)
				require.ErrorIs(t, err, errs.ErrWrongType)
				require.Len(t, r.keys(t), 1, "nothing was made")
			})
		}
	})
}

func TestOneSemaphoreThatCannotBeRenewedLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		r.put(t, sem{count: "4", ttl: 10, out: map[string]int{idA: 10}, outTTL: 10})
		r.must(t, "SET", "{x}:timeout", "v")
		keys := append([]string{"x", "{x}:timeout", "{x}:notes"}, semaphoreKeys[:3]...)
		m, err := r.script(t, "renew", append(keys, semaphoreKeys[:3]...), owner(baseA, 1), thirty, owner(baseA, 1), thirty,
			owner(baseC, 1), thirty)
		require.NoError(t, err)
		require.Equal(t, []int64{-2, 1, 0}, r.numbers(t, m))
		require.Equal(t, 30, r.get(t).out[idA])
	})
}

func TestAPermitIsRenewedKeyByKeyWhereItsKeysAreApart(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		two := sem{count: "3", ttl: 10, out: map[string]int{idA: 10, idB: 5}, outTTL: 10, notes: map[string]string{idA: "x"},
			noteTTL: 10}
		renewed := sem{count: "3", ttl: 10, out: map[string]int{idA: 30, idB: 5}, outTTL: 30,
			notes: map[string]string{idA: "x"}, noteTTL: 30}
		for _, c := range []struct {
			name, ids, lease string
			before           sem
			reply            []int64 // by key
			after            sem
		}{
			{"a renewal", owner(baseA, 1), thirty, two, []int64{1, 1, 1}, renewed},
			{"without notes", owner(baseA, 1), thirty, sem{count: "3", ttl: 10, out: two.out, outTTL: 10}, []int64{1, 1, 1},
				sem{count: "3", ttl: 10, out: renewed.out, outTTL: 30}},
			{"a look", owner(baseA, 1), "0", two, []int64{1, 1, 1}, two},
			{"of what lasts longer", owner(baseA, 1), "1000", two, []int64{1, 1, 1}, two},
			{"of what has no end", owner(baseA, 1), thirty, sem{count: "3", out: two.out}, []int64{1, 1, 1},
				sem{count: "3", out: renewed.out}},
			{"of one that is partly gone", owner(baseA, 2), "0", two, []int64{1, 0, 1}, two},
			{"of one that is over", owner(baseA, 1), "0", sem{count: "3", ttl: 10, out: map[string]int{idA: -1}, outTTL: 10},
				[]int64{1, 0, 1}, sem{count: "3", ttl: 10, out: map[string]int{idA: -1}, outTTL: 10}},
		} {
			t.Run(c.name, func(t *testing.T) {
				r.put(t, c.before)
				for range 2 {
					for i, key := range semaphoreKeys[:3] { // the fourth is a latch's
						m, err := r.script(t, "renew", []string{key}, c.ids, c.lease, strconv.Itoa(i+1))
						require.NoError(t, err)
						require.Equal(t, c.reply[i:i+1], r.numbers(t, m), key)
					}
				}
				require.Equal(t, c.after, r.get(t))
			})
		}
		r.must(t, "SET", "x", "v")
		m, err := r.script(t, "renew", []string{"x"}, owner(baseA, 1), thirty, "2")
		require.NoError(t, err)
		require.Equal(t, []int64{-2}, r.numbers(t, m))
	})
}

// The watchdog asks so after the machine may have slept.
func TestALookAtAPermitThatAsksForHowLongIsTold(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		before := sem{count: "1", ttl: 50, out: map[string]int{idA: 10, idA2: 5, idB: 7, idC: always}, outTTL: 50}
		r.put(t, before)
		for ids, left := range map[string]int{owner(baseA, 1): 10, owner(baseA, 2): 5, owner(baseB, 1): 7,
			owner(baseC, 1): 0} {
			for _, x := range [][]string{semaphoreKeys[:3], semaphoreKeys[1:2]} {
				m, err := r.script(t, "renew", x, ids, "-1", "2")
				require.NoError(t, err)
				got, err := m.AsIntSlice()
				require.NoError(t, err)
				require.Equal(t, left, units(got[0]-1), "%d keys", len(x))
			}
		}
		require.Equal(t, before, r.get(t))
	})
}

func TestRenewalsAndReleasesWorkWhenMemoryIsFull(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	r.put(t, sem{count: "3", ttl: 10, out: map[string]int{idA: 10, idB: 40}, outTTL: 50})
	r.must(t, "CONFIG", "SET", "maxmemory", "1")
	_, err := r.script(t, "acquire", semaphoreKeys, taking(5, 30, baseC, 1)...)
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, sem{count: "3", ttl: 10, out: map[string]int{idA: 10, idB: 40}, outTTL: 50}, r.get(t))
	m, err := r.script(t, "renew", semaphoreKeys[:3], owner(baseA, 1), thirty)
	require.NoError(t, err)
	require.Equal(t, []int64{1}, r.numbers(t, m))
	require.Equal(t, 30, r.get(t).out[idA])
	m, err = r.script(t, "release", releaseKeys, giving("0", owner(baseA, 1))...)
	require.NoError(t, err)
	require.Equal(t, []int64{1}, r.numbers(t, m))
	require.Equal(t, "4", r.get(t).count)
}

func TestEveryScriptSaysHowItIsCalledAndWhatASecondRunDoes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"acquire", "release", "renew", "resize", "query", "inspect", "look", "extend", "who"} {
		text, err := os.ReadFile("lua/" + name + ".lua")
		require.NoError(t, err)
		header, _, _ := strings.Cut(string(text), "\nlocal")
		for _, part := range []string{"-- KEYS", "-- Reply", "-- Twice: "} {
			require.Contains(t, header, part, name)
		}
	}
}
