package pages_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
)

// Hourly is called by the scheduler of every machine. One of them runs the job.
func Hourly(ctx context.Context, red *redlatch.Client, job func(context.Context) error) error {
	_, err := red.Locks().Reentrant("hourly-report").DoOnce(ctx, 50*time.Minute, job)
	return err
}

// Campaigning runs fn in one process at a time until ctx ends. Election.Run stops campaigning when fn fails;
// Campaigning continues after a pause, in which another process may be elected.
func Campaigning(ctx context.Context, e *election.Election, host string,
	fn func(context.Context, *election.Leadership) error) error {
	for {
		err := e.Run(ctx, host, fn)
		if err == nil || ctx.Err() != nil || errors.Is(err, redlatch.ErrClosed) {
			return err
		}
		slog.Warn("campaigning again", "host", host, "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second + rand.N(time.Second)):
		}
	}
}

// Lead polls a partner's server from one process, as long as this program runs.
func Lead(ctx context.Context, red *redlatch.Client, host string, poll func(context.Context) error) error {
	return Campaigning(ctx, red.Elections().Election("poller"), host,
		func(ctx context.Context, _ *election.Leadership) error {
			for {
				if err := poll(ctx); err != nil {
					return err // resigns
				}
				select {
				case <-ctx.Done(): // lost, or the program ends
					return nil
				case <-time.After(10 * time.Second):
				}
			}
		})
}

// An Outbox is a table of messages, with the greatest token that it has seen. Each method runs in one transaction that
// begins with
//
//	update relay set token = $1 where token <= $1
//
// and fails with errStale if that has changed no row.
type Outbox interface {
	Next(ctx context.Context, token int64) (id int64, message string, err error) // id 0: there is none
	Sent(ctx context.Context, token, id int64) error
}

var errStale = errors.New("a later relay is at work")

// Relay publishes the messages of the outbox in order, from one process at a time.
func Relay(ctx context.Context, red *redlatch.Client, host string, box Outbox,
	publish func(context.Context, string) error) error {
	return Campaigning(ctx, red.Elections().Election("outbox"), host,
		func(ctx context.Context, l *election.Leadership) error {
			for ctx.Err() == nil {
				id, message, err := box.Next(ctx, l.Token())
				if err == nil && id == 0 {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				if err == nil {
					err = publish(ctx, message)
				}
				if err == nil {
					err = box.Sent(ctx, l.Token(), id)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
}

// Webhook handles an event once. The sender repeats an event until Webhook returns nil.
func Webhook(ctx context.Context, red *redlatch.Client, event string, handle func(context.Context) error) error {
	hold, err := red.Locks().Reentrant("event:"+event).TryLock(ctx, 0, 0)
	var taken *rlock.NotAcquiredError
	if errors.As(err, &taken) && taken.Lease > time.Minute {
		return nil // longer than the lease of a running handler: it was handled before
	}
	if err != nil {
		return err // another process handles it now, or Redis is down: send it again
	}
	if err := handle(hold.Context(ctx)); err != nil {
		return errors.Join(err, hold.Unlock(ctx)) // send it again
	}
	return hold.UnlockAfter(ctx, 24*time.Hour)
}

// Cached returns an expensive value. If it is missing, one process computes it and the others wait.
func Cached(ctx context.Context, red *redlatch.Client, key string,
	compute func(context.Context) (string, error)) (value string, err error) {
	redis := red.Hub().Client()
	value, err = redis.DoCache(ctx, redis.B().Get().Key(key).Cache(), time.Minute).ToString()
	if !rueidis.IsRedisNil(err) {
		return value, err
	}
	err = red.Locks().Reentrant("warm:"+key).WithWait(10*time.Second).Do(ctx, func(ctx context.Context) error {
		value, err = redis.Do(ctx, redis.B().Get().Key(key).Build()).ToString() // another process has computed it
		if !rueidis.IsRedisNil(err) {
			return err
		}
		if value, err = compute(ctx); err != nil {
			return err
		}
		return redis.Do(ctx, redis.B().Set().Key(key).Value(value).Ex(10*time.Minute).Build()).Error()
	})
	return value, err
}

func TestHourly_SeveralMachines_RunsOnOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		machines := []*redlatch.Client{srv.Open(), srv.Open(), srv.Open()}
		runs := 0
		for range 2 { // hours
			for _, red := range machines {
				require.NoError(t, Hourly(t.Context(), red, func(context.Context) error { runs++; return nil }))
				time.Sleep(time.Minute)
			}
			time.Sleep(57 * time.Minute)
		}
		require.Equal(t, 2, runs)
	})
}

func TestLead_ElectionLost_IsElectedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		red := srv.Open()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		polls := 0
		require.NoError(t, Lead(ctx, red, "a", func(context.Context) error {
			switch polls++; polls {
			case 2:
				srv.Lose("poller")
			case 4:
				cancel()
			}
			return nil
		}))
		require.Equal(t, 4, polls)
	})
}

