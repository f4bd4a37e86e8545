package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// answers returns a function for Once.Do that returns text, and counts its runs.
func answers(runs *atomic.Int32, text string) func(context.Context, int64) ([]byte, error) {
	return func(context.Context, int64) ([]byte, error) {
		runs.Add(1)
		return []byte(text), nil
	}
}

// never is a function for Once.Do that must not run.
func never(t testing.TB) func(context.Context, int64) ([]byte, error) {
	return func(context.Context, int64) ([]byte, error) {
		t.Error("fn ran")
		return nil, nil
	}
}

func TestOnce_SecondCall_GetsTheAnswer(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx, opts := context.Background(), rlock.OnceOptions{Keep: time.Minute}
		var runs atomic.Int32
		binary := "a \x00\xff=1 2 3"
		answer, replayed, err := rigs[0].locks.Once("pay", opts).Do(ctx, "7", "f p", answers(&runs, binary))
		require.NoError(t, err)
		require.False(t, replayed)
		require.Equal(t, binary, string(answer))
		for range 5 {
			for _, r := range rigs {
				answer, replayed, err = r.locks.Once("pay", opts).Do(ctx, "7", "f p", never(t))
				require.NoError(t, err)
				require.True(t, replayed)
				require.Equal(t, binary, string(answer))
				_, _, err = r.locks.Once("pay", opts).Do(ctx, "7", "other", never(t))
				require.ErrorIs(t, err, redlatch.ErrMismatch)
			}
		}
		time.Sleep(time.Minute + time.Second)
		answer, replayed, err = rigs[1].locks.Once("pay", opts).Do(ctx, "7", "other", answers(&runs, ""))
		require.NoError(t, err)
		require.False(t, replayed, "Keep is over")
		require.Empty(t, answer)
		answer, replayed, err = rigs[0].locks.Once("pay", opts).Do(ctx, "7", "other", never(t))
		require.NoError(t, err)
		require.True(t, replayed)
		require.NotNil(t, answer)
		require.Empty(t, answer)
		require.EqualValues(t, 2, runs.Load())
	})
}

func TestOnce_CallersOfManyProcesses_ShareOneRun(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		text string
		work time.Duration
	}{
		"short":                 {"answer", 10 * time.Second},
		"longer than a message": {strings.Repeat("x", 20000), 10 * time.Second},
		"soon":                  {"answer", time.Millisecond}, // the process could go on with its hold
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 3, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
				var runs, replays atomic.Int32
				var all sync.WaitGroup
				began := time.Now()
				for i := range 300 {
					all.Go(func() {
						answer, replayed, err := rigs[i%len(rigs)].locks.Once("page", rlock.OnceOptions{}).Do(
							context.Background(), "k", "", func(ctx context.Context, _ int64) ([]byte, error) {
								runs.Add(1)
								time.Sleep(x.work)
								return []byte(x.text), ctx.Err()
							})
						if err != nil || string(answer) != x.text {
							t.Error(len(answer), err)
						}
						if replayed {
							replays.Add(1)
						}
					})
				}
				all.Wait()
				require.EqualValues(t, 1, runs.Load())
				require.EqualValues(t, 299, replays.Load())
				require.Less(t, time.Since(began), x.work+500*time.Millisecond, "by messages")
			})
		})
	}
}

func TestOnce_RunFails_NextCallerRuns(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		var attempts atomic.Int32
		var all sync.WaitGroup
		var tokens sync.Map
		bad := errors.New("no paper")
		for i := range 20 {
			all.Go(func() {
				answer, _, err := rigs[i%2].locks.Once("page", rlock.OnceOptions{}).Do(context.Background(), "k", "",
					func(_ context.Context, token int64) ([]byte, error) {
						time.Sleep(time.Second)
						if _, twice := tokens.LoadOrStore(token, true); twice || token == 0 {
							t.Error("token", token)
						}
						if attempts.Add(1) < 6 {
							return []byte("bad"), bad
						}
						return []byte("good"), nil
					})
				if !errors.Is(err, bad) && (err != nil || string(answer) != "good") {
					t.Error(string(answer), err)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 6, attempts.Load())
	})
}

func TestOnce_InProgress_IsNotAcquired(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		_, _, err := rigs[0].locks.Once("pay", rlock.OnceOptions{}).Do(ctx, "7", "",
			func(ctx context.Context, _ int64) ([]byte, error) {
				for _, r := range rigs {
					for _, wait := range []time.Duration{0, time.Second} {
						_, _, err := r.locks.Once("pay", rlock.OnceOptions{}).WithWait(wait).Do(context.Background(), "7", "", never(t))
						require.ErrorIs(t, err, redlatch.ErrNotAcquired)
						var refused *rlock.NotAcquiredError
						require.ErrorAs(t, err, &refused)
					}
				}
				_, _, err := rigs[0].locks.Once("pay", rlock.OnceOptions{}).Do(ctx, "7", "", never(t))
				require.ErrorIs(t, err, rlock.ErrReentry)
				return nil, nil
			})
		require.NoError(t, err)
	})
}

