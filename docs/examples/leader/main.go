// Command leader elects one of several processes as the leader. It shows what happens when the leader receives SIGTERM,
// when it is killed, and when it is frozen.
//
//	go -C docs/examples run ./leader                      embedded server, nothing else needed
//	go -C docs/examples run ./leader -redis 127.0.0.1:6379
//
// The candidates campaign by package rlock/election, and the parent observes who leads. The lease of a leader is 30 s.
//
//   - A leader that gets SIGTERM finishes its work and resigns. Its successor follows at once.
//   - A leader that is killed sends no heartbeats any more. Its successor sees that, and follows after about three
//     heartbeats (election.Options.Heartbeat).
//   - A leader that is frozen is followed in the same way. When it runs again, it finds that its leadership is over
//     before it does anything. If it did not, its writes would be refused because of its fencing token.
//
// The program ends with status 1 if a successor took as long as a lease, or if a former leader did not learn of its
// loss.
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
	"github.com/redlatch/redlatch/rlock/election"
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

func open(c config) (red *redlatch.Client, end func(), err error) {
	red, err = redlatch.Open(
		context.Background(),
		rueidis.ClientOption{InitAddress: []string{c.redis}, DisableCache: true, ForceSingleClient: true},
		redlatch.Options{
			Logger:    slog.New(slog.DiscardHandler),
			Elections: func(o *election.Options) { o.Heartbeat, o.WatchdogTimeout = c.heartbeat, lease },
		})
	return red, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		red.Close(ctx)
	}, err
}

// stand is a candidate: it leads whenever it can, until SIGTERM.
func stand(c config) error {
	// After SIGTERM it stops waiting to become the leader. A leader finishes the work that it has begun.
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	red, end, err := open(c)
	if err != nil {
		return err
	}
	defer end()
	me := "candidate " + strconv.Itoa(c.candidate)
	err = red.Elections().Election("leader").Run(stop, me, func(_ context.Context, l *election.Leadership) error {
		if !lead(stop, red.Hub().Client(), l) {
			fmt.Println("lost")
		}
		return nil
	})
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return nil // it received SIGTERM while it waited
	}
	if err == nil {
		fmt.Println("resigned")
	}
	return err
}

// lead does one piece of work after the other, until stop ends. It returns false if it is no longer the leader.
func lead(stop context.Context, client rueidis.Client, l *election.Leadership) bool {
	ctx := l.Context(context.WithoutCancel(stop)) // work that was begun is finished
	for stop.Err() == nil {
		select {
		case <-time.After(50 * time.Millisecond): // the work
		case <-ctx.Done():
			return false
		}
		if !time.Now().Before(l.Until()) {
			return false // it was frozen, and ctx has not ended yet
		}
		accepted, err := guarded.Exec(ctx, client, []string{"work"}, []string{strconv.FormatInt(l.Token(), 10)}).AsInt64()
		switch {
		case err == nil && accepted == 1:
			fmt.Println("works")
		case err == nil:
			fmt.Println("refused")
		}
	}
	return true
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
	red, end, err := open(c)
	if err != nil {
		return err
	}
	defer end()
	e := &contest{out: out, leaders: make(chan election.Leader), events: make(chan event, 1000), crew: map[int]*process{},
		said: map[event]int{}}
	defer e.end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(e.observe(ctx, red.Elections().Election("leader"))) }()
	for n := 1; n <= 4; n++ {
		if err := e.start(ctx, c, n); err != nil {
			return err
		}
	}
	if err := e.until(ctx, func() bool { return e.leading != 0 }); err != nil {
		return err
	}
	fmt.Fprintf(out, "candidate %d leads; the lease is %v, a heartbeat %v\n", e.leading, lease, c.heartbeat)

	stopped, err := e.succeed(ctx, c, "is stopped (SIGTERM)", syscall.SIGTERM)
	if err != nil {
		return err
	}
	if err := e.until(ctx, func() bool { return e.said[event{stopped, "resigned"}] > 0 }); err != nil {
		return fmt.Errorf("candidate %d has not resigned: %w", stopped, err)
	}
	if _, err = e.succeed(ctx, c, "is killed (SIGKILL)", syscall.SIGKILL); err != nil {
		return err
	}
	frozen, err := e.succeed(ctx, c, "is frozen (SIGSTOP)", syscall.SIGSTOP)
	if err != nil {
		return err
	}
	e.crew[frozen].cmd.Process.Signal(syscall.SIGCONT)
	if err := e.until(ctx, func() bool { return e.said[event{frozen, "lost"}] > 0 }); err != nil {
		return err
	}
	fmt.Fprintf(out, "candidate %d runs again, and finds that it leads no more; candidate %d goes on\n", frozen, e.leading)
	works := e.said[event{e.leading, "works"}]
	if err := e.until(ctx, func() bool { return e.said[event{e.leading, "works"}] > works }); err != nil {
		return err
	}
	works, refused := 0, 0
	for n := range e.crew {
		works, refused = works+e.said[event{n, "works"}], refused+e.said[event{n, "refused"}]
	}
	fmt.Fprintf(out, "%d pieces of work done; %d of former leaders refused\n", works, refused)
	return nil
}

