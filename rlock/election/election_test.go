package election_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock/election"
)

func TestLeader_Elected_IsShownUntilItResigns(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		p, other := start(t, s, patient), start(t, s, patient)
		e := p.elections.Election("boss")
		require.Equal(t, "boss", e.Name())
		leader := redistest.NoError(e.Leader(within(t)))(t)
		require.Zero(t, leader)
		require.False(t, leader.Elected())

		const value = "10.0.0.7:8080 %20 {ä}:write"
		l := elect(t, e, value)
		for _, x := range []*process{p, other} {
			leader = redistest.NoError(x.elections.Election("boss").Leader(within(t)))(t)
			require.Equal(t, value, leader.Value)
			require.Equal(t, l.Token(), leader.Token)
			require.True(t, lease.Ours(string(leader.Owner)))
		}
		require.Positive(t, l.Token())
		require.NoError(t, l.Err())
		ctx := l.Context(within(t))
		require.NoError(t, l.Resign(within(t)))
		require.NoError(t, l.Resign(within(t)), "again")
		<-l.Done()
		require.ErrorIs(t, context.Cause(ctx), errs.ErrReleased)
		leader = redistest.NoError(other.elections.Election("boss").Leader(within(t)))(t)
		require.Zero(t, leader)
		for _, key := range rig.Keys(t, p.redis) {
			require.False(t, strings.HasPrefix(key, "redlatch_leader:"), key)
		}
		rig.RequireEnds(t, p.redis)

		again := elect(t, other.elections.Election("boss"), "")
		require.Greater(t, again.Token(), l.Token())
		leader = redistest.NoError(e.Leader(within(t)))(t)
		require.True(t, leader.Elected(), "a value may be empty")
		require.NoError(t, again.Resign(within(t)))
	})
}

func TestObserve_Messages_ArriveBeforeAnyPoll(t *testing.T) {
	t.Parallel()
	o := patient
	o.PollCap = 10 * time.Second // and the clock of the bubble says who waited for that
	bubble(t, 3, o, func(t *testing.T, _ *redistest.Server, all []*process) {
		told := observe(t, all[2].elections.Election("boss").Observe(t.Context()))
		require.Zero(t, news(t, told), "nobody leads yet, and that is told first")
		synctest.Wait() // subscribed
		at := time.Now()
		l := elect(t, all[0].elections.Election("boss"), "ann")
		require.Equal(t, "ann", news(t, told).Value)
		next := make(chan *election.Leadership, 1)
		go func() { next <- elect(t, all[1].elections.Election("boss"), "bob") }()
		synctest.Wait()
		require.NoError(t, l.Resign(t.Context()))
		hear(t, told, "bob", called("bob"))
		require.NoError(t, (<-next).Resign(t.Context()))
		require.Zero(t, news(t, told))
		require.Less(t, time.Since(at), time.Second, "no look was waited for")
	})
}

func TestObserve_MessageMissed_SeesItAtTheNextLook(t *testing.T) {
	t.Parallel()
	o := patient
	o.PollCap = 5 * time.Second
	bubble(t, 2, o, func(t *testing.T, s *redistest.Server, all []*process) {
		told := observe(t, all[1].elections.Election("boss").Observe(t.Context()))
		news(t, told)
		l := elect(t, all[0].elections.Election("boss"), "ann")
		require.Equal(t, "ann", news(t, told).Value)
		synctest.Wait() // the observer sleeps
		at := time.Now()
		s.Embedded.Del("boss") // nobody publishes that
		require.Zero(t, news(t, told))
		require.LessOrEqual(t, time.Since(at), o.PollCap)
		require.NotZero(t, time.Since(at))
		require.ErrorIs(t, l.Resign(t.Context()), errs.ErrLost)
	})
}

func TestClose_ObserverCannotLook_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	bubble(t, 1, patient, func(t *testing.T, s *redistest.Server, all []*process) {
		told := observe(t, all[0].elections.Election("boss").Observe(t.Context()))
		news(t, told)
		require.NoError(t, s.Embedded.Set("redlatch_leader:{boss}", "no hash"))
		time.Sleep(5 * time.Second)
		_, err := all[0].elections.Election("boss").Leader(t.Context())
		require.ErrorIs(t, err, errs.ErrWrongType)
		synctest.Wait() // the observer, which has seen that, pauses
		const patience = 20 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		at := time.Now()
		require.NoError(t, all[0].elections.Close(ctx))
		require.LessOrEqual(t, time.Since(at), patience)
		_, open := <-told
		require.False(t, open)
	})
}

