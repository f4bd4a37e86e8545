package script_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

var incr = script.New("incr", "return redis.call('INCR', KEYS[1])")

func call(key string) script.Call { return script.Call{Script: incr, Keys: []string{key}} }

// slack is what a busy machine may add to a wait.
const slack = 5 * time.Second

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// saidBy is the server's own error in err, which rueidis.IsRedisErr does not look for.
func saidBy(err error) (re *rueidis.RedisError, ok bool) {
	ok = errors.As(err, &re)
	return re, ok
}

func get(t testing.TB, c rueidis.Client, key string) int64 {
	t.Helper()
	v, err := c.Do(within(t), c.B().Get().Key(key).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return 0
	}
	require.NoError(t, err)
	return v
}

func do(t testing.TB, c rueidis.Client, args ...string) string {
	t.Helper()
	v, err := c.Do(within(t), c.B().Arbitrary(args...).Build()).ToString()
	require.NoError(t, err, "%v", args)
	return v
}

func answer(t testing.TB, m rueidis.RedisMessage, err error) int64 {
	t.Helper()
	require.NoError(t, err)
	v := redistest.NoError(m.AsInt64())(t)
	return v
}

func TestRunner_ScriptFlushed_SendsTheTextOnce(t *testing.T) {
	c := redistest.Start(t).Client(t)
	r := script.NewRunner(c, slack)
	ctx, cancel := context.WithCancel(within(t))
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for ctx.Err() == nil {
			c.Do(context.Background(), c.B().ScriptFlush().Build())
		}
	})
	const workers, each = 8, 100
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				x := call("k")
				x.Once = true
				if _, err := r.Do(within(t), x); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	cancel()
	flushing.Wait()
	require.EqualValues(t, workers*each, get(t, c, "k"), "each ran once")
	calls := redistest.CommandCalls(t, c)
	unknown := 0
	for line := range strings.Lines(do(t, c, "INFO", "errorstats")) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "errorstat_NOSCRIPT:count="); ok {
			unknown, _ = strconv.Atoi(n)
		}
	}
	require.Positive(t, unknown)
	require.Equal(t, workers*each, calls["evalsha"])
	require.Equal(t, unknown, calls["eval"])
}

func TestRunner_ScriptsOwnError_IsAnAnswer(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := s.Client(t)
		r := script.NewRunner(c, slack)
		fails := script.New("fails", "redis.call('INCR', KEYS[1]) return redis.error_reply('MINE says no')")
		_, err := r.Do(within(t), script.Call{Script: fails, Keys: []string{"k"}})
		re, ok := saidBy(err)
		require.True(t, ok, "%v", err)
		require.Contains(t, re.Error(), "MINE says no")
		require.ErrorContains(t, err, `fails on "k"`)
		require.False(t, script.NotAnswered(err))
		require.EqualValues(t, 1, get(t, c, "k"), "not sent again")
		_, err = r.Do(within(t), script.Call{Script: fails, Keys: []string{"k"}}) // which the server knows now
		require.ErrorContains(t, err, "MINE says no")
		require.EqualValues(t, 2, get(t, c, "k"), "nor by its text")

		require.NoError(t, c.Do(within(t), c.B().Hset().Key("h").FieldValue().FieldValue("f", "v").Build()).Error())
		_, err = r.Do(within(t), call("h"))
		require.ErrorIs(t, err, errs.ErrWrongType)
		_, ok = saidBy(err)
		require.True(t, ok)
	})
}

