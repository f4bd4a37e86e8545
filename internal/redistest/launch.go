package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Launch runs the server program. line returns its arguments for an address and a new directory, in which the program
// writes its file "log". stop ends the program. A test uses Start, and a program that is not a test uses Start with a
// Stage.
func Launch(line func(host, port, dir string) []string) (s *Server, stop func(), err error) {
	bin, err := Program()
	if err != nil {
		return nil, nil, err
	}
	for try := 0; ; try++ {
		addr, err := FreeAddr()
		if err != nil {
			return nil, nil, err
		}
		dir, err := os.MkdirTemp("", "redlatch-redis-")
		if err != nil {
			return nil, nil, err
		}
		host, port, _ := net.SplitHostPort(addr)
		s, err := launch(bin, addr, dir, line(host, port, dir))
		if err == nil {
			return s, s.run.close, nil
		}
		_ = os.RemoveAll(dir)                      // under the system's temporary directory
		if !errors.Is(err, errInUse) || try == 9 { // see FreeAddr
			return nil, nil, err
		}
	}
}

const inUse = "Address already in use" // as redis-server logs it

var errInUse = errors.New("the address is in use")

// run is one server program: its arguments, and the process that runs now.
type run struct {
	addr, dir string
	command   []string

	process *os.Process
	exited  chan struct{}

	disturbed atomic.Bool // a test has stopped it, killed it or had it start again
}

// launch starts a server that listens on addr, and returns when that server replies there.
func launch(bin, addr, dir string, args []string) (*Server, error) {
	r := &run{addr: addr, dir: dir, command: append([]string{bin}, args...)}
	if err := r.start(); err != nil {
		return nil, err
	}
	return &Server{Addrs: []string{addr}, Process: r.process, run: r}, nil
}

// close is end, and removes the directory.
func (r *run) close() {
	r.end()
	_ = os.RemoveAll(r.dir) // under the system's temporary directory
}

// end kills the process, and returns when the process is gone.
func (r *run) end() {
	_ = r.process.Signal(SigCont) // a test may have stopped it, or killed it
	_ = r.process.Kill()
	<-r.exited
}

func (r *run) start() error {
	cmd := exec.Command(r.command[0], r.command[1:]...)
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }() // the error is that of a killed process
	r.process, r.exited = cmd.Process, exited
	last := errors.New("nothing answers")
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		pid, err := processOf(r.addr)
		if err == nil && pid == cmd.Process.Pid {
			return nil
		}
		if last = err; err == nil {
			last = fmt.Errorf("process %d answers", pid)
		}
		select {
		case <-exited:
			log, _ := os.ReadFile(filepath.Join(r.dir, "log"))
			err := fmt.Errorf("redis-server on %s ended at once: %s", r.addr, log)
			if strings.Contains(string(log), inUse) {
				err = fmt.Errorf("%w: %w", errInUse, err)
			}
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
	r.end()
	return fmt.Errorf("redis-server, process %d, does not answer on %s: %w", cmd.Process.Pid, r.addr, last)
}

// processOf asks the server at addr for its process id. A server that is still reading its data is not ready:
// such a server answers INFO, and LOADING to most other commands.
func processOf(addr string) (int, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second)) // an open connection takes one
	fmt.Fprint(c, "INFO\r\n")
	var got, info []byte
	for more := make([]byte, 1<<14); info == nil; info, _ = Frame(got) { // a sentinel leaves the connection open
		n, err := c.Read(more)
		if err != nil {
			return 0, err
		}
		got = append(got, more[:n]...)
	}
	if strings.Contains(string(info), "\nloading:1") {
		return 0, errors.New("it is loading its data")
	}
	for line := range strings.Lines(string(info)) {
		if id, ok := strings.CutPrefix(line, "process_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(id))
		}
	}
	return 0, fmt.Errorf("no process_id in %q", info)
}
