package simulation

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// network is what lies between clients and servers: streams of bytes, as TCP has them. What is sent arrives later, in
// its order, or the connection ends; one message alone is never lost. Connections are independent of each other, so
// that calls overtake each other on different ones. Nothing in it blocks but Read and dial, and there no mutex is held:
// a bubble's clock stands still while a goroutine waits for a mutex.
type network struct {
	mu       sync.Mutex
	seed     uint64
	shortest time.Duration // one way
	longest  time.Duration
	hosts    []*host
	note     func(format string, args ...any)
	wired    bool   // what is seen on the wire is kept
	wire     []Wire // guarded by mu
}

// host is one client's place in the network. Its fields are guarded by network.mu.
type host struct {
	net    *network
	name   string
	links  map[*link]struct{}
	dialed int
	dead   bool
	paused time.Time // until then nothing leaves it or comes in, and nothing is lost
	deaf   time.Time // until then messages of subscriptions do not come in
	slow   time.Time // until then everything takes slower longer
	slower time.Duration
	holes  map[*node]time.Time // until then what goes to and fro is lost, and no peer learns of it
	traps  []*trap
	// rough is until when something is done to its traffic.
	rough time.Time
}

// trap is what happens to the next call of a script.
type trap struct {
	what  what
	delay time.Duration
}

// fate is what becomes of the reply of a request.
type fate struct {
	drop  bool
	reset bool
	delay time.Duration
	asks  *asked
}

// parcel is one request, reply or message under way.
type parcel struct {
	data []byte
	at   time.Time // of arrival
	fate *fate     // of the reply to a request; nil: no reply
	end  bool      // the stream ends here
	free bool      // it does not wait for the one before it
	asks *asked    // of a reply: to what
	says bool      // it is a message
}

// lane is one direction of a link.
type lane struct {
	queue    []parcel
	last     time.Time // when the latest parcel arrives that keeps its order
	sent     uint64
	part     []byte // of a parcel that is not written in full
	rest     []byte // of the parcel that is being read
	over     error  // for the reader
	deadline time.Time
	wake     chan struct{}
}

// link is a connection.
type link struct {
	host     *host
	node     *node
	number   int
	up, down lane
	closed   error // for the writer up
	cut      bool  // the server has closed its end
	holed    bool  // something of it was lost
	fates    []fate
}

func (n *network) host(name string) *host {
	h := &host{net: n, name: name, links: map[*link]struct{}{}, holes: map[*node]time.Time{}}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts = append(n.hosts, h)
	return h
}

var errRefused = errors.New("simulated: connection refused")

// option is how a client connects to a server from this host.
func (h *host) option(to *node) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{to.name + ":0"}, ForceSingleClient: true, DisableCache: true,
		ReadBufferEachConn: 8 << 10, WriteBufferEachConn: 8 << 10,
		DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return h.dial(ctx, to)
		},
	}
}

func (h *host) dial(ctx context.Context, to *node) (net.Conn, error) {
	n := h.net
	for {
		n.mu.Lock()
		now := time.Now()
		rest := max(h.paused.Sub(now), h.holes[to].Sub(now))
		if h.dead || rest <= 0 && to.down.After(now) {
			n.mu.Unlock()
			return nil, errRefused
		}
		if rest <= 0 {
			break
		}
		n.mu.Unlock()
		if !script.Pause(ctx, rest) {
			return nil, ctx.Err()
		}
	}
	h.dialed++
	l := &link{host: h, node: to, number: h.dialed}
	l.up.wake, l.down.wake = make(chan struct{}, 1), make(chan struct{}, 1)
	h.links[l] = struct{}{}
	n.mu.Unlock()
	to.serve(&theirs{l})
	return &ours{l}, nil
}

// travel is how long a parcel is under way: by the seed, the connection, and its number there, so that no other
// connection's traffic changes it. Called with mu held.
func (l *link) travel(d *lane, direction uint64) time.Duration {
	d.sent++
	x := mix(l.host.net.seed, hash(l.host.name), uint64(l.number)<<1|direction, d.sent)
	t := l.host.net.shortest + time.Duration(x%uint64(l.host.net.longest-l.host.net.shortest+1))
	if l.host.slow.After(time.Now()) {
		t += time.Duration(mix(x) % uint64(l.host.slower+1))
	}
	return t
}

// send puts a parcel on its way. Called with mu held.
func (l *link) send(d *lane, p parcel, after time.Duration) {
	p.at = time.Now().Add(after)
	if !p.free {
		p.at = later(p.at, d.last)
		d.last = p.at
	}
	i := len(d.queue)
	for i > 0 && d.queue[i-1].at.After(p.at) {
		i--
	}
	d.queue = append(d.queue[:i], append([]parcel{p}, d.queue[i:]...)...)
	wake(d)
}

