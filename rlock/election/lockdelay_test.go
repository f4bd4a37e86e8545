package election_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock/election"
)

// The candidate waits all the time, and follows three heartbeats and the delay after the last one.
func TestALeaderThatWasLostIsFollowedAfterTheLockDelay(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		const delay, beat = 5 * time.Second, 400 * time.Millisecond
		o := election.Options{LockDelay: delay, Heartbeat: beat, CallTimeout: 100 * time.Millisecond}
		p := redistest.NewProxy(t, servers[0])
		leads, follows := start(t, p.Server(), o), start(t, servers[0], o)
		l := elect(t, leads.elections.Election("boss"), "first")
		next := make(chan *election.Leadership, 1)
		elected := make(chan time.Time, 1)
		go func() {
			l, err := follows.elections.Election("boss").Campaign(within(t), "second")
			if err != nil {
				t.Error(err)
			}
			elected <- time.Now()
			next <- l
		}()
		time.Sleep(5 * beat)
		p.BlackHole(redistest.Up)
		p.BlackHole(redistest.Down)
		<-l.Done()
		lost := time.Now()
		require.ErrorIs(t, l.Err(), errs.ErrLost)
		p.Heal()
		require.ErrorIs(t, l.Resign(within(t)), errs.ErrLost)
		at, second := <-elected, <-next
		require.NoError(t, second.Resign(within(t)))
		require.Greater(t, second.Token(), l.Token())
		require.WithinRange(t, at, lost.Add(delay), lost.Add(delay+4*beat))
	})
}

func TestALockDelayThatHeartbeatsCannotSayIsRefused(t *testing.T) {
	p := start(t, redistest.Embedded(t), patient)
	_, err := election.New(p.hub, election.Options{LockDelay: 38 * time.Second})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "LockDelay is 38s, must be at most 37.95s with Liveness")
}
