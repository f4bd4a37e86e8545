package wait_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/wait"
)

// moded is a client of a deployment.
type moded struct {
	rueidis.Client
	mode rueidis.ClientMode
}

func (m moded) Mode() rueidis.ClientMode { return m.mode }

const (
	silent = "does not answer waiting calls"
	again  = "answers waiting calls again"
)

// hushed is a room whose server gives a request a second, and what was logged of its silence.
func hushed(t *testing.T, mode rueidis.ClientMode, fn func(t *testing.T, r *room, log *redistest.Logbook)) {
	inRoom(t, func(t *testing.T, r *room) {
		var log redistest.Logbook
		r.Waiters.Silence = wait.NewSilence(moded{mode: mode}, time.Second, log.Logger())
		fn(t, r, &log)
	})
}

// asking waits for a key whose server is silent from now on for that long, and answers then.
func asking(key string, silence time.Duration) wait.Request {
	began := time.Now()
	return wait.Request{Name: key, Mode: wait.Alone, Backoff: func(int) time.Duration {
		return time.Second
	}, Try: func(context.Context) (wait.Answer, error) {
		if time.Since(began) < silence {
			time.Sleep(time.Second)
			return wait.Answer{}, fmt.Errorf("%w: %s", errs.ErrUnknownOutcome, key)
		}
		return wait.Answer{Granted: true}, nil
	}}
}

// within waits for d at most.
func (r *room) within(d time.Duration, q wait.Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return r.Wait(ctx, q)
}

func TestSilence_ThreeCallTimeouts_IsLoggedAndItsEnd(t *testing.T) {
	hushed(t, rueidis.ClientModeStandalone, func(t *testing.T, r *room, log *redistest.Logbook) {
		require.NoError(t, r.within(time.Hour, asking("a", 1500*time.Millisecond)))
		for range 10 {
			once := asking("a", time.Hour)
			once.Until = time.Now()
			require.Error(t, r.within(time.Hour, once))
		}
		require.Empty(t, log.String(), "a short one is none, and a caller that does not wait has its error")

		require.NoError(t, r.within(time.Hour, asking("a", time.Minute)))
		require.Equal(t, []int{1, 1}, []int{log.Count(silent), log.Count(again)}, log)

		// The waiters leave one after the other, and none of them has waited for three call timeouts.
		for range 5 {
			require.Error(t, r.within(2500*time.Millisecond, asking("b", time.Hour)))
		}
		require.Equal(t, []int{2, 1}, []int{log.Count(silent), log.Count(again)}, log)
		require.NoError(t, r.within(time.Hour, asking("c", 0)))
		require.Equal(t, []int{2, 2}, []int{log.Count(silent), log.Count(again)}, log)
	})
}

func TestSilence_OneNodeOfACluster_IsLoggedOnce(t *testing.T) {
	hushed(t, rueidis.ClientModeCluster, func(t *testing.T, r *room, log *redistest.Logbook) {
		over := make(chan error)
		for _, key := range []string{"a", "b"} { // of two slots
			go func() { over <- r.within(time.Hour, asking(key, time.Minute)) }()
		}
		for range 30 {
			time.Sleep(time.Second)
			require.NoError(t, r.within(time.Hour, asking("c", 0)))
		}
		require.Equal(t, []int{1, 0}, []int{log.Count(silent), log.Count(again)}, log)
		require.NoError(t, <-over)
		require.NoError(t, <-over)
		require.Equal(t, []int{1, 1}, []int{log.Count(silent), log.Count(again)}, log)

		// Nobody asks about that slot any more: after a while an answer of another is the end.
		require.Error(t, r.within(10*time.Second, asking("a", time.Hour)))
		require.NoError(t, r.within(time.Second, asking("c", 0)))
		require.Equal(t, []int{2, 1}, []int{log.Count(silent), log.Count(again)}, log)
		time.Sleep(time.Minute)
		require.NoError(t, r.within(time.Second, asking("c", 0)))
		require.Equal(t, []int{2, 2}, []int{log.Count(silent), log.Count(again)}, log)
	})
}

func TestSilence_SeveralServers_IsLoggedThoughTheFirstAnswers(t *testing.T) {
	hushed(t, rueidis.ClientModeStandalone, func(t *testing.T, r *room, log *redistest.Logbook) {
		over, votes := make(chan error), asking("votes", time.Minute)
		votes.MultiServer = true
		go func() { over <- r.within(time.Hour, votes) }()
		for range 30 {
			time.Sleep(time.Second)
			require.NoError(t, r.within(time.Hour, asking("a", 0)))
		}
		require.Equal(t, []int{1, 0}, []int{log.Count(silent), log.Count(again)}, log)
		require.NoError(t, <-over)
		require.Equal(t, []int{1, 1}, []int{log.Count(silent), log.Count(again)}, log)
	})
}