func TestObserve_CtxOrHubEnds_SaysWhy(t *testing.T) {
	t.Parallel()
	o := patient
	o.PollCap = 10 * time.Second
	bubble(t, 1, o, func(t *testing.T, _ *redistest.Server, all []*process) {
		e := all[0].elections.Election("boss")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		why := errors.New("seen enough")
		go func() {
			time.Sleep(10 * time.Minute)
			cancel(why)
		}()
		turns := 0
		for leader, err := range e.Observe(ctx) {
			require.Zero(t, leader)
			if turns++; turns == 1 {
				require.NoError(t, err)
			} else {
				require.Equal(t, "election: seen enough", err.Error())
				require.ErrorIs(t, err, why)
			}
		}
		require.Equal(t, 2, turns)

		go func() {
			time.Sleep(10 * time.Minute)
			all[0].hub.Close(t.Context())
		}()
		require.ErrorIs(t, failure(e.Observe(t.Context())), errs.ErrClosed)
	})
}

func TestLeader_AnnouncementDeleted_IsMadeAgain(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	o := patient
	o.Heartbeat = time.Second
	bubble(t, 2, o, func(t *testing.T, s *redistest.Server, all []*process) {
		e := all[0].elections.Election("boss")
		l := elect(t, e, "ann")
		s.Embedded.Del("redlatch_leader:{boss}")
		leader := redistest.NoError(e.Leader(t.Context()))(t)
		require.Zero(t, leader)
		time.Sleep(o.WatchdogTimeout/3 + time.Second)
		leader = redistest.NoError(all[1].elections.Election("boss").Leader(t.Context()))(t)
		require.Equal(t, election.Leader{Value: "ann", Token: l.Token(), Owner: leader.Owner}, leader)
		time.Sleep(3 * o.WatchdogTimeout)
		leader = redistest.NoError(e.Leader(t.Context()))(t)
		require.Equal(t, l.Token(), leader.Token, "a leader is shown for as long as it leads")
		require.NoError(t, l.Resign(t.Context()))
		time.Sleep(o.WatchdogTimeout)
		for _, key := range s.Embedded.Keys() {
			require.NotContains(t, key, "redlatch_leader", "and is not announced any more")
		}
	})
}

func TestLeader_AnnouncementLost_LeadsAndTriesAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var lost atomic.Bool
	c := rig.NewLossy(t, s, func() bool { return lost.Load() })
	o := patient
	other := start(t, s, o)
	told := observe(t, other.elections.Election("boss").Observe(within(t)))
	require.Zero(t, news(t, told))
	// The reply is lost of whatever this client sends once it has the lock.
	o.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
		if e.Kind == redlatch.EventAcquired {
			lost.Store(true)
		}
		return ctx
	}
	p := on(t, c, o)
	l := elect(t, p.elections.Election("boss"), "ann")
	require.NoError(t, l.Err())
	lost.Store(false)
	require.Equal(t, l.Token(), hear(t, told, "ann", called("ann")).Token)
	require.NoError(t, l.Resign(within(t)))
}

func TestCampaign_LeadsAlready_WaitsLikeOthers(t *testing.T) {
	t.Parallel()
	bubble(t, 1, patient, func(t *testing.T, _ *redistest.Server, all []*process) {
		e := all[0].elections.Election("boss")
		l := elect(t, e, "ann")
		ctx, cancel := context.WithTimeout(l.Context(t.Context()), time.Second)
		defer cancel()
		_, err := e.Campaign(ctx, "ann again")
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.NoError(t, l.Err())
		require.NoError(t, l.Resign(t.Context()))
	})
}

func TestObserve_SlowLoop_HearsTheLatest(t *testing.T) {
	t.Parallel()
	bubble(t, 2, patient, func(t *testing.T, _ *redistest.Server, all []*process) {
		e := all[0].elections.Election("boss")
		var l *election.Leadership
		for leader, err := range all[1].elections.Election("boss").Observe(t.Context()) {
			require.NoError(t, err)
			if l != nil {
				require.Equal(t, "bob", leader.Value)
				break
			}
			require.Zero(t, leader)
			for range 5 {
				require.NoError(t, elect(t, e, "ann").Resign(t.Context()))
			}
			l = elect(t, e, "bob")
		}
		require.NoError(t, l.Resign(t.Context()))
	})
}

