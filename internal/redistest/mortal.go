package redistest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// ErrKilled is the result of each step of a process that was killed.
var ErrKilled = errors.New("the process was killed")

// Mortal is a process that a test kills at one of its steps, or before one of whose steps another process acts. Script
// calls and calls of Step are steps. A process that was killed sends and receives nothing.
type Mortal struct {
	DiesAt   int    // the step; -1: it lives
	After    bool   // the step is done, and the process does not hear of it
	MeetsAt  int    // the step before which Other acts; -1: none
	Other    func() // another process
	mu       sync.Mutex
	steps    int
	isKilled bool
}

// Lives returns a process that is not killed.
func Lives() *Mortal { return &Mortal{DiesAt: -1, MeetsAt: -1} }

// Killed reports whether the process was killed.
func (p *Mortal) Killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isKilled
}

// Reached reports whether the process has come to the step at which it dies, or before which another process acts.
func (p *Mortal) Reached() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.steps > max(p.DiesAt, p.MeetsAt)
}

// Step calls do, whose effect other processes can see, if the process lives.
func (p *Mortal) Step(do func() error) error {
	p.mu.Lock()
	n := p.steps
	p.steps++
	p.isKilled = p.isKilled || n == p.DiesAt && !p.After
	isKilled := p.isKilled
	p.mu.Unlock()
	if isKilled {
		return ErrKilled
	}
	if n == p.MeetsAt {
		p.Other()
	}
	err := do()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isKilled = p.isKilled || n == p.DiesAt; p.isKilled {
		return ErrKilled
	}
	return err
}

// Option returns o with the connections of the process. o must have a DialCtxFn.
func (p *Mortal) Option(o rueidis.ClientOption) rueidis.ClientOption {
	dial := o.DialCtxFn
	o.Dialer.KeepAlive = 24 * time.Hour // no PING a second through hours of a test
	o.DialCtxFn = func(ctx context.Context, to string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		if p.Killed() {
			return nil, ErrKilled
		}
		conn, err := dial(ctx, to, d, c)
		return &mortalConn{conn, p}, err
	}
	return o
}

type mortalConn struct {
	net.Conn
	p *Mortal
}

func (c *mortalConn) Write(b []byte) (n int, err error) {
	if !bytes.Contains(b, []byte("EVAL")) {
		return c.Conn.Write(b)
	}
	err = c.p.Step(func() error { n, err = c.Conn.Write(b); return err })
	if err != nil {
		c.Close()
	}
	return n, err
}

func (c *mortalConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.p.Killed() {
		return 0, ErrKilled
	}
	return n, err
}