func TestDo_ServerComesBack_IsAnswered(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	r := script.NewRunner(s.Client(t), slack)
	m, err := r.Do(within(t), call("k"))
	require.EqualValues(t, 1, answer(t, m, err))
	s.Embedded.Close()
	redistest.Eventually(t, slack, "a refused connection", func() bool {
		_, err = r.Attempt(within(t), call("k"))
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	require.ErrorIs(t, err, errs.ErrUnavailable)
	require.NotErrorIs(t, err, errs.ErrUnknownOutcome, "it proves that nothing ran")
	n, refused, done := 0, make(chan struct{}), make(chan error, 1)
	x := call("k")
	x.Command = func(b rueidis.Builder) rueidis.Completed {
		if n++; n == 4 {
			close(refused)
		}
		return b.Incr().Key("k").Build()
	}
	go func() {
		var err error
		m, err = r.Do(within(t), x)
		done <- err
	}()
	<-refused
	require.NoError(t, s.Embedded.StartAddr(s.Addr()))
	require.EqualValues(t, 2, answer(t, m, <-done), "the data of miniredis outlasts its restart")
}

// What a server says when it has not done what it was asked. Those that a single server can be brought to say are
// also tested on a real one, below.
func TestDo_Refused_IsRetriedWhileTheCallLasts(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"LOADING Redis is loading the dataset in memory",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"CLUSTERDOWN The cluster is down",
		"READONLY You can't write against a read only replica.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"NOREPLICAS Not enough good replicas to write.",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
	} {
		t.Run(reply[:strings.Index(reply, " ")], func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.Server, c rueidis.Client) {
				r := script.NewRunner(c, time.Second)
				s.Embedded.SetError(reply)
				_, err := r.Attempt(context.Background(), call("k"))
				require.ErrorIs(t, err, errs.ErrUnavailable)
				require.NotErrorIs(t, err, errs.ErrUnknownOutcome)
				require.True(t, script.NotAnswered(err))
				re, ok := saidBy(err)
				require.True(t, ok)
				require.Contains(t, re.Error(), reply)

				for _, once := range []bool{false, true} {
					tries := 0
					x := call("k")
					x.Once = once
					x.Command = func(b rueidis.Builder) rueidis.Completed { tries++; return b.Incr().Key("k").Build() }
					ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
					began := time.Now()
					_, err = r.Do(ctx, x)
					cancel()
					require.ErrorIs(t, err, errs.ErrUnavailable)
					require.NotErrorIs(t, err, errs.ErrUnknownOutcome)
					require.Equal(t, 10*time.Second, time.Since(began), "until ctx ends")
					require.Greater(t, tries, 30)
					require.Less(t, tries, 100, "with pauses that grow")
				}

				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				time.AfterFunc(10*time.Second, func() { s.Embedded.SetError("") })
				m, err := r.Do(ctx, call("k"))
				require.EqualValues(t, 1, answer(t, m, err), "and none of the refused tries ran")
			})
		})
	}
}

// inBackground does x, and says how that ended.
func inBackground(t *testing.T, r *script.Runner, x script.Call) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := r.Do(within(t), x)
		done <- err
	}()
	return done
}

func inBubble(t *testing.T, fn func(t *testing.T, s *redistest.Server, c rueidis.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Bubble(t)
		c := redistest.NoError(rueidis.NewClient(s.Option()))(t)
		defer s.Embedded.Close()
		defer c.Close()
		fn(t, s, c)
	})
}

