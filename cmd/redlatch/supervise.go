//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
)

// errLostHold says that a command lost what it ran under.
var errLostHold = errors.New("lost")

// do acquires, runs the command and releases.
func (j *job) do(ctx context.Context, red *redlatch.Client) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	c, err := j.await(ctx, red, signals)
	if err != nil {
		return err
	}
	return j.hold(c, signals)
}

// hold runs the command under c, and releases c when the command has ended.
func (j *job) hold(c claim, signals <-chan os.Signal) error {
	g, err := startGuard(j.err)
	if err != nil {
		_ = j.release(c)
		return coded{exitOS, fmt.Errorf("start the guard of the command: %w", err)}
	}
	defer g.dismiss()
	p, err := start(j.path, j.command, j.environ(c), j.streams)
	if err != nil {
		_ = j.release(c)
		return err
	}
	g.target = p.target
	g.until(time.Until(c.Until()))
	p.let()
	why := (&supervisor{job: j, claim: c, process: p, guard: g}).run(signals)
	ending := 100 * time.Millisecond
	if j.interrupted {
		ending = 2 * time.Second // the whole group was signalled
	}
	if why != nil {
		p.clear(j.grace)
	} else if p.left(ending) {
		j.say("the command has ended, and left processes in the background that %s does not cover", j.what())
	}
	if err := j.release(c); errors.Is(err, redlatch.ErrLost) && why == nil {
		why = coded{exitLost,
			fmt.Errorf("%w: %s, before the command had ended; another may have had it", errLostHold, j.what())}
	}
	if why != nil {
		return why
	}
	return p.result()
}

// release releases, and says what is left if the server does not confirm it.
func (j *job) release(c claim) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := c.release(ctx)
	if err != nil && !errors.Is(err, redlatch.ErrLost) {
		j.say("release of %s: %v; it will be free when its lease ends", j.what(), err)
	}
	return err
}

// supervisor stops the command when its hold ends.
//
//	renewed in time                     nothing happens
//	no renewal, and the lease runs out  SIGTERM ahead of the end, SIGKILL at the end: no one else can have it before
//	lost at once (DEL, unlock --force)  SIGTERM, and SIGKILL after the grace
//	--max-hold is over                  the same, while the lease is renewed
type supervisor struct {
	*job
	claim    claim
	process  *process
	guard    *guarded
	until    time.Time // the end of the lease, as the guard knows it
	notifyAt time.Time // when the command is to be notified, if no renewal comes
	why      error
	kill     <-chan time.Time
}

// ahead is how long before the end of its lease the command is notified: the grace, but at most a third of what the
// lease has left, so that each renewal comes in time. A lock that was handed over has a lease of 4 s at first.
func ahead(left, grace time.Duration) time.Duration { return min(grace, left/3) }

// run returns why the command was stopped, when it has ended; nil if it ended by itself.
func (s *supervisor) run(signals <-chan os.Signal) error {
	var over <-chan time.Time
	if s.maxHold > 0 {
		over = time.After(s.maxHold)
	}
	done := s.claim.Done()
	for {
		var look <-chan time.Time
		if s.why == nil {
			look = time.After(s.lookIn())
		}
		select {
		case <-s.process.ended:
			return s.why
		case sig := <-signals:
			s.interrupted = s.interrupted || ends(sig)
			s.process.forward(sig)
		case <-over:
			over = nil
			s.stop(exitTime, fmt.Errorf("--max-hold %v is over", s.maxHold))
		case <-look:
			if s.lookIn() <= 0 {
				s.ending()
			}
		case <-done:
			done = nil
			if s.why != nil {
				s.process.signal(syscall.SIGKILL)
				continue
			}
			s.lost()
		case <-s.kill:
			s.kill = nil
			s.say("the command did not end within --grace %v: killed", s.grace)
			s.process.signal(syscall.SIGKILL)
		}
	}
}

// ending: the end of the lease is near, and no renewal has moved it.
func (s *supervisor) ending() {
	if s.lease > 0 {
		s.stop(exitTime, fmt.Errorf("--lease %v is over", s.lease))
	} else {
		s.stop(exitLost, fmt.Errorf("%w: the lease of %s could not be renewed", errLostHold, s.what()))
	}
}

// lost: the hold is over, and the command was not notified before.
func (s *supervisor) lost() {
	if s.lease > 0 && !time.Now().Before(s.until) {
		s.ending() // with a --grace of 0 both are due at once
	} else {
		s.stop(exitLost, fmt.Errorf("%w: %s; another may have it", errLostHold, s.what()))
	}
}

// lookIn tells the guard if a renewal has moved the end of the lease, and returns when to look again: after at most a
// second; 0 or less if the command is to be notified.
func (s *supervisor) lookIn() time.Duration {
	if until := s.claim.Until(); until != s.until {
		left := time.Until(until)
		s.guard.until(left)
		s.until, s.notifyAt = until, time.Now().Add(left-ahead(left, s.grace))
	}
	return min(time.Second, time.Until(s.notifyAt))
}

func (s *supervisor) stop(code int, why error) {
	if s.why != nil {
		return
	}
	s.why = coded{code, fmt.Errorf("%w; the command was stopped", why)}
	s.say("%v: stopping the command", why)
	s.guard.until(s.grace)
	s.process.signal(syscall.SIGTERM)
	s.process.signal(syscall.SIGCONT) // one that stands still would not hear it
	s.kill = time.After(s.grace)
}
