//go:build unix

package main

import (
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

const runHelp = `run acquires a lock, or a permit of a semaphore, runs a command while it holds it, and releases it
when the command has ended.

Without --wait it waits for as long as another has it, as flock(1) does; -n, or --wait 0, asks once. A server that
cannot be reached at the start is not waited for.

While the command runs, the lease is renewed. If that does not succeed, the command is stopped before the lease is
over: SIGTERM at --grace before its end (earlier for a short lease), SIGKILL at its end. If the lock is lost at once,
because it was taken by unlock --force or its key is gone, the command gets SIGTERM then, and SIGKILL after --grace;
meanwhile another may have it. So a command never outlives its hold without a word on stderr and an exit code of 125.
The same is true if redlatch itself is killed or stops: a second process, "redlatch guard", then stops the command.

HUP, INT, QUIT, TERM, USR1 and USR2 are forwarded. The command and its children are a process group, which gets all
signals. Only if redlatch is in the foreground of a terminal does the command stay in its group, as with timeout
--foreground: then ctrl-c reaches both, and children of the command are not stopped with it. What the command leaves
running in the background when it ends is not covered by the lock; redlatch says so.

The command finds in its environment

  REDLATCH_LOCK       the name of the lock
  REDLATCH_OWNER      the text under which the server knows this hold
  REDLATCH_TOKEN      with --fenced: the fencing token, a number greater than that of every earlier hold
  REDLATCH_SEMAPHORE  the name of the semaphore
  REDLATCH_REDIS      the server, if it was given by --redis
  REDLATCH_HELD       all locks that its ancestors hold, for redlatch

So a child of the command that runs redlatch run on the same lock joins the hold, at once, and does not wait for
itself. --no-join waits. A semaphore is not joined: each run takes permits of its own.

A semaphore has as many permits as the first run that uses it says with -c. While any is out, a run with another -c is
refused (65); when none is, the next run may bring another number.`

const runExamples = `  redlatch run --lock nightly-report -n --at-least 1m -- ./report.sh            a cron job on many machines: one runs it
  redlatch run --lock deploy --wait 10m --max-hold 1h -- ./deploy.sh            one deployment at a time, an hour at most
  redlatch run --semaphore encoders -c 3 -- ffmpeg -i in.mkv out.mp4            three at a time, on all machines
  redlatch run --lock db --fenced -- sh -c 'migrate --token "$REDLATCH_TOKEN"'  a resource that checks fencing tokens
  redlatch run --lock backup -E 75 -n -- ./backup.sh                            another exit code if another has it`

// job is what the flags of run say.
type job struct {
	*tool
	lock, semaphore string
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
	election        bool // lock is the name of one
	priority        int
	interrupted     bool // a signal came that ends processes
	command         []string
	path            string // of the command's program
	place           string
	inherited       []held
}

func (t *tool) run() *cobra.Command {
	j := &job{tool: t}
	c := &cobra.Command{
		Use:     "run {--lock NAME | --semaphore NAME -c N} [flags] -- command [args...]",
		Short:   "run a command while holding a lock or a permit",
		Long:    runHelp + "\n\n" + exitHelp,
		Example: runExamples,
		RunE: func(c *cobra.Command, args []string) error {
			j.command = args
			j.bounded = c.Flags().Changed("wait") || j.atOnce
			if err := j.check(c.Flags().Changed); err != nil {
				return err
			}
			o, err := t.server.option()
			if err != nil {
				return err
			}
			j.place = t.server.place(o)
			red, err := t.server.open(o, func(o *redlatch.Options) {
				o.Locks = func(o *rlock.Options) { o.WatchdogTimeout, o.Liveness = j.ttl, j.live }
				o.Semaphores = func(o *rsemaphore.Options) { o.WatchdogTimeout = j.ttl }
			})
			if err != nil {
				return err
			}
			err = j.do(c.Context(), red)
			t.server.close(c.Context(), red, err)
			return err
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVarP(&j.lock, "lock", "l", "", "hold the lock of this `name`")
	f.StringVarP(&j.semaphore, "semaphore", "s", "", "hold a permit of the semaphore of this `name`; needs -c")
	f.IntVarP(&j.capacity, "capacity", "c", 0, "the semaphore has this `number` of permits in all; the same in all runs")
	f.IntVar(&j.permits, "permits", 1, "take this `number` of permits")
	f.BoolVarP(&j.atOnce, "nonblock", "n", false, "do not wait: --wait 0")
	f.DurationVarP(&j.wait, "wait", "w", 0, "wait for at most this `time`; 0: ask once (default: forever)")
	f.DurationVar(&j.lease, "lease", 0,
		"hold for this `time` and do not renew: it stays taken for that long even if this machine dies")
	f.DurationVar(&j.maxHold, "max-hold", 0, "stop the command after this `time`")
	f.DurationVar(&j.atLeast, "at-least", 0,
		"keep the lock taken until this `time` after it was acquired, however early the command ends")
	f.DurationVar(&j.ttl, "ttl", 30*time.Second,
		"the lease that is renewed: for this `time` the lock stays taken after a crash")
	f.BoolVar(&j.live, "liveness", false,
		"take a crashed holder's lock over after about 3 s; holder and waiter both need it, and a server "+
			"that is away for 3 s ends the hold")
	f.BoolVar(&j.fenced, "fenced", false, "give the command a fencing token")
	f.StringVar(&j.label, "label", defaultLabel(), "what inspect shows of the holder, to everybody")
	f.DurationVar(&j.grace, "grace", 5*time.Second, "the `time` between SIGTERM and SIGKILL when the command is stopped")
	f.IntVarP(&j.conflict, "conflict-exit-code", "E", exitConflict,
		"exit with this `code` if it was not acquired within --wait")
	f.BoolVar(&j.apart, "no-join", false, "do not join a hold of an ancestor")
	return c
}

func defaultLabel() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// checkPermits refuses permits that a semaphore cannot have, and flags that are for locks or for semaphores only.
func (j *job) checkPermits(given func(flag string) bool) error {
	if j.semaphore == "" {
		if given("capacity") || given("permits") {
			return usage("-c and --permits are for --semaphore only")
		}
		return nil
	}
	for _, flag := range []string{"at-least", "fenced", "liveness"} {
		if given(flag) {
			return usage("--%s is for --lock only", flag)
		}
	}
	if j.capacity < 1 || j.capacity > 1<<31-1 {
		return usage("-c %d: a semaphore needs from 1 to 2147483647 permits in all", j.capacity)
	}
	if j.permits < 1 || j.permits > min(j.capacity, 1000) {
		return usage("--permits %d: must be from 1 to -c %d, and at most 1000", j.permits, j.capacity)
	}
	return nil
}

// check refuses what cannot be used, before anything is sent.
func (j *job) check(given func(flag string) bool) error {
	switch {
	case (j.lock == "") == (j.semaphore == ""):
		return usage("--lock %q, --semaphore %q: exactly one of them is needed", j.lock, j.semaphore)
	case len(j.command) == 0:
		return usage("no command: write it after --, as in redlatch run --lock NAME -- command args")
	}
	name, flag := j.lock, "--lock"
	if j.semaphore != "" {
		name, flag = j.semaphore, "--semaphore"
	}
	if err := keyname.Check(j.server.prefix + name); err != nil {
		return usage("%s %q: %w", flag, name, err)
	}
	if err := j.checkPermits(given); err != nil {
		return err
	}
	if err := j.times(given); err != nil {
		return err
	}
	if j.conflict < 0 || j.conflict > 255 {
		return usage("-E %d: an exit code is 0 to 255", j.conflict)
	}
	if len(j.label) > 256 {
		return usage("--label %q: has %d bytes, may have 256", j.label, len(j.label))
	}
	var err error
	if j.inherited, err = inherited(os.Getenv(heldEnv)); err != nil {
		return usage("%s: %w", heldEnv, err)
	}
	if j.path, err = exec.LookPath(j.command[0]); err != nil {
		return coded{exitCommand, err}
	}
	return nil
}

// times checks the flags with durations.
func (j *job) times(given func(flag string) bool) error {
	for _, d := range []struct {
		flag    string
		value   time.Duration
		least   time.Duration
		most    time.Duration
		ifGiven bool
	}{
		{"wait", j.wait, 0, 0, true},
		{"lease", j.lease, time.Second, 0, true},
		{"max-hold", j.maxHold, 10 * time.Millisecond, 0, true},
		{"at-least", j.atLeast, time.Millisecond, 100 * 365 * 24 * time.Hour, true},
		{"ttl", j.ttl, 2 * time.Second, 0, false},
		{"grace", j.grace, 0, 0, false},
	} {
		switch {
		case d.ifGiven && !given(d.flag):
		case d.value < d.least:
			return usage("--%s %v: must be at least %v", d.flag, d.value, d.least)
		case d.most != 0 && d.value > d.most:
			return usage("--%s %v: must be at most %v", d.flag, d.value, d.most)
		}
	}
	if j.atOnce && j.wait > 0 {
		return usage("-n, --wait %v: only one of them: -n does not wait", j.wait)
	}
	if given("lease") && given("max-hold") {
		return usage("--lease %v, --max-hold %v: only one of them: --lease is not renewed, --max-hold is", j.lease, j.maxHold)
	}
	return nil
}
