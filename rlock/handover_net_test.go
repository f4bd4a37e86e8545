package rlock_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// weather is how bad a simNet is: how often what goes wrong.
type weather struct {
	late, stuck float64 // chunks and replies that are up to 20 ms, up to 4 s under way; else it is 0.1 to 1 ms
	lost        float64 // requests, and replies, in whose place the connection is reset
	ghosts      float64 // requests with which the connection is reset, and which arrive all the same, up to 600 ms later
	hole        float64 // requests from which on nothing passes on the connection, and nobody is told
	refused     float64 // new connections

	swallowed float64 // messages that never come
	strayed   float64 // messages that come up to 4 s later, behind others
	doubled   float64 // messages that come again, up to 4 s later
	lingering float64 // broken connections that the server takes for whole for up to 3 s more

	crossing    time.Duration // how much longer than a message a reply takes, at most
	subscribing time.Duration // how much longer than other requests a SUBSCRIBE takes, at most
}

// simNet is the network between some hosts and a server, all in one synctest bubble. Nothing in it ever blocks but in
// Read and dial, and no mutex is held there: the bubble's clock stands still while a goroutine waits for a mutex.
type simNet struct {
	server *redistest.Server
	note   func(format string, args ...any)

	mu      sync.Mutex
	rnd     *rand.Rand
	weather weather
}

// simHost is one process on the network. Its fields are guarded by simNet.mu.
type simHost struct {
	net   *simNet
	name  string
	conns map[*simConn]struct{}
	// stopped: nothing leaves the host or comes in until then
	stopped time.Time
	dead    bool
	rough   time.Time // until when something was done to its traffic that takes longer than 2 ms to pass
	missed  time.Time // when a message to it was last swallowed or led astray
	holes   int       // connections on which nothing passes
	dialed  int
	served  int       // connections that the server has
	left    time.Time // when it noticed the end of the last
}

// simConn is one connection of a host, as the host sees it. Its fields are guarded by simNet.mu.
type simConn struct {
	host   *simHost
	server net.Conn
	number int // on its host

	over             error // nil while it stands
	hole             bool
	listens          bool     // a SUBSCRIBE was sent on it
	up, down         []parcel // in order
	strays           []parcel // whole messages, each in its own time
	rest             []byte   // of the parcel that is being read
	lastUp, lastDown time.Time
	deadline         time.Time
	upWake, downWake chan struct{}
}

type parcel struct {
	data []byte
	at   time.Time // of arrival
	err  error     // the connection ends in its place
}

func newSimNet(s *redistest.Server, rnd *rand.Rand, note func(string, ...any)) *simNet {
	return &simNet{server: s, rnd: rnd, note: note}
}

func (n *simNet) host(name string) *simHost {
	return &simHost{net: n, name: name, conns: map[*simConn]struct{}{}}
}

// set changes the weather. With fair weather, holes are closed.
func (n *simNet) set(w weather, hosts ...*simHost) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.weather = w
	for _, h := range hosts {
		for c := range h.conns {
			if c.hole && w.hole == 0 {
				c.end(syscall.ECONNRESET)
			}
		}
	}
}

func (h *simHost) option() rueidis.ClientOption {
	o := h.net.server.Option()
	o.DialCtxFn = func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return h.dial(ctx)
	}
	return o
}

// pause stops all traffic of the host for d.
func (h *simHost) pause(d time.Duration) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.stopped = time.Now().Add(d)
	h.disturbed(h.stopped)
}

// standstill is how long the host still stands still.
func (h *simHost) standstill() time.Duration {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return max(0, time.Until(h.stopped))
}

// deafen ends the connections on which the host listens.
func (h *simHost) deafen() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for c := range h.conns {
		if c.listens {
			h.disturbed(time.Now())
			c.end(syscall.ECONNRESET)
		}
	}
}

// kill ends all connections of the host for good. What it has sent may still arrive.
func (h *simHost) kill() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.dead, h.stopped = true, time.Time{}
	for c := range h.conns {
		if h.net.rnd.Float64() < 0.5 {
			c.up = nil
		}
		c.end(syscall.ECONNRESET)
	}
}

// quiet is since when nothing has been done to the host's traffic, and when a message to it was last missed; false:
// something is being done.
func (h *simHost) quiet() (since, missed time.Time, ok bool) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.rough, h.missed, h.holes == 0 && !h.dead && !h.rough.After(time.Now())
}

// calm is since when nothing that was done to the host's traffic, and no end of it, was news to the server; false:
// something may be.
func (h *simHost) calm() (since time.Time, ok bool) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return latest(h.rough, h.missed, h.left), h.holes == 0 && !h.rough.After(time.Now()) && (!h.dead || h.served == 0)
}

// gone is when the server noticed that the host has no connection left; zero if it has one.
func (h *simHost) gone() time.Time {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.served > 0 {
		return time.Time{}
	}
	return h.left
}

// disturbed is called with mu held.
func (h *simHost) disturbed(until time.Time) {
	if until.After(h.rough) {
		h.rough = until
	}
}

