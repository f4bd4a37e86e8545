// Command leader elects one of several processes as the leader. It shows what happens when the leader is told to stop, when it
// is killed, and when it is frozen.
//
//	go run ./docs/examples/leader                      embedded server, nothing else needed
//	go run ./docs/examples/leader -redis 127.0.0.1:6379
//
// The lock's lease is 30 s.
//
//   - A leader that gets SIGTERM finishes its work and unlocks. Its successor follows at once.
//   - A leader that is killed sends no heartbeats any more. Its successor sees that, and follows after about three heartbeats
//     (rlock's Options.Liveness).
//   - A leader that is frozen is followed in the same way. When it runs again, it finds that its hold is over before it does
//     anything. If it did not, its writes would be refused because of its fencing token.
//
// The program ends with status 1 if a successor took as long as a lease, or if a former leader did not learn of its loss.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

const lease = 30 * time.Second

type config struct {
	redis     string
	heartbeat time.Duration
	candidate int // which one this process is; 0: the parent
}

func main() {
	var c config
	flag.StringVar(&c.redis, "redis", "", "`address` of a Redis or Valkey server; empty: one is embedded")
	flag.DurationVar(&c.heartbeat, "heartbeat", 500*time.Millisecond, "how often a leader shows that it is there")
	flag.IntVar(&c.candidate, "candidate", 0, "be candidate `n` (started by the parent)")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var err error
	if c.candidate > 0 {
		err = stand(c)
	} else {
		err = run(ctx, c, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "leader:", err)
		os.Exit(1)
	}
}

// stand is a candidate: it leads whenever it can, until SIGTERM.
func stand(c config) error {
	// After SIGTERM it stops waiting to become the leader. A leader finishes the work that it has begun.
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	red, err := redlatch.Open(
		rueidis.ClientOption{InitAddress: []string{c.redis}, DisableCache: true, ForceSingleClient: true},
		redlatch.Options{
			Logger: slog.New(slog.DiscardHandler),
			Locks:  rlock.Options{Liveness: true, Heartbeat: c.heartbeat, WatchdogTimeout: lease},
		})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		red.Close(ctx)
	}()
	office := red.Locks().Fenced("leader").WithLabel("candidate " + strconv.Itoa(c.candidate))
	for stop.Err() == nil {
		hold, err := office.Lock(stop)
		switch {
		case stop.Err() != nil && err != nil:
			return nil // it was told to stop while it waited
		case err != nil:
			return err
		}
		lead(stop, red.Hub().Client(), hold)
		// Not under stop, which may have ended: the release still has to be done.
		if err := hold.Unlock(context.Background()); errors.Is(err, rlock.ErrLost) {
			fmt.Println("lost")
		} else if err != nil {
			return err
		} else {
			fmt.Println("unlocked")
		}
	}
	return nil
}

// lead does one piece of work after the other, until it is told to stop or is no longer the leader.
func lead(stop context.Context, client rueidis.Client, hold *rlock.Hold) {
	token, _ := hold.Token()
	fmt.Println("leads")
	ctx := hold.Context(context.Background()) // not of stop: work that was begun is finished
	for ctx.Err() == nil && stop.Err() == nil {
		select {
		case <-time.After(50 * time.Millisecond): // the work
		case <-ctx.Done():
			return
		}
		if !time.Now().Before(hold.Until()) {
			return // it was frozen, and ctx has not ended yet
		}
		accepted, err := guarded.Exec(ctx, client, []string{"work"}, []string{strconv.FormatInt(token, 10)}).AsInt64()
		switch {
		case err == nil && accepted == 1:
			fmt.Println("works")
		case err == nil:
			fmt.Println("refused")
		}
	}
	if stop.Err() != nil && ctx.Err() == nil {
		fmt.Println("finished")
	}
}

// guarded is a resource that checks fencing tokens.
var guarded = rueidis.NewLuaScript(`
if tonumber(redis.call('GET', KEYS[1]) or 0) > tonumber(ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', 3600000)
return 1`)

