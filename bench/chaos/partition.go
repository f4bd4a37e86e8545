package main

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/bench/internal/stage"
	"github.com/redlatch/redlatch/internal/redistest"
)

// wire stands before a port of a server, for other servers: it passes on bytes whatever they mean, and can be cut for some who connect.
type wire struct {
	listen net.Listener
	to     string

	mu    sync.Mutex
	lost  func(from string) bool // nil: nothing
	ways  map[*way]bool
	ended bool
}

// way is one connection through a wire.
type way struct {
	ends [2]net.Conn
	torn bool // it has lost something: no stream survives that
}

func newWire(st *stage.Stage, to string) *wire {
	l, err := redistest.Listen()
	if err != nil {
		st.Fatalf("wire: %v", err)
	}
	w := &wire{listen: l, to: to, ways: map[*way]bool{}}
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
	st.Cleanup(func() {
		l.Close()
		w.mu.Lock()
		w.ended = true
		w.mu.Unlock()
		w.reset(func(*way) bool { return true })
		all.Wait()
	})
	return w
}

func (w *wire) addr() string { return w.listen.Addr().String() }

func (w *wire) serve(in net.Conn) {
	defer in.Close()
	out, err := net.DialTimeout("tcp", w.to, 5*time.Second)
	if err != nil {
		return
	}
	defer out.Close()
	x := &way{ends: [2]net.Conn{in, out}}
	w.mu.Lock()
	w.ways[x] = true
	ended := w.ended
	w.mu.Unlock()
	if ended {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { w.pass(x, out, in) })
	both.Go(func() { w.pass(x, in, out) })
	both.Wait()
	w.mu.Lock()
	delete(w.ways, x)
	w.mu.Unlock()
}

