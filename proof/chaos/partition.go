package main

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// wired is how the other nodes reach one, and what they know it by.
type wired struct {
	port, bus *redistest.Wire
	source    string // the address from which it connects to others; of a Cluster
}

// rewire has the nodes of a deployment talk to each other over wires from now on.
func (d *deployment) rewire() {
	d.wires = map[*redistest.Server]wired{}
	host := redistest.Host()
	for i, n := range d.nodes {
		x := wired{port: redistest.NewWire(d.st, n.Addr())}
		_, port, _ := net.SplitHostPort(x.port.Addr())
		if d.name == sentinel {
			n.Ask(d.st, "CONFIG", "SET", "replica-announce-ip", host, "replica-announce-port", port)
		} else {
			at := n.Ask(d.st, "CONFIG", "GET", "cluster-port")
			fields := strings.FieldsFunc(at, func(r rune) bool { return r < '0' || r > '9' })
			x.bus, x.source = redistest.NewWire(d.st, net.JoinHostPort(host, fields[len(fields)-1])), fmt.Sprint("127.255.255.",
				i+1)
			_, bus, _ := net.SplitHostPort(x.bus.Addr())
			n.Ask(d.st, "CONFIG", "SET", "bind-source-addr", x.source, "cluster-announce-port", port,
				"cluster-announce-bus-port", bus)
		}
		d.wires[n] = x
	}
	p := d.pairs[0]
	if d.name == sentinel {
		_, port, _ := net.SplitHostPort(d.wires[p.Primary].port.Addr())
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
			_, bus, _ := net.SplitHostPort(x.bus.Addr())
			if !strings.Contains(text, x.port.Addr()+"@"+bus) {
				return false
			}
		}
		if err != nil || strings.Contains(text, "fail") || strings.Contains(text, "disconnected") {
			return false
		}
	}
	for _, p := range d.pairs {
		info, err := p.Replica.TryAsk(d.st, "INFO", "replication")
		_, port, _ := net.SplitHostPort(d.wires[p.Primary].port.Addr())
		if err != nil || !strings.Contains(info, "master_port:"+port+"\r") ||
			!strings.Contains(info, "master_link_status:up") {
			return false
		}
	}
	return (d.name != sentinel || d.knownToSentinels()) && d.ill() == ""
}

func (d *deployment) knownToSentinels() bool {
	for _, a := range d.entry.Addrs {
		s := redistest.Server{Addrs: []string{a}}
		info, err := s.TryAsk(d.st, "INFO", "sentinel")
		if err != nil || !strings.Contains(info, "slaves=1,sentinels=3") || !strings.Contains(info, "status=ok") {
			return false
		}
	}
	return true
}

// seenAs is the address by which others know a node.
func (d *deployment) seenAs(n *redistest.Server) string {
	if x, ok := d.wires[n]; ok {
		return x.port.Addr()
	}
	return n.Addr()
}

// partition cuts a primary and one client off from everything else, until its replica has taken its place and for two
// leases more, in which clients go on on either side.
func (s *scene) partition(n *redistest.Server) {
	heir := s.d.other(n)
	time.Sleep(600 * time.Millisecond)
	for other, x := range s.d.wires {
		lost := func(from string) bool { return other == n || from == s.d.wires[n].source && from != "" }
		x.port.Lose(lost)
		if x.bus != nil {
			x.bus.Lose(lost)
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
		x.port.Heal()
		if x.bus != nil {
			x.bus.Heal()
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
