package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// slot is the place of one worker process. It starts the process, hands it claims, and when the process dies starts
// another and hands it again what the dead one did not answer.
//
// A claim is in pending from before it is written until its answer is in the books, and the answers of a dead process
// are read to their end before its successor starts. So every claim is asked at least once and entered exactly once,
// whenever the process dies. Asking twice is harmless: package stock promises it.
type slot struct {
	sale *sale
	n    int // from 1

	mu       sync.Mutex
	pending  map[int64]claim // by line
	answered int64
	heard    time.Time     // when the process last said something, or was given work with nothing to do
	ready    bool          // the process sells
	moved    chan struct{} // has room for one: pending has shrunk
}

func newSlot(s *sale, n int) *slot {
	return &slot{sale: s, n: n, pending: map[int64]claim{}, moved: make(chan struct{}, 1)}
}

// run keeps a process in the slot until there is nothing left for it to do.
func (s *slot) run() {
	deaths := 0
	for {
		before := s.answered
		pid, err := s.process()
		if err == nil || s.sale.stopping() {
			return
		}
		var dead deadError
		if errors.As(err, &dead) {
			s.sale.end(fmt.Errorf("worker %d: %s", s.n, dead.reason))
			return
		}
		if deaths++; s.answered != before {
			deaths = 1
		}
		if deaths == s.sale.maxDeaths {
			s.sale.end(fmt.Errorf("worker %d died %d times without answering a claim in between; the last one ended with: %w",
				s.n, deaths, err))
			return
		}
		s.sale.console.say("worker %d (pid %d) ended with %v; starting another for its %s", s.n, pid, err,
			plural(int64(len(s.pending)), "unanswered claim"))
		select { // at once the first time, then ever more slowly
		case <-time.After(min(500*time.Millisecond, time.Duration(deaths-1)*50*time.Millisecond)):
		case <-s.sale.stop:
			return
		}
	}
}

// process runs one worker process. It returns nil when there is nothing left to do, or nothing more is wanted, and
// the reason of its end if it ended by itself.
func (s *slot) process() (pid int, err error) {
	cmd, err := s.sale.command(s.n)
	if err != nil {
		return 0, err
	}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	stderr := &prefixed{c: s.sale.console, prefix: fmt.Sprintf("worker %d", s.n)}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		return 0, deadError{fmt.Sprintf("cannot be started: %v", err)}
	}
	pid = cmd.Process.Pid
	s.setReady(false)
	s.sale.launched(s.n, cmd.Process)

	open, gone := make(chan struct{}), make(chan struct{})
	var readErr error
	go func() {
		defer close(gone)
		readErr = s.read(bufio.NewReader(stdout), open, pid)
		stdout.Close() // the rest of its output is not read; a write to the closed pipe ends it
	}()
	go s.watch(cmd, gone)

	config, _ := json.Marshal(s.sale.workerConfig()) // strings and numbers cannot fail
	w := bufio.NewWriterSize(stdin, 32<<10)
	w.Write(append(config, '\n'))
	w.Flush() // a write that fails is a process that is gone, which its stdout tells
	finished := s.feed(w, open, gone)
	stdin.Close()
	last := time.AfterFunc(s.sale.patience.Grace+time.Second, func() { cmd.Process.Kill() })
	<-gone
	waitErr := cmd.Wait()
	last.Stop()
	stderr.end()
	switch {
	case s.sale.stopping(), finished && s.unanswered() == 0:
		return pid, nil
	case readErr != nil:
		return pid, readErr
	case waitErr != nil:
		return pid, waitErr
	}
	return pid, errors.New("exit status 0 before its work was done")
}

// awaitOpening waits until the process sells. If it does not, finished is as feed says.
func (s *slot) awaitOpening(open, gone <-chan struct{}) (opened, finished bool) {
	for served := s.sale.served; ; served = nil {
		select {
		case <-open:
			return true, false
		case <-gone:
			return false, false
		case <-s.sale.stop:
			return false, true
		case <-served:
			if s.unanswered() == 0 {
				return false, true // the others were quicker
			}
		}
	}
}

