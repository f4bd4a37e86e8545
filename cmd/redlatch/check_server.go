//go:build unix

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// settings are what INFO and CONFIG GET say. Of several servers the first counts that differs from what is wanted.
func (x *checkup) settings(context.Context) {
	if x.nodes[0].noInfo != nil {
		return // commands has said so
	}
	x.memory()
	x.persistence()
	x.replicas()
	x.connectionSettings()
	x.lazyfree()
}

// first is the first server of which odd is true, and where it is, if there are several.
func (x *checkup) first(odd func(*node) bool) (n *node, at string) {
	i := slices.IndexFunc(x.nodes, func(n *node) bool { return n.noInfo == nil && odd(n) })
	if i < 0 {
		return nil, ""
	}
	if len(x.nodes) > 1 {
		at = " at " + x.nodes[i].addr
	}
	return x.nodes[i], at
}

func (n *node) number(field string) float64 {
	v, _ := strconv.ParseFloat(n.info[field], 64)
	return v
}

func (x *checkup) memory() {
	const set = "CONFIG SET maxmemory-policy noeviction"
	n, at := x.first(func(n *node) bool { return n.info["maxmemory_policy"] != "noeviction" })
	if n == nil {
		x.ok("maxmemory-policy", "noeviction")
	} else {
		x.lack("maxmemory-policy noeviction")
		policy := n.info["maxmemory_policy"]
		f := finding{"problem", "maxmemory-policy", policy + at, "a full server deletes held locks and open stocks", set}
		switch limit := n.info["maxmemory"]; {
		case policy == "":
			f.Level, f.Says, f.Do = "warning", "this server does not say"+at, "see that it is noeviction"
		case limit == "0":
			f.Level, f.Do = "warning", set+", before maxmemory is set"
			f.Says += "; nothing is evicted yet, because maxmemory is not set"
		default:
			f.Says += ", and maxmemory is " + limit
		}
		x.add(f)
	}
	full := func(n *node) bool {
		return n.number("maxmemory") > 0 && n.number("used_memory") > 0.9*n.number("maxmemory")
	}
	if n, at := x.first(full); n != nil {
		x.add(finding{"warning", "memory", "%.0f%% of maxmemory is used%s", "a full server refuses locks and claims",
			"raise maxmemory, or remove keys"}, 100*n.number("used_memory")/n.number("maxmemory"), at)
	}
}

func (x *checkup) persistence() {
	const writes = "until the disk takes writes again, every call fails"
	if n, at := x.first(func(n *node) bool { return n.info["loading"] == "1" }); n != nil {
		x.add(finding{"problem", "loading", "the server is loading its data%s", "every call fails meanwhile", "wait"}, at)
	}
	if n, at := x.first(func(n *node) bool { return n.info["aof_last_write_status"] == "err" }); n != nil {
		x.add(finding{"problem", "append-only file", "the last write to it failed%s", writes,
			"see the server's log and disk"}, at)
	}
	stops := func(n *node) bool {
		return n.info["rdb_last_bgsave_status"] == "err" && n.config["stop-writes-on-bgsave-error"] != "no"
	}
	if n, at := x.first(stops); n != nil {
		x.add(finding{"problem", "snapshot", "the last snapshot failed%s (stop-writes-on-bgsave-error)", writes,
			"see the server's log and disk"}, at)
	}
	const forgets = "a restart forgets what is held and sold"
	if n, at := x.first(func(n *node) bool { return n.info["aof_enabled"] != "1" }); n != nil {
		x.lack("appendonly yes")
		f := finding{"warning", "appendonly", "no%s", forgets + " since the last snapshot",
			"CONFIG SET appendonly yes, and in its configuration, if locks, stocks and counters must outlive a restart"}
		if n.info["aof_enabled"] == "" {
			f = finding{"note", "appendonly", "this server does not say%s", forgets + ", unless it keeps them in another way",
				"see the provider's console"}
		}
		x.add(f, at)
		return
	}
	if n, at := x.first(func(n *node) bool { return n.config["appendfsync"] == "no" }); n != nil {
		x.add(finding{"note", "appendonly", "yes, appendfsync no%s",
			"a machine that loses power forgets what the kernel had not yet written",
			"CONFIG SET appendfsync everysec"}, at)
		return
	}
	switch x.nodes[0].config["appendfsync"] {
	case "everysec":
		x.ok("appendonly", "yes, appendfsync everysec: power loss forgets a second or two")
	case "always":
		x.ok("appendonly", "yes, appendfsync always")
	default:
		x.ok("appendonly", "yes")
	}
}