func TestClose_WhileObserved_EndsTheLoop(t *testing.T) {
	t.Parallel()
	bubble(t, 2, patient, func(t *testing.T, _ *redistest.Server, all []*process) {
		e := all[0].elections.Election("boss")
		told := observe(t, e.Observe(t.Context()))
		ended, cancel := context.WithCancel(t.Context())
		other := observe(t, all[1].elections.Election("boss").Observe(ended))
		cancel()
		for range other {
		}
		require.NoError(t, all[0].elections.Close(t.Context()))
		for range told {
		}
		require.ErrorIs(t, failure(e.Observe(t.Context())), errs.ErrClosed)
	})
}

func TestElection_KeyOfAnotherType_IsWrongType(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		p := start(t, s, patient)
		for name, value := range map[string][]string{
			"a list":           {"RPUSH", "redlatch_leader:{a list}", "x"},
			"no announcement":  {"SET", "redlatch_leader:{no announcement}", "hello"},
			"no token in it":   {"SET", "redlatch_leader:{no token in it}", "0 somebody"},
			"{braces} and one": {"RPUSH", "redlatch_leader:{braces} and one", "x"},
		} {
			rig.Must(t, p.redis, value...)
			_, err := p.elections.Election(name).Leader(within(t))
			require.ErrorIs(t, err, errs.ErrWrongType, name)
		}
		_, err := p.elections.Election("a list").Campaign(within(t), "ann")
		require.ErrorIs(t, err, errs.ErrWrongType)
		require.EqualValues(t, 0, rig.Number(t, p.redis, "EXISTS", "a list"), "the lock was given back")
	})
}

func user(name string) func(*rueidis.ClientOption) {
	return func(o *rueidis.ClientOption) { o.Username, o.Password = name, "any" }
}

func TestObserve_PubSubDenied_Polls(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	root := s.Client(t)
	rig.Must(t, root, "ACL", "SETUSER", "deaf", "on", "nopass", "~*", "resetchannels", "+@all")
	rig.Must(t, root, "ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-publish")
	for _, name := range []string{"deaf", "mute"} {
		t.Run(name, func(t *testing.T) {
			p, other := start(t, s, patient, user(name)), start(t, s, patient, user(name))
			told := observe(t, other.elections.Election(name).Observe(within(t)))
			require.Zero(t, news(t, told))
			for range 2 {
				l := elect(t, p.elections.Election(name), "ann")
				require.Equal(t, l.Token(), hear(t, told, "ann", called("ann")).Token)
				require.NoError(t, l.Resign(within(t)))
				hear(t, told, "nobody", nobody)
			}
		})
	}
}

func TestCampaign_MayNotAnnounce_IsNotElected(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	root := s.Client(t)
	rig.Must(t, root, "ACL", "SETUSER", "modest", "on", "nopass", "~boss", "~redlatch_queue:*", "~redisson_lock_token:*",
		"~redlatch_alive:*", "&*", "+@all")
	p, other := start(t, s, patient, user("modest")), start(t, s, patient)
	e := p.elections.Election("boss")
	_, err := e.Campaign(within(t), "ann")
	require.ErrorIs(t, err, errs.ErrDenied)
	require.ErrorIs(t, e.Run(within(t), "ann", nil), errs.ErrDenied)
	_, err = e.Leader(within(t))
	require.ErrorIs(t, err, errs.ErrDenied)
	require.ErrorIs(t, failure(e.Observe(within(t))), errs.ErrDenied)
	require.NoError(t, elect(t, other.elections.Election("boss"), "bob").Resign(within(t)), "the lock was given back")
}

// An observer that may not look any more says so in the log, tells nothing, and goes on when it may again.
func TestObserve_RightTakenAway_GoesOnWhenItIsBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	root := s.Client(t)
	rig.Must(t, root, "ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all")
	p, leader := start(t, s, patient, user("app")), start(t, s, patient)
	told := observe(t, p.elections.Election("boss").Observe(within(t)))
	require.Zero(t, news(t, told))
	rig.Must(t, root, "ACL", "SETUSER", "app", "-get")
	l := elect(t, leader.elections.Election("boss"), "ann")
	_, err := p.elections.Election("boss").Leader(within(t))
	require.ErrorIs(t, err, errs.ErrDenied)
	require.Empty(t, told)
	rig.Must(t, root, "ACL", "SETUSER", "app", "+get")
	require.Equal(t, l.Token(), hear(t, told, "ann", called("ann")).Token)
	require.NoError(t, l.Resign(within(t)))
}