// pass passes on what comes from one end. What comes while the wire is cut is lost, without a word.
func (w *wire) pass(x *way, to, from net.Conn) {
	defer func() { to.Close(); from.Close() }()
	source, _, _ := net.SplitHostPort(x.ends[0].RemoteAddr().String())
	for b := make([]byte, 32<<10); ; {
		n, err := from.Read(b)
		w.mu.Lock()
		if n > 0 && w.lost != nil && w.lost(source) {
			x.torn = true
		}
		torn := x.torn
		w.mu.Unlock()
		if err != nil {
			return
		}
		if torn {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// cut loses all that those send, or are sent, who connect from an address that lost tells.
func (w *wire) cut(lost func(from string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = lost
}

// heal ends that.
func (w *wire) heal() {
	w.cut(nil)
	w.reset(func(x *way) bool { return x.torn })
}

func (w *wire) reset(which func(x *way) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for x := range w.ways {
		if which(x) {
			x.ends[0].Close()
			x.ends[1].Close()
		}
	}
}

// wired is how the other nodes reach one, and what they know it by.
type wired struct {
	port, bus *wire
	source    string // the address from which it connects to others; of a Cluster
}

// rewire has the nodes of a deployment talk to each other over wires from now on.
func (d *deployment) rewire() {
	d.wires = map[*redistest.Server]wired{}
	host := redistest.Host()
	for i, n := range d.nodes {
		x := wired{port: newWire(d.st, n.Addr())}
		_, port, _ := net.SplitHostPort(x.port.addr())
		if d.name == sentinel {
			n.Ask(d.st, "CONFIG", "SET", "replica-announce-ip", host, "replica-announce-port", port)
		} else {
			at := n.Ask(d.st, "CONFIG", "GET", "cluster-port")
			fields := strings.FieldsFunc(at, func(r rune) bool { return r < '0' || r > '9' })
			x.bus, x.source = newWire(d.st, net.JoinHostPort(host, fields[len(fields)-1])), fmt.Sprint("127.255.255.", i+1)
			_, bus, _ := net.SplitHostPort(x.bus.addr())
			n.Ask(d.st, "CONFIG", "SET", "bind-source-addr", x.source, "cluster-announce-port", port, "cluster-announce-bus-port", bus)
		}
		d.wires[n] = x
	}
	p := d.pairs[0]
	if d.name == sentinel {
		_, port, _ := net.SplitHostPort(d.wires[p.Primary].port.addr())
		p.Replica.Ask(d.st, "REPLICAOF", host, port)
		for _, a := range d.entry.Addrs {
			s := redistest.Server{Addrs: []string{a}}
			s.Ask(d.st, "SENTINEL", "REMOVE", d.entry.Set)
			s.Ask(d.st, "SENTINEL", "MONITOR", d.entry.Set, host, port, "2")
			s.Ask(d.st, "SENTINEL", "SET", d.entry.Set, "down-after-milliseconds", "1000", "failover-timeout", "2000")
		}
	}
	redistest.Eventually(d.st, 3*time.Minute, "the nodes know each other by their wires", d.known)
}

// known reports whether every node, and every sentinel, knows the nodes by their wires only.
func (d *deployment) known() bool {
	var who []*redistest.Server
	if d.name == cluster {
		who = d.nodes
	}
	for _, n := range who {
		text, err := n.TryAsk(d.st, "CLUSTER", "NODES")
		for _, other := range d.nodes {
			x := d.wires[other]
			_, bus, _ := net.SplitHostPort(x.bus.addr())
			if !strings.Contains(text, x.port.addr()+"@"+bus) {
				return false
			}
		}
		if err != nil || strings.Contains(text, "fail") || strings.Contains(text, "disconnected") {
			return false
		}
	}
	for _, p := range d.pairs {
		info, err := p.Replica.TryAsk(d.st, "INFO", "replication")
		_, port, _ := net.SplitHostPort(d.wires[p.Primary].port.addr())
		if err != nil || !strings.Contains(info, "master_port:"+port+"\r") || !strings.Contains(info, "master_link_status:up") {
			return false
		}
	}
	if d.name == sentinel {
		for _, a := range d.entry.Addrs {
			s := redistest.Server{Addrs: []string{a}}
			info, err := s.TryAsk(d.st, "INFO", "sentinel")
			if err != nil || !strings.Contains(info, "slaves=1,sentinels=3") || !strings.Contains(info, "status=ok") {
				return false
			}
		}
	}
	return d.ill() == ""
}

// seenAs is the address by which others know a node.
func (d *deployment) seenAs(n *redistest.Server) string {
	if x, ok := d.wires[n]; ok {
		return x.port.addr()
	}
	return n.Addr()
}

// partition cuts a primary and one client off from everything else, until its replica has taken its place and for two leases more, in
// which clients go on on either side.
func (s *scene) partition(n *redistest.Server) {
	heir := s.d.other(n)
	time.Sleep(600 * time.Millisecond)
	for other, x := range s.d.wires {
		lost := func(from string) bool { return other == n || from == s.d.wires[n].source && from != "" }
		x.port.cut(lost)
		if x.bus != nil {
			x.bus.cut(lost)
		}
	}
	for place, proxies := range s.proxies {
		for addr, p := range proxies {
			if near := addr == n.Addr() || addr == s.d.seenAs(n); near != (place == 0) {
				p.BlackHole(redistest.Up)
				p.BlackHole(redistest.Down)
			}
		}
	}
	redistest.Eventually(s.st, 3*time.Minute, "the replica takes the place of its primary", func() bool {
		info, err := heir.TryAsk(s.st, "INFO", "replication")
		return err == nil && strings.Contains(info, "role:master")
	})
	time.Sleep(2 * lease)
	for _, x := range s.d.wires {
		x.port.heal()
		if x.bus != nil {
			x.bus.heal()
		}
	}
	for _, proxies := range s.proxies {
		for _, p := range proxies {
			p.Heal()
		}
	}
	redistest.Eventually(s.st, 3*time.Minute, "the old primary is a replica", func() bool {
		info, err := n.TryAsk(s.st, "INFO", "replication")
		return err == nil && strings.Contains(info, "role:slave") && strings.Contains(info, "master_link_status:up")
	})
}
