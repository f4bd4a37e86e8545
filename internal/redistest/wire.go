package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Wire stands before an address and carries bytes there and back, whatever they mean. It is for what servers say to
// each other; Proxy, which reads RESP, is for clients. It is safe for concurrent use and ends with the test.
type Wire struct {
	listen net.Listener

	mu   sync.Mutex
	to   string                 // "": connections are closed at once
	lost func(from string) bool // nil: nothing is lost
	hole [2]bool                // by Direction: all is lost
	hold [2]chan struct{}       // by Direction: all is kept back until Heal closes it
	kept int                    // connections of which something is kept back
	ways map[*way]struct{}
}

// way is one connection through a wire.
type way struct {
	ends [2]net.Conn
	torn [2]bool // by Direction: it has lost something, and no stream survives that
}

// NewWire makes a wire that leads to an address.
func NewWire(t testing.TB, to string) *Wire {
	t.Helper()
	l, err := Listen()
	if err != nil {
		t.Fatalf("redistest: wire: %v", err)
	}
	w := &Wire{listen: l, to: to, ways: map[*way]struct{}{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { w.serve(in) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.Lead("")
		all.Wait()
	})
	return w
}

// Addr is where to connect.
func (w *Wire) Addr() string { return w.listen.Addr().String() }

// Lead has the wire lead to another address from now on, to none if that is "". Connections that are there are closed.
func (w *Wire) Lead(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
	w.release()
	w.close(func(*way) bool { return true })
}

// Lose loses without a word what those send and are sent whose addresses lost names.
func (w *Wire) Lose(lost func(from string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = lost
}

// BlackHole loses without a word all that goes in the given direction: Up is to where the wire leads.
func (w *Wire) BlackHole(d Direction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hole[d] = true
}

// Hold keeps back all that goes in the given direction and delivers it at Heal, in order.
func (w *Wire) Hold(d Direction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold[d] == nil {
		w.hold[d] = make(chan struct{})
	}
}

// Kept is of how many connections something is kept back, or their end.
func (w *Wire) Kept() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kept
}

// Heal ends what Lose, BlackHole and Hold began. Connections that have lost something are closed.
func (w *Wire) Heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost, w.hole = nil, [2]bool{}
	w.release()
	w.close(func(x *way) bool { return x.torn != [2]bool{} })
}

// release is called with mu held.
func (w *Wire) release() {
	w.kept = 0
	for d, c := range w.hold {
		if c != nil {
			close(c)
			w.hold[d] = nil
		}
	}
}

// close is called with mu held.
func (w *Wire) close(which func(x *way) bool) {
	for x := range w.ways {
		if which(x) {
			x.ends[0].Close()
			x.ends[1].Close()
		}
	}
}

func (w *Wire) serve(in net.Conn) {
	defer in.Close()
	w.mu.Lock()
	to := w.to
	w.mu.Unlock()
	if to == "" {
		return
	}
	out, err := net.DialTimeout("tcp", to, 5*time.Second)
	if err != nil {
		return
	}
	defer out.Close()
	x := &way{ends: [2]net.Conn{in, out}}
	w.mu.Lock()
	w.ways[x] = struct{}{}
	moved := w.to != to
	w.mu.Unlock()
	if !moved {
		var both sync.WaitGroup
		both.Go(func() { w.pass(x, Up, out, in) })
		both.Go(func() { w.pass(x, Down, in, out) })
		both.Wait()
	}
	w.mu.Lock()
	delete(w.ways, x)
	w.mu.Unlock()
}

// pass passes on what comes from one end.
func (w *Wire) pass(x *way, d Direction, to, from net.Conn) {
	defer func() { to.Close(); from.Close() }()
	source, _, _ := net.SplitHostPort(x.ends[0].RemoteAddr().String())
	for b := make([]byte, 32<<10); ; {
		n, err := from.Read(b)
		w.mu.Lock()
		if n > 0 && w.lost != nil && w.lost(source) {
			x.torn = [2]bool{true, true}
		}
		if n > 0 && w.hole[d] {
			x.torn[d] = true
		}
		torn, hold := x.torn[d], w.hold[d]
		if hold != nil {
			w.kept++
		}
		w.mu.Unlock()
		if hold != nil {
			<-hold // the end of a connection is kept back, too
		}
		if n > 0 && !torn {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