// feed sends the claims left by an earlier process, then new ones, and waits for the answers. It reports whether
// nothing is left to do for this process, as opposed to its being gone.
func (s *slot) feed(w *bufio.Writer, open, gone <-chan struct{}) (finished bool) {
	sale := s.sale
	if opened, finished := s.awaitOpening(open, gone); !opened {
		return finished
	}
	for _, c := range s.again() {
		w.Write(appendClaim(nil, c))
	}
	var buf []byte
	for {
		if s.unanswered() >= sale.window() {
			w.Flush()
			select {
			case <-s.moved:
				continue
			case <-gone:
				return false
			case <-sale.stop:
			}
		}
		c, more, ok := s.take(w, gone)
		if !ok {
			return false
		}
		if !more {
			if !sale.stopping() {
				sale.taken.Do(func() { close(sale.served) })
			}
			break
		}
		s.add(c)
		buf = appendClaim(buf[:0], c)
		w.Write(buf)
	}
	w.Flush()
	var late <-chan time.Time
	stop := sale.stop
	for s.unanswered() > 0 {
		select {
		case <-s.moved:
		case <-gone:
			return false
		case <-stop:
			stop, late = nil, time.After(sale.patience.Grace)
		case <-late:
			return true
		case <-sale.hurry:
			return true
		}
	}
	return true
}

// take is the next claim to send; more is false at the end of the input or of the run, ok is false if the process is
// gone. It flushes before it has to wait.
func (s *slot) take(w *bufio.Writer, gone <-chan struct{}) (c claim, more, ok bool) {
	if s.sale.stopping() {
		return claim{}, false, true
	}
	select {
	case c, more = <-s.sale.todo:
		return c, more, true
	default:
		w.Flush()
	}
	select {
	case c, more = <-s.sale.todo:
		return c, more, true
	case <-gone:
		return claim{}, false, false
	case <-s.sale.stop:
		return claim{}, false, true
	}
}

// read takes the process's lines until it ends.
func (s *slot) read(r *bufio.Reader, open chan<- struct{}, pid int) error {
	for {
		text, err := r.ReadString('\n')
		if err != nil {
			return nil // the end; half a line is not an answer
		}
		reply, err := parseReply(strings.TrimSuffix(text, "\n"))
		if err != nil {
			return err
		}
		switch reply := reply.(type) {
		case deadError:
			return reply
		case opening:
			if !s.setReady(true) {
				return errors.New("it opened twice")
			}
			if err := s.sale.opened(s.n, pid, reply); err != nil {
				return deadError{err.Error()}
			}
			close(open)
		case answer:
			if !s.answer(reply) {
				return fmt.Errorf("it answered line %d, which it was not asked", reply.line)
			}
		}
	}
}

// watch kills a process that has work and has said nothing for too long: one that is stopped, or stuck. Its
// successor asks again.
func (s *slot) watch(cmd *exec.Cmd, gone <-chan struct{}) {
	limit := s.sale.patience.Quiet
	tick := time.NewTicker(limit / 4)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return
		case <-s.sale.hurry:
			cmd.Process.Kill()
			return
		case <-tick.C:
		}
		s.mu.Lock()
		stuck := (!s.ready || len(s.pending) > 0) && time.Since(s.heard) > limit
		s.mu.Unlock()
		if stuck {
			s.sale.console.say("worker %d (pid %d) has said nothing for %v and is killed", s.n, cmd.Process.Pid, limit)
			cmd.Process.Kill()
			return
		}
	}
}

// setReady reports whether that was news.
func (s *slot) setReady(to bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.ready
	s.ready, s.heard = to, time.Now()
	return was != to
}

func (s *slot) unanswered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// again lists the claims that an earlier process did not answer, in the order of the input.
func (s *slot) again() []claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	var cs []claim
	for _, c := range s.pending {
		cs = append(cs, c)
	}
	slices.SortFunc(cs, func(a, b claim) int { return cmp.Compare(a.line, b.line) })
	return cs
}

func (s *slot) add(c claim) {
	s.sale.books.took(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		s.heard = time.Now()
	}
	s.pending[c.line] = c
}

// answer enters an answer into the books, and reports whether it was asked for.
func (s *slot) answer(a answer) bool {
	s.mu.Lock()
	c, ok := s.pending[a.line]
	s.mu.Unlock()
	if !ok {
		return false
	}
	s.sale.answered(c, a)
	s.mu.Lock()
	delete(s.pending, a.line)
	s.answered++
	s.heard = time.Now()
	s.mu.Unlock()
	select {
	case s.moved <- struct{}{}:
	default:
	}
	return true
}
