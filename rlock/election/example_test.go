package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock/election"
)

// demo is a client on an embedded server; a program would call pubsub.Dial with its server's address. It has time, so
// that a busy machine changes no output.
func demo() (c *election.Client, server *miniredis.Miniredis, end func()) {
	return demoWith(10 * time.Second)
}

func demoWith(heartbeat time.Duration) (c *election.Client, server *miniredis.Miniredis, end func()) {
	server = miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	option := rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true}
	hub, err := pubsub.Dial(context.Background(), option, pubsub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	c, err = election.New(hub,
		election.Options{CallTimeout: 10 * time.Second, Heartbeat: heartbeat, WatchdogTimeout: time.Minute,
			PollCap: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	return c, server, func() {
		c.Close(context.Background())
		hub.Close(context.Background())
		server.Close()
	}
}

// A service of several processes, of which one has the schedule.
func Example() {
	elections, _, end := demo()
	defer end()
	scheduler := elections.Election("scheduler")

	err := scheduler.Run(context.Background(), "10.0.0.7:8080", func(ctx context.Context, l *election.Leadership) error {
		leader, err := scheduler.Leader(ctx) // as any process sees it
		if err != nil {
			return err
		}
		fmt.Println("leader:", leader.Value)
		return nil // the work is done: otherwise it goes on until ctx ends
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: leader: 10.0.0.7:8080
}

// Run leads again after a loss. The resource refuses tokens that are smaller than one that it has seen.
func ExampleElection_Run() {
	elections, server, end := demo()
	defer end()
	var seen int64 // in SQL: UPDATE … SET …, fence = $1 WHERE id = 1 AND fence <= $1
	write := func(token int64) bool {
		if token < seen {
			return false
		}
		seen = token
		return true
	}

	var former int64
	err := elections.Election("scheduler").Run(context.Background(), "ann",
		func(ctx context.Context, l *election.Leadership) error {
			fmt.Println("writes:", write(l.Token()))
			if former == 0 {
				former = l.Token()
				server.Del("scheduler") // a flush, an eviction, a failover that lost the write
				<-ctx.Done()            // a heartbeat or renewal finds out
				fmt.Println(errors.Is(l.Err(), redlatch.ErrLost), "so Run campaigns again")
				return ctx.Err()
			}
			fmt.Println("with the token of before:", write(former))
			return nil
		})
	fmt.Println(err)
	// Output:
	// writes: true
	// true so Run campaigns again
	// writes: true
	// with the token of before: false
	// <nil>
}

// Campaign is for programs that want the leadership in their own hands.
func ExampleElection_Campaign() {
	elections, _, end := demo()
	defer end()
	ctx := context.Background()
	scheduler := elections.Election("scheduler")

	var l *election.Leadership
	l, err := scheduler.Campaign(ctx, "ann") // waits until she is elected
	if err != nil {
		log.Fatal(err)
	}
	work := l.Context(ctx) // ends with the leadership
	fmt.Println("token:", l.Token() > 0, "safe to act:", time.Now().Before(l.Until()), "why over:", l.Err())

	soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = scheduler.Campaign(soon, "bob")
	fmt.Println("bob has waited:", errors.Is(err, redlatch.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))

	fmt.Println("resigned:", l.Resign(ctx))
	<-l.Done()
	fmt.Println(context.Cause(work))
	// Output:
	// token: true safe to act: true why over: <nil>
	// bob has waited: true true
	// resigned: <nil>
	// released
}

// Every process may follow who leads.
func ExampleElection_Observe() {
	elections, _, end := demo()
	defer end()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	scheduler := elections.Election("scheduler")

	go func() {
		l, err := scheduler.Campaign(ctx, "10.0.0.7:8080")
		if err != nil {
			log.Fatal(err)
		}
		<-ctx.Done()
		if err := l.Resign(context.Background()); err != nil {
			log.Fatal(err)
		}
	}()
	for leader, err := range scheduler.Observe(ctx) {
		if err != nil { // the last turn: ctx has ended, or the client is closed
			fmt.Println(err)
		} else if leader.Elected() {
			fmt.Println("send work to:", leader.Value)
			cancel() // a program goes on for as long as it works
		}
	}
	// Output:
	// send work to: 10.0.0.7:8080
	// election: context canceled
}

// Leader asks once.
func ExampleElection_Leader() {
	elections, _, end := demo()
	defer end()
	ctx := context.Background()
	scheduler := elections.Election("scheduler")
	l, err := scheduler.Campaign(ctx, "10.0.0.7:8080")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Resign(ctx)
	here := elections.Stats()
	fmt.Println("leaders in this process:", here.Leading)

	var leader election.Leader
	leader, err = scheduler.Leader(ctx)
	fmt.Println(scheduler.Name(), leader.Elected(), leader.Value, leader.Token == l.Token(), err)
	// Output:
	// leaders in this process: 1
	// scheduler true 10.0.0.7:8080 true <nil>
}

// A client asks for the leader's address only while there is a leader.
func ExampleLeader_Elected() {
	elections, _, end := demo()
	defer end()
	ctx := context.Background()
	scheduler := elections.Election("scheduler")
	leader, err := scheduler.Leader(ctx)
	fmt.Println("elected:", leader.Elected(), err)

	l, err := scheduler.Campaign(ctx, "10.0.0.7:8080")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Resign(ctx)
	leader, err = scheduler.Leader(ctx)
	if leader.Elected() {
		fmt.Println("send work to:", leader.Value, err)
	}
	// Output:
	// elected: false <nil>
	// send work to: 10.0.0.7:8080 <nil>
}

// A leader that stops resigns, so that the next candidate leads at once and not after a lease.
func ExampleLeadership_Resign() {
	elections, _, end := demo()
	defer end()
	ctx := context.Background()
	scheduler := elections.Election("scheduler")
	ann, err := scheduler.Campaign(ctx, "ann")
	if err != nil {
		log.Fatal(err)
	}
	elected := make(chan *election.Leadership)
	go func() {
		bob, err := scheduler.Campaign(ctx, "bob")
		if err != nil {
			log.Fatal(err)
		}
		elected <- bob
	}()

	fmt.Println("ann resigns:", ann.Resign(ctx))
	bob := <-elected
	leader, err := scheduler.Leader(ctx)
	fmt.Println("leader:", leader.Value, err)
	bob.Resign(ctx)
	// Output:
	// ann resigns: <nil>
	// leader: bob <nil>
}

// The leader's work runs under Context, so that it stops when the leadership is over.
func ExampleLeadership_Context() {
	elections, _, end := demo()
	defer end()
	ctx := context.Background()
	l, err := elections.Election("scheduler").Campaign(ctx, "ann")
	if err != nil {
		log.Fatal(err)
	}
	work := l.Context(ctx)
	stopped := make(chan error)
	go func() {
		<-work.Done() // between two jobs
		stopped <- context.Cause(work)
	}()

	l.Resign(ctx)
	fmt.Println("the work stops:", <-stopped)
	// Output: the work stops: released
}

// A leader says when it is ready, with the token of its term.
func ExampleLeadership_Proclaim() {
	elections, _, end := demo()
	defer end()
	ctx := context.Background()
	scheduler := elections.Election("scheduler")
	l, err := scheduler.Campaign(ctx, "10.0.0.7:8080 starting")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Resign(ctx)

	fmt.Println(l.Proclaim(ctx, "10.0.0.7:8080 ready"))
	leader, err := scheduler.Leader(ctx)
	fmt.Println(leader.Value, leader.Token == l.Token(), err)
	// Output:
	// <nil>
	// 10.0.0.7:8080 ready true <nil>
}

// Sixteen shards of a queue, divided among the processes that run this.
func ExampleShards_Run() {
	elections, _, end := demoWith(200 * time.Millisecond)
	defer end()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	queue := elections.Shards("queue", 16)

	var mu sync.Mutex
	begun := map[int]bool{}
	err := queue.Run(ctx, "worker-1", func(ctx context.Context, shard *election.Shard) error {
		mu.Lock()
		begun[shard.Index()] = shard.Token() > 0 // the resource refuses a token that is less than one before
		all := len(begun) == 16
		mu.Unlock()
		if all {
			cancel() // a worker goes on for as long as it lives
		}
		<-ctx.Done() // the shard is to move, or is lost: the work on it ends
		return ctx.Err()
	})
	fmt.Println(len(begun), "shards;", err)
	// Output: 16 shards; election: context canceled
}

// A process is drained before it is stopped: its shards move while it still lives.
func ExampleShards_Drain() {
	elections, _, end := demoWith(200 * time.Millisecond)
	defer end()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	queue := elections.Shards("queue", 4)
	ran := make(chan error)
	go func() {
		ran <- queue.Run(ctx, "worker-1", func(ctx context.Context, shard *election.Shard) error {
			until, work := shard.Until(), shard.Context(ctx)
			if time.Now().Before(until) { // directly before an act that cannot be undone
				<-work.Done()
			}
			return nil
		})
	}()
	for workers, err := range queue.Observe(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if len(workers) == 1 && len(workers[0].Shards) == 4 {
			break
		}
	}

	fmt.Println(queue.Drain(ctx, "worker-1", time.Minute))
	workers, err := queue.Workers(ctx)
	first := workers[0]
	fmt.Println(first.Name, first.Shards, first.Drained, err)
	cancel()
	<-ran
	// Output:
	// <nil>
	// worker-1 [] true <nil>
}

// Workers shows an operator how the shards are divided.
func ExampleShards_Workers() {
	elections, _, end := demoWith(500 * time.Millisecond)
	defer end()
	ctx, cancel := context.WithCancel(context.Background())
	queue := elections.Shards("queue", 4)
	ran := make(chan error)
	go func() {
		ran <- queue.Run(ctx, "worker-1", func(ctx context.Context, _ *election.Shard) error {
			<-ctx.Done()
			return nil
		})
	}()

	for range queue.Observe(ctx) { // a worker's shards are known from its next heartbeat on
		workers, err := queue.Workers(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if len(workers) == 1 && len(workers[0].Shards) == 4 {
			fmt.Println(workers[0].Name, "has", workers[0].Shards)
			break
		}
	}
	cancel()
	<-ran
	// Output: worker-1 has [0 1 2 3]
}

// No two processes make ids with the same number.
func ExampleShards_Slot() {
	elections, _, end := demo()
	defer end()
	ctx := context.Background()
	slot, err := elections.Shards("snowflake", 1024).Slot(ctx, "10.0.0.7:8080")
	if err != nil {
		log.Fatal(err)
	}
	work := slot.Context(ctx) // ends when the number may be another's
	fmt.Println(slot.Index() < 1024, work.Err(), time.Now().Before(slot.Until()))
	fmt.Println(slot.Release(ctx))
	// Output:
	// true <nil> true
	// <nil>
}

// A process that stops releases its number, and the next process has it at once.
func ExampleShard_Release() {
	elections, _, end := demo()
	defer end()
	ctx := context.Background()
	numbers := elections.Shards("snowflake", 1)
	slot, err := numbers.Slot(ctx, "10.0.0.7:8080")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("released:", slot.Release(ctx))

	next, err := numbers.Slot(ctx, "10.0.0.8:8080")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("same number:", next.Index() == slot.Index(), "greater token:", next.Token() > slot.Token())
	next.Release(ctx)
	// Output:
	// released: <nil>
	// same number: true greater token: true
}

// New makes a client on a hub that other clients may use, too. redlatch.Open does so for all packages.
func ExampleNew() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	hub, err := pubsub.Dial(context.Background(),
		rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true},
		pubsub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close(context.Background())
	var elections *election.Client
	elections, err = election.New(hub, election.Options{Heartbeat: 500 * time.Millisecond})
	fmt.Println(err)
	fmt.Println(elections.Close(context.Background())) // Client.Close waits for leaders to resign
	// Output:
	// <nil>
	// <nil>
}
