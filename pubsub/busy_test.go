package pubsub_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
)

func TestMain(m *testing.M) {
	redistest.Main(m, map[string]func() error{"dropper": dropper})
}

func busy(c rueidis.Client) bool {
	err := c.Do(context.Background(), c.B().Ping().Build()).Error()
	return err != nil && strings.HasPrefix(err.Error(), "BUSY ")
}

// occupy has a script run at s until it is killed.
func occupy(t *testing.T, s *redistest.Server) (kill func()) {
	c, runs := s.Client(t), s.Client(t)
	done := make(chan error, 1)
	go func() {
		done <- runs.Do(within(t), runs.B().Eval().Script("while true do end").Numkeys(0).Build()).Error()
	}()
	redistest.Eventually(t, 20*time.Second, "busy", func() bool { return busy(c) })
	return func() {
		run(t, c, "SCRIPT", "KILL")
		require.Error(t, <-done)
	}
}

// dropper subscribes to two channels. At the first order, which comes while the server is busy, it drops one of them;
// after that it says what it hears on the other.
func dropper() error {
	ctx := context.Background()
	o := (&redistest.Server{Addrs: []string{os.Args[1]}}).Option()
	o.AlwaysRESP2 = os.Args[2] == "RESP2"
	o.DisableCache = o.AlwaysRESP2
	c, err := rueidis.NewClient(o)
	if err != nil {
		return err
	}
	defer c.Close()
	h, err := pubsub.New(c, pubsub.Options{Logger: quiet})
	if err != nil {
		return err
	}
	dropped, err := h.Subscribe(ctx, "dropped")
	if err != nil {
		return err
	}
	kept, err := h.Subscribe(ctx, "kept")
	if err != nil {
		return err
	}
	fmt.Println("subscribed")
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	dropped.Discard()
	for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
		if !busy(c) {
			return errors.New("the server is not busy")
		}
	}
	fmt.Println("dropped")
	m, err := kept.Next(ctx)
	if err != nil {
		return err
	}
	fmt.Println(m.Payload)
	in.Scan()
	return h.Close(ctx)
}

// rueidis sends a PING after an UNSUBSCRIBE, and takes the first of two refusals for the answer to it. At the second it
// panics, on a goroutine of its own.
func TestDiscard_BusyServer_UnsubscribesAfterwards(t *testing.T) {
	t.Parallel()
	redistest.SideBySide(t, map[string]string{"RESP2": "RESP2", "RESP3": "RESP3"}, func(t *testing.T, _, protocol string) {
		s := redistest.Start(t, "--busy-reply-threshold", "5")
		c := s.Client(t)
		child := redistest.Spawn(t, "dropper", s, protocol)
		require.Equal(t, "subscribed", child.Line(t))
		kill := occupy(t, s)
		fmt.Fprintln(child.In, "drop it")
		require.Equal(t, "dropped", child.Line(t))
		kill()
		redistest.Eventually(t, 20*time.Second, "unsubscribed", func() bool { return numsub(t, c, "dropped") == 0 })
		run(t, c, "PUBLISH", "kept", "heard")
		require.Equal(t, "heard", child.Line(t))
	})
}
