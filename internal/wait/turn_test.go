package wait_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/wait"
)

func TestTurnsSpreadManyContendersAndNotAFew(t *testing.T) {
	few := wait.NewTurns(2, time.Millisecond)
	for range 1000 {
		require.Zero(t, few.Draw(), "two ask at once")
	}
	many, atOnce := wait.NewTurns(40, time.Millisecond), 0
	for range 10_000 {
		d := many.Draw()
		require.LessOrEqual(t, d, 128*time.Millisecond, "an idle lock is found")
		if d == 0 {
			atOnce++
		}
	}
	require.Greater(t, atOnce, 100, "2 of 40 are to ask at once")
	require.Less(t, atOnce, 1500)
}

func TestTheGuessOfContendersFollowsTheAnswers(t *testing.T) {
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