// table is an Outbox without a database.
type table struct {
	messages []string
	sent     int64
	token    int64
}

func (b *table) guard(token int64) error {
	if token < b.token {
		return errStale
	}
	b.token = token
	return nil
}

func (b *table) Next(_ context.Context, token int64) (int64, string, error) {
	if b.sent == int64(len(b.messages)) {
		return 0, "", b.guard(token)
	}
	return b.sent + 1, b.messages[b.sent], b.guard(token)
}

func (b *table) Sent(_ context.Context, token, id int64) error {
	if err := b.guard(token); err != nil {
		return err
	}
	b.sent = id
	return nil
}

func TestLead_WorkFails_AnotherTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended, polled := make(chan error, 3), make(chan string)
		for _, host := range []string{"a", "b", "c"} {
			red, failed := srv.Open(), false
			go func() {
				ended <- Lead(ctx, red, host, func(ctx context.Context) error {
					if !failed {
						failed = true
						return errors.New("the partner does not answer")
					}
					select {
					case polled <- host:
					case <-ctx.Done():
					}
					return nil
				})
			}()
		}
		select {
		case <-polled: // by a process whose work had failed before
		case <-time.After(time.Minute):
			t.Error("each has failed once, and nobody leads any more")
		}
		cancel()
		for range 3 {
			err := <-ended
			if err != nil { // it was campaigning, or resting
				require.True(t, errors.Is(err, context.Canceled) || err.Error() == "the partner does not answer", "%v", err)
			}
		}
	})
}

func TestRelay_LastOneCrashed_GoesOnWhereItStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		box := &table{messages: []string{"a", "b", "c"}}
		crash := errors.New("crash")
		var got []string
		first, end := context.WithCancel(t.Context())
		require.ErrorIs(t, Relay(first, srv.Open(), "1", box, func(_ context.Context, m string) error {
			if got = append(got, m); m == "b" {
				end()
				return crash // published, and not recorded
			}
			return nil
		}), crash)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		require.NoError(t, Relay(ctx, srv.Open(), "2", box, func(_ context.Context, m string) error {
			if got = append(got, m); m == "c" {
				time.AfterFunc(time.Second, cancel)
			}
			return nil
		}))
		require.Equal(t, []string{"a", "b", "b", "c"}, got, "at least once, in order")
		require.ErrorIs(t, box.Sent(t.Context(), box.token-1, 1), errStale)
	})
}

func TestWebhook_FirstTryFails_HandlesTheEventUntilItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		red := srv.Open()
		failed := errors.New("no")
		runs := 0
		handle := func(context.Context) error {
			if runs++; runs == 1 {
				return failed
			}
			return nil
		}
		require.ErrorIs(t, Webhook(t.Context(), red, "7", handle), failed)
		require.NoError(t, Webhook(t.Context(), red, "7", handle))
		require.NoError(t, Webhook(t.Context(), srv.Open(), "7", handle))
		require.Equal(t, 2, runs)
		done := srv.HoldElsewhere("event:8")
		require.ErrorIs(t, Webhook(t.Context(), red, "8", handle), redlatch.ErrNotAcquired, "under way elsewhere")
		done()
		srv.Advance(25 * time.Hour)
		require.NoError(t, Webhook(t.Context(), red, "7", handle))
		require.Equal(t, 3, runs, "forgotten after a day")
	})
}

func TestCached_ManyMiss_OneComputes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		runs := 0
		compute := func(context.Context) (string, error) {
			runs++
			time.Sleep(time.Second)
			return "42", nil
		}
		type answer struct {
			value string
			err   error
		}
		answers := make(chan answer, 4)
		for range 4 {
			red := srv.Open()
			go func() {
				value, err := Cached(t.Context(), red, "answer", compute)
				answers <- answer{value, err}
			}()
		}
		for range 4 {
			require.Equal(t, answer{"42", nil}, <-answers)
		}
		require.Equal(t, 1, runs)
	})
}
