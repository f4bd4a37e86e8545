package contract_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// hostile are values that no program of ours writes. Lua reads most of them as numbers.
var hostile = []string{
	"nan", "inf", "-inf", "1e3", "0x10", " 5", "5.5", "+3", "007", "", "-5", "1000000000000000000",
	strings.Repeat("long ", 2000), "\x00\xff\r\n\x80",
}

// inside are what one number in a text becomes: "<owner> <lease> <stale>" and the like.
var inside = []string{"nan", "", "0", "-5", "5.5", "1000000000000000000", "99999999999999999999999"}

// scores are those that a sorted set takes.
var scores = []string{"inf", "-inf", "1e3", "5.5", "-5", "1e18", "-1e18", "9007199254740993"}

const (
	patience = 20 * time.Millisecond
	calls    = 20 * time.Second // CallTimeout: a call that goes on until its time is over is seen, on a busy machine, too
	tooLong  = calls / 2
	blocked  = 300 * time.Millisecond // for which no script may have the server for itself
)

// scene is an object in a state: build makes it under a name, and returns all that may be done with it, and what ends
// it. works makes use of an object in that state, and returns what went wrong.
type hostileCase struct {
	state string
	build func(t testing.TB, name string) (acts []act, end func())
	works func(ctx context.Context, name string) error
}

// stored is what a key has.
type stored struct {
	key, kind, dump string
	ttl             int64
	parts           []string // a string; fields and values; members and scores; elements
}

// plant is one hostile value in one place.
type plant struct {
	what string
	args [][]string // commands
}

var (
	numerals = regexp.MustCompile(`\d+`)
	ids      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
)

// stage is a server, and what was found on it.
type hostileRig struct {
	c     rueidis.Client
	s     *redistest.Server
	mu    sync.Mutex
	wrong map[string]int
	first map[string]string
	now   string // what is planted
}

// actors are processes: one holds, one waits, and one does all the rest.
type actors struct{ holder, waiter, other *redlatch.Client }

// scenes are the states of an object of one kind, and what is done with it there.
type scenes func(s *hostileRig, a actors) []hostileCase

func TestHostileValues_EveryKind_AreErrWrongType(t *testing.T) {
	t.Parallel()
	for _, kinds := range []map[string]scenes{lockPairs(), semaphoreKinds(), counterKinds()} { // not all at a time
		redistest.SideBySide(t, kinds, func(t *testing.T, kind string, of scenes) {
			s := newStage(t)
			defer s.report(t)
			s.suffer(t, strings.ToLower(kind), of(s, actors{s.process(t), s.process(t), s.process(t)}),
				redistest.Sized(40, 30, 1))
		})
	}
}

// process makes a client with a second for Close, however much is held.
func (s *hostileRig) process(t *testing.T) *redlatch.Client {
	red, err := redlatch.Open(t.Context(), s.s.Option(), redlatch.Options{CallTimeout: calls,
		Logger: slog.New(slog.DiscardHandler), Sales: withBooks,
		Limiters: func(o *ratelimit.Options) { o.AllowTimeout = calls }})
	require.NoError(t, err)
	closesWithin(t, red, time.Second)
	return red
}

func newStage(t *testing.T) *hostileRig {
	s := redistest.Start(t, "--busy-reply-threshold", strconv.Itoa(int(blocked.Milliseconds())))
	st := &hostileRig{c: s.Client(t), s: s, wrong: map[string]int{}, first: map[string]string{}}
	killer, done := s.Client(t), make(chan struct{})
	var watch sync.WaitGroup
	t.Cleanup(func() { close(done); watch.Wait() })
	watch.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(blocked / 3):
			}
			err := killer.Do(context.Background(), killer.B().Ping().Build()).Error()
			if err == nil || !strings.HasPrefix(err.Error(), "BUSY ") {
				continue
			}
			st.blame("a script has the server for itself", "")
			if err := killer.Do(context.Background(), killer.B().ScriptKill().Build()).Error(); err != nil &&
				strings.HasPrefix(err.Error(), "UNKILLABLE ") {
				st.blame("a script has the server for itself, and has written", "")
				s.Process.Kill()
				return
			}
		}
	})
	return st
}

func (s *hostileRig) blame(what, where string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong[what]++
	where = strings.TrimSpace(s.now + " " + where)
	if s.first[what] == "" {
		s.first[what] = where
	}
}

func (s *hostileRig) send(t testing.TB, args ...string) rueidis.RedisResult {
	r := s.c.Do(context.Background(), s.c.B().Arbitrary(args...).Build())
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Errorf("%.100q: %v", args, err)
	}
	return r
}

const lookAll = `local out = {}
local keys = redis.call('KEYS', ARGV[1])
table.sort(keys)
for _, key in ipairs(keys) do
  local kind, parts = redis.call('TYPE', key).ok, {}
  if kind == 'string' then parts = {redis.call('GET', key)}
  elseif kind == 'hash' then parts = redis.call('HGETALL', key)
  elseif kind == 'zset' then parts = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'list' then parts = redis.call('LRANGE', key, 0, -1) end
  out[#out + 1] = {key, kind, redis.call('DUMP', key), tostring(math.max(0, redis.call('PTTL', key))), parts}
end
return out`

