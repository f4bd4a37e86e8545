package wait_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/wait"
)

func TestTurns_Answers_MoveTheGuess(t *testing.T) {
	x := wait.NewTurns(0, 0)
	x.Refused(40)
	require.Equal(t, 1.0, x.Guess(), "a request that followed no message says nothing")
	for range 20 { // refused at once, again and again
		x.Heard(0)
		x.Refused(40)
	}
	require.Equal(t, 40.0, x.Guess(), "no more than listen")
	x.Refused(5)
	require.Equal(t, 5.0, x.Guess())
	require.Equal(t, 5.0, x.Learned(true), "granted without a message: nothing was learned")
	x.Heard(0)
	require.Equal(t, 5.0, x.Learned(false), "gave up")
	require.Less(t, x.Learned(true), 5.0, "granted at once")
	before := x.Guess()
	x.Heard(3)
	require.Less(t, x.Learned(true), before/2, "nobody else wanted it for a while")
}

func TestTurns_JustReleased_HasATurnLikeWaiters(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		acquire := func(contenders float64, patience time.Duration) time.Duration {
			r.taken.Store(false)
			r.SetGuess("l", contenders, time.Millisecond)
			r.BackOff("l")
			request := r.request()
			request.Name = "l"
			if patience > 0 {
				request.Until = time.Now().Add(patience)
			}
			before, began := r.tries.Load(), time.Now()
			require.NoError(t, r.Wait(t.Context(), request))
			require.EqualValues(t, 1, r.tries.Load()-before, "nobody else wants it")
			return time.Since(began)
		}
		late := 0
		for range 200 {
			d := acquire(40, 0)
			require.LessOrEqual(t, d, 128*time.Millisecond, "a lock that nobody takes is not idle for longer")
			if d > 0 {
				late++
			}
			require.Zero(t, acquire(2, 0), "two ask at once")
			require.LessOrEqual(t, acquire(40, time.Microsecond), time.Microsecond, "no longer than it may wait, and then once")
		}
		require.Greater(t, late, 100, "19 of 20 have a later turn")

		for range 50 {
			r.taken.Store(false)
			r.SetGuess("l", 40, time.Millisecond)
			request := r.request()
			request.Name = "l"
			began := time.Now()
			require.NoError(t, r.Wait(t.Context(), request))
			require.Zero(t, time.Since(began), "it has released nothing")

			r.taken.Store(false)
			r.SetGuess("l", 40, time.Millisecond)
			r.BackOff("l")
			time.Sleep(time.Second)
			began = time.Now()
			require.NoError(t, r.Wait(t.Context(), request))
			require.Zero(t, time.Since(began), "that was long ago")
		}
	})
}

// One that was alone at last, after many had contended, is soon as quick as if they had never been.
func TestTurns_OldGuess_IsForgotten(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.SetGuess("l", 200, time.Millisecond)
		request := r.request()
		request.Name = "l"
		began := time.Now()
		for range 20 {
			r.taken.Store(false)
			require.NoError(t, r.Wait(t.Context(), request))
			r.BackOff("l")
		}
		require.Less(t, time.Since(began), time.Second)
		began = time.Now()
		for range 20 {
			r.taken.Store(false)
			require.NoError(t, r.Wait(t.Context(), request))
			r.BackOff("l")
		}
		require.Zero(t, time.Since(began))
	})
}

func TestTurns_SharedWakeUp_HasATurn(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		late := 0
		for range 200 {
			r.SetGuess("q", 40, time.Millisecond)
			var asked []time.Time
			request := wait.Request{Name: "q", DrawsTurn: true, Backoff: func(int) time.Duration { return 10 * time.Second }}
			request.Try = func(context.Context) (wait.Answer, error) {
				asked = append(asked, time.Now())
				return wait.Answer{Granted: len(asked) > 1, Left: -1, Contenders: 40}, nil
			}
			done := make(chan error, 1)
			go func() { done <- r.Wait(t.Context(), request) }()
			synctest.Wait()
			woken := time.Now()
			r.Wake("q")
			require.NoError(t, <-done)
			require.Len(t, asked, 2)
			if d := asked[1].Sub(woken); d > 0 {
				late++
				require.LessOrEqual(t, d, 128*time.Millisecond)
			}
		}
		require.Greater(t, late, 100)
	})
}
