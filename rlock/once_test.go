package rlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	for name, text := range map[string]string{"short": "answer", "longer than a message": strings.Repeat("x", 20000)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 3, rlock.Options{}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
				var runs, replays atomic.Int32
				var all sync.WaitGroup
				began := time.Now()
				for i := range 300 {
					all.Go(func() {
						answer, replayed, err := rigs[i%len(rigs)].locks.Once("page", rlock.OnceOptions{}).Do(
							context.Background(), "k", "", func(ctx context.Context, token int64) ([]byte, error) {
								runs.Add(1)
								time.Sleep(10 * time.Second)
								return []byte(text), ctx.Err()
							})
						if err != nil || string(answer) != text {
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
				require.Less(t, time.Since(began), 10*time.Second+500*time.Millisecond, "by messages")
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
					func(ctx context.Context, token int64) ([]byte, error) {
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
	bubble(t, 3, rlock.Options{}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
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

func TestOnce_LockLost_StoresNothing(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
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
