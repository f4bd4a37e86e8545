package pages_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock/election"
)

// Schedule is called by every process; work runs in one of them.
func Schedule(ctx context.Context, elections *election.Client, addr string,
	work func(ctx context.Context, token int64) error) error {
	return elections.Election("scheduler").Run(ctx, addr, func(ctx context.Context, l *election.Leadership) error {
		return work(ctx, l.Token()) // ctx ends with the leadership; then Run campaigns again
	})
}

// Where returns the address of the process that leads, "" if none does.
func Where(ctx context.Context, elections *election.Client) (string, error) {
	leader, err := elections.Election("scheduler").Leader(ctx)
	return leader.Value, err
}

// Follow calls changed after every change of the leader, until ctx ends.
func Follow(ctx context.Context, elections *election.Client, changed func(addr string)) error {
	for leader, err := range elections.Election("scheduler").Observe(ctx) {
		if err != nil {
			return err // at the end of ctx its cause
		}
		changed(leader.Value)
	}
	return nil
}

// Work has a part of the shards of a queue, as large as that of every other worker.
func Work(ctx context.Context, elections *election.Client, host string,
	consume func(ctx context.Context, shard int, token int64) error) error {
	return elections.Shards("queue", 64).Run(ctx, host, func(ctx context.Context, s *election.Shard) error {
		return consume(ctx, s.Index(), s.Token()) // ctx ends when the shard is to move, or is lost
	})
}

// WorkerID returns the number of this process in Snowflake ids. It must not be used after its Context has ended.
func WorkerID(ctx context.Context, elections *election.Client, host string) (*election.Shard, error) {
	return elections.Shards("snowflake", 1024).Slot(ctx, host)
}

func TestWork_TwoHosts_IsDividedEvenlyUnderDifferentNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		has := map[string]int{}
		ended := make(chan error, 2)
		numbers := map[int]bool{}
		for _, host := range []string{"a", "b"} {
			elections := srv.Open().Elections()
			go func() {
				ended <- Work(ctx, elections, host, func(ctx context.Context, _ int, _ int64) error {
					mu.Lock()
					has[host]++
					mu.Unlock()
					<-ctx.Done()
					return nil
				})
			}()
			slot := redistest.NoError(WorkerID(ctx, elections, host))(t)
			defer slot.Release(context.Background())
			numbers[slot.Index()] = true
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		require.Equal(t, map[string]int{"a": 32, "b": 32}, has)
		mu.Unlock()
		require.Len(t, numbers, 2)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

func TestSchedule_LeadersFollowEachOther_OthersKnowWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		here, there := srv.Open().Elections(), srv.Open().Elections()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var told []string
		followed := make(chan struct{})
		go func() {
			Follow(ctx, there, func(addr string) { told = append(told, addr) })
			close(followed)
		}()
		var before int64
		for _, addr := range []string{"10.0.0.7:80", "10.0.0.8:80"} {
			require.NoError(t, Schedule(ctx, here, addr, func(_ context.Context, token int64) error {
				require.Greater(t, token, before)
				before = token
				where := redistest.NoError(Where(ctx, there))(t)
				require.Equal(t, addr, where)
				time.Sleep(5 * time.Second) // an observer may miss a leader that goes at once
				return nil
			}))
		}
		cancel()
		<-followed
		require.Subset(t, told, []string{"10.0.0.7:80", "10.0.0.8:80"})
	})
}
