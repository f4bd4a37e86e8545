package redistest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Pair is a primary and its replica, in the roles in which they were started.
type Pair struct{ Primary, Replica *Server }

// Replicated is servers with replicas. A replica replaces its primary after a second without a reply.
type Replicated struct {
	*Server
	Pairs []Pair // by slot, in equal parts

	switched time.Time
}

// Of returns the pair that has key.
func (r *Replicated) Of(key string) Pair { return r.Pairs[partOf(key, len(r.Pairs))] }

// Switch makes the primary and the replica of p exchange their roles by a planned failover, and returns when both have
// the new role.
func (r *Replicated) Switch(t testing.TB, p Pair) {
	t.Helper()
	inStep(t, p.Replica)
	at, order := p.Replica.Addr(), []string{"CLUSTER", "FAILOVER"}
	if r.set != "" {
		at, order = r.Addrs[0], []string{"SENTINEL", "FAILOVER", r.set}
	}
	var ordered time.Time
	Eventually(t, time.Minute, "the two have changed places", func() bool {
		// Repeated, because it may be refused. Also, a Cluster gives up silently after 5 s if too few nodes vote, and
		// nodes do not vote within two seconds of an earlier vote.
		if time.Since(ordered) > 6*time.Second && time.Since(r.switched) > 2500*time.Millisecond {
			if _, err := tryAsk(t, at, order...); err == nil {
				ordered = time.Now()
			}
		}
		// not answered where sentinels end the connections of a primary that becomes a replica
		now, err := tryAsk(t, p.Primary.Addr(), "INFO", "replication")
		return err == nil && strings.Contains(now, "master_link_status:up") &&
			strings.Contains(p.Replica.Ask(t, "INFO", "replication"), "role:master")
	})
	r.switched = time.Now()
}

// Sentinel starts a primary, its replica and three sentinels.
func Sentinel(t testing.TB) *Replicated { t.Helper(); return SentinelWith(t) }

// SentinelWith is Sentinel with extra arguments for the primary and the replica.
func SentinelWith(t testing.TB, args ...string) *Replicated {
	t.Helper()
	SkipShort(t)
	p := Pair{Primary: fresh(t, args...)}
	host, port, _ := net.SplitHostPort(p.Primary.Addr())
	p.Replica = Start(t, slices.Concat([]string{"--replicaof", host, port}, args)...)
	inStep(t, p.Replica)
	r := &Replicated{Server: &Server{set: "main"}, Pairs: []Pair{p}}
	for range 3 {
		s := start(t, func(own, ownPort, dir string) []string {
			// of its own to write to: a sentinel keeps what it learns in its configuration
			conf := filepath.Join(dir, "sentinel.conf")
			text := "port " + ownPort + "\nbind " + own + "\nsentinel announce-ip " + own + "\ndir " + dir + "\nlogfile " +
				filepath.Join(dir, "log") + `
sentinel monitor main ` + host + " " + port + ` 2
sentinel down-after-milliseconds main 1000
sentinel failover-timeout main 2000
`
			if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
				t.Fatalf("redistest: %v", err)
			}
			return []string{conf, "--sentinel"}
		})
		r.Addrs = append(r.Addrs, s.Addr())
		// they get to know each other and the replica within that many ms, not within 10 s; the election's own periods
		// are left alone, which makes it take longer when shortened
		ask(t, s.Addr(), "SENTINEL", "DEBUG", "info-period", "200", "publish-period", "200")
		// one that did not run for two seconds, on a busy machine, does nothing for that long, not for 30 s
		ask(t, s.Addr(), "SENTINEL", "DEBUG", "tilt-period", "2000")
	}
	for _, a := range r.Addrs {
		Eventually(t, 30*time.Second, "the sentinels know each other and the replica", func() bool {
			known := ask(t, a, "INFO", "sentinel")
			return strings.Contains(known, "slaves=1,sentinels=3")
		})
	}
	return r
}

// Cluster returns a Cluster of three primaries without replicas. It may be reused from an earlier test; it is empty.
func Cluster(t testing.TB) *Server {
	t.Helper()
	SkipShort(t)
	NeedServer(t)
	var all Server
	for _, n := range reused(t, 3, func() (nodes []*Server, end func()) {
		formed := false
		end = func() {
			for _, n := range nodes {
				n.run.close()
			}
		}
		defer func() {
			if !formed {
				end()
			}
		}()
		for i := range 3 {
			// none fails over, so none need be taken for dead soon: a busy machine starves one for seconds
			n, _ := begin(t, clusterNode(i))
			nodes = append(nodes, n)
		}
		cluster(t, nodes...)
		settle(t, "5000", nodes)
		formed = true
		return nodes, end
	}) {
		all.Addrs = append(all.Addrs, n.Addr())
	}
	return &all
}

// ReplicatedCluster starts a Cluster of three primaries, each with a replica.
func ReplicatedCluster(t testing.TB) *Replicated { t.Helper(); return ReplicatedClusterWith(t) }

