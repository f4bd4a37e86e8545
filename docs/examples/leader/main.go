//go:build unix

// Command leader elects one of several processes as the leader. It shows what happens when the leader receives SIGTERM,
// when it is killed, and when it is frozen. The lease of a leader is 30 s.
//
//		go -C docs/examples run ./leader                      embedded server, nothing else needed
//		go -C docs/examples run ./leader -redis 127.0.0.1:6379
//
//	  - A leader that gets SIGTERM finishes its work and resigns. Its successor follows at once.
//	  - A leader that is killed sends no heartbeats any more. Its successor sees that, and follows after about three
//	    heartbeats (election.Options.Heartbeat).
//	  - A leader that is frozen is followed in the same way. When it runs again, it finds that its leadership is over
//	    before it does anything. What it had begun before is stopped by a fencing token: see the example fencing.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/docs/examples/internal/stage"
	"github.com/redlatch/redlatch/rlock/election"
)

const (
	lease     = 30 * time.Second
	heartbeat = 500 * time.Millisecond
	name      = "example-leader"
)

func main() {
	option := stage.Redis()
	run := watch
	if stage.Role() != "" {
		run = stand
	}
	if err := run(option); err != nil {
		log.Fatal("leader: ", err)
	}
}

func open(option rueidis.ClientOption) (*redlatch.Client, error) {
	return redlatch.Open(context.Background(), option, redlatch.Options{
		Elections: func(o *election.Options) { o.Heartbeat, o.WatchdogTimeout = heartbeat, lease },
	})
}

// stand is a candidate: it leads whenever it can, until SIGTERM.
func stand(option rueidis.ClientOption) error {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	red, err := open(option)
	if err != nil {
		return err
	}
	defer red.Close(context.WithoutCancel(stop))
	err = red.Elections().Election(name).Run(stop, stage.Role(), func(_ context.Context, l *election.Leadership) error {
		ctx := l.Context(context.WithoutCancel(stop)) // work that has begun is finished
		for stop.Err() == nil {
			select {
			case <-time.After(50 * time.Millisecond): // the work
			case <-ctx.Done():
			}
			if ctx.Err() != nil || !time.Now().Before(l.Until()) { // Until: it was frozen, and ctx has not ended yet
				fmt.Println("has found that it leads no more")
				return nil
			}
		}
		fmt.Println("has finished its work, and resigns")
		return nil
	})
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return nil // it received SIGTERM while it waited
	}
	return err
}

// watch starts four candidates, and does something to three of them when they lead.
func watch(option rueidis.ClientOption) error {
	red, err := open(option)
	if err != nil {
		return err
	}
	defer red.Close(context.Background())
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("it takes too long"))
	defer cancel()
	candidates := map[string]*stage.Process{}
	for n := range 4 {
		who := fmt.Sprintf("candidate %d", n+1)
		candidates[who] = stage.Start(who)
		defer candidates[who].Process.Kill()
	}
	leaders := make(chan string)
	go func() {
		last := ""
		for leader, err := range red.Elections().Election(name).Observe(ctx) {
			if err != nil && ctx.Err() == nil {
				log.Fatal("leader: ", err)
			}
			if leader.Value != last && candidates[leader.Value] != nil {
				last = leader.Value
				leaders <- last
			}
		}
	}()
	leader := <-leaders
	fmt.Printf("%s leads; the lease is %v, a heartbeat %v\n", leader, lease, heartbeat)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSTOP} {
		leader = settled(leader, leaders)
		former, at := candidates[leader], time.Now()
		former.Process.Signal(signal)
		var next string
		select {
		case next = <-leaders:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		after := time.Since(at)
		fmt.Printf("%s is %s: %s follows after %.1f heartbeats\n", leader, signal, next, float64(after)/float64(heartbeat))
		if after > lease*9/10 {
			return fmt.Errorf("that took %v, as long as the lease", after)
		}
		if former.Process.Signal(syscall.SIGCONT); signal != syscall.SIGKILL {
			said, _ := former.Line()
			fmt.Println(leader, said)
		}
		leader = next
	}
	return nil
}

// settled returns who leads when the leader has not changed for a second.
func settled(leader string, leaders <-chan string) string {
	for {
		select {
		case leader = <-leaders:
		case <-time.After(time.Second):
			return leader
		}
	}
}
