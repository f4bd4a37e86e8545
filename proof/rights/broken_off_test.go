package rights_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// The oracle of scripts that a missing right breaks off. It runs each script, for each command that the script calls,
// as a user without that command. Afterwards either the keys are as before, or the same call by a user with all rights
// leaves keys that are as good as if no user had been denied: see usable.
//
// The calls are those of the library at work. Before a script runs, its keys are copied to a second server, and all
// users try the call there. So no trial disturbs the work, and the states are real.

// lua is one script, and the commands that it calls.
type lua struct {
	file, text string
	commands   []string
}

// allScripts returns the scripts of the library, by the hash under which they are sent.
func allScripts(t *testing.T) map[string]lua {
	t.Helper()
	all := map[string]lua{}
	for _, depth := range []string{"*/", "*/*/"} {
		files := redistest.NoError(filepath.Glob("../../" + depth + "lua/*.lua"))(t)
		for _, at := range files {
			folder, name := path.Dir(path.Dir(filepath.ToSlash(at))), strings.TrimSuffix(filepath.Base(at), ".lua")
			if folder == "../../internal/script" ||
				strings.HasPrefix(folder, "../../contrib/") { // parts of scripts, and others
				continue
			}
			text := redistest.NoError(script.Compose(os.DirFS(folder), name))(t)
			sum := sha1.Sum([]byte(text))
			file := strings.TrimPrefix(folder, "../../") + "/" + name
			all[hex.EncodeToString(sum[:])] = lua{file, text, redistest.ScriptCommands(text)}
		}
	}
	return all
}

// brokenOff is a client whose scripts are tried on another server before they run.
type brokenOff struct {
	rueidis.Client
	*trials
}

// Do tries a script, and then runs it.
func (b brokenOff) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if words := cmd.Commands(); words[0] == "EVALSHA" {
		b.try(ctx, b.Client, words)
	}
	return b.Client.Do(ctx, cmd)
}

// enoughTrials is how often a command of a script is missed, in states that differ.
const enoughTrials = 12

// known are scripts that a missing right breaks off for good, and the rights.
var known = map[string]string{
	// The ledger has an entry that the packet or sale knows nothing of, or records are missing. All calls say so
	// (ErrCorrupt).
	"internal/ledger/moved":   "HINCRBY",
	"rcounter/redpacket/grab": "HSET LPOP",
}

// trials are what is known of all scripts so far.
type trials struct {
	scripts map[string]lua
	at      rueidis.DedicatedClient // on the second server, as a user with all rights
	heard   rueidis.DedicatedClient // its subscriptions there
	mu      sync.Mutex
	hears   []string
	seen    map[string]bool
	tried   map[string]int    // script and command: how often the command was missed
	wrong   map[string]string // script and command: what happened
}

func newTrials(t *testing.T, scripts map[string]lua) *trials {
	t.Helper()
	s := redistest.Start(t)
	admin := s.Client(t)
	for _, l := range scripts {
		for _, c := range l.commands {
			require.NoError(t, admin.Do(t.Context(), admin.B().Arbitrary("ACL", "SETUSER", "no-"+c, "on", "nopass", "~*", "&*",
				"+@all", "-"+strings.ToLower(c)).Build()).Error())
		}
	}
	at, release := s.Client(t).Dedicate()
	heard, leave := s.Client(t).Dedicate()
	t.Cleanup(release)
	t.Cleanup(leave)
	return &trials{scripts: scripts, at: at, heard: heard, seen: map[string]bool{}, tried: map[string]int{},
		wrong: map[string]string{}}
}

// The scripts of the oracle itself: they copy keys, and read all that keys hold.
const (
	copyKeys = `local all = {}
for _, key in ipairs(KEYS) do
  all[#all + 1] = redis.call('DUMP', key) or ''
  all[#all + 1] = tostring(math.max(0, redis.call('PTTL', key)))
end
return all`
	pasteKeys = `redis.call('DEL', unpack(KEYS))
for i, key in ipairs(KEYS) do
  if ARGV[2 * i - 1] ~= '' then redis.call('RESTORE', key, ARGV[2 * i], ARGV[2 * i - 1]) end
end`
	readKeys = `local all = {}
for i, key in ipairs(KEYS) do
  local kind, held = redis.call('TYPE', key).ok, {}
  if kind == 'string' then held = redis.call('GET', key)
  elseif kind == 'hash' then held = redis.call('HGETALL', key)
  elseif kind == 'list' then held = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'zset' then held = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'stream' then held = redis.call('XRANGE', key, '-', '+') end
  all[i] = {kind, redis.call('PTTL', key), held}
end
return all`
)

