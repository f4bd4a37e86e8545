package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy stands between clients and a server, on TCP or in a bubble, and makes the network between them fail on demand.
// It reads RESP, so that it can lose the reply of one call and nothing before it, or push messages and nothing else. A
// fault lasts until Heal. It is safe for concurrent use and ends with the test.
type Proxy struct {
	target *Server
	listen net.Listener
	wg     sync.WaitGroup

	mu        sync.Mutex
	pairs     map[*pair]struct{}
	traps     []*Trap
	delay     [2]time.Duration
	hole      [2]bool
	hold      [2]chan struct{} // closed by Heal
	refuse    bool
	swallow   bool
	swallowed int
	closed    bool
}

// Direction is one way through a Proxy.
type Direction int

// Up is from the clients to the server, Down is back.
const (
	Up Direction = iota
	Down
)

// Fate is what becomes of a trapped call.
type Fate int

const (
	// LoseReply lets the server run the call and then resets the connection in place of the reply. Replies to earlier
	// calls pass.
	LoseReply Fate = iota
	// LoseReplySilently lets the server run the call. Its reply and all later bytes of that connection are lost.
	LoseReplySilently
	// LoseRequest resets the connection in place of the call, which the server never sees.
	LoseRequest
	// LoseRequestSilently loses the call, and all later bytes to the server on that connection.
	LoseRequestSilently
	// HoldRequest delays the call, and all later calls on that connection, until Trap.Release is closed.
	HoldRequest
	// HoldReply lets the server run the call, and delays its reply, and all later replies on that connection, until
	// Trap.Release is closed.
	HoldReply
	// RunTwice sends the call to the server twice. The client gets the second reply.
	RunTwice
	// RefuseRequest replies with the error Trap.Says in place of the server, as a server or proxy does that does not allow
	// the call.
	RefuseRequest
)

// early reports whether the call does not reach the server.
func (f Fate) early() bool {
	return f == LoseRequest || f == LoseRequestSilently || f == RefuseRequest
}

// Trap waits for a call and decides its fate.
type Trap struct {
	// Match reports whether a call is to be trapped. words are the command and its arguments. Match must not block, nor
	// call the Proxy.
	Match func(words []string) bool
	Fate  Fate
	// Every: all matching calls are trapped, not only the first.
	Every bool
	// Release, when closed, ends the delay of HoldRequest or HoldReply.
	Release <-chan struct{}
	// Says is the error of RefuseRequest, such as "ERR unknown command 'wait'".
	Says func(words []string) string

	caught chan struct{}
	once   sync.Once
}

// Caught returns a channel that is closed when the trap has caught its first call: the request does not reach the
// server, or the reply does not reach the client.
func (t *Trap) Caught() <-chan struct{} { return t.caught }

// Wait waits until the trap has caught a call. If no call is caught within a minute, the test fails.
func (t *Trap) Wait(tb testing.TB) {
	tb.Helper()
	select {
	case <-t.caught:
	case <-time.After(time.Minute):
		tb.Fatal("redistest: a trap has caught no call in a minute")
	}
}

// With returns a Trap.Match for calls that have the given word, such as a key, and all words of more.
func With(word string, more ...string) func([]string) bool {
	return func(words []string) bool {
		return slices.Contains(words, word) && !slices.ContainsFunc(more, func(w string) bool {
			return !slices.Contains(words, w)
		})
	}
}

// NewProxy starts a proxy in front of a server, or of the first node of a Cluster.
func NewProxy(t testing.TB, target *Server) *Proxy {
	t.Helper()
	var l net.Listener = newPipes()
	if target.dial == nil {
		var err error
		if l, err = Listen(); err != nil {
			t.Fatalf("redistest: proxy: %v", err)
		}
	}
	p := &Proxy{target: target, listen: l, pairs: map[*pair]struct{}{}}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(p.close)
	return p
}