// ReplicatedClusterWith is ReplicatedCluster with extra arguments for the nodes.
func ReplicatedClusterWith(t testing.TB, args ...string) *Replicated {
	t.Helper()
	SkipShort(t)
	var nodes []*Server
	for i := range 6 {
		nodes = append(nodes,
			start(t, clusterNode(i,
				append([]string{"--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration",
					"no"}, args...)...)))
	}
	r := &Replicated{Server: cluster(t, nodes...)}
	for i, n := range nodes[:3] {
		p := Pair{n, nodes[3+i]}
		id := ask(t, p.Primary.Addr(), "CLUSTER", "MYID")
		ask(t, p.Replica.Addr(), "CLUSTER", "REPLICATE", id)
		r.Pairs = append(r.Pairs, p)
	}
	for _, p := range r.Pairs {
		inStep(t, p.Replica)
		ask(t, p.Primary.Addr(), "FLUSHALL") // a replica that has replicated nothing is not shown
		Eventually(t, 30*time.Second, "every node knows every replica", func() bool {
			for _, n := range nodes {
				if !strings.Contains(ask(t, n.Addr(), "CLUSTER", "SLOTS"), portOf(p.Replica)) {
					return false
				}
			}
			return true
		})
	}
	settle(t, "1000", nodes)
	return r
}

// place is the id of a primary that does not exist.
const place = "ffffffffffffffffffffffffffffffffffffffff"

// clusterNode returns the arguments of the i-th node of a Cluster, for start. The first three share the slots.
//
// A primary that starts does not serve for two seconds (CLUSTER_WRITABLE_DELAY in the server's source), because another
// node may have become the primary of its slots meanwhile. So these three start as replicas, each of a primary that
// does not exist and has the slots. serve then makes the node the primary.
func clusterNode(i int, args ...string) func(host, port, dir string) []string {
	return func(host, port, dir string) []string {
		bus, _ := FreeAddr()
		_, busPort, _ := net.SplitHostPort(bus)
		line := slices.Concat(settings(host, port, dir),
			[]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "5000",
				"--cluster-replica-no-failover", "yes", "--cluster-announce-ip", host, "--cluster-port", busPort}, args)
		if i > 2 {
			return line
		}
		var random [20]byte
		_, _ = rand.Read(random[:]) // never fails
		id := hex.EncodeToString(random[:])
		first, last := slotsOf(i)
		// A node whose line names no shard is in none, and Valkey 9 aborts at the first SPUBLISH of such a node. Redis 8.0
		// lists a node in two shards, once without its slots, if its primary is in another shard. Redis 7.0 takes the field
		// for a host name, which its configuration overrides.
		nodes := fmt.Sprintf("%s %s:%s@%s,,shard-id=%s myself,slave %s 0 0 0 connected\n"+
			"%s %s:1@1,,shard-id=%s master - 0 0 0 connected %s-%s\n"+
			"vars currentEpoch %d lastVoteEpoch 0\n", id, host, port, busPort, id, place, place, host, id, first, last, i)
		_ = os.WriteFile(filepath.Join(dir, "nodes.conf"), []byte(nodes), 0o600) // without it, it takes its two seconds
		return append(line, "--cluster-require-full-coverage", "no")
	}
}

// slotsOf returns the slots of the i-th of three primaries.
func slotsOf(i int) (first, last string) {
	return strconv.Itoa(i * 16384 / 3), strconv.Itoa((i+1)*16384/3 - 1)
}

// serve makes a new node the primary of its slots.
func serve(t testing.TB, n *Server) {
	t.Helper()
	// until it serves as a replica; one that was starved so long that it takes its primary for dead never does
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) &&
		!strings.Contains(ask(t, n.Addr(), "CLUSTER", "INFO"), "cluster_state:ok"); {
		time.Sleep(5 * time.Millisecond)
	}
	ask(t, n.Addr(), "CLUSTER", "FAILOVER", "TAKEOVER")
	ask(t, n.Addr(), "CLUSTER", "FORGET", place)
}

