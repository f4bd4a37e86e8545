//go:build unix

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// job is what the flags of run say.
type job struct {
	*tool
	kind, name      string // of the object that the job holds: lock, semaphore or election
	capacity        int
	permits         int
	wait            time.Duration
	bounded, atOnce bool // --wait or -n was given; -n was
	lease, maxHold  time.Duration
	atLeast, ttl    time.Duration
	grace           time.Duration
	label           string
	conflict        int
	fenced, live    bool
	apart           bool
	interrupted     bool // a signal came that ends processes
	command         []string
	path            string // of the command's program
	place           string
	inherited       []held
}

func (t *tool) run() *cobra.Command {
	j := &job{tool: t, permits: 1, ttl: 30 * time.Second, grace: 5 * time.Second, conflict: exitConflict}
	var lock, semaphore string // one of them is empty
	c := &cobra.Command{
		Use:   "run {--lock NAME | --semaphore NAME -c N} [flags] -- command [args...]",
		Short: "run a command while holding a lock or a permit",
		RunE: func(c *cobra.Command, args []string) error {
			j.command = args
			if j.kind, j.name = "lock", lock; semaphore != "" {
				j.kind, j.name = "semaphore", semaphore
			}
			j.bounded = c.Flags().Changed("wait") || j.atOnce
			if err := j.check(); err != nil {
				return err
			}
			return t.server.with(c.Context(), func(o *redlatch.Options) {
				o.Locks = func(o *rlock.Options) { o.WatchdogTimeout, o.Liveness = j.ttl, j.live }
				o.Semaphores = func(o *rsemaphore.Options) { o.WatchdogTimeout = j.ttl }
			}, func(red *redlatch.Client) error { return j.do(c.Context(), red) })
		},
	}
	c.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault)
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVarP(&lock, "lock", "l", "", "`name` of the lock")
	f.StringVarP(&semaphore, "semaphore", "s", "", "`name` of the semaphore; needs -c")
	f.VarP(between(&j.capacity, 1, 1<<31-1), "capacity", "c",
		"capacity of the semaphore: a `number`, the same in all runs")
	f.Var(between(&j.permits, 1, 1000), "permits", "`number` of permits to take")
	f.BoolVarP(&j.atOnce, "nonblock", "n", false, "do not wait, as --wait 0")
	f.VarP(within(&j.wait, 0, century), "wait", "w", "longest `time` to wait; 0 tries once (default: forever)")
	f.Var(within(&j.lease, time.Second, century), "lease",
		"fixed lease: hold for this `time` without renewal, even if this machine dies")
	f.Var(within(&j.maxHold, 10*time.Millisecond, century), "max-hold", "longest `time` to hold: then stop the command")
	f.Var(within(&j.atLeast, time.Millisecond, century), "at-least",
		"shortest `time` to hold, even if the command ends early")
	f.Var(within(&j.ttl, 2*time.Second, century), "ttl",
		"lease that is renewed: the `time` for which a crashed machine keeps the lock")
	f.BoolVar(&j.live, "liveness", false,
		"take over a crashed holder's lock after 3 to 4 s; both the holder and the waiter need it, and an "+
			"outage of 3 s ends the hold")
	f.BoolVar(&j.fenced, "fenced", false, "set REDLATCH_TOKEN to a fencing token")
	f.StringVar(&j.label, "label", defaultLabel(), "label of the holder, which inspect shows to everyone")
	f.Var(within(&j.grace, 0, century), "grace", "`time` between SIGTERM and SIGKILL when the command is stopped")
	f.VarP(between(&j.conflict, 0, 255), "conflict-exit-code", "E",
		"exit `code` if the lock or permit was not acquired within --wait")
	f.BoolVar(&j.apart, "no-join", false, "wait instead of joining a hold of an ancestor process")
	c.MarkFlagsOneRequired("lock", "semaphore")
	c.MarkFlagsMutuallyExclusive("lock", "semaphore")
	c.MarkFlagsMutuallyExclusive("lease", "max-hold")
	c.MarkFlagsMutuallyExclusive("nonblock", "wait")
	for _, flag := range []string{"at-least", "fenced", "liveness", "no-join"} {
		c.MarkFlagsMutuallyExclusive("semaphore", flag)
	}
	for _, flag := range []string{"capacity", "permits"} {
		c.MarkFlagsMutuallyExclusive("lock", flag)
	}
	c.MarkFlagsRequiredTogether("semaphore", "capacity")
	_ = c.RegisterFlagCompletionFunc("lock", t.offer(1, noFiles))
	_ = c.RegisterFlagCompletionFunc("semaphore", t.offer(1, noFiles))
	return c
}

func defaultLabel() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s:%d", cmp.Or(host, "unknown"), os.Getpid())
}

// check refuses what cannot be used, before anything is sent.
func (j *job) check() error {
	if len(j.command) == 0 {
		return usage("no command: put it after --, as in redlatch run --lock NAME -- command args")
	}
	if err := keyname.Check(j.server.prefix + j.name); err != nil {
		return usage("--%s %q: %w", j.kind, j.name, err)
	}
	if j.kind == "semaphore" && j.permits > j.capacity {
		return usage("--permits %d: must be at most -c %d", j.permits, j.capacity)
	}
	if len(j.label) > 256 {
		return usage("--label %q: has %d bytes, may have 256", j.label, len(j.label))
	}
	o, err := j.server.option()
	if err != nil {
		return err
	}
	j.place = j.server.place(o)
	if env := os.Getenv(heldEnv); env != "" {
		if err := json.Unmarshal([]byte(env), &j.inherited); err != nil {
			return usage("%s: %q is not what redlatch run writes: %w", heldEnv, env, err)
		}
	}
	if j.path, err = exec.LookPath(j.command[0]); err != nil {
		return coded{exitCommand, err}
	}
	return nil
}
