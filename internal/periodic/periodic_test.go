package periodic_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/periodic"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock/election"
)

func TestMain(m *testing.M) { redistest.Main(m, nil) }

var quiet = slog.New(slog.DiscardHandler)

// queue is what a queue remembers of the ticks of a job: each once, whoever inserts it.
type queue struct {
	mu    sync.Mutex
	down  error
	ticks map[string][]time.Time
	again int // insertions that it refused
}

func (q *queue) entry(id string, every time.Duration) periodic.Entry {
	return periodic.Entry{ID: id,
		Next: func(t time.Time) time.Time { return t.Truncate(every).Add(every) },
		Insert: func(ctx context.Context, tick time.Time) error {
			q.mu.Lock()
			defer q.mu.Unlock()
			if q.down != nil {
				return q.down
			}
			for _, t := range q.ticks[id] {
				if t.Equal(tick) {
					q.again++
					return nil
				}
			}
			q.ticks[id] = append(q.ticks[id], tick)
			return ctx.Err()
		}}
}

func (q *queue) set(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.down = err
}

// inserted returns the ticks of a job, of which each is the one before and every.
func (q *queue) inserted(t *testing.T, id string, every time.Duration) []time.Time {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, tick := range q.ticks[id] {
		if i > 0 {
			require.Equal(t, every, tick.Sub(q.ticks[id][i-1]), "tick %d at %v", i, tick)
		}
	}
	return q.ticks[id]
}

// lead is a process that campaigns in the bubble, until its stop.
func lead(t *testing.T, option rueidis.ClientOption, who string, entries func() ([]periodic.Entry, error),
	o periodic.Options) (stop func() error) {
	t.Helper()
	o.Logger = quiet
	client := redistest.NoError(rueidis.NewClient(option))(t)
	hub := redistest.NoError(pubsub.New(client, pubsub.Options{Logger: quiet}))(t)
	elections := redistest.NoError(election.New(hub, election.Options{Logger: quiet}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- periodic.Run(ctx, elections.Election("jobs"), who, entries, o) }()
	var result error
	return sync.OnceValue(func() error {
		cancel()
		result = <-ended
		over, end := context.WithTimeout(context.Background(), time.Minute)
		defer end()
		elections.Close(over)
		hub.Close(over)
		client.Close()
		return result
	})
}

func TestRun_LeaderLost_InsertsEachTickOnce(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		q := &queue{ticks: map[string][]time.Time{}}
		o := periodic.Options{CatchUp: 30 * time.Second}
		var leader atomic.Int32
		var proxies []*redistest.Proxy
		for i, who := range []string{"ann", "bob"} {
			entries := func() ([]periodic.Entry, error) { // asked for when its term begins
				leader.Store(int32(i))
				return []periodic.Entry{q.entry("a", time.Minute)}, nil
			}
			p := redistest.NewProxy(t, servers[0])
			proxies = append(proxies, p)
			stop := lead(t, p.Server().Option(), who, entries, o)
			defer stop()
		}
		began := time.Now()
		for turn := range 6 { // each time the leader is cut off, from 2.4 s before a tick to 1.6 s after it
			at := began.Add(time.Duration(turn+1)*time.Minute + time.Duration(turn-3)*800*time.Millisecond)
			time.Sleep(time.Until(at))
			p := proxies[leader.Load()]
			p.BlackHole(redistest.Up)
			time.Sleep(20 * time.Second)
			p.Heal()
		}
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, len(q.inserted(t, "a", time.Minute)), 6)
		require.Positive(t, q.again, "successors insert once more what may be missing")
	})
}

func TestRun_TickFails_IsTriedUntilTooLate(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		q := &queue{ticks: map[string][]time.Time{}}
		entries := func() ([]periodic.Entry, error) { return []periodic.Entry{q.entry("a", time.Minute)}, nil }
		stop := lead(t, servers[0].Option(), "ann", entries, periodic.Options{CatchUp: 30 * time.Second})
		defer stop()
		time.Sleep(90 * time.Second)
		before := len(q.inserted(t, "a", time.Minute))
		q.set(errors.New("down"))
		time.Sleep(45 * time.Second)
		q.set(nil)
		time.Sleep(2 * time.Second)
		after := q.inserted(t, "a", time.Minute)
		require.Len(t, after, before+1, "15 s late")
		last := after[before]

		q.set(errors.New("down"))
		time.Sleep(100 * time.Second)
		q.set(nil)
		time.Sleep(30 * time.Second)
		require.NoError(t, stop())
		require.Equal(t, 2*time.Minute, q.ticks["a"][before+1].Sub(last), "the one in between was too late")
	})
}

func TestRun_EntriesChange_AreFollowed(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		q := &queue{ticks: map[string][]time.Time{}}
		all, failure := []periodic.Entry{q.entry("a", time.Minute)}, error(nil)
		var mu sync.Mutex
		entries := func() ([]periodic.Entry, error) {
			mu.Lock()
			defer mu.Unlock()
			return all, failure
		}
		set := func(err error, now ...periodic.Entry) {
			mu.Lock()
			defer mu.Unlock()
			all, failure = now, err
		}
		stop := lead(t, servers[0].Option(), "ann", entries, periodic.Options{Sync: 10 * time.Second})
		defer stop()
		time.Sleep(5*time.Minute + time.Second)
		a := len(q.inserted(t, "a", time.Minute))
		require.GreaterOrEqual(t, a, 4)
		never := periodic.Entry{ID: "never", Next: func(time.Time) time.Time { return time.Time{} }}
		set(nil, q.entry("b", 2*time.Minute), never)
		time.Sleep(4*time.Minute + time.Second)
		require.Len(t, q.inserted(t, "a", time.Minute), a, "it is gone")
		require.Len(t, q.inserted(t, "b", 2*time.Minute), 2)
		set(errors.New("not to be read"))
		time.Sleep(4 * time.Minute)
		require.Len(t, q.inserted(t, "b", 2*time.Minute), 4, "it stays")
		require.NoError(t, stop())
	})
}

func TestRun_BadCandidate_IsAnError(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		stop := lead(t, servers[0].Option(), string(make([]byte, 1000)), nil, periodic.Options{})
		synctest.Wait()
		require.ErrorIs(t, stop(), errs.ErrInvalidOption)
	})
}
