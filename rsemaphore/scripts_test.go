package rsemaphore_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	internalwait "github.com/redlatch/redlatch/internal/wait"
)

// Bases of 13 bytes, with what must not disturb a script in them, and their ids.
const (
	baseA = "aaaaa\x00\x80a\n%zaa"
	baseB = "bbbb\r\n\x8f\xff\xfebbbb"
	baseC = "cccccc\x80cccccc"

	idA, idA2, idA3 = baseA + "\x00\x00\x00", baseA + "\x00\x00\x01", baseA + "\x00\x00\x02"
	idB             = baseB + "\x00\x00\x00"

	idJava = "jjjj\r\njjjj\xff\xfejjjj" // Redisson's are random
)

var (
	semaphoreKeys = []string{"s", "{s}:timeout", "{s}:notes", "{s}:latch", "redlatch_queue:{s}", "{s}:shares"}
	releaseKeys   = []string{"s", "{s}:timeout", "{s}:notes", "redlatch_queue:{s}", "{s}:shares"}
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
	v := redistest.NoError(r.do(t, "ZRANGE", "{s}:timeout", "0", "-1", "WITHSCORES").AsZScores())(t)
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
	notes := redistest.NoError(r.do(t, "HGETALL", "{s}:notes").AsStrMap())(t)
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
	text := redistest.NoError(script.Compose(os.DirFS("."), name))(t)
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

// process is whose calls are made, and process two another's.
const process, processTwo = "11111111-1111-8111-8111-111111111111", "22222222-2222-8222-8222-222222222222"

// self are the last arguments of all scripts that serve.
func self() []string { return []string{"redlatch_grant:", process} }

// entry is what a waiter of a process has in the queue: a first lease of 4 units, stale after 5.
func entry(base string, n int, of, label string) string {
	entry := internalwait.Entry{Mode: internalwait.EntryPermits, Amount: n, First: 4 * unit * time.Millisecond,
		Stale: 5 * unit * time.Millisecond, Process: of, Rest: base + label}
	return entry.Text()
}

// entryRead is what the text of an entry says.
func entryRead(t testing.TB, text string) internalwait.Entry {
	t.Helper()
	e, ok := internalwait.ReadEntry(text)
	require.True(t, ok, text)
	return e
}

// acquire's arguments: capacity, lease in units, base, number.
func taking(capacity, lease int, base string, n int) []string {
	return takingAs("", "0", "0", capacity, lease, base, n)
}

func takingAs(label, notAfter, shared string, capacity, lease int, base string, n int) []string {
	args := append([]string{strconv.Itoa(capacity), notAfter, "redisson_sc:{s}", "PUBLISH", shared}, self()...)
	return append(args, "0", entry(base, n, process, label), strconv.Itoa(lease*unit))
}

// keysOf are the keys of a script.
func keysOf(name string) []string {
	switch name {
	case "release":
		return releaseKeys
	case "weighted_acquire", "weighted_release":
		return weightedKeys
	}
	return semaphoreKeys
}

func owner(base string, n int) string { return base + strconv.Itoa(n) }

// release's arguments: all, then ids or an owner.
func giving(all string, ids ...string) []string {
	return append(append([]string{strings.Join(ids, ""), all, "redisson_sc:{s}", "PUBLISH"}, self()...), "")
}
