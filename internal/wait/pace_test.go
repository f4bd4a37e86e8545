package wait_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/wait"
)

// oneFirst is a request of mode OneFirst.
func (s *store) oneFirst(owner string) wait.Request {
	request := s.request(owner)
	request.Mode, request.Began = wait.OneFirst, time.Now()
	return request
}

// 100 callers ask again and again, and leave before each reply.
func TestPace_CallersGiveUp_AskNoFasterThanAnswered(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		s := newStore(r, 0)
		s.slow = 50 * time.Millisecond
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					patient, leave := context.WithTimeout(ctx, 10*time.Millisecond)
					_ = r.Wait(patient, s.oneFirst(fmt.Sprint(i, " ", n)))
					leave()
				}
			})
		}
		time.Sleep(time.Second)
		calls, asked := s.counted()
		time.Sleep(time.Second)
		laterCalls, laterAsked := s.counted()
		require.GreaterOrEqual(t, laterCalls-calls, 15, "the server is not idle")
		require.LessOrEqual(t, laterAsked-asked, 2*(laterCalls-calls), "two owners in a call")
		require.LessOrEqual(t, s.most, 2)
		s.set(func() { s.slow = time.Second })
		time.Sleep(100 * time.Millisecond)
		cancel()
		wg.Wait()
		calls, _ = s.counted()
		patient, leave := context.WithTimeout(context.Background(), time.Millisecond)
		defer leave()
		require.Error(t, r.Wait(patient, s.oneFirst("one more")))
		laterCalls, _ = s.counted()
		require.Equal(t, calls, laterCalls, "no call beside the one whose callers have left")
		time.Sleep(3 * s.slow) // the last calls end
	})
}

// Callers that wait behind the limit are served in their order, whoever leaves before them.
func TestPace_CallerLeaves_NextHasItsTurn(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		s := newStore(r, 0)
		got := make(chan error, 60)
		for n := range 60 {
			ctx, leave := context.WithTimeout(context.Background(), time.Minute)
			if n%3 > 0 {
				ctx, leave = context.WithTimeout(context.Background(), time.Duration(n)*time.Millisecond)
			}
			go func() {
				defer leave()
				got <- r.Wait(ctx, s.oneFirst(fmt.Sprintf("%02d", n)))
			}()
			if synctest.Wait(); n == 0 {
				time.Sleep(10 * trip) // the process is subscribed from now on
			}
		}
		time.Sleep(100 * time.Millisecond)
		for range 60 {
			s.give(1) // also to those that have left, whose releases are not sent here
			time.Sleep(10 * trip)
		}
		served := 0
		for range 60 {
			if <-got == nil {
				served++
			}
		}
		require.Equal(t, 20, served)
		require.IsIncreasing(t, s.order)
	})
}

// A release of another program notifies one waiter, on the waiter's own channel.
func TestQueueRequests_OwnChannel_AsksForItsWaiter(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		s := newStore(r, 0)
		s.foreign = true
		first, leave := context.WithCancel(context.Background())
		second, leaveToo := context.WithCancel(context.Background())
		for i, ctx := range []context.Context{first, second} {
			request := s.oneFirst(fmt.Sprint(i))
			request.Taker.(*buyer).own = fmt.Sprint("own:", i)
			go func() { _ = r.Wait(ctx, request) }()
			synctest.Wait()
		}
		time.Sleep(10 * trip)
		require.Equal(t, []string{"g", "own:0", "own:1"}, r.server.Embedded.PubSubChannels(""))
		calls, asked := s.counted()
		r.server.Embedded.Publish("own:0", "0") // it joined last, after its own request
		time.Sleep(10 * trip)
		laterCalls, laterAsked := s.counted()
		require.Equal(t, []any{calls + 1, asked + 1, "0"}, []any{laterCalls, laterAsked, s.last})
		leave()
		time.Sleep(10 * trip)
		require.Equal(t, []string{"g", "own:1"}, r.server.Embedded.PubSubChannels(""))
		leaveToo()
		synctest.Wait()
	})
}
