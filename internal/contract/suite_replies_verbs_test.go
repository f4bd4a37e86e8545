package contract_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// TestLostReply_EveryVerb_ActsOnceOrSaysSo makes each call that writes on three servers: on one of them its request is
// lost, on one the reply. The library makes the call again, or the caller, where the error is Retryable. Then the call
// has done the same on all. Otherwise the error is ErrUnknownOutcome, and the call has run once at most.
func TestLostReply_EveryVerb_ActsOnceOrSaysSo(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 3, func(t *testing.T, servers []*redistest.Server) {
		sound := newWritten(t, servers[0])
		ills := map[redistest.Fate]*written{redistest.LoseReply: newWritten(t, servers[1]),
			redistest.LoseRequest: newWritten(t, servers[2])}
		pause := func() { time.Sleep(50 * time.Millisecond) }
		once := map[redistest.Fate][]string{}
		for _, verb := range slices.Sorted(maps.Keys(sound.verbs)) {
			if onlyRead.MatchString(verb) {
				continue
			}
			want, errs := sound.verbs[verb](t.Context()), map[redistest.Fate]error{}
			for fate, ill := range ills {
				ill.proxy.Heal()
				ill.proxy.Trap(&redistest.Trap{Match: ill.runs, Fate: fate})
				errs[fate] = ill.verbs[verb](t.Context())
				ill.heal()
			}
			pause() // what may have been taken is given back
			for fate, ill := range ills {
				err := errs[fate]
				if errors.Is(err, redlatch.ErrUnknownOutcome) && redlatch.Retryable(err) {
					err = ill.verbs[verb](t.Context())
				}
				switch {
				case errors.Is(err, redlatch.ErrUnknownOutcome):
					once[fate] = append(once[fate], verb)
				case strings.Contains(verb, ".ReleaseIDs") && errors.Is(err, redlatch.ErrLost): // they were released before
				default:
					assert.Equal(t, redlatch.Reason(want), redlatch.Reason(err), "%s with fate %d: %v", verb, fate, err)
				}
			}
			pause()
			done := sound.change()
			for fate, ill := range ills {
				if verb == "Sale.Extend" { // counts from when it runs, and each run that extends has an entry
					require.NotEmpty(t, ill.change())
				} else if fate == redistest.LoseRequest && slices.Contains(once[fate], verb) {
					assert.Empty(t, ill.change(), "%s ran, and its request is lost", verb)
				} else {
					assert.Equal(t, done, ill.change(), "%s with fate %d", verb, fate)
				}
			}
		}
		for fate := range ills {
			require.Equal(t, madeOnce, once[fate])
		}
	})
}

// madeOnce are the calls that neither library nor caller makes again.
var madeOnce = []string{"CountDownLatch.CountDown", "Counter.Add", "Counter.CompareAndSet", "Counter.Decr",
	"Counter.Incr", "Counter.Incr of a bounded one", "Counter.Set", "CountingSemaphore.AddPermits",
	"CountingSemaphore.TryAcquire", "CountingSemaphore.TrySetPermits", "Limiter.Set", "Limiter.Unset"}

// written is a client of a server, and what its calls write.
type written struct {
	server *redistest.Server
	proxy  *redistest.Proxy
	verbs  verbs
	loaded map[string]bool // scripts that the server knows
	seen   map[string]int
}

func newWritten(t *testing.T, server *redistest.Server) *written {
	w := &written{server: server, proxy: redistest.NewProxy(t, server), loaded: map[string]bool{}}
	w.heal()
	o := leased(10 * time.Second)
	o.Logger = slog.New(slog.DiscardHandler)
	w.verbs = unwaiting(t, open(t, w.proxy.Server(), o), open(t, w.proxy.Server(), o))
	w.change()
	return w
}

// heal ends what fails, and lets loaded know of scripts.
func (w *written) heal() {
	w.proxy.Heal()
	w.proxy.Trap(&redistest.Trap{Match: func(words []string) bool { w.runs(words); return false }})
}

// runs reports whether a call runs a script, which it does not if the server does not know it yet.
func (w *written) runs(words []string) bool {
	if words[0] != "EVALSHA" {
		return words[0] == "EVAL"
	}
	runs := w.loaded[words[1]]
	w.loaded[words[1]] = true
	return runs
}

// drawn is what is drawn at random, or counts the calls, or is a time.
var drawn = regexp.MustCompile(`[\w!-]{8,}(:\d+!?)?`)

