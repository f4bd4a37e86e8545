package redistest

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Stop freezes a real server. Its connections stay open, and the kernel accepts bytes for it, but it does not reply.
func (s *Server) Stop(t testing.TB) { s.signal(t, SigStop) }

// Resume lets a frozen server continue. The server then handles everything that was sent to it meanwhile.
func (s *Server) Resume(t testing.TB) { s.signal(t, SigCont) }

func (s *Server) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if s.Process == nil {
		t.Fatalf("redistest: no process to signal")
	}
	if s.run != nil {
		s.run.disturbed.Store(true)
	}
	signal(t, s.Process, sig)
}

func signal(t testing.TB, p *os.Process, sig os.Signal) {
	t.Helper()
	if err := p.Signal(sig); err != nil {
		t.Fatalf("redistest: %v: %v", sig, err)
	}
	// For ten seconds at most: another process may have it go on meanwhile.
	for end := time.Now().Add(10 * time.Second); sig == SigStop && !stopped(p.Pid) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// Kill ends the process of a real server as a crash does, and returns when the process is gone. An embedded server is
// closed.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if s.Embedded != nil {
		if s.down != nil {
			s.down.Store(true)
		}
		s.Embedded.Close()
		return
	}
	if s.run == nil {
		t.Fatalf("redistest: no process to kill")
	}
	s.run.disturbed.Store(true)
	s.run.end()
}

// Revive starts a killed server again, on the same address and with the same arguments. The server has the data that it
// had written to its directory, or no data. A server in a bubble has all its data, or none.
func (s *Server) Revive(t testing.TB, empty bool) {
	t.Helper()
	if s.down != nil {
		if empty {
			s.Embedded.FlushAll()
		}
		s.down.Store(false)
		s.boot(t, 0)
		return
	}
	if empty {
		for _, name := range []string{"appendonlydir", "dump.rdb"} {
			if err := os.RemoveAll(filepath.Join(s.run.dir, name)); err != nil {
				t.Fatalf("redistest: %v", err)
			}
		}
	}
	if err := s.run.start(); err != nil {
		t.Fatalf("redistest: start redis-server again: %v", err)
	}
	s.Process = s.run.process
}

// Restart starts a real server, or a server in a bubble, again, on the same address and without data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if s.down != nil {
		s.Embedded.FlushAll()
		s.Embedded.Close()
		s.boot(t, 0)
		return
	}
	if s.run != nil {
		s.run.disturbed.Store(true)
	}
	c, err := net.DialTimeout("tcp", s.Addr(), 5*time.Second)
	if err != nil {
		t.Fatalf("redistest: restart: %v", err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprint(c, "DEBUG CRASH-AND-RECOVER 0\r\n")
	if answer, _ := io.ReadAll(c); len(answer) > 0 { // the process is replaced, which ends the connection
		t.Fatalf("redistest: restart: %s", answer)
	}
}
