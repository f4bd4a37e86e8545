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
	ways map[*way]struct{}
}

// way is one connection through a wire.
type way struct {
	ends [2]net.Conn
	torn bool // it has lost something, and no stream survives that
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
	w.close(func(*way) bool { return true })
}

// Lose loses without a word what those send and are sent whose addresses lost names.
func (w *Wire) Lose(lost func(from string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = lost
}

// Heal ends what Lose began. Connections that have lost something are closed.
func (w *Wire) Heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = nil
	w.close(func(x *way) bool { return x.torn })
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
		both.Go(func() { w.pass(x, out, in) })
		both.Go(func() { w.pass(x, in, out) })
		both.Wait()
	}
	w.mu.Lock()
	delete(w.ways, x)
	w.mu.Unlock()
}

// pass passes on what comes from one end.
func (w *Wire) pass(x *way, to, from net.Conn) {
	defer func() { to.Close(); from.Close() }()
	source, _, _ := net.SplitHostPort(x.ends[0].RemoteAddr().String())
	for b := make([]byte, 32<<10); ; {
		n, err := from.Read(b)
		w.mu.Lock()
		x.torn = x.torn || n > 0 && w.lost != nil && w.lost(source)
		torn := x.torn
		w.mu.Unlock()
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
