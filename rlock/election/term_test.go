package election_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock/election"
)

func TestALeaderChangesItsValueAndKeepsItsToken(t *testing.T) {
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
			leader, err := other.elections.Election("boss").Leader(within(t))
			require.NoError(t, err)
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

func TestAValueIsKeptWhenTheAnnouncementIsMadeAgain(t *testing.T) {
	t.Parallel()
	o := election.Options{RetryTimeout: 500 * time.Millisecond} // an outage of three heartbeats would end the leadership
	bubble(t, 2, o, func(t *testing.T, s *redistest.Server, all []*process) {
		e := all[1].elections.Election("boss")
		l := elect(t, all[0].elections.Election("boss"), "ann")
		require.NoError(t, l.Proclaim(t.Context(), "ready"))
		time.Sleep(time.Minute)
		leader, err := e.Leader(t.Context())
		require.NoError(t, err)
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

func TestAFormerLeaderProclaimsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, 2, election.Options{}, func(t *testing.T, s *redistest.Server, all []*process) {
		l := elect(t, all[0].elections.Election("boss"), "ann")
		s.Embedded.Del("boss") // which the leader does not know yet
		next := elect(t, all[1].elections.Election("boss"), "bob")
		require.ErrorIs(t, l.Proclaim(t.Context(), "still ann"), errs.ErrLost)
		leader, err := all[0].elections.Election("boss").Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, "bob", leader.Value)
		require.ErrorIs(t, l.Resign(t.Context()), errs.ErrLost)
		require.NoError(t, next.Resign(t.Context()))
	})
}

// terms runs Run in a process, and says who leads. It fails if two lead at a time.
type terms struct {
	now chan string // who leads; with room
	one chan struct{}
}

func newTerms() *terms { return &terms{make(chan string, 1000), make(chan struct{}, 1)} }

// run campaigns until ctx ends. Its work takes a moment to stop.
func (x *terms) run(ctx context.Context, t *testing.T, e *election.Election, name string) (ended <-chan struct{}) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = e.Run(ctx, name, func(ctx context.Context, _ *election.Leadership) error {
			select {
			case x.one <- struct{}{}:
			default:
				t.Error("two leaders at a time")
				return nil
			}
			x.now <- name
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond)
			<-x.one
			return ctx.Err()
		})
	}()
	return over
}

func TestAPreferredCandidateIsHandedTheLeadership(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	bubble(t, 4, election.Options{}, func(t *testing.T, _ *redistest.Server, all []*process) {
		x := newTerms()
		ctx, cancel := context.WithCancel(t.Context())
		for i, name := range []string{"ann", "bob", "cid"} {
			defer func(ended <-chan struct{}) { <-ended }(x.run(ctx, t, all[i].elections.Election("boss"), name))
			synctest.Wait()
		}
		defer cancel()
		require.Equal(t, "ann", <-x.now)
		time.Sleep(20 * time.Second)
		require.Empty(t, x.now)
		at := time.Now()
		dear, leave := context.WithCancel(ctx)
		ended := x.run(dear, t, all[3].elections.Election("boss").WithPriority(5), "dan")
		require.Equal(t, "dan", <-x.now, "bob and cid came before, and never lead")
		require.Greater(t, time.Since(at), 3*time.Second, "it has to stand for that long")
		require.Less(t, time.Since(at), 5*time.Second)
		time.Sleep(20 * time.Second)
		require.Empty(t, x.now, "it stays")
		leave()
		<-ended
		require.Contains(t, []string{"ann", "bob", "cid"}, <-x.now)
		time.Sleep(20 * time.Second)
		require.Empty(t, x.now)
	})
}

// A preferred candidate that restarts again and again takes the leadership at most once in three heartbeats, and one
// that does not last for three never does.
func TestPreferredCandidatesThatComeAndGoMoveLittle(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for _, lives := range []time.Duration{2 * time.Second, 3 * time.Second, 6 * time.Second} {
		bubble(t, 2, election.Options{}, func(t *testing.T, _ *redistest.Server, all []*process) {
			x := newTerms()
			ctx, cancel := context.WithCancel(t.Context())
			defer func(ended <-chan struct{}) { <-ended }(x.run(ctx, t, all[0].elections.Election("boss"), "ann"))
			defer cancel()
			require.Equal(t, "ann", <-x.now)
			const times = 5
			for range times {
				dear, leave := context.WithTimeout(ctx, lives)
				<-x.run(dear, t, all[1].elections.Election("boss").WithPriority(1), "dan")
				leave()
			}
			time.Sleep(10 * time.Second)
			if lives <= 3*time.Second {
				require.Empty(t, x.now, "%v", lives)
			} else {
				require.LessOrEqual(t, len(x.now), 2*times)
				require.GreaterOrEqual(t, len(x.now), times)
			}
		})
	}
}

