//go:build unix

// Command fencing shows what a lock cannot do by itself, and the other half that can.
//
// A clerk process holds the lock of an account and has read the balance. Then it is stopped until its lease is over, by
// SIGSTOP, which stands for a long pause or a suspended virtual machine. Another clerk gets the lock and books a
// deposit. Then the first clerk continues, and writes what it computed from the old balance. No lock can prevent that.
// The account can: it keeps the greatest fencing token that it has seen, and refuses a write with a smaller one.
//
//	cd docs/examples/fencing && go run .                        embedded Redis and SQLite, nothing else needed
//	cd docs/examples/fencing && go run . -redis 127.0.0.1:6379
//
// It books on an account in SQL and on one in Redis, each without the guard and with it.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

const (
	opening = 100 // what is on the account
	slow    = 10  // what the clerk deposits that is stopped
	quick   = 50  // and the other
	lease   = time.Second
)

func main() {
	addr := flag.String("redis", "", "`address` of a Redis or Valkey server; empty: one is embedded")
	clerk := flag.String("clerk", "",
		"be the clerk that is stopped, at the account of that `kind` (started by the program)")
	file := flag.String("sql", "", "`file` of the SQL account (given by the program)")
	guarded := flag.Bool("guarded", false, "have the account refuse old tokens (given by the program)")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if *clerk != "" {
		err = serveSlowly(ctx, *addr, *clerk, *file, *guarded)
	} else {
		_, err = run(ctx, *addr, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fencing:", err)
		os.Exit(1)
	}
}

// office is a process's connection to the server: its locks, and the client for an account in Redis.
type office struct{ *redlatch.Client }

func (o *office) redis() rueidis.Client { return o.Hub().Client() }

func open(addr string) (*office, error) {
	option := rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true}
	red, err := redlatch.Open(context.Background(), option, redlatch.Options{})
	if err != nil {
		return nil, err
	}
	return &office{red}, nil
}

func (o *office) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	o.Close(ctx)
}

// outcome is how one of the four runs ended.
type outcome struct {
	kind    string
	guarded bool
	refused bool // the write of the clerk that was stopped
	balance int64
}

func run(ctx context.Context, addr string, out io.Writer) ([]outcome, error) {
	if addr == "" {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		if err := server.Start(); err != nil {
			return nil, err
		}
		defer server.Close()
		addr = server.Addr()
	}
	dir, err := os.MkdirTemp("", "fencing")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	o, err := open(addr)
	if err != nil {
		return nil, err
	}
	defer o.close()
	var all []outcome
	for _, kind := range []string{"SQL", "Redis"} {
		for _, guarded := range []bool{false, true} {
			fmt.Fprintf(out, "\naccount in %s, %s:\n", kind,
				map[bool]string{false: "which takes every write", true: "which refuses old tokens"}[guarded])
			x, err := book(ctx, o, addr, kind, filepath.Join(dir, "account.db"), guarded, out)
			if err != nil {
				return all, fmt.Errorf("account in %s: %w", kind, err)
			}
			all = append(all, x)
		}
	}
	fmt.Fprintf(out, "\n%d + %d + %d = %d:\n", opening, slow, quick, opening+slow+quick)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "account\tguarded\tlate write\tbalance\t")
	for _, x := range all {
		verdict := "a deposit is lost, and no clerk knows"
		if x.refused {
			verdict = fmt.Sprintf("the late clerk knows that it has to book its %d again", slow)
		}
		fmt.Fprintf(table, "%s\t%v\t%s\t%d\t%s\n", x.kind, x.guarded,
			map[bool]string{true: "refused", false: "taken"}[x.refused], x.balance, verdict)
	}
	return all, table.Flush()
}

// book has a slow clerk and a quick one make a deposit each.
func book(ctx context.Context, o *office, addr, kind, file string, guarded bool, out io.Writer) (outcome, error) {
	account, err := openAccount(o, kind, file, guarded)
	if err != nil {
		return outcome{}, err
	}
	defer account.close()
	if err := account.reset(ctx, opening); err != nil {
		return outcome{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return outcome{}, err
	}
	cmd := exec.CommandContext(ctx, self, "-redis", addr, "-clerk", kind, "-sql", file,
		fmt.Sprintf("-guarded=%v", guarded))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return outcome{}, err
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{}, err
	}
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(said)
	hear := func() (string, error) {
		if !lines.Scan() {
			return "", fmt.Errorf("the slow clerk has gone: %w", errors.Join(lines.Err(), io.ErrUnexpectedEOF))
		}
		fmt.Fprintln(out, "  slow clerk: ", lines.Text())
		return lines.Text(), nil
	}
	if _, err := hear(); err != nil {
		return outcome{}, err
	}
	if err := stop(cmd.Process); err != nil {
		return outcome{}, err
	}
	fmt.Fprintln(out, "  (the slow clerk is stopped; its lease runs out)")
	fmt.Fprintln(in, "go on") // read when it is woken

	hold, err := o.Locks().Fenced(lockName(kind)).Lock(ctx)
	if err != nil {
		return outcome{}, err
	}
	token, _ := hold.Token()
	balance, err := account.read(ctx)
	if err != nil {
		return outcome{}, err
	}
	if err := account.write(ctx, balance+quick, token); err != nil {
		return outcome{}, err
	}
	fmt.Fprintf(out, "  quick clerk:  token …%04d, %d on the account, writes %d\n", token%10_000, balance, balance+quick)
	if err := hold.Unlock(ctx); err != nil {
		return outcome{}, err
	}

	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return outcome{}, err
	}
	text, err := hear()
	if err != nil {
		return outcome{}, err
	}
	if balance, err = account.read(ctx); err != nil {
		return outcome{}, err
	}
	fmt.Fprintln(out, "  in the end:  ", balance)
	return outcome{kind, guarded, strings.Contains(text, errStale.Error()), balance}, cmd.Wait()
}

// stop returns when the process has stopped, a moment after the signal.
func stop(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case !status.Stopped():
			return errors.New("the slow clerk has ended")
		default:
			return nil
		}
	}
}

func lockName(kind string) string { return "account:" + kind }

// serveSlowly is the clerk that is stopped between reading and writing.
func serveSlowly(ctx context.Context, addr, kind, file string, guarded bool) error {
	o, err := open(addr)
	if err != nil {
		return err
	}
	defer o.close()
	account, err := openAccount(o, kind, file, guarded)
	if err != nil {
		return err
	}
	defer account.close()
	hold, err := o.Locks().Fenced(lockName(kind)).WithLease(lease).Lock(ctx)
	if err != nil {
		return err
	}
	token, _ := hold.Token()
	balance, err := account.read(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("token …%04d, %d on the account\n", token%10_000, balance)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil { // it is stopped here
		return err
	}
	// Looking at hold.Err() first makes this less likely; it can be stopped between that and the write just as well.
	if err := account.write(ctx, balance+slow, token); err != nil {
		fmt.Printf("writes %d: %v\n", balance+slow, err)
	} else {
		fmt.Printf("writes %d: taken\n", balance+slow)
	}
	if err := hold.Unlock(ctx); !errors.Is(err, redlatch.ErrLost) {
		return fmt.Errorf("the lock was to be lost by now: %v", err) //nolint:errorlint // err may be nil
	}
	return nil
}