func run(ctx context.Context, c config, out io.Writer) error {
	if c.redis == "" {
		server, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer server.Close()
		server.ClockTTL(true)
		c.redis = server.Addr()
	}
	e := &election{out: out, events: make(chan event, 1000), crew: map[int]*process{}}
	defer e.end()
	for n := 1; n <= 4; n++ {
		if err := e.start(ctx, c, n); err != nil {
			return err
		}
	}
	first, err := e.leader(ctx, 0)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "candidate %d leads; the lease is %v, a heartbeat %v\n", first, lease, c.heartbeat)

	second, err := e.succeed(ctx, c, first, "is told to stop (SIGTERM)", syscall.SIGTERM)
	if err != nil {
		return err
	}
	for _, word := range []string{"finished", "unlocked"} {
		if err := e.until(ctx, func(event) bool { return e.said[first][word] }); err != nil {
			return fmt.Errorf("candidate %d has not %s: %w", first, word, err)
		}
	}
	third, err := e.succeed(ctx, c, second, "is killed (SIGKILL)", syscall.SIGKILL)
	if err != nil {
		return err
	}
	fourth, err := e.succeed(ctx, c, third, "is frozen (SIGSTOP)", syscall.SIGSTOP)
	if err != nil {
		return err
	}
	e.crew[third].cmd.Process.Signal(syscall.SIGCONT)
	if err := e.until(ctx, func(v event) bool { return v.who == third && v.what == "lost" }); err != nil {
		return err
	}
	fmt.Fprintf(out, "candidate %d runs again, and finds its hold lost; candidate %d goes on\n", third, fourth)
	if err := e.until(ctx, func(v event) bool { return v.who == fourth && v.what == "works" }); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d pieces of work done; %d of former leaders refused\n", e.works, e.refused)
	return nil
}

// election is the candidates, seen by the parent.
type election struct {
	out    io.Writer
	events chan event
	crew   map[int]*process
	said   map[int]map[string]bool

	works, refused int
}

type event struct {
	who  int
	what string
}

type process struct {
	cmd  *exec.Cmd
	over atomic.Bool
}

func (e *election) start(ctx context.Context, c config, n int) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, exe, "-candidate", strconv.Itoa(n), "-redis", c.redis, "-heartbeat", c.heartbeat.String())
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{cmd: cmd}
	e.crew[n] = p
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			e.events <- event{n, lines.Text()}
		}
		cmd.Wait()
		p.over.Store(true)
	}()
	return nil
}

// succeed does something to the leader and returns the next one.
func (e *election) succeed(ctx context.Context, c config, leader int, what string, sig syscall.Signal) (next int, err error) {
	for range 10 {
		if err := e.until(ctx, func(v event) bool { return v.who == leader && v.what == "works" }); err != nil {
			return 0, err
		}
	}
	at := time.Now()
	if err := e.crew[leader].cmd.Process.Signal(sig); err != nil {
		return 0, err
	}
	next, err = e.leader(ctx, leader)
	if err != nil {
		return 0, err
	}
	took := time.Since(at)
	fmt.Fprintf(e.out, "candidate %d %s: candidate %d follows after %.1f heartbeats\n", leader, what, next, took.Seconds()/c.heartbeat.Seconds())
	if took > lease-lease/10 {
		return 0, fmt.Errorf("that took %v, as long as the lease", took)
	}
	return next, nil
}

// leader waits for the next leader, other than the last one.
func (e *election) leader(ctx context.Context, last int) (who int, err error) {
	err = e.until(ctx, func(v event) bool {
		who = v.who
		return v.what == "leads" && v.who != last
	})
	return who, err
}

// until reads events until one is what is waited for.
func (e *election) until(ctx context.Context, found func(event) bool) error {
	if e.said == nil {
		e.said = map[int]map[string]bool{}
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case v := <-e.events:
			if e.said[v.who] == nil {
				e.said[v.who] = map[string]bool{}
			}
			e.said[v.who][v.what] = true
			switch v.what {
			case "works":
				e.works++
			case "refused":
				e.refused++
			}
			if found(v) {
				return nil
			}
		}
	}
}

func (e *election) end() {
	for _, p := range e.crew {
		if !p.over.Load() {
			p.cmd.Process.Signal(syscall.SIGCONT)
			p.cmd.Process.Kill()
		}
	}
}
