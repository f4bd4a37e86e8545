package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Wire is a proxy in front of an address that does not interpret the bytes. It is for the traffic between servers;
// Proxy, which reads RESP, is for clients. It is safe for concurrent use and ends with the test.
type Wire struct {
	listen net.Listener

	mu   sync.Mutex
	to   string                 // "": connections are closed at once
	lost func(from string) bool // nil: nothing is lost
	ways map[*way]struct{}
}

// way is a connection through a wire.
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

// Addr returns the address to which to connect.
func (w *Wire) Addr() string { return w.listen.Addr().String() }

// Lead makes the wire lead to another address from now on, or to none if the address is "". Existing connections are
// closed.
func (w *Wire) Lead(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
	w.close(func(*way) bool { return true })
}

// Lose silently loses all bytes from and to the addresses for which lost returns true.
func (w *Wire) Lose(lost func(from string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = lost
}

// Heal ends Lose. Connections that have lost bytes are closed.
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

// pass copies the bytes from one end to the other.
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
