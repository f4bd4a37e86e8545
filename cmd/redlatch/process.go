//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// forwarded are the signals that the command gets, too.
var forwarded = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1,
	syscall.SIGUSR2}

// ends reports whether a signal ends the waiting.
func ends(s os.Signal) bool { return s != syscall.SIGUSR1 && s != syscall.SIGUSR2 }

func signalled(s os.Signal) error {
	n, _ := s.(syscall.Signal)
	return coded{exitSignal + int(n), fmt.Errorf("ended by signal %v before anything was acquired", s)}
}

// self is this program. Where the system does not know it, nothing starts.
var self, _ = os.Executable()

// process is the command that runs, and its group.
type process struct {
	cmd    *exec.Cmd
	target int  // for kill: the negative group, or the process
	shared bool // it is in the group of this process, which a terminal's ctrl-c reaches as a whole
	gate   *os.File
	ended  chan struct{}
	err    error // of Wait, after ended
}

// foreground reports whether this process is in the foreground of a terminal.
func foreground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// start starts the command: in a group of its own, so that its children are signalled with it; in the foreground of a
// terminal in the group of this process, because another group could not read from the terminal.
//
// What starts is "redlatch exec", which becomes the command when let says so. Until then nothing of the command runs,
// so this process may be killed at any moment: before the guard knows of the command nothing runs on, and afterwards
// the guard sees to it.
func start(path string, args, env []string, s streams) (*process, error) {
	gate, opener, err := os.Pipe()
	if err != nil {
		return nil, coded{exitOS, err}
	}
	defer gate.Close()
	p := &process{cmd: exec.Command(self, append([]string{"exec", path}, args...)...), shared: foreground(), gate: opener,
		ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = s.in, s.out, s.err
	p.cmd.ExtraFiles = []*os.File{gate}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !p.shared}
	if err := p.cmd.Start(); err != nil {
		opener.Close()
		return nil, coded{exitOS, err}
	}
	p.target = p.cmd.Process.Pid
	if !p.shared {
		p.target = -p.target
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// let lets the command run.
func (p *process) let() {
	p.gate.Write([]byte{1})
	p.gate.Close()
}

// become is "redlatch exec": it becomes the command when it is let.
func become() *cobra.Command {
	return &cobra.Command{
		Use: "exec", Hidden: true, DisableFlagParsing: true, Args: cobra.MinimumNArgs(2),
		Short: "become the command of a redlatch run; run starts it",
		RunE: func(_ *cobra.Command, args []string) error {
			syscall.CloseOnExec(3)
			if n, _ := os.NewFile(3, "gate").Read(make([]byte, 1)); n == 0 {
				return silent(exitOS) // who held the lock is gone
			}
			return coded{exitCommand, fmt.Errorf("%s: %w", args[0], syscall.Exec(args[0], args[1:], os.Environ()))}
		},
	}
}

// signal sends s to the command, unless the command has ended: then the number may be another's.
func (p *process) signal(s os.Signal) {
	select {
	case <-p.ended:
	default:
		if n, ok := s.(syscall.Signal); ok {
			syscall.Kill(p.target, n)
		}
	}
}

// forward passes a signal on that this process got. A terminal has sent its own to the whole group already.
func (p *process) forward(s os.Signal) {
	if p.shared && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
		return
	}
	p.signal(s)
}

// left reports whether processes of the command's group run on after d, in which those that are just ending may do so.
func (p *process) left(d time.Duration) bool { return !p.shared && !gone(p.target, d) }

// clear ends what is left of a command that was stopped.
func (p *process) clear(grace time.Duration) {
	if !p.shared && !gone(p.target, grace) {
		syscall.Kill(p.target, syscall.SIGKILL)
	}
}

// gone waits until nothing is left of a process or group, for at most d, and reports whether that is so.
func gone(target int, d time.Duration) bool {
	for end := time.Now().Add(d); ; time.Sleep(10 * time.Millisecond) {
		if errors.Is(syscall.Kill(target, 0), syscall.ESRCH) {
			return true
		}
		if !time.Now().Before(end) {
			return false
		}
	}
}

// result is the exit code of the command, as a shell has it.
func (p *process) result() error {
	var exit *exec.ExitError
	switch {
	case p.err == nil:
		return nil
	case !errors.As(p.err, &exit):
		return coded{exitOS, p.err}
	}
	if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return silent(exitSignal + int(w.Signal()))
	}
	return silent(exit.ExitCode())
}

// slack is how much later than redlatch its guard acts, so that it does so only if redlatch does not.
const slack = 500 * time.Millisecond

// guarded is the guard of a command, as redlatch sees it: another process, that stops the command if redlatch itself is
// killed, or does not move on the end of the lease because it is stopped. A line of its standard input is a number for
// kill(2), and the milliseconds until the lease ends; an empty line says that the command has ended.
//
// The end of the input without that means that redlatch is gone. Then the command gets SIGTERM, and SIGKILL 5 s later
// or at the end of the lease.
type guarded struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	target int
}

func startGuard(messages io.Writer) (g *guarded, err error) {
	g = &guarded{cmd: exec.Command(self, "guard")}
	g.cmd.Stderr = messages
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends our group does not end it
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return g, g.cmd.Start()
}

func (g *guarded) until(left time.Duration) { fmt.Fprintln(g.in, g.target, left.Milliseconds()) }

func (g *guarded) dismiss() {
	fmt.Fprintln(g.in)
	g.in.Close()
	g.cmd.Wait()
}

// guard is the guard itself.
func guard(messages io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "guard", Hidden: true, Args: cobra.NoArgs,
		Short: "stop the command of a redlatch run that was killed; run starts it",
		Run: func(c *cobra.Command, _ []string) {
			signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
			keepWatch(c.InOrStdin(), messages)
		},
	}
}

func keepWatch(orders io.Reader, messages io.Writer) {
	lines := make(chan string)
	go func() {
		for s := bufio.NewScanner(orders); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}()
	target, end := 0, time.Now().Add(time.Hour)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				if target != 0 {
					fmt.Fprintln(messages, "redlatch guard: the process that holds the lock is gone: stopping the command")
				}
				stopTarget(target, min(5*time.Second, time.Until(end)))
				return
			}
			var left int64
			if n, _ := fmt.Sscan(line, &target, &left); n < 2 {
				return
			}
			end = time.Now().Add(time.Duration(left) * time.Millisecond)
		case <-time.After(time.Until(end) + slack):
			fmt.Fprintln(messages,
				"redlatch guard: the lease is over, and the process that holds the lock does not run: killing the command")
			stopTarget(target, 0)
			return
		}
	}
}

// stopTarget returns when there is no such process any more, or it was killed.
func stopTarget(target int, grace time.Duration) {
	if target == 0 {
		return // nothing was started; and 0 would be this process's own group
	}
	syscall.Kill(target, syscall.SIGTERM)
	syscall.Kill(target, syscall.SIGCONT)
	if gone(target, grace) {
		return
	}
	syscall.Kill(target, syscall.SIGKILL)
}