func TestDo_RefusedByARealServer_RunsOnceAfterwards(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		says       string
		spoil, fix [][]string
	}{
		{"READONLY", [][]string{{"REPLICAOF", "127.0.0.1", "1"}}, [][]string{{"REPLICAOF", "NO", "ONE"}}},
		{"MASTERDOWN", [][]string{{"CONFIG", "SET", "replica-serve-stale-data", "no"}, {"REPLICAOF", "127.0.0.1", "1"}},
			[][]string{{"REPLICAOF", "NO", "ONE"}}},
		{"NOREPLICAS", [][]string{{"CONFIG", "SET", "min-replicas-to-write", "1"}},
			[][]string{{"CONFIG", "SET", "min-replicas-to-write", "0"}}},
		{"OOM", [][]string{{"CONFIG", "SET", "maxmemory", "1"}}, [][]string{{"CONFIG", "SET", "maxmemory", "0"}}},
	} {
		t.Run(x.says, func(t *testing.T) {
			c := redistest.Start(t).Client(t)
			r := script.NewRunner(c, slack)
			for _, known := range []bool{false, true} { // EVAL and EVALSHA may be refused in different places
				before := get(t, c, "k")
				for _, args := range x.spoil {
					do(t, c, args...)
				}
				_, err := r.Attempt(within(t), call("k"))
				require.ErrorIs(t, err, errs.ErrUnavailable, "known: %v", known)
				require.NotErrorIs(t, err, errs.ErrUnknownOutcome)
				re, ok := saidBy(err)
				require.True(t, ok)
				require.True(t, strings.HasPrefix(re.Error(), x.says+" "), "%v", re)

				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
				_, err = r.Do(ctx, call("k"))
				cancel()
				require.True(t, script.NotAnswered(err), "%v", err) // unknown if ctx ended on a try under way
				require.Error(t, ctx.Err(), "it went on trying")

				retried := make(chan struct{})
				tries := 0
				y := call("k")
				y.Command = func(b rueidis.Builder) rueidis.Completed {
					if tries++; tries == 3 {
						close(retried)
					}
					return b.Eval().Script("return redis.call('INCR', KEYS[1])").Numkeys(1).Key("k").Build()
				}
				done := inBackground(t, r, y)
				<-retried
				for _, args := range x.fix {
					do(t, c, args...)
				}
				require.NoError(t, <-done)
				require.Equal(t, before+1, get(t, c, "k"), "only the try after the fix ran")
				m, err := r.Attempt(within(t), call("k"))
				require.Equal(t, before+2, answer(t, m, err))
			}
		})
	}
}

func TestDo_BusyServer_IsAskedAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, other := s.Client(t), s.Client(t)
	r := script.NewRunner(c, slack)
	do(t, c, "CONFIG", "SET", "busy-reply-threshold", "10")
	m, err := r.Attempt(within(t), call("k"))
	require.EqualValues(t, 1, answer(t, m, err))
	var loop sync.WaitGroup
	loop.Go(func() {
		other.Do(within(t), other.B().Eval().Script("while true do end").Numkeys(0).Build())
	})
	redistest.Eventually(t, slack, "a busy server", func() bool {
		_, err := r.Attempt(within(t), call("k"))
		re, ok := saidBy(err)
		if ok && strings.HasPrefix(re.Error(), "BUSY ") {
			require.ErrorIs(t, err, errs.ErrUnavailable)
			return true
		}
		return false
	})
	before := make(chan struct{})
	var once sync.Once
	y := call("b")
	y.Command = func(b rueidis.Builder) rueidis.Completed {
		defer once.Do(func() { close(before) })
		return b.Incr().Key("b").Build()
	}
	done := inBackground(t, r, y)
	<-before
	do(t, c, "SCRIPT", "KILL")
	require.NoError(t, <-done)
	loop.Wait()
	require.EqualValues(t, 1, get(t, c, "b"))
}

func TestRunner_OnceAfterAnUnknownOutcome_IsNotSentAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	r := script.NewRunner(c, 50*time.Millisecond)
	get(t, c, "k")
	// whileStopped returns how often the call had run before, and whether ctx ended the call.
	whileStopped := func(key string, once bool, patience time.Duration) (before int64, ended bool) {
		before = get(t, c, key)
		s.Stop(t)
		defer s.Resume(t)
		x := call(key)
		x.Once = once
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := r.Do(ctx, x)
		require.ErrorIs(t, err, errs.ErrUnknownOutcome)
		return before, ctx.Err() != nil
	}
	onceBefore, ended := whileStopped("once", true, slack)
	require.False(t, ended, "a call that is sent once gives up at the call timeout")
	repeatedBefore, ended := whileStopped("repeated", false, time.Second)
	require.True(t, ended, "a call that may run twice is repeated until its context ends")

	// The resumed server reads its connections in any order: a read may be answered before the calls run.
	redistest.Eventually(t, slack, "the repeated call runs more than once", func() bool {
		return get(t, c, "repeated")-repeatedBefore > 1
	})
	redistest.Eventually(t, slack, "the call that is sent once runs once", func() bool {
		return get(t, c, "once")-onceBefore == 1
	})
}