// plain is s without what is drawn.
func plain(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "?"
	}
	return drawn.ReplaceAllString(s, "?")
}

// data is what the server has, without what is drawn: how often it has each value.
func (w *written) data() map[string]int {
	m, all := w.server.Embedded, map[string]int{}
	for _, key := range m.Keys() {
		if strings.HasPrefix(key, "redlatch_alive:") || strings.Contains(key, "}:k") { // a limiter's, soon over
			continue
		}
		add := func(words ...string) {
			for i, word := range words {
				words[i] = plain(word)
				if strings.Contains(key, "packet") { // the amounts of shares are drawn
					words[i] = regexp.MustCompile(`\d+`).ReplaceAllString(words[i], "?")
				}
			}
			all[key+" "+strings.Join(words, " ")]++
		}
		switch m.Type(key) {
		case "string":
			add(must(m.Get(key)))
		case "hash":
			for _, field := range must(m.HKeys(key)) {
				add(field, m.HGet(key, field))
			}
		case "list":
			for _, v := range must(m.List(key)) {
				add(v)
			}
		case "set":
			for _, v := range must(m.Members(key)) {
				add(v)
			}
		case "zset":
			for member, score := range must(m.SortedSet(key)) {
				add(member, strconv.FormatFloat(score, 'f', -1, 64))
			}
		case "stream":
			for _, entry := range must(m.Stream(key)) {
				add(entry.Values...)
			}
		}
	}
	return all
}

// change is what the server has now and had not at the last call, and the other way round.
func (w *written) change() (lines []string) {
	now := w.data()
	for line, n := range now {
		if n != w.seen[line] {
			lines = append(lines, fmt.Sprint("now ", n, " ", line))
		}
	}
	for line := range w.seen {
		if now[line] == 0 {
			lines = append(lines, "not "+line)
		}
	}
	w.seen = now
	slices.Sort(lines)
	return lines
}

func TestWait_ClientOrHubClosed_IsErrClosed(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(red *redlatch.Client) error{
		"the client": func(red *redlatch.Client) error { return red.Close(context.Background()) },
		"the hub":    func(red *redlatch.Client) error { return red.Hub().Close(context.Background()) },
	} {
		t.Run(what, func(t *testing.T) {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				red, other := open(t, servers[0], leased(10*time.Second)), open(t, servers[0], leased(10*time.Second))
				takeAll(t, other)
				waits := waiting(red, time.Hour, nothing)
				waits["CyclicBarrier.Await"] = func(ctx context.Context) error {
					return err1(red.Semaphores().CyclicBarrier("barrier", 2).Await(ctx))
				}
				delete(waits, "Lock.TryLock with a wait") // its name is that of a semaphore, too
				time.AfterFunc(time.Minute, func() { assert.NoError(t, end(red)) })
				results, _ := waits.all(t.Context())
				for verb, r := range results {
					assert.ErrorIs(t, r.err, redlatch.ErrClosed, verb)
					assert.Equal(t, time.Minute, r.took, verb)
				}
			})
		})
	}
}

// takeAll takes what waiting waits for.
func takeAll(t *testing.T, red *redlatch.Client) {
	ctx, c, permits := t.Context(), red.Locks(), red.Semaphores()
	for _, l := range []*rlock.Lock{c.Reentrant("l"), c.NonReentrant("n"), c.Fenced("f"), c.Fair("fair"), c.Plain("p"),
		c.Reentrant("s"), c.ReadWrite("r").Write(), c.ReadWrite("w").Write()} {
		require.NoError(t, keeping(l.Lock(ctx)))
	}
	run := redistest.NoError(beginRun(ctx, c.Once("once", rlock.OnceOptions{}), "waited"))(t)
	t.Cleanup(func() { _ = run.(*onceRun).end(redistest.Ended()) })
	for _, name := range []string{"tried", "acquired", "done"} {
		require.NoError(t, keeping(permits.Semaphore(name, 1).Acquire(ctx, 1)))
	}
	require.NoError(t, keeping(permits.WeightedSemaphore("weighed", 9).Acquire(ctx, 9)))
	require.NoError(t, err1(permits.CountDownLatch("latch").TrySetCount(ctx, 1, 0)))
	for _, name := range []string{"campaign", "run"} {
		require.NoError(t, keeping(red.Elections().Election(name).Campaign(ctx, "")))
	}
}