// A preferred candidate that died while it waited is believed for three heartbeats, and takes no leader's place.
func TestACrashedPreferredCandidateHoldsElectionsUpBriefly(t *testing.T) {
	t.Parallel()
	bubble(t, 1, election.Options{}, func(t *testing.T, s *redistest.Server, all []*process) {
		now := time.Now().UnixMilli()
		s.Embedded.HSet("redlatch_requests:{boss}", "gone:1", fmt.Sprintf("7 %d %d", now, now+3000))
		at := time.Now()
		l := elect(t, all[0].elections.Election("boss"), "ann")
		require.Greater(t, time.Since(at), 2*time.Second)
		require.Less(t, time.Since(at), 5*time.Second)
		time.Sleep(time.Minute)
		select {
		case <-l.HandOver():
			require.Fail(t, "it was asked to hand over")
		default:
		}
		require.NoError(t, l.Resign(t.Context()))
	})
}

func TestADrainedLeaderRestsWhileAnotherLeads(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	bubble(t, 3, election.Options{}, func(t *testing.T, _ *redistest.Server, all []*process) {
		x := newTerms()
		ctx, cancel := context.WithCancel(t.Context())
		dear := all[0].elections.Election("boss").WithPriority(1) // it comes back when it may
		defer func(ended <-chan struct{}) { <-ended }(x.run(ctx, t, dear, "ann"))
		require.Equal(t, "ann", <-x.now)
		defer func(ended <-chan struct{}) { <-ended }(x.run(ctx, t, all[1].elections.Election("boss"), "bob"))
		defer cancel()
		e := all[2].elections.Election("boss")
		require.NoError(t, e.Drain(t.Context(), time.Minute))
		leader, err := e.Leader(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, "ann", leader.Value)
		at := time.Now()
		require.Equal(t, "bob", <-x.now)
		require.Equal(t, "ann", <-x.now)
		require.InDelta(t, time.Minute, time.Since(at), float64(10*time.Second))
		time.Sleep(time.Minute)
		require.Empty(t, x.now, "the request was for one leader")
	})
}

func TestDrainReportsALeaderThatDoesNotStop(t *testing.T) {
	t.Parallel()
	bubble(t, 2, election.Options{}, func(t *testing.T, _ *redistest.Server, all []*process) {
		e := all[1].elections.Election("boss")
		require.NoError(t, e.Drain(t.Context(), 0), "none leads")
		require.ErrorIs(t, e.Drain(t.Context(), -1), errs.ErrInvalidOption)
		l := elect(t, all[0].elections.Election("boss"), "ann")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, e.Drain(ctx, time.Minute), context.DeadlineExceeded)
		<-l.HandOver()
		require.NoError(t, l.Err(), "who campaigned resigns")
		require.NoError(t, l.Proclaim(t.Context(), "stopping")) // which is no end of it
		go func() {
			time.Sleep(time.Second)
			l.Resign(context.Background())
		}()
		require.NoError(t, e.Drain(t.Context(), 0))

		at := time.Now() // a rest of a minute, since ten seconds ago
		again := elect(t, all[0].elections.Election("boss"), "ann")
		require.Greater(t, time.Since(at), 40*time.Second)
		require.NoError(t, again.Resign(t.Context()))
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		again = elect(t, all[0].elections.Election("boss"), "ann")
		require.ErrorIs(t, e.Drain(soon, time.Hour), context.DeadlineExceeded)
		<-again.HandOver()
		require.NoError(t, again.Resign(t.Context()))
		soon, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := all[0].elections.Election("boss").Campaign(soon, "ann")
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		resting := make(chan error, 1)
		go func() {
			_, err := all[0].elections.Election("boss").Campaign(context.Background(), "ann")
			resting <- err
		}()
		synctest.Wait()
		require.NoError(t, all[0].elections.Close(t.Context()))
		require.ErrorIs(t, <-resting, errs.ErrClosed)
	})
}

func TestPrioritiesOutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	p := start(t, s, patient)
	before := s.Embedded.CommandCount()
	_, err := p.elections.Election("boss").WithPriority(-1).Campaign(t.Context(), "ann")
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "election: invalid option: priority is -1")
	require.Equal(t, before, s.Embedded.CommandCount())
}

// Without the right to the requests an election works as one without priorities; a preferred candidate is refused.
func TestWhoMayNotReadRequestsLeadsWithoutThem(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	root := s.Client(t)
	rig.Must(t, root, "ACL", "SETUSER", "plain", "on", "nopass", "~boss", "~redlatch_queue:*", "~redisson_lock_token:*",
		"~redlatch_alive:*", "~redlatch_leader:*", "&*", "+@all")
	p := start(t, s, patient, user("plain"))
	l := elect(t, p.elections.Election("boss"), "ann")
	require.NoError(t, l.Resign(within(t)))
	_, err := p.elections.Election("boss").WithPriority(1).Campaign(within(t), "ann")
	require.ErrorIs(t, err, errs.ErrDenied)
}