// Addr returns the address to which clients connect.
func (p *Proxy) Addr() string { return p.listen.Addr().String() }

// Away returns a server, the same server through a proxy that adds a millisecond of latency, and the proxy. The calls
// of many goroutines to the far server are in flight at the same time, however busy the machine is.
func Away(t testing.TB) (near, far *Server, p *Proxy) {
	t.Helper()
	near = Start(t)
	p = NewProxy(t, near)
	p.Delay(500*time.Microsecond, 500*time.Microsecond)
	return near, p.Server(), p
}

// Server returns the target as seen through the proxy.
func (p *Proxy) Server() *Server {
	s := &Server{Addrs: []string{p.Addr()}, Embedded: p.target.Embedded, Process: p.target.Process}
	if pipes, ok := p.listen.(*pipes); ok {
		s.dial = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return pipes.dial() }
	}
	return s
}

// Delay delays all bytes by up on their way to the server, and by down on their way back.
func (p *Proxy) Delay(up, down time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = [2]time.Duration{up, down}
}

// BlackHole loses everything that goes in the given direction, silently. A connection that has lost anything is reset
// by Heal, since no byte stream survives that.
func (p *Proxy) BlackHole(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole[d] = true
}

// Hold delays all bytes in the given direction until Heal, as TCP does after a partition that no timeout noticed.
func (p *Proxy) Hold(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold[d] == nil {
		p.hold[d] = make(chan struct{})
	}
}

// Refuse resets new connections.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
}

// SwallowPushes loses the messages of subscriptions and the invalidations of client-side caching; replies, and the
// confirmations of subscriptions, pass.
func (p *Proxy) SwallowPushes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow = true
}

// Swallowed returns how many pushes were lost by SwallowPushes.
func (p *Proxy) Swallowed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.swallowed
}

// Trap sets a trap and returns it. The trap stays until it has caught a call, or, with Every, until Heal.
func (p *Proxy) Trap(t *Trap) *Trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.caught = make(chan struct{})
	p.traps = append(p.traps, t)
	return t
}

// Cut resets all connections and returns their number. New connections are accepted.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	pairs := make([]*pair, 0, len(p.pairs))
	for pr := range p.pairs {
		pairs = append(pairs, pr)
	}
	p.mu.Unlock()
	for _, pr := range pairs {
		pr.reset()
	}
	return len(pairs)
}

// Heal ends all faults and removes all traps.
func (p *Proxy) Heal() {
	p.mu.Lock()
	var torn []*pair
	for pr := range p.pairs {
		if pr.torn {
			// Nothing passes from here on. A reply that passed before the reset would answer the call whose reply was lost.
			pr.deaf, pr.mute = true, true
			torn = append(torn, pr)
		}
	}
	p.traps, p.delay, p.hole, p.refuse, p.swallow = nil, [2]time.Duration{}, [2]bool{}, false, false
	for d, c := range p.hold {
		if c != nil {
			close(c)
			p.hold[d] = nil
		}
	}
	p.mu.Unlock()
	for _, pr := range torn {
		pr.reset()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listen.Close()
	p.Heal()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		client, err := p.listen.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // out of file descriptors, perhaps for a moment
			continue
		}
		p.mu.Lock()
		refuse := p.refuse || p.closed
		p.mu.Unlock()
		if refuse {
			abort(client)
			continue
		}
		p.wg.Add(1)
		go p.serve(client)
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.wg.Done()
	dial := p.target.dial
	if dial == nil {
		dial = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			return net.DialTimeout("tcp", p.target.Addr(), 5*time.Second)
		}
	}
	server, err := dial(context.Background(), p.target.Addr(), nil, nil)
	if err != nil {
		abort(client)
		return
	}
	if p.target.dial != nil {
		for _, c := range []*net.Conn{&client, &server} {
			e := newEager(*c)
			p.wg.Go(e.run)
			*c = e
		}
	}
	pr := &pair{p: p, client: client, server: server, gone: make(chan struct{}), fates: map[int]*Trap{}}
	p.mu.Lock()
	p.pairs[pr] = struct{}{}
	refuse := p.refuse || p.closed // since accept has looked: Refuse and Cut together leave no connection
	p.mu.Unlock()
	if refuse {
		pr.reset()
	}
	var both sync.WaitGroup
	both.Go(func() { pr.pump(client, server, Up, pr.request) })
	both.Go(func() { pr.pump(server, client, Down, pr.reply) })
	both.Wait()
	client.Close()
	server.Close()
	p.mu.Lock()
	delete(p.pairs, pr)
	for _, t := range pr.fates { // the client gave up first: no reply will come
		t.once.Do(func() { close(t.caught) })
	}
	p.mu.Unlock()
}