// look returns all keys of a name.
func (s *hostileRig) look(t testing.TB, name string) (all []stored) {
	list := redistest.NoError(s.send(t, "EVAL", lookAll, "0", "*"+name+"*").ToArray())(t)
	for _, m := range list {
		v, err := m.ToArray()
		require.NoError(t, err)
		x := stored{}
		x.key, _ = v[0].ToString()
		x.kind, _ = v[1].ToString()
		x.dump, _ = v[2].ToString()
		ms, _ := v[3].ToString()
		x.ttl, _ = strconv.ParseInt(ms, 10, 64)
		x.parts, err = v[4].AsStrSlice()
		require.NoError(t, err)
		all = append(all, x)
	}
	return all
}

// contents are the keys of a name and what they have.
func (s *hostileRig) contents(t testing.TB, name string) string {
	var b strings.Builder
	for _, x := range s.look(t, name) {
		fmt.Fprintf(&b, "%q %q; ", x.key, x.parts)
	}
	return b.String()
}

// restore has the keys of a name as they were.
func (s *hostileRig) restore(t testing.TB, name string, all []stored) {
	args := []string{"EVAL", `for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end
for i = 2, #ARGV, 3 do redis.call('RESTORE', ARGV[i], ARGV[i + 1], ARGV[i + 2], 'REPLACE') end`, "0", "*" + name + "*"}
	for _, x := range all {
		args = append(args, x.key, strconv.FormatInt(x.ttl, 10), x.dump)
	}
	s.send(t, args...)
}

// mutated are the texts that a text becomes.
func mutated(text string) (all []string) {
	all = append(all, hostile...)
	if len(text) < 2 {
		return all
	}
	skip := ids.FindAllStringIndex(text, -1)
	for _, at := range numerals.FindAllStringIndex(text, -1) {
		if at[0] == 0 && at[1] == len(text) || slices.ContainsFunc(skip, func(s []int) bool {
			return at[0] < s[1] && at[1] > s[0]
		}) {
			continue
		}
		for _, v := range inside {
			all = append(all, text[:at[0]]+v+text[at[1]:])
		}
	}
	return all
}