var errSimRefused = errors.New("simulated: connection refused")

func (h *simHost) dial(ctx context.Context) (net.Conn, error) {
	n := h.net
	for {
		n.mu.Lock()
		rest := time.Until(h.stopped)
		switch {
		case h.dead:
			n.mu.Unlock()
			return nil, errSimRefused
		case rest <= 0 && n.rnd.Float64() < n.weather.refused:
			h.disturbed(time.Now())
			n.mu.Unlock()
			return nil, errSimRefused
		}
		n.mu.Unlock()
		if rest <= 0 {
			break
		}
		t := time.NewTimer(rest)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
	}
	server, err := n.server.Embedded.Dial()
	if err != nil {
		return nil, err
	}
	c := &simConn{host: h, server: server, upWake: make(chan struct{}, 1), downWake: make(chan struct{}, 1)}
	n.mu.Lock()
	dead := h.dead
	h.conns[c] = struct{}{}
	h.dialed++
	h.served++
	c.number = h.dialed
	n.mu.Unlock()
	go c.pumpUp()
	go c.pumpDown()
	if dead {
		c.Close()
		return nil, errSimRefused
	}
	return c, nil
}

// travel is when something sent now arrives, behind what was sent before; it takes up to slow longer than usual, which is
// no disturbance. Called with mu held.
func (h *simHost) travel(last time.Time, slow time.Duration) time.Time {
	n := h.net
	d := 100*time.Microsecond + n.upTo(900*time.Microsecond) + n.upTo(slow)
	switch x := n.rnd.Float64(); {
	case x < n.weather.stuck:
		d = n.upTo(4 * time.Second)
	case x < n.weather.stuck+n.weather.late:
		d = n.upTo(20 * time.Millisecond)
	}
	now := time.Now()
	at := now.Add(d)
	if last.After(at) {
		at = last
	}
	if d := at.Sub(now); d > 2*time.Millisecond+max(n.weather.crossing, slow) {
		if d > 20*time.Millisecond {
			n.note("%s: something takes %v", h.name, d)
		}
		h.disturbed(at)
	}
	return at
}

func (n *simNet) upTo(d time.Duration) time.Duration {
	return time.Duration(n.rnd.Float64() * float64(d))
}

func (c *simConn) Write(b []byte) (int, error) {
	h, n := c.host, c.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.over != nil {
		return 0, c.over
	}
	if c.hole {
		return len(b), nil
	}
	slow := time.Duration(0)
	if bytes.Contains(b, []byte("\r\nSUBSCRIBE\r\n")) {
		slow, c.listens = n.weather.subscribing, true
	}
	p := parcel{data: slices.Clone(b), at: h.travel(c.lastUp, slow)}
	c.lastUp = p.at
	switch x := n.rnd.Float64(); {
	case x < n.weather.hole:
		n.note("%s: connection %d has become a black hole", h.name, c.number)
		c.hole = true
		h.holes++
		return len(b), nil
	case x < n.weather.hole+n.weather.lost:
		p.err = syscall.ECONNRESET
		h.disturbed(p.at)
	case x < n.weather.hole+n.weather.lost+n.weather.ghosts:
		now := time.Now()
		p.at = now.Add(n.upTo(600 * time.Millisecond))
		n.note("%s: a request on connection %d is late by %v, and the connection lost", h.name, c.number, p.at.Sub(now))
		h.disturbed(now.Add(rlock.DefaultCallTimeout)) // its caller has seen to it then
		h.disturbed(p.at)
		c.end(syscall.ECONNRESET)
	}
	c.up = append(c.up, p)
	wake(c.upWake)
	return len(b), nil
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pumpUp carries what was written to the server. What was sent before the connection ended still arrives, as with TCP.
func (c *simConn) pumpUp() {
	h, n := c.host, c.host.net
	defer func() {
		c.server.Close()
		n.mu.Lock()
		defer n.mu.Unlock()
		if h.served--; h.served == 0 {
			h.left = time.Now()
		}
	}()
	for {
		n.mu.Lock()
		wait := time.Duration(-1)
		var p parcel
		switch {
		case len(c.up) > 0:
			if wait = max(0, time.Until(c.up[0].at), time.Until(h.stopped)); wait == 0 {
				p = c.up[0]
				c.up = c.up[1:]
			}
		case c.over != nil:
			linger := time.Duration(0)
			if !errors.Is(c.over, net.ErrClosed) && n.rnd.Float64() < n.weather.lingering {
				linger = n.upTo(3 * time.Second)
			}
			n.mu.Unlock()
			time.Sleep(linger)
			return
		}
		if p.err != nil {
			n.note("%s: a request on connection %d is lost", h.name, c.number)
			c.up = nil
			c.end(p.err)
		}
		n.mu.Unlock()
		switch {
		case p.err != nil:
		case wait == 0:
			if _, err := c.server.Write(p.data); err != nil {
				return
			}
		case wait > 0:
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-c.upWake:
			}
			t.Stop()
		default:
			<-c.upWake
		}
	}
}