func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it fails on a connection that is cut already
	}
	c.Close()
}

// pair is a connection of a client, and its connection to the server. The fields below mu's line are guarded by
// Proxy.mu.
type pair struct {
	p              *Proxy
	client, server net.Conn
	gone           chan struct{}
	once           sync.Once

	requests, replies int           // calls and answers so far; pushes answer nothing
	fates             map[int]*Trap // what becomes of the reply of that number
	subscribed        bool
	deaf, mute        bool // nothing goes up, or down, any more
	torn              bool // bytes were lost: the stream is of no use after a Heal
}

func (pr *pair) reset() {
	pr.once.Do(func() {
		close(pr.gone)
		abort(pr.client)
		abort(pr.server)
	})
}

// verdict is what judging a frame says of it.
type verdict struct {
	pass  bool
	as    []byte          // passes in place of the frame
	twice bool            // and passes again
	reset bool            // the connection, now
	wait  <-chan struct{} // before it passes
	said  *Trap           // has caught it
}

// pump copies one direction frame by frame.
func (pr *pair) pump(src, dst net.Conn, d Direction, judge func(frame []byte) verdict) {
	chunk := make([]byte, 64<<10)
	var in []byte
	to := &outgoing{dst: dst}
	for {
		n, err := src.Read(chunk)
		var ok bool
		if in, ok = pr.forward(append(in, chunk[:n]...), to, d, judge); !ok || !to.flush() {
			pr.reset()
			return
		}
		if errors.Is(err, io.EOF) {
			_, _ = dst.Write(in) // if it fails, the reader of dst ends the pair
			// A FIN stays a FIN: a reset would throw away what a stopped server has not read yet, and with it the calls
			// that run after their callers gave up.
			if tcp, ok := dst.(*net.TCPConn); ok {
				_ = tcp.CloseWrite() // it fails on a connection that is cut already
			} else {
				dst.Close() // a pipe has no half, and nothing in it that was not read
			}
			return
		}
		if err != nil {
			pr.reset()
			return
		}
		in = append([]byte(nil), in...) // lets go of what has passed
	}
}

// outgoing is the bytes that have passed and are not written yet.
type outgoing struct {
	dst net.Conn
	buf []byte
}

func (o *outgoing) flush() bool {
	if len(o.buf) == 0 {
		return true
	}
	_, err := o.dst.Write(o.buf)
	o.buf = o.buf[:0]
	return err == nil
}

// forward passes on the whole frames of in, and returns the rest. ok is false if the connection is to be reset.
func (pr *pair) forward(in []byte, to *outgoing, d Direction, judge func(frame []byte) verdict) (rest []byte, ok bool) {
	size := frameSize(in)
	if size < 0 {
		return in, true
	}
	if !pr.delayed(to, d) {
		return in, false
	}
	// All frames that arrived together have one delay together.
	for ; size >= 0; size = frameSize(in) {
		v := judge(in[:size])
		if (v.reset || v.wait != nil) && !to.flush() {
			return in, false
		}
		if v.said != nil {
			v.said.once.Do(func() { close(v.said.caught) })
		}
		if v.reset {
			return in, false
		}
		if v.wait != nil {
			pr.wait(v.wait)
		}
		if v.as != nil {
			to.buf = append(to.buf, v.as...)
		} else if v.pass {
			to.buf = append(to.buf, in[:size]...)
		}
		if v.twice {
			to.buf = append(to.buf, in[:size]...)
		}
		in = in[size:]
	}
	return in, true
}

