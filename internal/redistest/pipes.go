package redistest

import (
	"net"
	"slices"
	"sync"
)

// pipes is a listener without a network, for a proxy in a bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Accept returns the other end of a dial.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and dial.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// Addr returns the address of the server in the bubble.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "bubble:0", Net: "pipe"} }

// eager reads from a pipe whatever is written to it, at once. What is written to a pipe waits for its reader, and the
// server may hold a mutex meanwhile. While a proxy keeps something back, for a time of the bubble, others would wait
// for that mutex, and as long as one does the time of the bubble stands still.
type eager struct {
	net.Conn
	mu   sync.Mutex
	more *sync.Cond
	in   []byte
	err  error
}

func newEager(c net.Conn) *eager {
	e := &eager{Conn: c}
	e.more = sync.NewCond(&e.mu)
	return e
}

func (e *eager) run() {
	chunk := make([]byte, 64<<10)
	for {
		n, err := e.Conn.Read(chunk)
		e.mu.Lock()
		e.in, e.err = append(e.in, chunk[:n]...), err
		e.more.Broadcast()
		e.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Read returns the bytes that have come, and the error when all of them were read.
func (e *eager) Read(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.in) == 0 && e.err == nil {
		e.more.Wait()
	}
	if len(e.in) == 0 {
		return 0, e.err
	}
	n := copy(b, e.in)
	e.in = slices.Delete(e.in, 0, n)
	return n, nil
}
