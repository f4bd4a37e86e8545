package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/internal/chaos/cells"
	"github.com/redlatch/redlatch/internal/redistest"
)

// lateEnv makes this program the holder that is stopped.
const lateEnv = "REDLATCH_RIVALS_LATE"

// lateOrder is what a holder is to do.
type lateOrder struct {
	Library, Check, Kind string
	Setup                cells.Setup
	Accounts             string // their address
	Names                []string
}

// What became of a holder's write.
const (
	taken    = "taken"
	refused  = "refused"  // by the resource
	withheld = "withheld" // by the holder, whose library had reported the loss
)

// impatience is how long a library may take to get a lock that is free, or is soon: then it is asked once more. On a
// busy machine rueidislock, when its own attempt has taken longer than a lease, waits for a change of the key that
// never comes.
const impatience = 5 * time.Second

// acquire waits for a lock, for longer than a library does, too. What fails is tried again for a minute: on a busy
// machine a lease of etcd ends while its session waits.
func acquire(ctx context.Context, l cells.Locker, name string) (cells.Held, error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		in, cancel := context.WithCancel(ctx) // it has no deadline: rueidislock would end the hold with it
		late := time.AfterFunc(impatience, cancel)
		h, err := l.Lock(in, name)
		inTime := late.Stop()
		switch {
		case err == nil && inTime:
			context.AfterFunc(ctx, cancel)
			return h, nil
		case err == nil:
			err = context.Canceled
			_ = h.Release(ctx) // it may have ended with its context
		}
		cancel()
		if ctx.Err() != nil || time.Now().After(end) {
			return nil, fmt.Errorf("acquire %s: %w", name, err)
		}
	}
}

// some calls fn for each of n, up to limit at a time, and returns an error of it.
func some(n, limit int, fn func(i int) error) error {
	var wg sync.WaitGroup
	turns, errs := make(chan struct{}, limit), make(chan error, n)
	for i := range n {
		turns <- struct{}{}
		wg.Go(func() {
			errs <- fn(i)
			<-turns
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// holdLate acquires all locks and reads, says so, and writes when a line comes: it is stopped before that, or after its
// writes have left. Then it says what became of each.
func holdLate(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadString('\n')
	if err != nil {
		return err
	}
	var o lateOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	i := slices.IndexFunc(libraries, func(l cells.Library) bool { return l.Name == o.Library })
	if i < 0 {
		return fmt.Errorf("no library %q", o.Library)
	}
	locker, err := libraries[i].Open(ctx, o.Setup)
	if err != nil {
		return err
	}
	defer locker.Close()
	type trial struct {
		held cells.Held
		to   accounts
		n    int64
	}
	trials := make([]trial, len(o.Names))
	err = some(len(trials), atOneTime, func(i int) (err error) {
		t, name := &trials[i], o.Names[i]
		if t.to, err = openAccounts(o.Check, o.Accounts); err != nil {
			return err
		}
		if t.held, err = acquire(ctx, locker, name); err != nil {
			return err
		}
		t.n, err = t.to.read(ctx, name, t.held)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	if _, err := lines.ReadString('\n'); err != nil {
		return err
	}
	became := make([]string, len(trials))
	err = some(len(trials), len(trials), func(i int) error {
		t := &trials[i]
		defer t.to.close()
		if o.Kind == looks && !t.held.Held() {
			became[i] = withheld
			return nil
		}
		switch err := t.to.write(ctx, o.Names[i], t.held, t.n+1); {
		case err == nil:
			became[i] = taken
		case errors.Is(err, errRefused):
			became[i] = refused
		default:
			return fmt.Errorf("%s: %w", o.Names[i], err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(became)
}

// holder is this program as the holder that is stopped, and what it has started.
type holder struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startHolder(ctx context.Context, o lateOrder) (*holder, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &holder{cmd: exec.CommandContext(ctx, self)}
	h.cmd.Env = append(os.Environ(), lateEnv+"=1")
	h.cmd.Stderr = os.Stderr
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.out = bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(h.in).Encode(o); err != nil {
		h.end()
		return nil, err
	}
	return h, nil
}

func (h *holder) line() (string, error) {
	line, err := h.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the holder has ended: %w", err)
	}
	return line[:len(line)-1], nil
}

func (h *holder) signal(s syscall.Signal) error { return syscall.Kill(-h.cmd.Process.Pid, s) }

// stop returns when the process has stopped, a moment after the signal.
func (h *holder) stop() error {
	if err := h.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return redistest.AwaitStopped(h.cmd.Process.Pid)
}

func (h *holder) end() {
	h.in.Close()
	_ = h.signal(syscall.SIGKILL) // it may have ended
	h.cmd.Wait()
}