func (x *checkup) replicas() {
	primary := func(odd func(n *node) bool) func(*node) bool {
		return func(n *node) bool { return !n.replica() && odd(n) }
	}
	n, at := x.first(primary(func(n *node) bool { return n.info["connected_slaves"] == "0" }))
	if n != nil {
		x.lack("a replica, better two" + at)
		if len(x.nodes) == 1 {
			x.ok("replicas", "none: there is no failover")
		} else {
			x.add(finding{"note", "replicas", "none%s", "if that server dies, what it has is away until it is back",
				"add a replica"}, at)
		}
	} else {
		x.ok("replicas", "each primary has one; a failover may forget what they have not received: see the safe profile below")
	}
	// INFO counts good replicas only where a number of them is demanded
	needs := func(n *node) bool { return n.info["min_slaves_good_slaves"] != "" }
	if n, _ := x.first(primary(func(n *node) bool { return !needs(n) })); n != nil {
		x.lack("min-replicas-to-write 1")
	}
	if n, at := x.first(primary(func(n *node) bool { return !needs(n) && n.number("connected_slaves") > 0 })); n != nil {
		x.add(finding{"note", "min-replicas-to-write", "0%s",
			"a primary that is cut off from its replicas goes on granting until clients leave it",
			"CONFIG SET min-replicas-to-write 1, with two replicas: with one, nothing is granted while it is away"}, at)
		return
	}
	short := func(n *node) bool {
		must, err := strconv.ParseFloat(n.config["min-replicas-to-write"], 64)
		return needs(n) && (n.number("min_slaves_good_slaves") < must ||
			err != nil && n.number("min_slaves_good_slaves") == 0)
	}
	switch n, at := x.first(primary(short)); {
	case n != nil:
		x.add(finding{"problem", "min-replicas-to-write", "%s good replicas%s, and %s are demanded",
			"nothing is granted (NOREPLICAS)",
			"repair replication"}, n.info["min_slaves_good_slaves"], at, cmp.Or(n.config["min-replicas-to-write"], "more"))
	case needs(x.nodes[0]):
		lag := x.nodes[0].config["min-replicas-max-lag"]
		if lag == "" {
			lag = "an unknown number of"
		}
		x.ok("min-replicas-to-write", "%s, min-replicas-max-lag %s s: for so long a primary that is cut off goes on",
			cmp.Or(x.nodes[0].config["min-replicas-to-write"], "set"), lag)
	}
}

// connectionSettings are those that end connections, or keep dead ones.
func (x *checkup) connectionSettings() {
	if n, at := x.first(func(n *node) bool {
		return n.number("maxclients") > 0 && n.number("connected_clients") > 0.9*n.number("maxclients")
	}); n != nil {
		x.add(finding{"warning", "maxclients", "%s of %s connections are in use%s", "the next process may not connect",
			"CONFIG SET maxclients, higher"},
			n.info["connected_clients"], n.info["maxclients"], at)
	}
	if n, at := x.first(func(n *node) bool { return n.config["tcp-keepalive"] == "0" }); n != nil {
		x.add(finding{"warning", "tcp-keepalive", "0%s",
			"a waiter whose machine is gone counts as listening for ever, and may be handed a lock",
			"CONFIG SET tcp-keepalive 60"}, at)
	}
	if n, at := x.first(func(n *node) bool { t := n.config["timeout"]; return t != "" && t != "0" }); n != nil {
		x.ok("timeout", "idle connections are closed after %s s%s: clients connect again", n.config["timeout"], at)
	}
}