// try runs a call as each user that lacks one of its commands.
func (r *trials) try(ctx context.Context, main rueidis.Client, words []string) {
	l, ours := r.scripts[words[1]]
	if !ours {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx = context.WithoutCancel(ctx) // the connection would be left to a user who lacks a right
	n, _ := strconv.Atoi(words[2])
	keys, b := words[3:3+n], r.at.B()
	eval := func(text string, args ...string) rueidis.Completed {
		return b.Arbitrary("EVAL", text, strconv.Itoa(n)).Keys(keys...).Args(args...).Build()
	}
	copied, err := main.Do(ctx, eval(copyKeys)).AsStrSlice()
	if err != nil || !r.listen(ctx, main) {
		return
	}
	as := func(user string) rueidis.Completed { return b.Arbitrary("AUTH", user, "none").Build() }
	call := func() rueidis.Completed { return eval(l.text, words[3+n:]...) }
	paste := func() rueidis.Completed { return eval(pasteKeys, copied...) }
	read := func() rueidis.Completed { return eval(readKeys) }

	out := r.at.DoMulti(ctx, paste(), read(), call(), read())
	if refused(out[2].Error()) {
		return
	}
	shape := fmt.Sprint(l.file, len(words), rough(held(out[1])), rough(held(out[3])))
	if r.seen[shape] {
		return
	}
	r.seen[shape] = true
	for _, c := range l.commands {
		what := l.file + " " + c
		if r.tried[what] >= enoughTrials || slices.Contains(strings.Fields(known[l.file]), c) {
			continue
		}
		var happened string
		for range 3 { // leases may end meanwhile
			out = r.at.DoMulti(ctx, paste(), read(), as("no-"+c), call(), as("default"), read(), call(), read())
			before, left, again, broke := held(out[1]), held(out[5]), held(out[7]), out[3].Error()
			out = r.at.DoMulti(ctx, paste(), call(), read())
			if refused(broke) {
				r.tried[what]++
			}
			whole := held(out[2])
			if alike(before, left) || !refused(broke) && alike(left, whole) || usable(l.file, again, whole) {
				happened = ""
				break
			}
			happened = fmt.Sprintf("%q\nbefore  %q\nleft    %q\nby      %v\nagain   %q\nwhole   %q", words[2:], before,
				but(left, before), broke, but(again, whole), but(whole, again))
		}
		if happened != "" && r.wrong[what] == "" {
			r.wrong[what] = happened
		}
	}
}

// forgetShapes has states be tried again: where the machine stood still, a command may not have been missed.
func (r *trials) forgetShapes() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.seen)
}

// refused reports whether a reply is an error; nothing is none.
func refused(err error) bool { return err != nil && !rueidis.IsRedisNil(err) }

// listen has the second server's channels be those of the first.
func (r *trials) listen(ctx context.Context, main rueidis.Client) bool {
	channels, err := main.Do(ctx, main.B().PubsubChannels().Build()).AsStrSlice()
	if err != nil {
		return false
	}
	without := func(all, some []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(c string) bool { return slices.Contains(some, c) })
	}
	if more := without(channels, r.hears); len(more) > 0 {
		err = r.heard.Do(ctx, r.heard.B().Subscribe().Channel(more...).Build()).Error()
	}
	if less := without(r.hears, channels); len(less) > 0 && err == nil {
		err = r.heard.Do(ctx, r.heard.B().Unsubscribe().Channel(less...).Build()).Error()
	}
	r.hears = channels
	return err == nil
}

// key is what a key holds.
type key struct {
	kind string
	ttl  int64
	in   []string // of a hash and of a sorted set each with what belongs to it, in order
}