// cluster makes a Cluster of new nodes. Nodes that do not find each other start again: the machine may have stood still
// for longer than their node timeout.
func cluster(t testing.TB, nodes ...*Server) *Server {
	t.Helper()
	var s Server
	for i, n := range nodes {
		s.Addrs = append(s.Addrs, n.Addr())
		if i < 3 {
			serve(t, n)
		}
		// What a node knows others learn by pings, which come at random once a second, or when half of the node timeout
		// is over.
		ask(t, n.Addr(), "CONFIG", "SET", "cluster-node-timeout", "200")
	}
	for range 5 {
		if join(t, nodes) {
			return &s
		}
		for i, a := range s.Addrs {
			ask(t, a, "CLUSTER", "RESET", "HARD")
			ask(t, a, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
			if i < 3 {
				first, last := slotsOf(i)
				ask(t, a, "CLUSTER", "ADDSLOTSRANGE", first, last)
			}
		}
	}
	for _, a := range s.Addrs {
		t.Logf("%s:\n%s%s", a, ask(t, a, "CLUSTER", "INFO"), ask(t, a, "CLUSTER", "NODES"))
	}
	t.Fatal("redistest: the cluster does not form")
	return nil
}

// join introduces new nodes to each other, and reports whether they have become a Cluster within 20 s.
func join(t testing.TB, nodes []*Server) bool {
	t.Helper()
	var buses []string
	for _, n := range nodes {
		info := ask(t, n.Addr(), "CLUSTER", "NODES") // "id host:port@busport …"
		bus, _, _ := strings.Cut(strings.Split(strings.Fields(info)[1], "@")[1], ",")
		buses = append(buses, bus)
	}
	meet := func() {
		for i, n := range nodes {
			for j := range i {
				ask(t, nodes[j].Addr(), "CLUSTER", "MEET", Host(), portOf(n), buses[i])
			}
		}
	}
	meet()
	met := time.Now()
	wanted := []string{"cluster_state:ok", "cluster_size:3\r", fmt.Sprintf("cluster_known_nodes:%d\r", len(nodes))}
	end := time.Now().Add(20 * time.Second)
	for i, n := range nodes {
		if i == 3 {
			wanted = wanted[2:] // of those that are to be replicas: as primaries they serve nothing for two seconds
		}
		for !knows(t, n, wanted) {
			if time.Now().After(end) {
				return false
			}
			if time.Since(met) > 2*time.Second { // one that did not answer within a second has been forgotten
				meet()
				met = time.Now()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return true
}

// knows reports whether the node tells of itself what is wanted, and has no node in its handshake. Such a node has an
// id that no command understands.
func knows(t testing.TB, node *Server, wanted []string) bool {
	t.Helper()
	info := ask(t, node.Addr(), "CLUSTER", "INFO")
	return !slices.ContainsFunc(wanted, func(line string) bool { return !strings.Contains(info, line) }) &&
		!strings.Contains(ask(t, node.Addr(), "CLUSTER", "NODES"), "handshake")
}

// settle gives a Cluster that has formed its node timeout, in ms, and returns when all of it serves.
func settle(t testing.TB, timeout string, nodes []*Server) {
	t.Helper()
	for _, n := range nodes {
		ask(t, n.Addr(), "CONFIG", "SET", "cluster-node-timeout", timeout, "cluster-require-full-coverage", "yes",
			"cluster-replica-no-failover", "no")
	}
	for _, n := range nodes { // one that was starved may be taken for dead, for a moment
		Eventually(t, 30*time.Second, "every node of a new Cluster serves", func() bool {
			return strings.Contains(ask(t, n.Addr(), "CLUSTER", "INFO"), "cluster_state:ok")
		})
	}
}

func inStep(t testing.TB, replica *Server) {
	t.Helper()
	Eventually(t, 30*time.Second, "the replica is in step", func() bool {
		return strings.Contains(ask(t, replica.Addr(), "INFO", "replication"), "master_link_status:up")
	})
}

func portOf(s *Server) string {
	_, port, _ := net.SplitHostPort(s.Addr())
	return port
}

// TryAsk is Ask for a command that may fail.
func (s *Server) TryAsk(t testing.TB, args ...string) (string, error) {
	t.Helper()
	return tryAsk(t, s.Addr(), args...)
}

// TryAskList is TryAsk for a reply that is a list of texts.
func (s *Server) TryAskList(t testing.TB, args ...string) ([]string, error) {
	t.Helper()
	m, err := answer(s.Addr(), args...)
	if err != nil {
		return nil, err
	}
	return m.AsStrSlice()
}

// Ask sends a command to the server s itself, without following redirections, and returns the reply as text.
func (s *Server) Ask(t testing.TB, args ...string) string {
	t.Helper()
	return ask(t, s.Addr(), args...)
}

func ask(t testing.TB, addr string, args ...string) string {
	t.Helper()
	text, err := tryAsk(t, addr, args...)
	if err != nil {
		t.Fatalf("redistest: %v: %v", args, err)
	}
	return text
}

func tryAsk(t testing.TB, addr string, args ...string) (string, error) {
	t.Helper()
	m, err := answer(addr, args...)
	if err != nil {
		return "", err
	}
	if n, err := m.AsInt64(); err == nil && m.IsInt64() {
		return strconv.FormatInt(n, 10), nil
	}
	if text, err := m.ToString(); err == nil {
		return text, nil
	}
	return m.String(), nil
}

func answer(addr string, args ...string) (m rueidis.RedisMessage, err error) {
	o := small(addr)
	o.ForceSingleClient, o.DisableCache = true, true
	// On a busy machine a node of a Cluster sometimes did not answer CLUSTER FAILOVER within 10 s, the default of rueidis.
	o.ConnWriteTimeout = patience
	c, err := rueidis.NewClient(o)
	if err != nil {
		return m, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, release := c.Dedicate()
	defer release()
	// without READONLY a replica in a Cluster redirects the client; outside a Cluster it is an error
	conn.Do(ctx, conn.B().Readonly().Build())
	return conn.Do(ctx, conn.B().Arbitrary(args...).Build()).ToMessage()
}
