package script_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

func TestMain(m *testing.M) {
	redistest.Main(m, map[string]func() error{"confirmer": confirmer})
}

// confirmer makes calls that replicas are to confirm, one for each line, and says how each ended.
func confirmer() error {
	o := (&redistest.Server{Addrs: []string{os.Args[1]}}).Option()
	o.OnInvalidations = func([]rueidis.RedisMessage) {}
	c, err := rueidis.NewClient(o)
	if err != nil {
		return err
	}
	defer c.Close()
	r := script.NewRunner(c, slack)
	fmt.Println("connected")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		y := call("k")
		y.Replicas, y.ReplicasWait = 1, time.Millisecond
		_, err := r.Attempt(context.Background(), y)
		fmt.Printf("%v %q\n", errors.Is(err, errs.ErrUnavailable), err)
	}
	return nil
}

// When rueidis takes a connection back it unsubscribes on it, and panics if a busy server refuses that: see pubsub.
func TestReplicas_BusyNode_RefusesTheCallOnly(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	child := redistest.Spawn(t, "confirmer", s)
	require.Equal(t, "connected", child.Line(t))
	fmt.Fprintln(child.In, "ask") // on a connection that is kept
	require.Contains(t, child.Line(t), "not replicated")
	var loops sync.WaitGroup
	for _, addr := range s.Addrs {
		node := &redistest.Server{Addrs: []string{addr}}
		node.Ask(t, "CONFIG", "SET", "busy-reply-threshold", "5")
		loops.Go(func() { node.TryAsk(t, "EVAL", "while true do end", "0") })
		redistest.Eventually(t, slack, "a busy server", func() bool {
			_, err := node.TryAsk(t, "PING")
			return err != nil && strings.HasPrefix(err.Error(), "BUSY ")
		})
	}
	fmt.Fprintln(child.In, "ask")
	require.Contains(t, child.Line(t), "true ")
	for _, addr := range s.Addrs {
		(&redistest.Server{Addrs: []string{addr}}).Ask(t, "SCRIPT", "KILL")
	}
	loops.Wait()
	fmt.Fprintln(child.In, "ask")
	require.Contains(t, child.Line(t), "not replicated")
}
