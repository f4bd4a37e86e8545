package wait_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/wait"
)

// asker is a Taker whose every call is answered by a grant.
type asker struct{ owner string }

func (a *asker) Stand(push bool) wait.Standing {
	return wait.Standing{Owner: a.owner, Entry: a.owner, Lease: time.Second, Push: push}
}

func (a *asker) Ask(context.Context, *wait.Standing) (wait.Answer, error) {
	time.Sleep(time.Millisecond)
	return wait.Answer{Granted: true, Sent: time.Now()}, nil
}

func (a *asker) Taken(wait.Grant) bool { return true }
func (a *asker) Owe(time.Time)         {}

// On a slow network the waiter that a release names asks before the answer to that release is there, and hears from
// the server that it is the holder. That was its process's turn like any other.
func TestATurnThatIsHeardOfByAskingIsCounted(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		held := make(chan error)
		enter := func(n int) {
			go func() {
				held <- r.Wait(context.Background(), wait.Request{
					Name: "n", Channel: "c", Grants: "g", Taker: &asker{owner: strconv.Itoa(n)},
				})
			}()
		}
		const members = 3
		for n := range members {
			enter(n)
			synctest.Wait()
		}
		require.NoError(t, <-held)
		turns := 0
		for n := members; ; n++ {
			require.Less(t, n, 100, "the others, who queue on the server, are never served")
			enter(n)
			synctest.Wait()
			sent := time.Now()
			o := r.Offer("n", sent.Add(time.Second))
			require.NotNil(t, o)
			require.NoError(t, <-held)
			if !o.Turn {
				break
			}
			turns++
			o.Granted(sent) // too late
		}
		require.Positive(t, turns)
		require.LessOrEqual(t, turns, members)
		for range members - 1 {
			r.Nudge("n")
			require.NoError(t, <-held)
		}
	})
}
