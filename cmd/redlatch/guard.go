//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// slack is how much later than redlatch its guard acts, so that it does so only if redlatch does not.
const slack = 500 * time.Millisecond

// guarded is the guard of a command, as redlatch sees it: another process, that stops the command if redlatch itself is
// killed, or does not move on the end of the lease because it is stopped. It reads orders from its standard input, one
// a line:
//
//	watch <number for kill(2)>
//	until <milliseconds from now>
//	done
//
// The end of the input without done means that redlatch is gone. Then the command gets SIGTERM, and SIGKILL 5 s later
// or at the end of the lease.
type guarded struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func startGuard(messages io.Writer) (*guarded, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g := &guarded{cmd: exec.Command(self, "guard")}
	g.cmd.Stderr = messages
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends our group does not end it
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return g, g.cmd.Start()
}

func (g *guarded) order(text string) { io.WriteString(g.in, text+"\n") }

func (g *guarded) watch(target int, left time.Duration) {
	g.order("watch " + strconv.Itoa(target))
	g.until(left)
}

func (g *guarded) until(left time.Duration) {
	g.order("until " + strconv.FormatInt(left.Milliseconds(), 10))
}

func (g *guarded) dismiss() {
	g.order("done")
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
			word, arg, _ := strings.Cut(line, " ")
			n, _ := strconv.ParseInt(arg, 10, 64)
			switch {
			case !ok:
				if target != 0 {
					fmt.Fprintln(messages, "redlatch guard: the process that holds the lock is gone: stopping the command")
				}
				stopTarget(target, min(5*time.Second, time.Until(end)))
				return
			case word == "watch":
				target = int(n)
			case word == "until":
				end = time.Now().Add(time.Duration(n) * time.Millisecond)
			case word == "done":
				return
			}
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