// held is what readKeys replies.
func held(r rueidis.RedisResult) (all []key) {
	keys, _ := r.ToArray()
	for _, m := range keys {
		part, _ := m.ToArray()
		k := key{in: texts(part[2])}
		k.kind, _ = part[0].ToString()
		k.ttl, _ = part[1].AsInt64()
		if k.kind == "hash" || k.kind == "zset" {
			for i := 0; i+1 < len(k.in); i += 2 {
				k.in[i/2] = k.in[i] + " is " + k.in[i+1]
			}
			k.in = k.in[:len(k.in)/2]
			slices.Sort(k.in)
		}
		all = append(all, k)
	}
	return all
}

func texts(m rueidis.RedisMessage) (all []string) {
	if list, err := m.ToArray(); err == nil {
		for _, one := range list {
			all = append(all, texts(one)...)
		}
		return all
	}
	if n, err := m.AsInt64(); err == nil {
		return []string{strconv.FormatInt(n, 10)}
	}
	text, _ := m.ToString()
	return []string{text}
}

// rough is what is held, without digits.
func rough(all []key) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, fmt.Sprintf("%q", all))
}

// usable reports whether keys that were repaired are as good as those of one call by a user with all rights:
//
//   - a lock has an end, whoever holds it;
//   - the permits of a semaphore that are free and those that are out add up to its capacity;
//   - a sale is as in usableSale;
//   - all else is the same, but for ends of the keys of packets, which the next grant sets.
func usable(file string, repaired, whole []key) bool {
	switch folder, name := path.Split(file); {
	case folder == "rlock/":
		return !slices.ContainsFunc(repaired, endless) || slices.ContainsFunc(whole, endless)
	case strings.HasPrefix(name, "weighted_"):
		return sum(repaired[0]) == sum(whole[0])
	case folder == "rsemaphore/" && slices.Contains([]string{"acquire", "release", "resize"}, name):
		return count(repaired[0])+len(repaired[1].in) == count(whole[0])+len(whole[1].in)
	case strings.HasPrefix(folder, "rcounter/stock/"):
		return usableSale(repaired, whole)
	case folder == "rcounter/redpacket/":
		for i := range repaired {
			repaired[i].ttl = whole[i].ttl
		}
	}
	return alike(repaired, whole)
}

// entryTexts is how many texts an entry of a sale's ledger has: its id, and 11 fields with their values.
const entryTexts = 23

// usableSale reports whether a sale is the same, but for
//
//   - flags that are missing, because the next order that is refused sets them;
//   - the ends of keys, see TestSale_RightToExpireMissing_OperatorGivesEnds;
//   - endings that are there twice, of which the second finds nothing;
//
// or whether all calls say that it is suspended or lacks a part, and Restore makes it anew.
func usableSale(repaired, whole []key) bool {
	is := map[string]int{}
	for _, field := range repaired[0].in {
		name, value, _ := strings.Cut(field, " is ")
		is[name], _ = strconv.Atoi(value)
	}
	if is["state"] == 3 || is["fields"] != len(repaired[1].in) || is["reservations"] != len(repaired[2].in) ||
		is["ledger"] == 1 && (is["serial"]-is["moved"])*entryTexts != len(repaired[4].in) {
		return true
	}
	ended := func(text string) string { return text[strings.Index(text, ";"):] }
	for i := range repaired {
		repaired[i].ttl = whole[i].ttl
	}
	repaired[5].in = slices.CompactFunc(repaired[5].in, func(a, b string) bool { return ended(a) == ended(b) })
	if repaired[3].kind == "none" {
		repaired[3] = whole[3]
	}
	return alike(repaired, whole)
}

// endless: a lock is a hash or a string.
func endless(k key) bool { return (k.kind == "hash" || k.kind == "string") && k.ttl == -1 }

func count(k key) (n int) {
	n, _ = strconv.Atoi(strings.Join(k.in, ""))
	return n
}

// sum is what a semaphore of weights says that is used, less the weights that are out.
func sum(main key) (n int) {
	for _, text := range main.in {
		if name, value, _ := strings.Cut(text, " is "); name == "used" {
			used, _ := strconv.Atoi(value)
			n += used
		} else if len(name) == 13 {
			out, _ := strconv.Atoi(strings.Fields(value)[0])
			n -= out
		}
	}
	return n
}

