package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// deployment is servers that are up, and how clients reach them.
type deployment struct {
	name  string
	st    *redistest.Stage
	nodes []*redistest.Server         // all but the sentinels
	pairs []redistest.Pair            // of primary and replica
	entry order                       // Addrs, Set and Each
	wires map[*redistest.Server]wired // between nodes; nil: they talk to each other directly

}

// deployments are what there is, and how long it takes: Sentinel and Cluster some seconds each.
var deployments = []struct {
	name string
	up   func(st *redistest.Stage) *deployment
}{
	// One server that writes every command to its file before it answers.
	{one, func(st *redistest.Stage) *deployment {
		s := redistest.Start(st, persistent...)
		return &deployment{nodes: []*redistest.Server{s}, entry: order{Addrs: s.Addrs}}
	}},
	// A primary, its replica and three sentinels, which replace the primary after a second of silence.
	{sentinel, func(st *redistest.Stage) *deployment {
		return replicated(redistest.SentinelWith(st, persistent...))
	}},
	// Three primaries with a replica each, which replaces its primary after a second of silence.
	{cluster, func(st *redistest.Stage) *deployment {
		return replicated(redistest.ReplicatedClusterWith(st, persistent...))
	}},
	// Five servers that know nothing of each other.
	{five, func(st *redistest.Stage) *deployment {
		d := &deployment{entry: order{Each: true}}
		for range 5 {
			s := redistest.Start(st, persistent...)
			d.nodes = append(d.nodes, s)
			d.entry.Addrs = append(d.entry.Addrs, s.Addr())
		}
		return d
	}},
}

const (
	one      = "one node"
	sentinel = "Sentinel"
	cluster  = "Cluster"
	five     = "Quorum of five"
)

// persistent has a server write each command to its file before it answers; the file is the system's then, which a
// killed process does not take with it. Its users are in its arguments, so that it has them when it starts again.
var persistent = []string{"--appendonly", "yes", "--appendfsync", "no", "--user", user, "on", "nopass", "~*", "&*",
	"+@all"}

func replicated(r *redistest.Replicated) *deployment {
	o := r.Option()
	d := &deployment{pairs: r.Pairs, entry: order{Addrs: o.InitAddress, Set: o.Sentinel.MasterSet}}
	for _, p := range r.Pairs {
		d.nodes = append(d.nodes, p.Primary, p.Replica)
	}
	return d
}

// setUp starts the servers of a deployment; if wires, they talk to each other over wires.
func setUp(name string, wires bool) (d *deployment, err error) {
	i := slices.IndexFunc(deployments, func(x struct {
		name string
		up   func(st *redistest.Stage) *deployment
	}) bool {
		return x.name == name
	})
	if i < 0 {
		return nil, fmt.Errorf("no deployment %q", name)
	}
	st := &redistest.Stage{}
	if err := st.Try(func() { d = deployments[i].up(st) }); err != nil {
		st.Clear()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d.name, d.st = name, st
	if wires {
		if err := st.Try(d.rewire); err != nil {
			st.Clear()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if name == five { // they vote when they have been up for a lease
		time.Sleep(lease + time.Second)
	}
	return d, nil
}

// primaries are the servers that take writes now, as far as they can be asked.
func (d *deployment) primaries() (list []*redistest.Server) {
	if len(d.pairs) == 0 {
		return d.nodes
	}
	for _, n := range d.nodes {
		if info, err := n.TryAsk(d.st, "INFO", "replication"); err == nil && strings.Contains(info, "role:master") {
			list = append(list, n)
		}
	}
	return list
}

// reigns tells who is primary, and since which promotion.
func (d *deployment) reigns() (text string) {
	if len(d.pairs) == 0 {
		return ""
	}
	for _, n := range d.primaries() {
		info, _ := n.TryAsk(d.st, "INFO", "replication")
		_, id, _ := strings.Cut(info, "master_replid:")
		id, _, _ = strings.Cut(id, "\r")
		text += n.Addr() + " " + id + "\n"
	}
	return text
}

// other is the other one of the pair that n is of.
func (d *deployment) other(n *redistest.Server) *redistest.Server {
	for _, p := range d.pairs {
		switch n {
		case p.Primary:
			return p.Replica
		case p.Replica:
			return p.Primary
		}
	}
	return nil
}

// healthy waits until every server answers and every replica is in step.
func (d *deployment) healthy(limit time.Duration) error {
	last := "nothing was asked"
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if last = d.ill(); last == "" {
			return nil
		}
	}
	return fmt.Errorf("after %v %s", limit, last)
}

func (d *deployment) ill() string {
	for _, n := range d.nodes {
		info, err := n.TryAsk(d.st, "INFO", "replication")
		switch {
		case err != nil:
			return fmt.Sprintf("%s does not answer: %v", n.Addr(), err)
		case strings.Contains(info, "master_link_status:down"):
			return n.Addr() + " is out of step with its primary"
		case len(d.pairs) > 0 && strings.Contains(info, "role:master") && !strings.Contains(info, "state=online"):
			return n.Addr() + " has no replica"
		}
		if d.name == cluster {
			if info, err := n.TryAsk(d.st, "CLUSTER", "INFO"); err != nil || !strings.Contains(info, "cluster_state:ok") {
				return n.Addr() + " is of a Cluster that is down"
			}
		}
	}
	if now := d.primaries(); d.name == sentinel && len(now) > 0 {
		host, port, _ := net.SplitHostPort(d.seenAs(now[0]))
		for _, a := range d.entry.Addrs {
			s := redistest.Server{Addrs: []string{a}}
			if at, err := s.TryAsk(d.st, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", d.entry.Set); err != nil ||
				!strings.Contains(at, host) || !strings.Contains(at, port) {
				return "a sentinel does not know the primary"
			}
		}
	}
	return ""
}

// open connects a client of the program's own, past all faults.
func (d *deployment) open(ctx context.Context, prefix string) ([]*redlatch.Client, error) {
	o := d.entry
	o.Prefix = prefix
	return connect(ctx, o)
}
