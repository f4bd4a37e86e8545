package election_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock/election"
)

// The heartbeat of living is short, and three of them are still long for a busy machine.
var living = election.Options{Heartbeat: 500 * time.Millisecond, WatchdogTimeout: 5 * time.Minute,
	CallTimeout: 10 * time.Second}

// beCandidate leads whenever it can, and says so.
func beCandidate() error {
	hub, err := pubsub.Dial(context.Background(), rueidis.ClientOption{InitAddress: []string{os.Args[1]}},
		pubsub.Options{})
	if err != nil {
		return err
	}
	elections, err := election.New(hub, living)
	if err != nil {
		return err
	}
	go elections.Election("boss").Run(context.Background(), "child",
		func(ctx context.Context, l *election.Leadership) error {
			fmt.Println("leads", l.Token())
			<-ctx.Done()
			return nil
		})
	io.Copy(io.Discard, os.Stdin)
	return nil
}

func TestTheSuccessorOfAKilledLeaderIsElectedLongBeforeTheLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := start(t, s, living)
	e := p.elections.Election("boss")
	told := observe(t, e.Observe(within(t)))
	require.Zero(t, news(t, told))
	child := redistest.Spawn(t, "candidate", s)
	var token int64
	_, err := fmt.Sscanf(child.Line(t), "leads %d", &token)
	require.NoError(t, err)
	require.Equal(t, token, hear(t, told, "child", called("child")).Token)
	won := make(chan *election.Leadership, 1)
	go func() {
		if l, err := e.Campaign(within(t), "heir"); err != nil { // a minute, of a lease of five
			t.Error(err)
		} else {
			won <- l
		}
	}()
	child.Signal(t, syscall.SIGKILL)
	at := time.Now()
	select {
	case l := <-won:
		t.Logf("elected after %.1f heartbeats", time.Since(at).Seconds()/living.Heartbeat.Seconds())
		require.Greater(t, l.Token(), token)
		require.Equal(t, l.Token(), hear(t, told, "heir", called("heir")).Token)
		require.NoError(t, l.Resign(within(t)))
		hear(t, told, "nobody", nobody)
	case <-within(t).Done():
		require.Fail(t, "no successor")
	}
}

func TestRunCampaignsAgainAfterALossAndEndsWithItsWork(t *testing.T) {
	t.Parallel()
	bubble(t, 2, election.Options{}, func(t *testing.T, s *redistest.Server, all []*process) {
		e := all[0].elections.Election("boss")
		done := errors.New("done")
		var tokens []int64
		err := e.Run(t.Context(), "ann", func(ctx context.Context, l *election.Leadership) error {
			require.NoError(t, ctx.Err())
			require.NotZero(t, time.Until(l.Until()))
			tokens = append(tokens, l.Token())
			if len(tokens) == 3 {
				return done
			}
			s.Embedded.Del("boss")
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), errs.ErrLost)
			require.ErrorIs(t, l.Err(), errs.ErrLost)
			return ctx.Err()
		})
		require.Equal(t, done, err)
		require.Len(t, tokens, 3)
		require.Less(t, tokens[0], tokens[1])
		require.Less(t, tokens[1], tokens[2])
		leader, err := e.Leader(t.Context())
		require.NoError(t, err)
		require.Zero(t, leader)
	})
}

func TestALostLeaderIsNobodyAndItsWorkEndsBeforeRunLeadsAgain(t *testing.T) {
	t.Parallel()
	bubble(t, 2, election.Options{}, func(t *testing.T, s *redistest.Server, all []*process) {
		ctx, cancel := context.WithCancel(t.Context())
		inside, ran := 0, make(chan error, 1)
		elected := make(chan struct{}, 10)
		go func() {
			ran <- all[0].elections.Election("boss").Run(ctx, "ann", func(ctx context.Context, _ *election.Leadership) error {
				inside++
				require.Equal(t, 1, inside)
				elected <- struct{}{}
				<-ctx.Done()
				time.Sleep(time.Minute) // it takes its time to stop
				inside--
				return ctx.Err()
			})
		}()
		<-elected
		told := observe(t, all[1].elections.Election("boss").Observe(t.Context()))
		require.Equal(t, "ann", news(t, told).Value)
		s.Embedded.Del("boss")
		require.Zero(t, news(t, told))
		<-elected
		require.Equal(t, "ann", news(t, told).Value)
		cancel()
		require.ErrorIs(t, <-ran, context.Canceled, "what fn returned")
		require.Zero(t, news(t, told))
	})
}

