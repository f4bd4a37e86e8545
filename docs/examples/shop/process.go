package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// slot keeps one process of the shop running: when it dies, by the chaos or by itself, the next one starts with the
// same orders.
type slot struct {
	role    string
	station station
	say     func(format string, args ...any)

	mu     sync.Mutex
	cmd    *exec.Cmd // nil: none runs
	starts int
}

// run keeps the process running until ctx ends, then asks it to close, and waits for that.
func (s *slot) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.once(ctx); err != nil && ctx.Err() == nil {
			s.say("%s %d: %v", s.role, s.station.Number, err)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// once is the life of one process.
func (s *slot) once(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"="+s.role)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	orders, err := json.Marshal(s.station)
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.mu.Lock()
	s.cmd = cmd
	s.starts++
	s.mu.Unlock()
	stdin.Write(append(orders, '\n')) // of a process that is dead already: Wait says so
	stop := context.AfterFunc(ctx, func() {
		stdin.Close()
		time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
	})
	defer stop()
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		s.say("%s %d: %s", s.role, s.station.Number, lines.Text())
	}
	err = cmd.Wait()
	s.mu.Lock()
	s.cmd = nil
	s.mu.Unlock()
	var exited *exec.ExitError
	if errors.As(err, &exited) {
		return nil // killed; or it has said why on stderr
	}
	return err
}

// kill kills the process, as kill -9 does, and returns its id; 0 if none runs.
func (s *slot) kill() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil || s.cmd.Process.Kill() != nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// freeze stops the process for a time, as a machine that is suspended does, and reports whether one runs.
func (s *slot) freeze(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil || s.cmd.Process.Signal(syscall.SIGSTOP) != nil {
		return false
	}
	p := s.cmd.Process
	time.AfterFunc(d, func() { p.Signal(syscall.SIGCONT) })
	return true
}

// restarts is how many processes came after the first.
func (s *slot) restarts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.starts-1)
}