func (x *checkup) lazyfree() {
	var off []string
	for _, name := range []string{"lazyfree-lazy-expire", "lazyfree-lazy-user-del"} {
		if n, _ := x.first(func(n *node) bool { return n.config[name] == "no" }); n != nil {
			off = append(off, name)
		}
	}
	switch {
	case x.nodes[0].noConfig != nil: // commands has said so
	case len(off) > 0:
		x.ok("lazyfree", "%s: off, the default (docs/operations.md, Big keys)", strings.Join(off, ", "))
	default:
		x.ok("lazyfree", "on")
	}
}

// clock compares the servers' clocks with that of this machine, and with each other: the one that is promoted in a
// failover reads the ends of leases by its own.
func (x *checkup) clock(ctx context.Context) {
	clients := x.client.Nodes()
	for _, n := range x.nodes {
		if client := clients[n.addr]; client != nil {
			if err := n.time(ctx, client); err != nil {
				x.add(finding{"problem", "clock", "TIME: %v", "no lease can be granted", "give the user +time"}, err)
				return
			}
		}
	}
	byOffset := func(a, b *node) int { return cmp.Compare(a.offset, b.offset) }
	low, high := slices.MinFunc(x.nodes, byOffset), slices.MaxFunc(x.nodes, byOffset)
	if apart := high.offset - low.offset; apart > time.Second+high.within+low.within {
		x.add(finding{"warning", "clock", "%s is %v ahead of %s", "a failover ends leases early, or late, by as much",
			"have one source slew the clocks of all servers"}, high.addr, apart.Round(time.Millisecond), low.addr)
		return
	}
	n := x.nodes[0]
	if n.offset.Abs() > time.Second+n.within {
		x.add(finding{"warning", "clock", "the server's differs from this machine's by %v",
			"leases do not depend on the difference, but a step of the server's clock ends them early",
			"have one source slew both clocks"}, n.offset.Round(time.Millisecond))
		return
	}
	x.ok("clock", "the server's differs from this machine's by %v (within %v)", n.offset.Round(time.Millisecond),
		n.within.Round(10*time.Microsecond))
}

// time asks a server for its clock, and keeps the answer that came soonest.
func (n *node) time(ctx context.Context, client rueidis.Client) error {
	for range 5 {
		began := time.Now()
		parts, err := client.Do(ctx, client.B().Time().Build()).AsStrSlice()
		took := time.Since(began)
		if err == nil && len(parts) != 2 {
			err = fmt.Errorf("%d numbers", len(parts))
		}
		if err != nil {
			return err
		}
		seconds, _ := strconv.ParseInt(parts[0], 10, 64)
		micros, _ := strconv.ParseInt(parts[1], 10, 64)
		if n.within == 0 || took < n.within {
			n.within, n.offset = took, time.Unix(seconds, micros*1000).Sub(began.Add(took/2))
		}
	}
	return nil
}

// latency is that of 100 pings, one after the other.
func (x *checkup) latency(ctx context.Context) {
	times := make([]time.Duration, 100)
	for i := range times {
		began := time.Now()
		if err := x.client.Do(ctx, x.client.B().Ping().Build()).Error(); err != nil {
			x.add(finding{"note", "latency", "PING: %v", "", "give the user +ping"}, err)
			return
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	median, longest := times[len(times)/2].Round(time.Microsecond), times[len(times)-1].Round(time.Microsecond)
	if longest > x.server.timeout/5 {
		x.add(finding{"warning", "latency", "median %v, longest of %d %v",
			"a call that takes longer than --call-timeout (CallTimeout) counts as unanswered",
			"look for slow commands (SLOWLOG), swapping and a busy machine"}, median, len(times), longest)
		return
	}
	x.ok("latency", "median %v, longest of %d %v", median, len(times), longest)
}