// alike reports whether keys differ by the time that has passed alone.
func alike(a, b []key) bool {
	return slices.EqualFunc(a, b, func(a, b key) bool {
		return a.kind == b.kind && (a.ttl == b.ttl || min(a.ttl, b.ttl) >= 0 && max(a.ttl, b.ttl)-min(a.ttl, b.ttl) < 5000) &&
			slices.EqualFunc(a.in, b.in, alikeText)
	})
}

func alikeText(a, b string) bool {
	for a != "" && b != "" {
		x, y := number(a), number(b)
		if x == "" || y == "" {
			if a[0] != b[0] {
				return false
			}
			a, b = a[1:], b[1:]
			continue
		}
		n, _ := strconv.ParseFloat(x, 64)
		m, _ := strconv.ParseFloat(y, 64)
		if n != m && (min(n, m) < 1e4 || math.Abs(n-m) > 5e6) { // instants, and levels that fall with time, µs or ms
			return false
		}
		a, b = a[len(x):], b[len(y):]
	}
	return a == b
}

// number is the digits with which a text begins.
func number(text string) string { return text[:len(text)-len(strings.TrimLeft(text, "0123456789"))] }

// but are the keys of one list that are others in the other.
func but(some, others []key) (all []string) {
	for i, k := range some {
		if i >= len(others) || !alike(some[i:i+1], others[i:i+1]) {
			all = append(all, fmt.Sprintf("%d: %q", i+1, k))
		}
	}
	return all
}

func TestScripts_RightMissing_NextCallerFindsThemUsable(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	scripts := allScripts(t)
	r := newTrials(t, scripts)
	work(t, redistest.Start(t).Client(t), r)
	times := 0
	for _, n := range r.tried {
		times += n
	}
	t.Logf("%d scripts; %d pairs of a script and a command that was missed, %d times", len(scripts), len(r.tried), times)
	for what, happened := range r.wrong {
		t.Errorf("%s: %s", what, happened)
	}
	for feature := range mustMiss {
		require.Empty(t, r.untried(feature), "of %s were never missed", feature)
	}
}

// mustMiss are pairs of a script and a command that the use of a feature has tried, however slow the machine is.
var mustMiss = map[string][]string{
	"locks":      {"rlock/acquire PEXPIRE", "rlock/release HDEL", "internal/lease/heartbeat_beat SET"},
	"semaphores": {"rsemaphore/acquire ZADD", "rsemaphore/release ZREM", "rsemaphore/weighted_acquire HSET"},
	"counters":   {"rcounter/addonce HSET", "rcounter/set SET"},
	"limits":     {"rcounter/ratelimit/reserve ZADD"},
	"packets":    {"rcounter/redpacket/grab XADD"},
	"sales":      {"rcounter/stock/buy HMGET", "rcounter/stock/act HMGET"},
	"contested":  {"rlock/election/workers HSET"},
}

// untried returns the pairs of a feature that were never missed.
func (r *trials) untried(feature string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(mustMiss[feature]), func(what string) bool { return r.tried[what] > 0 })
}

// work has the library work until all pairs of mustMiss were tried. It asks for no other result: on a slow machine a
// use ends where a lease is over too early, so each round has longer ones.
func work(t *testing.T, c rueidis.Client, r *trials) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	hub := redistest.NoError(pubsub.New(brokenOff{c, r}, pubsub.Options{}))(t)
	defer hub.Close(context.Background())
	use := func(feature string) {
		watchdog := 450 * time.Millisecond
		for round := 1; ctx.Err() == nil; round++ {
			prefix := strconv.Itoa(round) // what an earlier round left held is not in the way
			uses := uses(hub, prefix, watchdog)
			uses["contested"] = func(ctx context.Context) { contested(ctx, hub, prefix) }
			limit, leave := context.WithTimeout(ctx, time.Minute)
			err := redistest.Try(func() { uses[feature](limit) })
			leave()
			if len(r.untried(feature)) == 0 && (err == nil || round >= 3) {
				return
			}
			t.Log(feature, round, err)
			watchdog *= 2
			r.forgetShapes()
		}
	}
	for _, feature := range []string{"counters", "sales", "packets", "limits"} { // alone: limits change with time
		use(feature)
	}
	var all sync.WaitGroup
	for _, feature := range []string{"locks", "elections", "contested", "semaphores"} {
		all.Go(func() { use(feature) })
	}
	all.Wait()
}