func TestRepeat_UnknownTry_MakesTheCallUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.Server, c rueidis.Client) {
		r := script.NewRunner(c, time.Second)
		var tries int
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		unsure, err := script.Repeat(ctx, false, func() error {
			// nothing is pushed to this list: no reply within the call timeout
			x := script.Call{Script: script.Plain("blpop"), Keys: []string{"empty"}, Args: []string{"5"}}
			if tries++; tries > 1 {
				s.Embedded.SetError("LOADING away")
				x = call("k")
			}
			_, err := r.Attempt(ctx, x)
			if tries == 1 {
				require.ErrorContains(t, err, "call timeout")
			}
			return err
		})
		require.True(t, unsure)
		require.ErrorIs(t, err, errs.ErrUnknownOutcome)
		require.ErrorContains(t, err, "LOADING", "the last error is told")
		require.Greater(t, tries, 3)
		time.Sleep(time.Minute) // the flights end
	})
}

// A caller reads why the server could not be asked, not that the time for asking was over.
func TestRepeat_TimeRunsOut_KeepsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		refused := fmt.Errorf("%w: %w", errs.ErrUnavailable, syscall.ECONNREFUSED)
		late := fmt.Errorf("%w: %w", errs.ErrUnavailable, errs.Cut(context.DeadlineExceeded))
		tries := []error{refused, late}
		_, err := script.Repeat(ctx, false, func() (err error) {
			err, tries = tries[0], tries[1:]
			if len(tries) == 0 {
				<-ctx.Done()
			}
			return err
		})
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
}

func TestAttempt_NotPipelining_ObeysCancellation(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	r := script.NewRunner(c, time.Hour)
	for _, wait := range []time.Duration{0, 20 * time.Millisecond} {
		get(t, c, "k") // alone on its connection: rueidis writes and reads in place, deaf to cancellation
		s.Stop(t)
		ctx, cancel := context.WithCancelCause(context.Background())
		why := errors.New("the user went away")
		time.AfterFunc(wait, func() { cancel(why) })
		began := time.Now()
		_, err := r.Attempt(ctx, call("k"))
		require.Less(t, time.Since(began), slack)
		require.True(t, script.NotAnswered(err), "%v", err)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)
		if wait > 0 {
			require.ErrorIs(t, err, errs.ErrUnknownOutcome)
		}
		s.Resume(t)
	}
}

// slowDone is a context whose Done takes a while.
type slowDone struct{ context.Context }

func (c slowDone) Done() <-chan struct{} {
	time.Sleep(10 * time.Millisecond)
	return c.Context.Done()
}

func TestRunner_CtxHasEnded_SendsNothing(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(t)
	r := script.NewRunner(c, slack)
	why := errors.New("too late")
	inner, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	ctx := slowDone{inner} // a goroutine that sends would be ahead of its caller
	for _, run := range []func(context.Context, script.Call) (rueidis.RedisMessage, error){r.Attempt, r.Do} {
		_, err := run(ctx, call("k"))
		require.ErrorIs(t, err, errs.ErrUnavailable)
		require.NotErrorIs(t, err, errs.ErrUnknownOutcome)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)
	}
	require.Zero(t, get(t, c, "k"))
	require.Zero(t, redistest.CommandCalls(t, c)["evalsha"])
}

