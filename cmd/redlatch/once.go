//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/rlock"
)

// onceJob is what the flags of once say.
type onceJob struct {
	*tool
	opts        rlock.OnceOptions
	wait, grace time.Duration
	ttl         time.Duration
	fingerprint string
	conflict    int
}

func (t *tool) once() *cobra.Command {
	j := &onceJob{tool: t, ttl: 30 * time.Second, grace: 5 * time.Second, conflict: exitConflict}
	c := &cobra.Command{
		Use:   "once NAME KEY [flags] -- command [args...]",
		Short: "run a command once for each key, and print its stored output",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 3 {
				return usage("once needs a name, a key and a command, as in redlatch once NAME KEY -- command args")
			}
			path, err := exec.LookPath(args[2])
			if err != nil {
				return coded{exitCommand, err}
			}
			if !c.Flags().Changed("fingerprint") {
				j.fingerprint = fmt.Sprintf("%.1000s", strings.Join(args[2:], " "))
			}
			return t.server.with(c.Context(), func(o *redlatch.Options) {
				o.Locks = func(o *rlock.Options) { o.WatchdogTimeout = j.ttl }
			}, func(red *redlatch.Client) error {
				once := red.Locks().Once(args[0], j.opts)
				if c.Flags().Changed("wait") {
					once = once.WithWait(j.wait)
				}
				return j.do(c.Context(), once, args[1], path, args[2:])
			})
		},
	}
	c.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault)
	f := c.Flags()
	f.Var(within(&j.opts.Keep, time.Millisecond, century), "keep", "`time` for which the output is kept (default 24h)")
	f.Var(within(&j.opts.Stale, time.Millisecond, century), "stale",
		"`time` after --keep for which others get the old output while one renews it (default: they wait)")
	f.VarP(within(&j.wait, 0, century), "wait", "w",
		"longest `time` to wait for the command of another; 0 does not wait (default: forever)")
	f.Var(within(&j.ttl, 2*time.Second, century), "ttl",
		"lease that is renewed: the `time` for which a crashed machine keeps the key")
	f.Var(within(&j.grace, 0, century), "grace", "`time` between SIGTERM and SIGKILL when the command is stopped")
	f.StringVar(&j.fingerprint, "fingerprint", "",
		"`text` that must be equal in all calls of a key (default: the command)")
	f.VarP(between(&j.conflict, 0, 255), "conflict-exit-code", "E",
		"exit `code` if the command of another was still running after --wait")
	return c
}

// do runs the command or gets the output of an earlier one, and prints it.
func (j *onceJob) do(ctx context.Context, once *rlock.Once, key, path string, command []string) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	out, _, err := once.Do(ctx, key, j.fingerprint, func(ctx context.Context, token int64) ([]byte, error) {
		return j.command(ctx, path, command, token)
	})
	switch {
	case errors.Is(err, redlatch.ErrNotAcquired) && ctx.Err() == nil:
		return coded{j.conflict, err}
	case err != nil:
		return err
	}
	_, err = j.out.Write(out)
	return err
}

// command runs the command, and returns its output if it succeeds. Its own exit code is that of redlatch otherwise.
func (j *onceJob) command(ctx context.Context, path string, args []string, token int64) ([]byte, error) {
	var out bytes.Buffer
	p := exec.CommandContext(ctx, path)
	p.Args, p.Stdin, p.Stdout, p.Stderr, p.WaitDelay = args, j.in, &out, j.err, j.grace
	p.Env = append(os.Environ(), fmt.Sprint("REDLATCH_TOKEN=", token))
	p.Cancel = func() error { return p.Process.Signal(syscall.SIGTERM) }
	err := p.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &ended):
		_, _ = j.out.Write(out.Bytes())
		if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return nil, silent(exitSignal + int(status.Signal()))
		}
		return nil, silent(ended.ExitCode())
	}
	return nil, coded{exitCommand, err}
}

// lookAtOnce asks for a key of a Once, whose name is before the first colon.
func lookAtOnce(ctx context.Context, red *redlatch.Client, name string) (status, error) {
	s := status{Name: name, Kind: "once", Holders: []holder{}}
	of, key, _ := strings.Cut(name, ":")
	state, err := red.Locks().Once(of, rlock.OnceOptions{}).Inspect(ctx, key)
	if err != nil {
		return s, fmt.Errorf("%q: %w", name, err)
	}
	s.ofLock(state.Run)
	if state.Answered {
		s.AnswerBytes, s.FreshMS, s.LeftMS = &state.Bytes, millis(state.Fresh), millis(state.Left)
	}
	return s, nil
}

// isOnce reports whether a key of a Once has an answer or runs under a name.
func isOnce(ctx context.Context, red *redlatch.Client, full string) bool {
	c := red.Hub().Client()
	n, err := c.Do(ctx, c.B().Exists().Key(keyname.Suffix(full, "answer"), keyname.Suffix(full, "once")).Build()).AsInt64()
	return err == nil && n > 0
}
