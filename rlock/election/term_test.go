package election_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock/election"
)

func TestProclaim_Leader_ChangesItsValueAndKeepsItsToken(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		p, other := start(t, s, patient), start(t, s, patient)
		l := elect(t, p.elections.Election("boss"), "ann")
		told := observe(t, other.elections.Election("boss").Observe(within(t)))
		first := news(t, told)
		for _, value := range []string{"10.0.0.7:8080 is ready", "", " {ä} 7 x "} {
			require.NoError(t, l.Proclaim(within(t), value))
			require.Equal(t, election.Leader{Value: value, Token: l.Token(), Owner: first.Owner}, news(t, told))
			leader := redistest.NoError(other.elections.Election("boss").Leader(within(t)))(t)
			require.Equal(t, value, leader.Value)
		}
		for _, bad := range []string{strings.Repeat("x", 257), "\xff"} {
			require.ErrorIs(t, l.Proclaim(within(t), bad), errs.ErrInvalidOption)
		}
		require.NoError(t, l.Resign(within(t)))
		require.Zero(t, news(t, told))
		err := l.Proclaim(within(t), "late")
		require.ErrorIs(t, err, errs.ErrReleased)
		require.True(t, strings.HasPrefix(err.Error(), "election: "), err)
		for _, key := range rig.Keys(t, p.redis) {
			require.False(t, strings.HasPrefix(key, "redlatch_leader:"), key)
		}
		next := elect(t, other.elections.Election("boss"), "bob")
		require.Equal(t, "bob", news(t, told).Value)
		require.NoError(t, next.Resign(within(t)))
	})
}

func TestProclaim_AnnouncedAgain_KeepsTheValue(t *testing.T) {
	t.Parallel()
	o := election.Options{RetryTimeout: 500 * time.Millisecond} // an outage of three heartbeats would end the leadership
	bubble(t, 2, o, func(t *testing.T, s *redistest.Server, all []*process) {
		e := all[1].elections.Election("boss")
		l := elect(t, all[0].elections.Election("boss"), "ann")
		require.NoError(t, l.Proclaim(t.Context(), "ready"))
		time.Sleep(time.Minute)
		leader := redistest.NoError(e.Leader(t.Context()))(t)
		require.Equal(t, "ready", leader.Value)

		s.Embedded.SetError("LOADING Redis is loading the dataset in memory")
		require.ErrorIs(t, l.Proclaim(t.Context(), "busy"), errs.ErrUnavailable)
		s.Embedded.SetError("")
		at := time.Now()
		told := observe(t, e.Observe(t.Context()))
		hear(t, told, "the value that was not confirmed", called("busy"))
		require.Less(t, time.Since(at), 2*time.Second, "the next announcement was not waited for")
		require.NoError(t, l.Resign(t.Context()))
	})
}

func TestProclaim_FormerLeader_ShowsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, 2, election.Options{}, func(t *testing.T, s *redistest.Server, all []*process) {
		l := elect(t, all[0].elections.Election("boss"), "ann")
		s.Embedded.Del("boss") // which the leader does not know yet
		next := elect(t, all[1].elections.Election("boss"), "bob")
		require.ErrorIs(t, l.Proclaim(t.Context(), "still ann"), errs.ErrLost)
		leader := redistest.NoError(all[0].elections.Election("boss").Leader(t.Context()))(t)
		require.Equal(t, "bob", leader.Value)
		require.ErrorIs(t, l.Resign(t.Context()), errs.ErrLost)
		require.NoError(t, next.Resign(t.Context()))
	})
}
