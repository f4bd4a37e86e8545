package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock/election"
)

func TestRun_TermEnds_CampaignsAgainWhenItsWorkHasReturned(t *testing.T) {
	t.Parallel()
	bubble(t, 2, election.Options{MaxHold: 10 * time.Minute}, func(t *testing.T, s *redistest.Server, all []*process) {
		told := observe(t, all[1].elections.Election("boss").Observe(t.Context()))
		require.Zero(t, news(t, told))
		inside, done := 0, errors.New("done")
		var tokens []int64
		err := all[0].elections.Election("boss").Run(t.Context(), "ann",
			func(ctx context.Context, l *election.Leadership) error {
				inside++
				defer func() { inside-- }()
				require.Equal(t, 1, inside)
				require.NoError(t, ctx.Err())
				require.Positive(t, time.Until(l.Until()))
				require.Equal(t, l.Token(), hear(t, told, "ann", called("ann")).Token)
				tokens = append(tokens, l.Token())
				why := errs.ErrMaxHold
				switch len(tokens) {
				case 1:
					why = errs.ErrLost
					s.Embedded.Del("boss")
				case 3:
					return done
				}
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), why)
				require.ErrorIs(t, l.Err(), why)
				time.Sleep(time.Minute) // it takes its time to stop
				require.Zero(t, hear(t, told, "nobody", nobody))
				return ctx.Err()
			})
		require.Equal(t, done, err, "what it returned in the last term")
		require.Len(t, tokens, 3)
		require.IsIncreasing(t, tokens)
		require.Zero(t, hear(t, told, "nobody", nobody))
	})
}

func TestRun_CtxOrClientEnds_SaysWhy(t *testing.T) {
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

func TestRun_ServerCannotBeAsked_TriesAgain(t *testing.T) {
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

func TestLeader_CrashedAlone_IsShownForItsLease(t *testing.T) {
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