func TestOnce_Stale_OneRenewsOthersGetTheOldAnswer(t *testing.T) {
	t.Parallel()
	bubble(t, 3, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx, opts := context.Background(), rlock.OnceOptions{Keep: time.Minute, Stale: time.Hour}
		var runs atomic.Int32
		_, _, err := rigs[0].locks.Once("page", opts).Do(ctx, "k", "", answers(&runs, "old"))
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				began := time.Now()
				answer, replayed, err := rigs[i%3].locks.Once("page", opts).Do(ctx, "k", "",
					func(context.Context, int64) ([]byte, error) {
						runs.Add(1)
						time.Sleep(time.Minute)
						return []byte("new"), nil
					})
				if err != nil || replayed && (string(answer) != "old" || time.Since(began) > time.Second) ||
					!replayed && string(answer) != "new" {
					t.Error(string(answer), replayed, err, time.Since(began))
				}
			})
		}
		time.Sleep(30 * time.Second)
		for _, r := range rigs {
			answer, replayed, err := r.locks.Once("page", opts).Do(ctx, "k", "", never(t))
			require.NoError(t, err)
			require.True(t, replayed)
			require.Equal(t, "old", string(answer))
		}
		all.Wait()
		for range 3 {
			for _, r := range rigs {
				answer, _, err := r.locks.Once("page", opts).Do(ctx, "k", "", never(t))
				require.NoError(t, err)
				require.Equal(t, "new", string(answer))
			}
		}
		require.EqualValues(t, 2, runs.Load())
	})
}

// lateKey marks the context of a caller that comes late: see TestOnce_Stale_CallerMissesTheGrant_GetsTheOldAnswer.
type lateKey struct{}

// A caller that looks for an answer just before its process is granted the renewal, and requests just after, gets the
// old answer, too.
func TestOnce_Stale_CallerMissesTheGrant_GetsTheOldAnswer(t *testing.T) {
	t.Parallel()
	observer := func(ctx context.Context, e redlatch.Event) context.Context {
		if e.Kind == redlatch.EventAcquiring && ctx.Value(lateKey{}) != nil {
			time.Sleep(time.Second)
		}
		return ctx
	}
	bubble(t, 1, rlock.Options{Observer: observer}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		once := rigs[0].locks.Once("page", rlock.OnceOptions{Keep: time.Minute, Stale: time.Hour})
		_, _, err := once.Do(t.Context(), "k", "", func(context.Context, int64) ([]byte, error) { return []byte("old"), nil })
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		var all sync.WaitGroup
		defer all.Wait()
		for range 2 {
			all.Go(func() {
				began := time.Now()
				answer, replayed, err := once.Do(context.WithValue(t.Context(), lateKey{}, true), "k", "", never(t))
				if err != nil || !replayed || string(answer) != "old" || time.Since(began) > 2*time.Second {
					t.Error(string(answer), replayed, err, time.Since(began))
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		answer, _, err := once.Do(t.Context(), "k", "", func(context.Context, int64) ([]byte, error) {
			time.Sleep(time.Minute)
			return []byte("new"), nil
		})
		require.NoError(t, err)
		require.Equal(t, "new", string(answer))
	})
}

func TestOnce_LockLost_StoresNothing(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		_, _, err := rigs[0].locks.Once("pay", rlock.OnceOptions{}).Do(ctx, "7", "",
			func(ctx context.Context, token int64) ([]byte, error) {
				require.NoError(t, rigs[1].redis.Do(ctx, rigs[1].redis.B().Del().Key("{pay:7}:once").Build()).Error())
				answer, replayed, err := rigs[1].locks.Once("pay", rlock.OnceOptions{}).Do(context.Background(), "7", "",
					func(_ context.Context, next int64) ([]byte, error) {
						require.Greater(t, next, token)
						return []byte("second"), nil
					})
				require.NoError(t, err)
				require.False(t, replayed)
				require.Equal(t, "second", string(answer))
				return []byte("late"), nil
			})
		require.ErrorIs(t, err, redlatch.ErrLost)
		time.Sleep(time.Minute)
		answer, _, err := rigs[0].locks.Once("pay", rlock.OnceOptions{}).Do(ctx, "7", "", never(t))
		require.NoError(t, err)
		require.Equal(t, "second", string(answer))
	})
}

func TestOnce_PanicOrTooLongAnswer_KeepsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx, once := context.Background(), rigs[0].locks.Once("pay", rlock.OnceOptions{})
		require.PanicsWithValue(t, "out", func() {
			_, _, _ = once.Do(ctx, "7", "", func(context.Context, int64) ([]byte, error) { panic("out") })
		})
		_, _, err := once.WithWait(0).Do(ctx, "7", "", func(context.Context, int64) ([]byte, error) {
			return make([]byte, 1<<20+1), nil
		})
		require.ErrorIs(t, err, redlatch.ErrInvalidOption)
		require.ErrorContains(t, err, "1048577")
		answer, replayed, err := once.WithWait(0).Do(ctx, "7", "", func(context.Context, int64) ([]byte, error) {
			return make([]byte, 1<<20), nil
		})
		require.NoError(t, err)
		require.False(t, replayed)
		require.Len(t, answer, 1<<20)
	})
}