// plants are all hostile values in all places of an object. beside are the keys of its other states, and what they are.
func plants(all []stored, beside map[string]string, name string) (list []plant) {
	add := func(what, value string, args ...[]string) {
		list = append(list, plant{fmt.Sprintf("%s = %.60q",
			ids.ReplaceAllString(strings.ReplaceAll(what, name, "NAME"), "ID"), value), args})
	}
	other := func(key, kind string) {
		if kind != "list" {
			// In one step: a caller that an earlier plant has left asking may make the key meanwhile.
			add(key, "a list", []string{"EVAL", "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'x')", "1", key})
		}
		if kind != "string" {
			add(key, "a string", []string{"SET", key, "x"})
		}
	}
	member := func(key string) {
		for i, v := range hostile {
			add(key+" member", v, []string{"ZADD", key, strconv.FormatInt(1+int64(i%2)*1700000000000000, 10), v})
		}
	}
	there := map[string]bool{}
	for _, x := range all {
		there[strings.ReplaceAll(x.key, name, "NAME")] = true
		other(x.key, x.kind)
		switch x.kind {
		case "string":
			for _, v := range mutated(x.parts[0]) {
				add(x.key, v, []string{"SET", x.key, v, "KEEPTTL"})
			}
		case "hash":
			for i := 0; i < len(x.parts); i += 2 {
				f, old := x.parts[i], x.parts[i+1]
				for _, v := range mutated(old) {
					add(x.key+" "+f, v, []string{"HSET", x.key, f, v})
				}
				if ids.MatchString(f) && !strings.HasSuffix(f, "!") && !slices.Contains(x.parts, f+"!") { // an owner's end
					for _, v := range hostile {
						add(x.key+" "+f+"!", v, []string{"HSET", x.key, f + "!", v})
					}
				}
			}
			for _, v := range hostile {
				add(x.key+" field", v, []string{"HSET", x.key, v, v})
			}
		case "zset":
			for i := 0; i < len(x.parts); i += 2 {
				m, old := x.parts[i], x.parts[i+1]
				for _, v := range scores {
					add(x.key+" score of "+m, v, []string{"ZADD", x.key, v, m})
				}
				for _, v := range mutated(m) {
					add(x.key+" in place of "+m, v, []string{"ZREM", x.key, m}, []string{"ZADD", x.key, old, v})
				}
			}
			member(x.key)
		case "list":
			for i, old := range x.parts {
				for _, v := range mutated(old) {
					add(fmt.Sprint(x.key, " ", i), v, []string{"LSET", x.key, strconv.Itoa(i), v})
				}
			}
			for _, v := range hostile {
				add(x.key+" element", v, []string{"LPUSH", x.key, v})
			}
		}
	}
	var keys []string
	for key := range beside {
		if !there[key] {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		kind, key := beside[key], strings.ReplaceAll(key, "NAME", name)
		other(key, kind)
		switch kind {
		case "string":
			for _, v := range hostile {
				add(key, v, []string{"SET", key, v})
			}
		case "hash":
			for _, v := range hostile {
				add(key+" field", v, []string{"HSET", key, v, v})
			}
		case "zset":
			member(key)
		case "list":
			add(key+" element", "nan", []string{"RPUSH", key, "nan"})
		}
	}
	return list
}

// rawLua are words of errors that the server's Lua makes.
var rawLua = []string{"user_script", "attempt to", "concatenate", "bad argument", "stack traceback", "number expected"}

// judge looks at how a call ended.
func (s *hostileRig) judge(a act, err error, took time.Duration) {
	switch {
	case took > tooLong && err != nil: // without, it is the machine that was slow
		s.blame("too long: "+a.name, fmt.Sprint(took, " ", err))
	case err == nil:
	case redlatch.Reason(err) == "other":
		s.blame(fmt.Sprintf("no class: %s: %.150s", a.name,
			numerals.ReplaceAllString(ids.ReplaceAllString(err.Error(), "ID"), "N")), "")
	case errors.Is(err, context.DeadlineExceeded) && !a.waits:
		s.blame("until its end: "+a.name, "")
	case slices.ContainsFunc(rawLua, func(w string) bool { return strings.Contains(err.Error(), w) }):
		s.blame(fmt.Sprintf("raw: %s: %.200s", a.name,
			numerals.ReplaceAllString(ids.ReplaceAllString(err.Error(), "ID"), "N")), "")
	}
}

// suffer plants every value in every place of a group of scenes, one at a time, and does everything with the object.
// every: of so many plants one.
func (s *hostileRig) suffer(t *testing.T, group string, cases []hostileCase, every int) {
	beside, n := map[string]string{}, 0
	fresh := func() string { n++; return fmt.Sprintf("%s.%d.", group, n) }
	for _, sc := range cases {
		name := fresh()
		_, end := sc.build(t, name)
		for _, x := range s.look(t, name) {
			beside[ids.ReplaceAllString(strings.ReplaceAll(x.key, name, "NAME"), "ID")] = x.kind
		}
		end()
		s.restore(t, name, nil)
	}
	for key := range beside {
		if strings.Contains(key, "ID") {
			delete(beside, key) // a key of one owner
		}
	}
	for _, sc := range cases {
		for i, of := 0, 1; i < of; i += every {
			name := fresh()
			acts, end := sc.build(t, name)
			before := s.look(t, name)
			all := plants(before, beside, name)
			of = len(all)
			if i >= of {
				end()
				break
			}
			p := all[i]
			s.mu.Lock()
			s.now = sc.state + ": " + p.what
			s.mu.Unlock()
			for _, args := range p.args {
				s.send(t, args...)
			}
			if i/every%2 == 1 {
				slices.Reverse(acts)
			}
			for _, a := range acts {
				limit := 2 * calls
				if a.waits {
					limit = patience
				}
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				// Others may have written where somebody waits, and a call of a Multi is one for each lock.
				alone, was := !a.parts && sc.state != "queued" && sc.state != "awaited" && group != "multi", ""
				if alone {
					was = s.contents(t, name)
				}
				began := time.Now()
				err := a.do(ctx)
				took := time.Since(began)
				cancel()
				if alone && errors.Is(err, errs.ErrWrongType) && !errors.Is(err, errs.ErrLost) {
					if now := s.contents(t, name); now != was {
						s.blame("changed: "+group+" "+sc.state+" "+a.name+
							fmt.Sprintf(" %.150v", numerals.ReplaceAllString(err.Error(), "N")),
							fmt.Sprintf("\n%.600s\n%.600s", was, now))
					}
				}
				a.name = group + " " + sc.state + " " + a.name
				s.judge(a, err, took)
			}
			end()
			s.restore(t, name, before)
			if s.failed(t) {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*calls)
			if err := sc.works(ctx, name); err != nil {
				s.blame(fmt.Sprintf("does not work afterwards: %s %s: %.100v", group, sc.state, err), "")
			}
			cancel()
			s.restore(t, name, nil)
		}
	}
}

// failed reports whether the server had to be killed, or so much is wrong that the rest may wait.
func (s *hostileRig) failed(t *testing.T) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.Failed() || s.wrong["a script has the server for itself, and has written"] > 0
}

// report fails the test with all that was wrong.
func (s *hostileRig) report(t *testing.T) {
	var all []string
	for what := range s.wrong {
		all = append(all, what)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(s.wrong[b], s.wrong[a]), cmp.Compare(a, b)) })
	for _, what := range all {
		t.Errorf("%d times: %s\n\tfirst with %s", s.wrong[what], what, s.first[what])
	}
}