func TestAttempt_RingFull_LeavesInTime(t *testing.T) {
	s := redistest.Start(t)
	ignore := goleak.IgnoreCurrent()
	o := s.Option()
	o.RingScaleEachConn, o.PipelineMultiplex = 4, -1 // 16 calls on one connection
	c := redistest.NoError(rueidis.NewClient(o))(t)
	do(t, c, "SET", "k", "0")
	r := script.NewRunner(c, time.Hour)
	s.Stop(t)
	const calls = 64
	var answered atomic.Int32
	var wg sync.WaitGroup
	began := time.Now()
	for i := range calls {
		wg.Go(func() {
			why := errors.New("enough")
			ctx, cancel := context.WithCancelCause(context.Background())
			if i%2 == 0 {
				time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
			} else {
				var stop context.CancelFunc
				ctx, stop = context.WithTimeoutCause(ctx, 100*time.Millisecond, why)
				defer stop()
			}
			x := call("k")
			x.Late = func(res rueidis.RedisResult) {
				if res.Error() == nil {
					answered.Add(1)
				}
			}
			_, err := r.Attempt(ctx, x)
			if !script.NotAnswered(err) || errors.Is(err, errs.ErrUnavailable) {
				t.Errorf("call %d: %v", i, err)
			}
			if !errors.Is(err, errs.ErrUnknownOutcome) || !errors.Is(err, why) || !errors.Is(err, ctx.Err()) {
				t.Errorf("call %d: %v", i, err)
			}
			cancel(nil)
		})
	}
	wg.Wait()
	require.Less(t, time.Since(began), slack, "rueidis alone keeps them for 10 s")
	s.Resume(t)
	redistest.Eventually(t, 2*slack, "every flight to land", func() bool { return answered.Load() == calls })
	require.EqualValues(t, calls, get(t, c, "k"))
	c.Close()
	redistest.Eventually(t, slack, "no goroutine left", func() bool { return goleak.Find(ignore) == nil })
}

func TestClock_Estimate_IsNeverLate(t *testing.T) {
	t.Parallel()
	c := redistest.Embedded(t).Client(t)
	seed := redistest.Seeds(t, 1)[0]
	rng := rand.New(rand.NewPCG(seed, 1))
	us := func(most int64) time.Duration { return time.Duration(rng.Int64N(most)) * time.Microsecond }
	for range redistest.Sized(500, 500, 2000) {
		clock := script.NewRunner(c, time.Second).Clock
		require.Zero(t, clock.At("k", time.Now()), "nothing is known yet")
		zero := time.Now() // the server's clock was epoch here
		epoch := time.Duration(rng.Int64N(1<<50)) * time.Microsecond
		truth := func(at time.Time) time.Duration { return epoch + at.Sub(zero) }
		at := zero
		var widest time.Duration
		for n := range 20 {
			sent := at.Add(us(50_000))
			read := sent.Add(us(20_000))
			received := read.Add(us(20_000))
			widest = max(widest, received.Sub(sent))
			learn := clock.Learn
			if rng.IntN(4) == 0 {
				learn = clock.Relearn
			}
			learn("k", truth(read).Milliseconds(), sent, received)
			at = received
			for range 5 {
				when := received.Add(us(1_000_000) - 100*time.Millisecond)
				got := time.Duration(clock.At("k", when)) * time.Millisecond
				require.LessOrEqual(t, got, truth(when), "seed %d, sample %d", seed, n)
				require.LessOrEqual(t, got+time.Millisecond, truth(script.LastRun(when)),
					"seed %d, sample %d: until that millisecond is over it may run", seed, n)
				require.Greater(t, got, truth(when)-widest-2*time.Millisecond, "seed %d, sample %d", seed, n)
			}
		}
	}
}

func TestClock_GoodSample_IsKeptForAWhile(t *testing.T) {
	clock := script.NewRunner(redistest.Embedded(t).Client(t), time.Second).Clock
	t0 := time.Now()
	ms := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Millisecond) }
	clock.Learn("k", 1_000_000, ms(0), ms(2))
	require.EqualValues(t, 1_000_098, clock.At("k", ms(100)))
	clock.Learn("k", 1_000_000, ms(100), ms(300))
	require.EqualValues(t, 1_000_398, clock.At("k", ms(400)), "a slow reply does not replace a quick one")
	clock.Learn("k", 1_000_500, ms(501), ms(504))
	require.EqualValues(t, 1_000_500, clock.At("k", ms(504)), "one about as quick does")
	clock.Learn("k", 1_040_000, ms(40_000), ms(40_200))
	require.EqualValues(t, 1_040_000, clock.At("k", ms(40_200)), "after a while a slow one does too")
	clock.Relearn("k", 77, ms(40_300), ms(41_300))
	require.EqualValues(t, 77, clock.At("k", ms(41_300)), "an estimate that was proved wrong goes at once")
	require.EqualValues(t, 77, clock.At("any other key", ms(41_300)), "there is one server")
}

