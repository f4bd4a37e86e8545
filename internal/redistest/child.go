package redistest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"
)

// Child is another process of the test's program, in one of the roles of Main.
type Child struct {
	Cmd *exec.Cmd
	In  io.WriteCloser
	Out *bufio.Scanner
}

// Spawn starts a process in a role. Its os.Args has the server's address and args. The process ends with the test.
func Spawn(t testing.TB, role string, s *Server, args ...string) *Child {
	t.Helper()
	if _, ok := t.(*testing.T); ok && testing.Short() {
		t.Skip("starts a process; leave -short out")
	}
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("redistest: start a process as %s: %v", role, err)
		}
	}
	exe, err := os.Executable()
	fail(err)
	c := &Child{Cmd: exec.Command(exe, append([]string{s.Addr()}, args...)...)}
	c.Cmd.Env = append(os.Environ(), RoleEnv+"="+role)
	c.Cmd.Stderr = os.Stderr
	c.In, err = c.Cmd.StdinPipe()
	fail(err)
	out, err := c.Cmd.StdoutPipe()
	fail(err)
	c.Out = bufio.NewScanner(out)
	fail(c.Cmd.Start())
	t.Cleanup(func() {
		_ = c.In.Close() // it may have ended already: then none of these does anything
		_ = c.Cmd.Process.Signal(SigCont)
		_ = c.Cmd.Process.Kill()
		_ = c.Cmd.Wait()
	})
	return c
}

// Line returns the next line that the process writes.
func (c *Child) Line(t testing.TB) string {
	t.Helper()
	if !c.Out.Scan() {
		t.Fatal("redistest: the process ended without a word")
	}
	return c.Out.Text()
}

// Signal sends the process a signal. SIGSTOP stops the process, and SIGCONT continues it.
func (c *Child) Signal(t testing.TB, s os.Signal) {
	t.Helper()
	signal(t, c.Cmd.Process, s)
}
