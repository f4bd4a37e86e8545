package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// sale is one run of the program: what the parent process knows.
type sale struct {
	options
	patience
	server    server
	name      string // of the stock
	private   bool   // the stock is this run's own
	parallel  int    // claims that a worker makes at the same time
	maxDeaths int    // of a worker, with no answer in between, until the run is given up
	command   func(worker int) (*exec.Cmd, error)
	started   func(worker int, p *os.Process)
	onAnswer  func() // a test's look at every answer

	console *console
	books   *books
	begun   time.Time // set with the first opening
	todo    chan claim
	served  chan struct{} // closed when the last claim of the input has been taken out of todo
	stop    chan struct{} // closed when no more claims are to be made
	hurry   chan struct{} // closed when answers are no longer waited for

	restarts  atomic.Int64
	taken     sync.Once    // closes served
	offered   atomic.Int64 // claims put into todo
	readAll   atomic.Bool  // the input was read to its end
	isOpen    atomic.Bool
	mu        sync.Mutex
	reason    error       // why it was stopped, if by an error
	signal    os.Signal   // or by which signal
	pids      map[int]int // by worker
	unsure    []claim     // failed claims that may have won all the same
	nFailures int64       // reported so far
}

const (
	maxUnsure   = 10_000 // failed claims looked up again at the end
	maxFailures = 10     // failed claims reported one by one
)

// window is how many claims a worker may have been sent and not answered: enough to keep it busy while its answers
// are on their way.
func (s *sale) window() int { return 2 * s.parallel }

// sell runs the sale to its end and returns its summary.
func (s *sale) sell(input source, sh *shop, signals <-chan os.Signal) *summary {
	over := make(chan struct{})
	var aux sync.WaitGroup
	aux.Go(func() { s.obey(signals, over) })
	aux.Go(func() { s.showProgress(input, over) })
	go s.dispatch(input) // not waited for: it may be blocked reading a terminal

	var slots []*slot
	var wg sync.WaitGroup
	for n := 1; n <= s.procs; n++ {
		sl := newSlot(s, n)
		slots = append(slots, sl)
		wg.Go(sl.run)
	}
	wg.Wait()
	elapsed := s.elapsed()

	var left []claim // not sent, or not answered
	for _, sl := range slots {
		left = append(left, sl.again()...)
	}
	if s.stopping() {
		left = append(left, s.untouched()...)
	}
	end, left := s.close(sh, left)
	close(over)
	aux.Wait()
	s.console.end()
	return s.summarize(elapsed, int64(len(left)), end)
}

// untouched takes the claims that were read and handed to no worker, and counts them.
func (s *sale) untouched() (cs []claim) {
	for {
		select {
		case c, ok := <-s.todo:
			if !ok {
				return cs
			}
			s.books.took(c)
			cs = append(cs, c)
		default:
			return cs
		}
	}
}

// obey ends the run at the first signal, and its waiting at the second.
func (s *sale) obey(signals <-chan os.Signal, over <-chan struct{}) {
	for n := 1; ; n++ {
		select {
		case sig := <-signals:
			switch n {
			case 1:
				s.mu.Lock()
				s.signal = sig
				s.mu.Unlock()
				s.console.say("%v: waiting for the answers to what was sent; again to stop at once", sig)
				s.end(nil)
			case 2:
				close(s.hurry)
			}
		case <-over:
			return
		}
	}
}

// end stops the run; of several reasons the first is kept.
func (s *sale) end(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping() {
		return
	}
	s.reason = reason
	close(s.stop)
}

func (s *sale) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// dispatch reads the input and offers it to the workers.
func (s *sale) dispatch(input source) {
	defer close(s.todo)
	name, header := s.inputName(), false
	var begun time.Time
	for n := int64(0); !s.stopping(); n++ {
		c, err := input.next()
		if f, ok := input.(*claimFile); ok && f.header != "" && !header {
			header = true
			s.console.say("%s:1: %q is taken for a header", name, f.header)
		}
		var bad *malformed
		switch {
		case errors.Is(err, io.EOF):
			s.readAll.Store(true)
			return
		case errors.As(err, &bad):
			s.books.skipped()
			s.console.say("%s:%d: skipped, %v", name, bad.line, bad)
			continue
		case err != nil:
			s.end(fmt.Errorf("reading %s after %s: %w", name, plural(n, "line"), err))
			return
		}
		if begun.IsZero() {
			begun = time.Now()
		}
		s.pace(begun, n)
		select {
		case s.todo <- c:
			s.offered.Add(1)
		case <-s.stop:
			return
		}
	}
}

// pace waits until claim n may come, or the run ends. What is late comes at once.
func (s *sale) pace(begun time.Time, n int64) {
	if s.rate == 0 {
		return
	}
	early := time.Until(begun.Add(time.Duration(float64(n) / float64(s.rate) * float64(time.Second))))
	if early < time.Millisecond {
		return
	}
	t := time.NewTimer(early)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.stop:
	}
}

// inputName stands before the number of a line in messages.
func (s *sale) inputName() string {
	switch s.claims {
	case "":
		return "crowd"
	case "-":
		return "stdin"
	}
	return s.claims
}

// workerConfig returns the configuration of a worker that starts now.
func (s *sale) workerConfig() workerConfig {
	c := workerConfig{Server: s.server, Name: s.name, Units: s.units, OpenFor: namedOpenFor, Form: s.form,
		MayOpen: !s.isOpen.Load(), Claims: s.parallel, Window: s.window(), patience: s.patience}
	if s.private {
		c.OpenFor = ownOpenFor
	}
	return c
}