func TestOnce_BadArguments_AreRefused(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx, c := context.Background(), rigs[0].locks
		for want, refused := range map[string]*rlock.Once{
			"name":  c.Once("a:b", rlock.OnceOptions{}),
			"Keep":  c.Once("a", rlock.OnceOptions{Keep: time.Microsecond}),
			"Stale": c.Once("a", rlock.OnceOptions{Stale: -1}),
			"wait":  c.Once("a", rlock.OnceOptions{}).WithWait(-1),
		} {
			_, _, err := refused.Do(ctx, "k", "", never(t))
			require.Error(t, err)
			require.ErrorContains(t, err, want)
		}
		_, _, err := c.Once("a", rlock.OnceOptions{}).Do(ctx, "", "", never(t))
		require.ErrorIs(t, err, redlatch.ErrInvalidName)
		_, _, err = c.Once("a", rlock.OnceOptions{}).Do(ctx, "k", strings.Repeat("x", 1025), never(t))
		require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	})
}

func TestOnce_Inspect_ShowsRunAndAnswer(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx, once := context.Background(), rigs[0].locks.Once("pay", rlock.OnceOptions{Keep: time.Minute, Stale: time.Hour})
		inspect := func() rlock.OnceState { return redistest.NoError(once.Inspect(ctx, "7"))(t) }
		require.Equal(t, rlock.OnceState{Run: rlock.State{Name: "pay:7"}}, inspect())
		_, _, err := once.Do(ctx, "7", "f", func(_ context.Context, token int64) ([]byte, error) {
			state := inspect()
			require.True(t, state.Run.Locked)
			require.Len(t, state.Run.Holders, 1)
			require.Equal(t, token, state.Run.Token)
			require.False(t, state.Answered)
			return []byte("four"), nil
		})
		require.NoError(t, err)
		state := inspect()
		require.False(t, state.Run.Locked)
		require.Equal(t, []any{true, int64(4), "f"}, []any{state.Answered, state.Bytes, state.Fingerprint})
		require.InDelta(t, time.Minute, state.Fresh, float64(time.Second))
		require.Equal(t, state.Left, state.Fresh+time.Hour)
		time.Sleep(2 * time.Minute)
		require.Zero(t, inspect().Fresh)
	})
}

// storing matches the call that stores an answer: no other call has its fingerprint.
func storing(words []string) bool { return slices.Contains(words, "fingerprint") }

func TestOnce_StoreReplyLost_IsStoredOnce(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		for key, fate := range map[string]redistest.Fate{"1": redistest.LoseReply, "2": redistest.LoseRequest,
			"3": redistest.RunTwice} {
			p := redistest.NewProxy(t, servers[0])
			once := newRig(t, p.Server(), rlock.Options{}).locks.Once("pay", rlock.OnceOptions{})
			other := newRig(t, servers[0], rlock.Options{}).locks.Once("pay", rlock.OnceOptions{})
			trap := p.Trap(&redistest.Trap{Match: storing, Fate: fate})
			var runs atomic.Int32
			answer, replayed, err := once.Do(within(t), key, "fingerprint", answers(&runs, "answer"))
			require.NoError(t, err)
			require.False(t, replayed)
			require.Equal(t, "answer", string(answer))
			trap.Wait(t)
			answer, replayed, err = other.Do(within(t), key, "fingerprint", never(t))
			require.NoError(t, err)
			require.True(t, replayed)
			require.Equal(t, "answer", string(answer))
		}
	})
}