func TestRunEndsWithItsContextAndWithTheClient(t *testing.T) {
	t.Parallel()
	bubble(t, 2, election.Options{}, func(t *testing.T, _ *redistest.Server, all []*process) {
		l := elect(t, all[1].elections.Election("boss"), "bob")
		never := func(context.Context, *election.Leadership) error { panic("it was not elected") }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := all[0].elections.Election("boss").Run(ctx, "ann", never)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.NoError(t, l.Resign(t.Context()))

		ran := make(chan error, 1)
		elected := make(chan struct{})
		go func() {
			ran <- all[0].elections.Election("boss").Run(t.Context(), "ann",
				func(ctx context.Context, _ *election.Leadership) error {
					close(elected)
					<-ctx.Done()
					return nil
				})
		}()
		<-elected
		require.NoError(t, all[0].elections.Close(t.Context()))
		require.ErrorIs(t, <-ran, errs.ErrClosed)
	})
}

func TestRunOutlastsAServerThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	bubble(t, 1, election.Options{}, func(t *testing.T, s *redistest.Server, all []*process) {
		s.Embedded.SetError("LOADING Redis is loading the dataset in memory")
		go func() {
			time.Sleep(time.Minute)
			s.Embedded.SetError("")
		}()
		ran := 0
		require.NoError(t, all[0].elections.Election("boss").Run(t.Context(), "ann",
			func(context.Context, *election.Leadership) error { ran++; return nil }))
		require.Equal(t, 1, ran)
		s.Embedded.SetError("NOPERM this user has no permissions to run the 'evalsha' command")
		require.ErrorIs(t, all[0].elections.Election("boss").Run(t.Context(), "ann", nil), errs.ErrDenied)
		s.Embedded.SetError("")
	})
}

func TestAPanicOfTheWorkResigns(t *testing.T) {
	t.Parallel()
	bubble(t, 2, election.Options{MaxHold: 10 * time.Minute}, func(t *testing.T, _ *redistest.Server, all []*process) {
		require.PanicsWithValue(t, "at the work", func() {
			all[0].elections.Election("boss").Run(t.Context(), "ann", func(context.Context, *election.Leadership) error {
				panic("at the work")
			})
		})
		at := time.Now()
		e := all[1].elections.Election("boss")
		terms := 0
		require.NoError(t, e.Run(t.Context(), "bob", func(ctx context.Context, _ *election.Leadership) error {
			if terms++; terms == 2 {
				return nil
			}
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), errs.ErrMaxHold)
			return nil
		}), "after MaxHold it campaigns again")
		require.Less(t, time.Since(at), 11*time.Minute, "the panic left nothing to wait for")
	})
}

func TestACrashedLeaderIsShownUntilItsLeaseEndsIfNoneCampaigns(t *testing.T) {
	t.Parallel()
	o := election.Options{WatchdogTimeout: 30 * time.Second}
	bubble(t, 2, o, func(t *testing.T, _ *redistest.Server, all []*process) {
		l := elect(t, all[0].elections.Election("boss"), "ann")
		told := observe(t, all[1].elections.Election("boss").Observe(t.Context()))
		require.Equal(t, "ann", news(t, told).Value)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		at := time.Now()
		require.Error(t, all[0].elections.Close(ended), "it is left as it is")
		require.ErrorIs(t, l.Err(), errs.ErrClosed)
		synctest.Wait()
		require.Zero(t, news(t, told))
		require.LessOrEqual(t, time.Since(at), o.WatchdogTimeout+2*time.Second)
		l.Resign(t.Context()) // one that is dropped is another story
	})
}