func wake(d *lane) {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// disturb notes that something is done to the host's traffic until then. Called with mu held.
func (h *host) disturb(until time.Time) { h.rough = later(h.rough, until) }

// reset ends a connection for the client at once. What it has sent still arrives, unless lost, and then the server
// finds the end. Called with mu held.
func (l *link) reset(lost bool) {
	if l.closed == nil {
		l.closed = syscall.ECONNRESET
		l.down.over, l.down.queue, l.down.rest = syscall.ECONNRESET, nil, nil
		if lost {
			l.up.queue = nil
		}
		l.hangUp()
		l.host.disturb(time.Now())
	}
}

// hangUp tells the server of the end. Called with mu held.
func (l *link) hangUp() {
	delete(l.host.links, l)
	l.send(&l.up, parcel{end: true}, l.travel(&l.up, 0))
	wake(&l.down)
}

// ours is the client's end of a link, theirs the server's.
type (
	ours   struct{ *link }
	theirs struct{ *link }
)

func (c *ours) Write(b []byte) (int, error) {
	l, h, n := c.link, c.host, c.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed != nil {
		return 0, l.closed
	}
	l.up.part = append(l.up.part, b...)
	for {
		frame, _ := redistest.Frame(l.up.part)
		if frame == nil {
			return len(b), nil
		}
		l.up.part = l.up.part[len(frame):]
		if h.holes[l.node].After(time.Now()) {
			l.holed = true
			continue
		}
		if l.request(bytes.Clone(frame)); l.closed != nil {
			return len(b), nil // the next Write, or Read, finds out
		}
	}
}

// request sends one request, if no trap is set for it. Called with mu held.
func (l *link) request(frame []byte) {
	h, now := l.host, time.Now()
	words := wordsOf(frame)
	frame, script := l.node.rewrite(words, frame)
	travel := l.travel(&l.up, 0) + max(0, h.paused.Sub(now))
	p := parcel{data: frame}
	if len(words) > 0 && !strings.HasSuffix(strings.ToUpper(words[0]), "SUBSCRIBE") {
		p.fate = &fate{}
		if h.net.wired {
			p.fate.asks = l.node.header(words)
		}
	}
	if !script || len(h.traps) == 0 {
		l.send(&l.up, p, travel)
		return
	}
	t := h.traps[0]
	if t.what == doubleFirst && strings.HasSuffix(words[3], ":barrier") {
		// A copy that comes after the reply, and of which the client does not know, no TCP delivers. A barrier takes it for a
		// party.
		l.send(&l.up, p, travel)
		return
	}
	h.traps = h.traps[1:]
	h.net.note("%s: %v (%v) strikes %s", h.name, t.what, t.delay, short(words))
	h.disturb(now.Add(travel + t.delay + time.Second))
	switch t.what {
	case loseRequest:
		l.reset(false)
	case loseReply:
		p.fate.reset = true
		l.send(&l.up, p, travel)
	case lateRequest:
		l.send(&l.up, p, travel+t.delay)
	case lateReply:
		p.fate.delay = t.delay
		l.send(&l.up, p, travel)
	case ghost: // the connection is gone, and the request comes all the same
		l.up.last = later(l.up.last, now.Add(t.delay))
		l.send(&l.up, p, t.delay)
		l.reset(false)
	case doubleFirst: // the second run's reply is lost
		l.send(&l.up, p, travel)
		l.send(&l.up, parcel{data: frame, fate: &fate{drop: true, asks: p.fate.asks}, free: true}, travel+t.delay)
	case doubleSecond: // the first run's
		l.send(&l.up, parcel{data: frame, fate: &fate{drop: true, asks: p.fate.asks}}, travel)
		l.send(&l.up, p, travel+t.delay)
	}
}

func (c *theirs) Write(b []byte) (int, error) {
	l, n := c.link, c.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	l.down.part = append(l.down.part, b...)
	for {
		frame, message := redistest.Frame(l.down.part)
		if frame == nil {
			return len(b), nil
		}
		l.down.part = l.down.part[len(frame):]
		l.answer(bytes.Clone(frame), message)
	}
}

// answer sends a reply or a message. Called with mu held.
func (l *link) answer(frame []byte, message bool) {
	h, now := l.host, time.Now()
	var f fate
	if frame[0] != '>' && len(l.fates) > 0 {
		f, l.fates = l.fates[0], l.fates[1:]
	}
	l.seen(f.asks, frame, false)
	if f.asks != nil {
		l.node.leaveTurn()
	}
	switch {
	case l.closed != nil:
	case h.holes[l.node].After(now):
		l.holed = true
	case message && h.deaf.After(now), f.drop:
	case f.reset:
		l.reset(false)
	default:
		l.send(&l.down, parcel{data: frame, asks: f.asks, says: message}, l.travel(&l.down, 1)+f.delay)
	}
}

func (c *ours) Read(b []byte) (int, error) {
	return c.read(b, &c.down, func(time.Time) time.Time { return c.host.paused })
}
func (c *theirs) Read(b []byte) (int, error) { return c.read(b, &c.up, c.node.ready) }

// read waits for what arrives, and not before held says.
func (l *link) read(b []byte, d *lane, held func(now time.Time) time.Time) (int, error) {
	n := l.host.net
	for {
		n.mu.Lock()
		now := time.Now()
		due := time.Time{}
		if len(d.rest) == 0 && d.over == nil && len(d.queue) > 0 {
			if due = later(d.queue[0].at, held(now)); !due.After(now) {
				l.take(d)
			}
		}
		switch {
		case len(d.rest) > 0:
			k := copy(b, d.rest)
			d.rest = d.rest[k:]
			n.mu.Unlock()
			if d == &l.up {
				l.node.tick()
			}
			return k, nil
		case d.over != nil:
			n.mu.Unlock()
			return 0, d.over
		case !d.deadline.IsZero() && !now.Before(d.deadline):
			n.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		}
		if !d.deadline.IsZero() && (due.IsZero() || d.deadline.Before(due)) {
			due = d.deadline
		}
		n.mu.Unlock()
		if due.IsZero() {
			<-d.wake
			continue
		}
		t := time.NewTimer(time.Until(due))
		select {
		case <-t.C:
		case <-d.wake:
		}
		t.Stop()
	}
}

// take makes the first parcel what is read. Called with mu held.
func (l *link) take(d *lane) {
	p := d.queue[0]
	d.queue = d.queue[1:]
	if p.end {
		d.over = io.EOF
		return
	}
	d.rest = p.data
	l.seen(p.asks, p.data, true)
	if p.says {
		l.heard(p.data)
	}
	if d == &l.up && p.fate != nil {
		l.fates = append(l.fates, *p.fate)
	}
}

func (c *ours) Close() error {
	l, n := c.link, c.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed == nil {
		l.closed, l.down.over = net.ErrClosed, net.ErrClosed
		l.hangUp()
	}
	return nil
}

func (c *theirs) Close() error {
	l, n := c.link, c.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if !l.cut {
		l.cut = true
		l.up.over, l.up.queue = net.ErrClosed, nil
		if l.closed == nil {
			l.send(&l.down, parcel{end: true}, l.travel(&l.down, 1))
		}
		wake(&l.up)
	}
	return nil
}

func (c *ours) SetReadDeadline(t time.Time) error {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	c.down.deadline = t
	wake(&c.down)
	return nil
}

func (c *ours) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (*ours) SetWriteDeadline(time.Time) error   { return nil }
func (c *ours) LocalAddr() net.Addr              { return place(c.host.name) }
func (c *ours) RemoteAddr() net.Addr             { return place(c.node.name) }
func (*theirs) SetDeadline(time.Time) error      { return nil }
func (*theirs) SetReadDeadline(time.Time) error  { return nil }
func (*theirs) SetWriteDeadline(time.Time) error { return nil }
func (c *theirs) LocalAddr() net.Addr            { return place(c.node.name) }
func (c *theirs) RemoteAddr() net.Addr           { return place(c.host.name) }

type place string

func (place) Network() string  { return "simulated" }
func (a place) String() string { return string(a) }

// wordsOf are the words of a request.
func wordsOf(frame []byte) (words []string) {
	line := func() int {
		i := bytes.IndexByte(frame, '\n')
		k, _ := strconv.Atoi(strings.TrimSpace(string(frame[1:i])))
		frame = frame[i+1:]
		return k
	}
	if len(frame) == 0 || frame[0] != '*' {
		return nil
	}
	for range line() {
		k := line()
		words = append(words, string(frame[:k]))
		frame = frame[k+2:]
	}
	return words
}

// frameOf is the request of words.
func frameOf(words []string) []byte {
	var b bytes.Buffer
	b.WriteString("*" + strconv.Itoa(len(words)) + "\r\n")
	for _, w := range words {
		b.WriteString("$" + strconv.Itoa(len(w)) + "\r\n" + w + "\r\n")
	}
	return b.Bytes()
}

// short is a call as it is reported.
func short(words []string) string {
	if len(words) < 4 {
		return strings.Join(words, " ")
	}
	return words[0] + " of " + words[3]
}

func hash(s string) (h uint64) {
	h = 14695981039346656037
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix makes one number of several, of which each bit matters.
func mix(numbers ...uint64) (h uint64) {
	for _, x := range numbers {
		h += x + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}