// pumpDown takes whatever the server says, at once: it writes while it holds its mutex.
func (c *simConn) pumpDown() {
	n := c.host.net
	chunk := make([]byte, 32<<10)
	var in []byte
	for {
		k, err := c.server.Read(chunk)
		n.mu.Lock()
		in = append(in, chunk[:k]...)
		for {
			frame, message := redistest.Frame(in)
			if frame == nil {
				break
			}
			c.arrive(slices.Clone(frame), message)
			in = in[len(frame):]
		}
		if err != nil {
			c.lastDown = c.host.travel(c.lastDown, 0)
			c.down = append(c.down, parcel{err: io.EOF, at: c.lastDown})
			wake(c.downWake)
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
	}
}

// arrive sends one frame on its way to the host. Called with mu held.
func (c *simConn) arrive(frame []byte, message bool) {
	h, n := c.host, c.host.net
	if c.over != nil || c.hole {
		return
	}
	now := time.Now()
	x := n.rnd.Float64()
	w := n.weather
	p := parcel{data: frame}
	if message {
		late := now.Add(n.upTo(4 * time.Second))
		switch {
		case x < w.swallowed:
			n.note("%s: a message is swallowed", h.name)
			h.missed = now
			return
		case x < w.swallowed+w.strayed:
			n.note("%s: a message strays for %v", h.name, late.Sub(now))
			h.missed = now
			c.strays = append(c.strays, parcel{data: frame, at: late})
			wake(c.downWake)
			return
		case x < w.swallowed+w.strayed+w.doubled:
			n.note("%s: a message comes again in %v", h.name, late.Sub(now))
			c.strays = append(c.strays, parcel{data: slices.Clone(frame), at: late})
		}
	} else if x < w.lost {
		n.note("%s: a reply on connection %d is lost", h.name, c.number)
		p.err = syscall.ECONNRESET
	}
	slow := w.crossing
	if message {
		slow = 0
	}
	p.at = h.travel(c.lastDown, slow)
	if p.err != nil {
		h.disturbed(p.at)
	}
	c.lastDown = p.at
	c.down = append(c.down, p)
	wake(c.downWake)
}

func (c *simConn) Read(b []byte) (int, error) {
	h, n := c.host, c.host.net
	for {
		n.mu.Lock()
		now := time.Now()
		if len(c.rest) == 0 && c.over == nil {
			c.next(now)
		}
		switch {
		case c.over != nil:
			n.mu.Unlock()
			return 0, c.over
		case len(c.rest) > 0:
			k := copy(b, c.rest)
			c.rest = c.rest[k:]
			n.mu.Unlock()
			return k, nil
		case !c.deadline.IsZero() && !now.Before(c.deadline):
			n.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		}
		var due time.Time
		if len(c.down) > 0 {
			due = c.down[0].at
		}
		for _, p := range c.strays {
			if due.IsZero() || p.at.Before(due) {
				due = p.at
			}
		}
		if !due.IsZero() && due.Before(h.stopped) {
			due = h.stopped
		}
		if !c.deadline.IsZero() && (due.IsZero() || c.deadline.Before(due)) {
			due = c.deadline
		}
		n.mu.Unlock()
		if due.IsZero() {
			<-c.downWake
			continue
		}
		t := time.NewTimer(time.Until(due))
		select {
		case <-t.C:
		case <-c.downWake:
		}
		t.Stop()
	}
}

// next makes rest what has arrived first, if anything has. Called with mu held.
func (c *simConn) next(now time.Time) {
	if now.Before(c.host.stopped) {
		return
	}
	i := slices.IndexFunc(c.strays, func(p parcel) bool { return !p.at.After(now) })
	switch {
	case i >= 0:
		c.rest = c.strays[i].data
		c.strays = slices.Delete(c.strays, i, i+1)
	case len(c.down) > 0 && !c.down[0].at.After(now):
		p := c.down[0]
		c.down = c.down[1:]
		if c.rest = p.data; p.err != nil {
			c.rest = nil
			c.end(p.err)
		}
	}
}

// end is called with mu held.
func (c *simConn) end(err error) {
	if c.over != nil {
		return
	}
	c.over = err
	c.host.net.note("%s: connection %d ends: %v", c.host.name, c.number, err)
	if c.hole {
		c.host.holes--
		c.host.disturbed(time.Now())
	}
	delete(c.host.conns, c)
	wake(c.upWake)
	wake(c.downWake)
}

func (c *simConn) Close() error {
	n := c.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	c.end(net.ErrClosed)
	return nil
}

func (c *simConn) SetReadDeadline(t time.Time) error {
	n := c.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	c.deadline = t
	wake(c.downWake)
	return nil
}

func (c *simConn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *simConn) SetWriteDeadline(time.Time) error { return nil }
func (c *simConn) LocalAddr() net.Addr              { return simAddr(c.host.name) }
func (c *simConn) RemoteAddr() net.Addr             { return simAddr("server") }

type simAddr string

func (simAddr) Network() string  { return "bubble" }
func (a simAddr) String() string { return string(a) }