// contest is the candidates, seen by the parent.
type contest struct {
	out     io.Writer
	leaders chan election.Leader
	events  chan event
	crew    map[int]*process

	leading int           // 0: none
	said    map[event]int // how often
}

// event is something that a candidate has said.
type event struct {
	who  int
	what string
}

type process struct {
	cmd  *exec.Cmd
	over atomic.Bool
}

func (e *contest) start(ctx context.Context, c config, n int) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, exe, "-candidate", strconv.Itoa(n), "-redis", c.redis, "-heartbeat",
		c.heartbeat.String())
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

// succeed does something to the leader, when it has worked for a while, and returns who that was. The next one leads by
// then.
func (e *contest) succeed(ctx context.Context, c config, what string, sig syscall.Signal) (leader int, err error) {
	for worked := 0; worked < 10; {
		leader = e.leading
		began := e.said[event{leader, "works"}]
		err := e.until(ctx, func() bool {
			worked = e.said[event{leader, "works"}] - began
			return worked == 10 || e.leading != leader
		})
		if err != nil {
			return 0, err
		}
	}
	at := time.Now()
	if err := e.crew[leader].cmd.Process.Signal(sig); err != nil {
		return 0, err
	}
	if err := e.until(ctx, func() bool { return e.leading != 0 && e.leading != leader }); err != nil {
		return 0, err
	}
	took := time.Since(at)
	fmt.Fprintf(e.out, "candidate %d %s: candidate %d follows after %.1f heartbeats\n", leader, what, e.leading,
		took.Seconds()/c.heartbeat.Seconds())
	if took > lease-lease/10 {
		return 0, fmt.Errorf("that took %v, as long as the lease", took)
	}
	return leader, nil
}

// observe passes on who leads. It ends with ctx, or if it cannot observe, with the error.
func (e *contest) observe(ctx context.Context, of *election.Election) error {
	for leader, err := range of.Observe(ctx) {
		if err != nil {
			return err
		}
		select {
		case e.leaders <- leader:
		case <-ctx.Done():
		}
	}
	return nil
}

// until takes in what is heard until found says that it is enough.
func (e *contest) until(ctx context.Context, found func() bool) error {
	for !found() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case l := <-e.leaders:
			e.leading = 0
			_, _ = fmt.Sscanf(l.Value, "candidate %d", &e.leading)
		case v := <-e.events:
			e.said[v]++
		}
	}
	return nil
}

func (e *contest) end() {
	for _, p := range e.crew {
		if !p.over.Load() {
			p.cmd.Process.Signal(syscall.SIGCONT)
			p.cmd.Process.Kill()
		}
	}
}