// opened records that a worker sells. No claim is handed out before the first does so; what it found is therefore
// the stock before this run.
func (s *sale) opened(worker, pid int, o opening) error {
	first := s.books.opened(o.sold(), time.Now())
	switch {
	case !first && o.Epoch != s.books.start.epoch:
		return fmt.Errorf("the stock was opened anew during the run (opening %d, now %d)", s.books.start.epoch, o.Epoch)
	case first && s.unitsGiven && o.Limit != s.units:
		return fmt.Errorf("-stock %d: another process has just opened stock %q with %s", s.units, s.name,
			plural(o.Limit, "unit"))
	case o.Opened:
		s.console.say("worker %d (pid %d) got the leader lock and opened the sale of %s", worker, pid,
			plural(o.Limit, "unit"))
	}
	if first {
		s.mu.Lock()
		s.begun = time.Now()
		s.mu.Unlock()
		s.isOpen.Store(true)
	}
	return nil
}

// answered enters one answer.
func (s *sale) answered(c claim, a answer) {
	silence := s.books.answered(c, a, time.Now())
	if a.outcome == failed {
		s.mu.Lock()
		s.nFailures++
		n := s.nFailures
		if a.asked && len(s.unsure) < maxUnsure {
			s.unsure = append(s.unsure, c)
		}
		s.mu.Unlock()
		if n <= maxFailures {
			s.console.say("%s:%d: no answer for %q: %s", s.inputName(), c.line, c.user, a.err)
		} else if n == maxFailures+1 {
			s.console.say("further errors are counted, not shown")
		}
		if a.asked && silence > s.Retry {
			s.end(fmt.Errorf("%v has answered no claim for %v", s.server, silence.Round(time.Second)))
		}
	}
	s.onAnswer()
}

// launched tells the reader which processes to kill, and a test.
func (s *sale) launched(worker int, p *os.Process) {
	s.mu.Lock()
	_, again := s.pids[worker]
	s.pids[worker] = p.Pid
	var pids []string
	for n := 1; n <= s.procs && !again && len(s.pids) == s.procs; n++ {
		pids = append(pids, strconv.Itoa(s.pids[n]))
	}
	s.mu.Unlock()
	if again {
		s.restarts.Add(1)
		s.console.say("worker %d is now pid %d", worker, p.Pid)
	} else if pids != nil {
		hint := ""
		if s.rate > 0 {
			hint = "; try kill -9 " + pids[0]
		}
		s.console.say("%s: pid %s%s", plural(int64(len(pids)), "worker"), strings.Join(pids, ", "), hint)
	}
	s.started(worker, p)
}

func (s *sale) elapsed() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun.IsZero() {
		return 0
	}
	return time.Since(s.begun)
}

// close ends the sale of a private stock, so that no claim of a killed worker can still come in, and then asks for
// what is not known: whether the claims without an answer have won, and what the server itself counts. left are the
// claims that were not answered; those that have won are removed. It returns nil for what the
// server did not answer.
func (s *sale) close(sh *shop, left []claim) (*sold, []claim) {
	if !s.isOpen.Load() {
		return nil, left
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.Grace)
	defer cancel()
	if s.private && sh.goods.close(ctx) != nil {
		s.console.say("stock %q could not be closed; Redis forgets it by itself within %v", s.name, ownOpenFor+retain)
	}
	settle := func(cs []claim, failed bool) (rest []claim) {
		for i, c := range cs {
			has, err := sh.lookup(ctx, c.user)
			if err != nil {
				return append(rest, cs[i:]...)
			}
			if has.ordinal == 0 {
				rest = append(rest, c)
				continue
			}
			s.books.settle(c, has, failed)
		}
		return rest
	}
	left = settle(left, false)
	settle(s.unsure, true)
	st, err := sh.status(ctx)
	if err != nil {
		s.console.say("the server's own count could not be read: %v", err)
		return nil, left
	}
	return &sold{limit: st.Limit, count: st.Sold, last: st.Seq, cents: st.cents, epoch: st.Epoch}, left
}

// showProgress redraws the progress line until the run is over.
func (s *sale) showProgress(input source, over <-chan struct{}) {
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			s.console.progress(s.progressLine(input), now)
		case <-over:
			return
		}
	}
}

func (s *sale) progressLine(input source) string {
	if !s.isOpen.Load() {
		return "opening the sale …"
	}
	t, elapsed := s.books.totals(), s.elapsed()
	done := t.answers() + t.malformed + t.failed
	of := ""
	if s.claims == "" {
		of = fmt.Sprintf(" of %s %s", group(s.users), bar(done*100/s.users))
	} else if f, ok := input.(*claimFile); ok {
		if percent, ok := f.done(); ok {
			of = " " + bar(percent)
		}
	}
	line := fmt.Sprintf("%s%s claims, %s of %s won, %s/s, %d:%02d", group(done), of, group(t.winners),
		plural(s.units, "unit"),
		group(perSecond(t.answers(), elapsed)), int(elapsed.Minutes()), int(elapsed.Seconds())%60)
	if n := s.restarts.Load(); n > 0 {
		line += ", " + plural(n, "restart")
	}
	return line
}

// bar shows a part of the whole.
func bar(percent int64) string {
	const width = 20
	full := int(min(percent, 100) * width / 100)
	return fmt.Sprintf("[%s%s] %d %%", strings.Repeat("#", full), strings.Repeat(".", width-full), percent)
}

func perSecond(n int64, d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(float64(n) / d.Seconds())
}