// delayed waits while the direction is held or delayed, after it has passed on earlier bytes. It returns false if the
// connection is to be reset.
func (pr *pair) delayed(to *outgoing, d Direction) (ok bool) {
	pr.p.mu.Lock()
	hold, delay := pr.p.hold[d], pr.p.delay[d]
	pr.p.mu.Unlock()
	if (hold != nil || delay > 0) && !to.flush() {
		return false
	}
	if hold != nil {
		pr.wait(hold)
	}
	if delay > 0 {
		pr.pause(delay)
	}
	return true
}

func (pr *pair) wait(c <-chan struct{}) {
	select {
	case <-c:
	case <-pr.gone:
	}
}

func (pr *pair) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-pr.gone:
	}
}

// request judges one call on its way up.
func (pr *pair) request(frame []byte) verdict {
	p := pr.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hole[Up] || pr.deaf {
		pr.torn = true
		return verdict{}
	}
	subscribes := strings.HasSuffix(strings.ToLower(firstWord(frame)), "subscribe")
	call, i := []string(nil), -1
	if len(p.traps) > 0 {
		call = words(frame)
		i = slices.IndexFunc(p.traps, func(t *Trap) bool {
			// A subscription is confirmed by any number of pushes, so it has no reply that could be lost or delayed.
			return (!subscribes || t.Fate.early()) && t.Match(call)
		})
	}
	if subscribes && i < 0 {
		pr.subscribed = true
		return verdict{pass: true}
	}
	pr.requests++
	if i < 0 {
		return verdict{pass: true}
	}
	t := p.traps[i]
	if !t.Every {
		p.traps = slices.Delete(p.traps, i, i+1)
	}
	switch t.Fate {
	case LoseRequest:
		return verdict{reset: true, said: t}
	case LoseRequestSilently:
		pr.deaf, pr.torn = true, true
		return verdict{said: t}
	case HoldRequest:
		return verdict{pass: true, wait: t.Release, said: t}
	case RefuseRequest:
		return verdict{as: refusing(t.Says(call)), said: t}
	}
	pr.fates[pr.requests] = t
	if t.Fate == RunTwice {
		pr.requests++ // the second has the next number, and its answer passes
		return verdict{pass: true, twice: true}
	}
	return verdict{pass: true}
}

// reply judges one answer or push on its way down.
func (pr *pair) reply(frame []byte) verdict {
	p := pr.p
	p.mu.Lock()
	defer p.mu.Unlock()
	push := frame[0] == '>'
	kind := ""
	if push || pr.subscribed && frame[0] == '*' { // RESP2 has arrays for both
		kind = strings.ToLower(firstWord(frame))
	}
	message := false
	switch kind {
	case "message", "smessage", "pmessage", "invalidate":
		message = true
	}
	var t *Trap
	if !push && !message && !strings.HasSuffix(kind, "subscribe") {
		pr.replies++
		t = pr.fates[pr.replies]
		delete(pr.fates, pr.replies)
	}
	switch {
	case p.hole[Down] || pr.mute:
		pr.torn = true
		return verdict{said: t}
	case message && p.swallow:
		p.swallowed++
		return verdict{}
	case t == nil:
		return verdict{pass: true}
	case t.Fate == LoseReply:
		return verdict{reset: true, said: t}
	case t.Fate == RunTwice:
		return verdict{said: t}
	case t.Fate == LoseReplySilently:
		pr.mute, pr.torn = true, true
		return verdict{said: t}
	}
	return verdict{pass: true, wait: t.Release, said: t}
}
