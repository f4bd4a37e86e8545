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

// slowServer answers one question after the other. Whoever has left has its question answered all the same.
type slowServer struct {
	takes       time.Duration
	grants      bool
	mu          sync.Mutex
	free        time.Time // when it has answered all that it was asked
	asked, now  int
	most, worst int // questions under way since the last look, and how long one took, in ms
}

func (s *slowServer) ask(ctx context.Context) (wait.Answer, error) {
	s.mu.Lock()
	s.asked++
	s.now++
	s.most = max(s.most, s.now)
	if now := time.Now(); s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(s.takes)
	answer := time.Until(s.free)
	s.worst = max(s.worst, int(answer/time.Millisecond))
	s.mu.Unlock()
	t := time.NewTimer(answer)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	return wait.Answer{Granted: s.grants && ctx.Err() == nil, Left: time.Hour}, ctx.Err()
}

// look returns what there was since the last look.
func (s *slowServer) look() (asked, most, worst int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, most, worst = s.asked, s.most, s.worst
	s.asked, s.most, s.worst = 0, 0, 0
	return asked, most, worst
}

func paced(r *room, s *slowServer, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.Wait(ctx, wait.Request{Name: "n", Channel: "c", Mode: wait.Paced, Try: s.ask})
}

// 100 callers ask again and again, faster than the server can answer.
func TestPace_CallersGiveUp_AskNoFasterThanAnswered(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		s := &slowServer{takes: time.Millisecond}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				for ctx.Err() == nil {
					require.Error(t, paced(r, s, 20*time.Millisecond))
				}
			})
		}
		time.Sleep(200 * time.Millisecond)
		s.look() // all had asked at once in the beginning
		time.Sleep(time.Second)
		s.look()
		time.Sleep(time.Second)
		asked, most, worst := s.look()
		require.LessOrEqual(t, asked, 1010, "no more than the server can answer")
		require.GreaterOrEqual(t, asked, 900, "and it is not idle")
		require.LessOrEqual(t, most, 3)
		require.LessOrEqual(t, worst, 5, "ms until an answer")
		cancel()
		wg.Wait()
	})
}

// Whoever leaves while it waits for its turn, or is told that it is its turn, leaves it to the next.
func TestPace_CallerLeaves_NextHasItsTurn(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		s := &slowServer{takes: 10 * time.Millisecond}
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { paced(r, s, time.Minute) }) // the local queue is never empty
		synctest.Wait()
		for range 10 {
			require.Error(t, paced(r, s, time.Millisecond)) // from now on two ask at once
		}
		s.look()
		s.mu.Lock()
		s.grants = true
		s.mu.Unlock()
		time.Sleep(time.Second)
		got := make(chan string, 40)
		for n := range 40 {
			patience := time.Minute
			if n%2 == 0 {
				patience = time.Duration(n) * 5 * time.Millisecond // some leave in the very moment that is theirs
			}
			wg.Go(func() { got <- fmt.Sprint(paced(r, s, patience) == nil) })
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		served := 0
		for range 40 {
			if <-got == "true" {
				served++
			}
		}
		require.GreaterOrEqual(t, served, 20, "all that had patience")
	})
}