type clustered struct{ rueidis.Client }

func (clustered) Mode() rueidis.ClientMode { return rueidis.ClientModeCluster }

func TestClock_Cluster_IsKeptBySlot(t *testing.T) {
	clock := script.NewRunner(clustered{redistest.Embedded(t).Client(t)}, time.Second).Clock
	now := time.Now()
	clock.Learn("{a}1", 1000, now, now)
	require.EqualValues(t, 1000, clock.At("{a}2", now))
	require.Zero(t, clock.At("{b}1", now), "another node's clock is another clock")
}

func TestExplain_Command_IsAsOfScripts(t *testing.T) {
	require.NoError(t, script.Explain("PING", nil))
	err := script.Explain("PING", rueidis.ErrNoSlot)
	require.ErrorIs(t, err, errs.ErrUnavailable)
	require.ErrorIs(t, err, rueidis.ErrNoSlot)
	err = script.Explain("PING", rueidis.ErrClosing)
	require.ErrorIs(t, err, errs.ErrUnknownOutcome, "it may have been on its way")
	require.ErrorIs(t, err, rueidis.ErrClosing)
}

// Of a busy server, for which rueidis has one error with that of a server that has no client-side caching.
func TestExplain_RefusedConnection_IsWhatTheServerSays(t *testing.T) {
	for text, kind := range map[string]error{
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.": errs.ErrUnavailable,
		"NOPERM this user has no permissions to run the 'client|tracking' command":               errs.ErrDenied,
		"ERR unknown subcommand 'TRACKING'. Try CLIENT HELP.":                                    errs.ErrInvalidOption,
	} {
		err := script.Explain("x",
			fmt.Errorf("%s: %v\n%w", text, []string{"CLIENT", "TRACKING", "ON", "OPTIN"}, rueidis.ErrNoCache))
		for _, k := range []error{errs.ErrUnavailable, errs.ErrDenied, errs.ErrInvalidOption, errs.ErrUnknownOutcome} {
			require.Equal(t, errors.Is(k, kind), errors.Is(err, k), "%v: %v", k, err)
		}
	}
}

func TestScript_UnreadableValue_IsErrWrongType(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	r := script.NewRunner(c, slack)
	do(t, c, "SET", "text", "nan or so")
	for _, lua := range []string{
		"return 1 + tonumber(redis.call('GET', KEYS[1]))", "return redis.call('GET', KEYS[1]) .. nil",
		"return redis.call('GET', KEYS[1]) < 1", "return nothing()",
		"return redis.call('INCRBY', KEYS[1], 1)", "return redis.call('LLEN', KEYS[1])",
		"error('WRONGTYPE it is something else', 0)",
		"return redis.error_reply('WRONGTYPE it is something else')",
		"return redis.call('PEXPIRE', KEYS[1], '9223372036854775807')",
		"redis.call('ZADD', KEYS[2], 'inf', 'm') return redis.call('ZINCRBY', KEYS[2], '-inf', 'm')",
	} {
		_, err := r.Attempt(within(t), script.Call{Script: script.New("reads", lua), Keys: []string{"text", "z"}})
		require.ErrorIs(t, err, errs.ErrWrongType, lua)
		for _, word := range []string{"user_script", "attempt", "script: "} {
			require.NotContains(t, err.Error(), word, lua)
		}
		_, said := saidBy(err)
		require.True(t, said, "the server's own error is wrapped")
	}
	_, err := r.Attempt(within(t),
		script.Call{Script: script.New("refuses", "return redis.error_reply('ERR for another reason')"),
			Keys: []string{"text"}})
	require.NotErrorIs(t, err, errs.ErrWrongType)
	require.ErrorContains(t, err, "for another reason")
}

