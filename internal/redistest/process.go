package redistest

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
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

// Restart has a real server start again with nothing in memory, on the same address.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	c, err := net.DialTimeout("tcp", s.Addr(), 5*time.Second)
	if err != nil {
		t.Fatalf("redistest: restart: %v", err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprint(c, "DEBUG CRASH-AND-RECOVER 0\r\n")
	if answer, _ := io.ReadAll(c); len(answer) > 0 { // the process is replaced, which ends the connection
		t.Fatalf("redistest: restart: %s", answer)
	}
}