func TestOnce_StoreLostUntilTheLeaseIsOver_IsAnError(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		p := redistest.NewProxy(t, servers[0])
		once := newRig(t, p.Server(), rlock.Options{}).locks.Once("pay", rlock.OnceOptions{})
		p.Trap(&redistest.Trap{Fate: redistest.LoseRequest, Match: func(words []string) bool {
			if storing(words) {
				servers[0].Embedded.Del("{pay:7}:once")
			}
			return storing(words)
		}})
		var runs atomic.Int32
		_, _, err := once.Do(within(t), "7", "fingerprint", answers(&runs, "answer"))
		require.ErrorIs(t, err, redlatch.ErrLost)
		_, replayed, err := once.Do(within(t), "7", "fingerprint", answers(&runs, "answer"))
		require.NoError(t, err)
		require.False(t, replayed)
	})
}

func TestOnce_SlotIsMigrated_DoesNotRun(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		p := redistest.NewProxy(t, servers[0])
		once := newRig(t, p.Server(), rlock.Options{CallTimeout: time.Second}).locks.Once("pay", rlock.OnceOptions{})
		p.Trap(&redistest.Trap{Every: true, Fate: redistest.RefuseRequest,
			Match: func(words []string) bool { return words[0] == "EVALSHA" && words[2] == "4" },
			Says:  func([]string) string { return "TRYAGAIN Multiple keys request during rehashing of slot" }})
		_, _, err := once.WithWait(0).Do(within(t), "7", "", never(t))
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
	})
}

func TestOnce_OldAnswerEndsDuringItsRenewal_OthersWait(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx, opts := context.Background(), rlock.OnceOptions{Keep: time.Minute, Stale: time.Minute}
		var runs atomic.Int32
		_, _, err := rigs[0].locks.Once("page", opts).Do(ctx, "k", "", answers(&runs, "old"))
		require.NoError(t, err)
		time.Sleep(90 * time.Second)
		_, _, err = rigs[0].locks.Once("page", opts).Do(ctx, "k", "", func(context.Context, int64) ([]byte, error) {
			for _, r := range rigs {
				answer, _, err := r.locks.Once("page", opts).WithWait(0).Do(ctx, "k", "", never(t))
				require.NoError(t, err)
				require.Equal(t, "old", string(answer))
			}
			time.Sleep(time.Minute)
			for _, r := range rigs {
				_, _, err := r.locks.Once("page", opts).WithWait(0).Do(ctx, "k", "", never(t))
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			}
			return []byte("new"), nil
		})
		require.NoError(t, err)
	})
}

// 4,096 callers of four processes, and a caller of each of forty. The first wait of a process costs one request more,
// because the process subscribes.
func TestOnce_CallersOnAMiss_CostOneCallEach(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ processes, callers int }{"4": {4, 4096}, "40": {40, 40}} {
		t.Run(name+" processes", func(t *testing.T) {
			t.Parallel()
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				counted := servers[0].Client(t)
				var rigs []*rig
				for range x.processes {
					rigs = append(rigs, newRig(t, servers[0], rlock.Options{WatchdogTimeout: time.Hour, CallTimeout: 5 * time.Second}))
				}
				miss := func(key string) (scripts int, runs int32) {
					var ran atomic.Int32
					var all sync.WaitGroup
					before := redistest.ScriptCalls(t, counted)
					for i := range x.callers {
						all.Go(func() {
							answer, _, err := rigs[i%x.processes].locks.Once("page", rlock.OnceOptions{}).Do(context.Background(), key,
								"", func(context.Context, int64) ([]byte, error) {
									ran.Add(1)
									time.Sleep(500 * time.Millisecond)
									return []byte("answer"), nil
								})
							if err != nil || string(answer) != "answer" {
								t.Error(string(answer), err)
							}
						})
					}
					all.Wait()
					time.Sleep(time.Second) // what is done in the background
					return redistest.ScriptCalls(t, counted) - before, ran.Load()
				}
				for i, r := range rigs { // the server knows the scripts from now on
					_, _, err := r.locks.Once("page", rlock.OnceOptions{}).Do(within(t), fmt.Sprint(i), "",
						answers(new(atomic.Int32), ""))
					require.NoError(t, err)
				}
				time.Sleep(2 * time.Second) // it also knows the names of the processes
				scripts, runs := miss("cold")
				require.LessOrEqual(t, scripts, 2*x.processes+2) // one stores, and one looks at a hold that is 50 ms old
				require.EqualValues(t, 1, runs)
				scripts, runs = miss("warm")
				require.LessOrEqual(t, scripts, x.processes+3) // and who ran at first waits now
				require.EqualValues(t, 1, runs)
			})
		})
	}
}

