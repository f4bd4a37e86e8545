//go:build unix && !solaris && !aix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// When the late write comes: see the command's comment.
const (
	meanwhile = iota
	beforeReading
	beforeWriting
	afterWriting
	moments
)

// momentOf is when the late write to an account comes: its number says so.
func momentOf(name string) int {
	n, _ := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	return n % moments
}

// try makes trials of all guards, and returns the counts of each guard and way, and how many of each are done. After an
// error these are trials that were counted before it.
func try(ctx context.Context, guards []string, trials, batch int, lease time.Duration) (
	counts map[string]*count, done int, err error) {
	sites, end, err := serve(guards)
	defer end()
	if err != nil {
		return nil, 0, err
	}
	red, err := open(sites.Redis)
	if err != nil {
		return nil, 0, err
	}
	defer red.Close(context.WithoutCancel(ctx))
	accounts, endAccounts, err := sites.open(red)
	if err != nil {
		return nil, 0, err
	}
	defer endAccounts()
	counts = map[string]*count{}
	for _, g := range guards {
		for _, way := range ways {
			counts[g+"-"+way] = &count{}
		}
	}
	for done < trials {
		n := min(batch, trials-done)
		o := orders{Sites: sites, Names: map[string][]string{}, Lease: lease}
		for key := range counts {
			for i := range n {
				name := fmt.Sprintf("%s-%d", key, done+i)
				o.Names[key] = append(o.Names[key], name)
			}
			if err := accounts[key].create(ctx, o.Names[key]); err != nil {
				return counts, done, err
			}
		}
		if err := stopOnce(ctx, red, accounts, o, counts); err != nil {
			return counts, done, fmt.Errorf("trials from %d: %w", done, err)
		}
		done += n
	}
	return counts, done, nil
}

// successor is the holder of a lock after the one that was stopped.
type successor struct {
	trial
	moment int
	counts *count
	hold   *rlock.Hold
}

// stopOnce has a child acquire all locks, stops it until their leases have ended, and counts.
func stopOnce(ctx context.Context, red *redlatch.Client, accounts map[string]account, o orders,
	counts map[string]*count) error {
	c, err := spawn(ctx, o)
	if err != nil {
		return err
	}
	defer c.end()
	if line, err := c.line(); err != nil || line != "ready" {
		return fmt.Errorf("the holder says %q: %w", line, err)
	}
	if err := c.stop(); err != nil {
		return err
	}
	if _, err := io.WriteString(c.in, "go on\n"); err != nil { // which it reads when it is woken
		return err
	}
	var next []*successor
	for name, key := range o.each {
		next = append(next, &successor{trial: trial{account: accounts[key], name: name}, moment: momentOf(name),
			counts: counts[key]})
	}
	err = all(len(next), func(i int) error { return next[i].before(ctx, red) })
	if err != nil {
		return err
	}
	if err := c.process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if err := all(len(next), func(i int) error { return next[i].during(ctx) }); err != nil {
		return err
	}
	line, err := c.line()
	if err != nil {
		return err
	}
	var taken map[string]bool
	if err := json.Unmarshal([]byte(line), &taken); err != nil {
		return err
	}
	err = all(len(next), func(i int) error { return next[i].after(ctx) })
	if err != nil {
		return err
	}
	for _, s := range next {
		late, ok := taken[s.name]
		if !ok {
			return fmt.Errorf("%s: the holder does not say what became of its write", s.name)
		}
		if err := s.count(late); err != nil {
			return err
		}
	}
	return nil
}

// count counts a trial by whether the late write was taken.
func (s *successor) count(late bool) error {
	acknowledged := int64(1) // the successor's, which has not failed
	if late {
		acknowledged++
		s.counts.Taken++
	} else {
		s.counts.Refused++
	}
	s.counts.Trials++
	if s.value < acknowledged {
		s.counts.Lost++
	} else if s.value > acknowledged {
		return fmt.Errorf("%s: %d of %d writes are there: the trial is wrong", s.name, s.value, acknowledged)
	}
	return nil
}

// before is what the successor does while the other holder is stopped.
func (s *successor) before(ctx context.Context, red *redlatch.Client) (err error) {
	if s.hold, err = red.Locks().Fenced(s.name).Lock(ctx); err != nil {
		return err
	}
	if s.token, err = redlatchfence.Of(s.hold); err != nil {
		return err
	}
	switch s.moment {
	case beforeWriting:
		return s.read(ctx)
	case afterWriting:
		return s.readAndAdd(ctx)
	}
	return nil
}

// during is what it does while the other one writes.
func (s *successor) during(ctx context.Context) error {
	if s.moment != meanwhile {
		return nil
	}
	time.Sleep(rand.N(2 * time.Millisecond))
	return s.readAndAdd(ctx)
}

// after is what it does once that has written, and the last look.
func (s *successor) after(ctx context.Context) error {
	var err error
	switch s.moment {
	case beforeReading:
		err = s.readAndAdd(ctx)
	case beforeWriting:
		err = s.add(ctx)
	}
	if err == nil {
		s.value, err = s.look(ctx, s.name)
	}
	return errors.Join(err, s.hold.Unlock(ctx))
}

func (s *successor) readAndAdd(ctx context.Context) error {
	if err := s.read(ctx); err != nil {
		return err
	}
	return s.add(ctx)
}

// child is this program as the holder that is stopped.
type child struct {
	process *os.Process
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func spawn(ctx context.Context, o orders) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-holder")
	cmd.Stderr = os.Stderr
	c := &child{cmd: cmd}
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.process = cmd.Process
	if _, err := io.WriteString(c.in, o.text()+"\n"); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

func (c *child) line() (string, error) {
	line, err := c.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the holder has ended: %w", err)
	}
	return line[:len(line)-1], nil
}

// stop returns when the process has stopped, a moment after the signal.
func (c *child) stop() error {
	if err := c.process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return redistest.AwaitStopped(c.process.Pid)
}

func (c *child) end() {
	c.in.Close()
	c.process.Kill()
	c.cmd.Wait()
}
