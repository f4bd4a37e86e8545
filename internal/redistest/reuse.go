package redistest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Tests reuse servers one after the other, because starting a server takes longer than many tests. A reused server
// differs from a new server only by its age. A server that was stopped or killed, or whose configuration has changed,
// is not reused.
var (
	reuseMu sync.Mutex
	reusing bool               // Main ends those that no test has
	unused  = map[int][]crew{} // by how many servers they are
)

// crew is a single server, or the nodes of a Cluster.
type crew struct {
	servers []*Server
	set     []string // how each was set when it was new
	end     func()
}

// reused returns n servers for the time of t: the servers that another test has left, or new servers.
func reused(t testing.TB, n int, start func() (servers []*Server, end func())) []*Server {
	t.Helper()
	reuseMu.Lock()
	var c crew
	if left := unused[n]; len(left) > 0 {
		c, unused[n] = left[0], left[1:]
	}
	reuseMu.Unlock()
	if c.end == nil {
		c.servers, c.end = start()
		for _, s := range c.servers {
			set, err := s.tell()
			if err != nil {
				t.Fatalf("redistest: a new server: %v", err)
			}
			c.set = append(c.set, set)
		}
	}
	t.Cleanup(func() {
		if !reusing || t.Failed() || !c.renewed() {
			c.end()
			return
		}
		reuseMu.Lock()
		defer reuseMu.Unlock()
		unused[n] = append(unused[n], c)
	})
	var own []*Server
	for _, s := range c.servers {
		own = append(own, &Server{Addrs: s.Addrs, Process: s.Process, run: s.run})
	}
	return own
}

// endUnused ends the servers that no test uses.
func endUnused() {
	reuseMu.Lock()
	defer reuseMu.Unlock()
	for _, left := range unused {
		for _, c := range left {
			c.end()
		}
	}
	clear(unused)
}

// renewed empties the servers, and reports whether they are configured as new servers are.
func (c crew) renewed() bool {
	for i, s := range c.servers {
		if s.run.disturbed.Load() {
			return false
		}
		// Clients that are still connected are closed before the next test writes to the empty server.
		set, err := s.tell("CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub", "CLIENT UNPAUSE", "FLUSHALL",
			"SCRIPT FLUSH", "CONFIG RESETSTAT")
		if err != nil || set != c.set[i] {
			return false
		}
	}
	return true
}

// configured are the commands that read the state of a server besides its data: its configuration, its users, its
// replicas or primary, and the owners of the slots, with migrations.
var configured = []string{"CONFIG GET *", "ACL LIST", "ROLE", "CLUSTER NODES"}

// tell sends commands to a server, and returns its state afterwards. A server that a test has left stopped does not
// reply.
func (s *Server) tell(commands ...string) (set string, err error) {
	c, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	all := slices.Concat(commands, configured)
	if _, err := io.WriteString(c, strings.Join(all, "\r\n")+"\r\n"); err != nil {
		return "", err
	}
	var text strings.Builder
	var got []byte
	for i := 0; i < len(all); {
		frame, _ := Frame(got)
		if frame == nil {
			more := make([]byte, 1<<16)
			n, err := c.Read(more)
			if err != nil {
				return "", err
			}
			got = append(got, more[:n]...)
			continue
		}
		answer := string(frame)
		got = got[len(frame):]
		switch {
		case i < len(commands) && answer[0] == '-':
			return "", errors.New(fmt.Sprint(all[i], ": ", answer))
		case all[i] == "CLUSTER NODES" && answer[0] != '-':
			text.WriteString(slots(answer))
		case i >= len(commands):
			text.WriteString(answer)
		}
		i++
	}
	return text.String(), nil
}

// slots returns CLUSTER NODES without the changing fields: the times of pings and pongs, and the epochs.
func slots(nodes string) string {
	var lines []string
	for line := range strings.Lines(nodes) {
		if f := strings.Fields(line); len(f) > 7 { // id, address, flags, primary, asked, answered, epoch, link, slots
			lines = append(lines, fmt.Sprintln(f[:4], f[7:]))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
