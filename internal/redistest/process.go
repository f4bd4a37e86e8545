package redistest

import (
	"syscall"
	"testing"
)

// Stop freezes a real server: its connections stay open, the kernel goes on taking bytes for it, nothing is answered.
func (s *Server) Stop(t testing.TB) { s.signal(t, syscall.SIGSTOP) }

// Resume has a frozen server go on, with everything that was sent to it meanwhile.
func (s *Server) Resume(t testing.TB) { s.signal(t, syscall.SIGCONT) }

func (s *Server) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if s.Process == nil {
		t.Fatalf("redistest: no process to signal")
	}
	if err := s.Process.Signal(sig); err != nil {
		t.Fatalf("redistest: %v: %v", sig, err)
	}
}