// What servers say of a missing right, as they said it: Redis 6.2, 7.0, 7.2 and later, and Valkey.
func TestDenied_EveryServersWords_AreKnown(t *testing.T) {
	lacking := script.New("lacking",
		"local key = KEYS[1]\nredis.call('HSET', key, 'a', 1)\nreturn redis.call(publish, 'c', redis.call('HGET', key, "+
			"'a'))\n")
	e := redistest.Embedded(t)
	r := script.NewRunner(e.Client(t), time.Minute)
	const key, channel = "lacks a key pattern (~...)", "lacks a channel pattern (&...):"
	const script7 = "The user executing the script can't "
	const at2 = " script: c0ffee, on @user_script:2."
	const run7 = script7 + "run this command or subcommand"
	for text, right := range map[string]string{
		"NOPERM this user has no permissions to run the 'hset' command or its subcommand":     "lacks +hset:",
		"NOPERM this user has no permissions to run the 'client|tracking' command":            "lacks +client|tracking:",
		"NOPERM User app has no permissions to run the 'HSET' command":                        "lacks +hset:",
		"NOPERM this user has no permissions to access one of the keys used as arguments":     key + ":",
		"NOPERM No permissions to access a key":                                               key + ":",
		"NOPERM this user has no permissions to access one of the channels used as arguments": channel,
		"NOPERM No permissions to access a channel":                                           channel,
		run7 + at2: "lacks +hset:",
		run7 + " script: c0ffee, on @user_script:3.": "lacks +publish or +hget:",
		run7 + " script: c0ffee, on @user_script:9.": "lacks +hset or +publish or +hget:",
		run7: "lacks +hset or +publish or +hget:",
		"Error running script (call to f_c0ffee): @user_script:2: @user_script: 2: " + run7:            "lacks +hset:",
		script7 + "access at least one of the keys mentioned in the command arguments" + at2:           key + ", for +hset:",
		script7 + "publish to the channel mentioned in the command script: c0ffee, on @user_script:3.": channel,
		"NOPERM ACL failure in script: User app has no permissions to run the 'hset' command" + at2:    "lacks +hset:",

		"NOPERM ACL failure in script: No permissions to access a key" + at2:    key + ", for +hset:",
		"NOPERM something nobody has thought of yet":                            "lacks the right to a command:",
		"NOAUTH Authentication required.":                                       "asks for a password",
		"WRONGPASS invalid username-password pair or user is disabled.":         "wrong user name or password",
		"NOAUTH HELLO must be called with the client already authenticated ...": "asks for a password",
	} {
		e.Embedded.SetError(text)
		_, err := r.Attempt(within(t), script.Call{Script: lacking, Keys: []string{"k"}})
		require.ErrorIs(t, err, errs.ErrDenied, text)
		require.ErrorContains(t, err, right, text)
		require.ErrorContains(t, err, `lacking on "k"`, text)
	}
}

// leaving is a context that ends as soon as somebody waits for its end.
type leaving struct {
	context.Context
	end context.CancelFunc
}

func (c leaving) Done() <-chan struct{} {
	c.end()
	return c.Context.Done()
}

func (c leaving) Deadline() (time.Time, bool) { return time.Now().Add(time.Millisecond), true }

// Its caller takes back what a call may do that was sent. One that is sent after that is taken back by nobody.
func TestAttempt_SaysNotSent_IsNeverSent(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	r := script.NewRunner(c, slack)
	maybe, not := 0, 0
	for n := 0; not < 20; n++ {
		require.Less(t, n, 20000, "none was given up before it was sent")
		ctx, cancel := context.WithCancel(context.Background())
		_, err := r.Attempt(leaving{ctx, cancel}, call("k"))
		switch {
		case errors.Is(err, errs.ErrUnavailable):
			not++
		default:
			maybe++
		}
	}
	redistest.NoError(r.Attempt(within(t), call("k")))(t)
	redistest.Eventually(t, 10*time.Second, "what was sent has run", func() bool {
		n := redistest.NoError(c.Do(within(t), c.B().Get().Key("k").Build()).AsInt64())(t)
		require.LessOrEqual(t, n, int64(maybe+1))
		return n == int64(maybe+1)
	})
}