func TestOnce_Cached_CostsNoCallUntilItIsOld(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r, counted := newRig(t, server, rlock.Options{}), server.Client(t)
	var runs atomic.Int32
	for _, opts := range []rlock.OnceOptions{{}, {Keep: time.Hour, Stale: 24 * time.Hour}} {
		once, key := r.locks.Once("page", opts), opts.Keep.String()
		for range 4 {
			_, _, err := once.Do(within(t), key, "", answers(&runs, "answer"))
			require.NoError(t, err)
		}
		before := redistest.CommandCalls(t, counted)
		for range 100 {
			answer, replayed, err := once.Do(within(t), key, "", never(t))
			require.NoError(t, err)
			require.True(t, replayed)
			require.Equal(t, "answer", string(answer))
			_, _, err = once.Do(within(t), key, "other", never(t))
			require.ErrorIs(t, err, redlatch.ErrMismatch)
		}
		after := redistest.CommandCalls(t, counted)
		require.Zero(t, after.Since(before), "a hit costs no call: %v, %v", before, after)
	}
	brief := r.locks.Once("brief", rlock.OnceOptions{Keep: 300 * time.Millisecond, Stale: time.Hour})
	runs.Store(0)
	for range 3 {
		_, _, err := brief.Do(within(t), "k", "", answers(&runs, "answer"))
		require.NoError(t, err)
	}
	made := runs.Load()
	time.Sleep(400 * time.Millisecond)
	_, replayed, err := brief.Do(within(t), "k", "", answers(&runs, "answer"))
	require.NoError(t, err)
	require.False(t, replayed, "it is renewed")
	require.Equal(t, made+1, runs.Load())
}

func TestOnce_TooFewReplicas_IsSaid(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		servers[0].SetReplicas(1)
		once := newRig(t, servers[0], rlock.Options{MinReplicas: 1}).locks.Once("pay", rlock.OnceOptions{})
		_, _, err := once.Do(within(t), "7", "", func(context.Context, int64) ([]byte, error) {
			servers[0].SetReplicas(0)
			return []byte("answer"), nil
		})
		require.ErrorIs(t, err, redlatch.ErrNotReplicated)
		servers[0].SetReplicas(1)
		answer, replayed, err := once.Do(within(t), "7", "", never(t))
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, "answer", string(answer))
	})
}

// A process gets the message with the answer late. Its caller that came after the answer's end needs another one.
func TestOnce_MessageComesAfterTheAnswerIsOver_LaterCallerRuns(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	ctx, key, opts := context.Background(), "7", rlock.OnceOptions{Keep: 100 * time.Millisecond}
	proxy := redistest.NewProxy(t, s)
	first, late := newRig(t, s, rlock.Options{}), newRig(t, proxy.Server(), rlock.Options{})
	finish := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		old := func(context.Context, int64) ([]byte, error) {
			<-finish
			return []byte("old"), nil
		}
		answer, replayed, err := first.locks.Once("late", opts).Do(ctx, key, "", old)
		assert.NoError(t, err)
		assert.False(t, replayed)
		assert.Equal(t, "old", string(answer))
	})
	redistest.Eventually(t, 20*time.Second, "the first runs", func() bool {
		state, err := first.locks.Once("late", opts).Inspect(ctx, key)
		return err == nil && len(state.Run.Holders) == 1
	})
	all.Go(func() {
		answer, replayed, err := late.locks.Once("late", opts).Do(ctx, key, "", never(t))
		assert.NoError(t, err)
		assert.True(t, replayed)
		assert.Equal(t, "old", string(answer))
	})
	redistest.Eventually(t, 20*time.Second, "the second is queued", func() bool {
		state, err := first.locks.Once("late", opts).Inspect(ctx, key)
		return err == nil && len(state.Run.Waiters) == 1
	})
	proxy.Hold(redistest.Down)
	close(finish)
	redistest.Eventually(t, 20*time.Second, "the answer is over", func() bool {
		state, err := first.locks.Once("late", opts).Inspect(ctx, key)
		return err == nil && len(state.Run.Holders) == 0 && !state.Answered
	})
	all.Go(func() {
		var runs atomic.Int32
		answer, replayed, err := late.locks.Once("late", opts).Do(ctx, key, "", answers(&runs, "new"))
		assert.NoError(t, err)
		assert.False(t, replayed)
		assert.Equal(t, "new", string(answer))
	})
	redistest.Eventually(t, 20*time.Second, "both wait", func() bool { return late.locks.Stats().Waiting == 2 })
	proxy.Heal()
	all.Wait()
}
