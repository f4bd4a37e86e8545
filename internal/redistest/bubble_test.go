package redistest_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/redistest"
)

// said is the answer to a command, or its error.
func said(c rueidis.Client, limit time.Duration, words ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	text, err := c.Do(ctx, c.B().Arbitrary(words...).Build()).ToString()
	if err != nil {
		return err.Error()
	}
	return text
}

func TestAServerInABubbleHasItsOwnTimeIsKilledAndRestarted(t *testing.T) {
	redistest.Simulated(t, 2, func(t *testing.T, servers []*redistest.Server) {
		if !redistest.InABubble() {
			t.Fatal("the time is that of the world")
		}
		s, c := servers[0], servers[0].Client(t)
		if got := said(c, time.Second, "SET", "k", "v", "PX", "60000"); got != "OK" {
			t.Fatal(got)
		}
		time.Sleep(59 * time.Second)
		if got := said(c, time.Second, "GET", "k"); got != "v" {
			t.Fatal(got)
		}
		time.Sleep(2 * time.Second)
		if got := said(c, time.Second, "GET", "k"); got == "v" {
			t.Fatal("it has no end")
		}
		if n := redistest.CommandCalls(t, c)["get"]; n != 2 {
			t.Fatalf("GET was counted %d times", n)
		}
		said(c, time.Second, "SET", "k", "v")
		s.Restart(t)
		if s.Embedded.Exists("k") {
			t.Fatal("it was not emptied")
		}
		redistest.Eventually(t, time.Minute, "it is back", func() bool { return said(c, time.Second, "PING") == "PONG" })
		s.Kill(t)
		if got := said(c, time.Second, "PING"); got == "PONG" {
			t.Fatal("it answers")
		}
		if got := said(servers[1].Client(t), time.Second, "PING"); got != "PONG" {
			t.Fatal("the other one: ", got)
		}
	})
}

// While a proxy keeps something back the server goes on with its other clients, and the bubble's time goes on.
func TestAProxyInABubbleKeepsBackLosesAndCuts(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		near, far := s.Client(t), p.Server().Client(t)
		p.Delay(30*time.Millisecond, 40*time.Millisecond)
		began := time.Now()
		if got := said(far, time.Second, "PING"); got != "PONG" || time.Since(began) != 70*time.Millisecond {
			t.Fatal(got, time.Since(began))
		}
		p.Hold(redistest.Down)
		got := make(chan string, 1)
		go func() { got <- said(far, time.Minute, "SET", "k", "held") }()
		redistest.Eventually(t, 10*time.Second, "the server has it", func() bool {
			return said(near, time.Second, "GET", "k") == "held"
		})
		time.Sleep(5 * time.Second)
		select {
		case text := <-got:
			t.Fatal("it came through: ", text)
		default:
		}
		p.Heal()
		if text := <-got; text != "OK" {
			t.Fatal(text)
		}
		trap := p.Trap(&redistest.Trap{Match: redistest.With("lost"), Fate: redistest.LoseReply})
		if text := said(far, time.Second, "INCR", "lost"); text == "1" {
			t.Fatal(text)
		}
		trap.Wait(t)
		p.Refuse()
		p.Cut()
		if text := said(far, time.Second, "PING"); text == "PONG" {
			t.Fatal("it is connected")
		}
		p.Heal()
		redistest.Eventually(t, 10*time.Second, "connected again", func() bool {
			return said(far, time.Second, "PING") == "PONG"
		})
	})
}
