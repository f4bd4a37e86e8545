//go:build unix

package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are what INFO and CONFIG GET tell.
func (x *checkup) settings(ctx context.Context) {
	x.info = map[string]string{}
	text, err := x.client.Do(ctx, x.client.B().Info().Build()).ToString()
	if err != nil {
		x.warn("settings", "give the user +info: it also finds what a failover or an eviction does to locks", "INFO: %v", err)
		return
	}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			x.info[k] = v
		}
	}
	x.version()
	x.memory()
	x.lazyfree(ctx)
	x.persistence()
	x.replicas()
}

// tested are the versions that the tests were run on: the table in docs/operations.md, Servers. What is older than
// Redis 7.0 is refused before it is asked.
var tested = map[string][]string{
	"Redis":  {"7.0", "7.2", "8.0"},
	"Valkey": {"8.0", "8.1", "9.1"},
}

func (x *checkup) version() {
	name, v := "Redis", x.info["redis_version"]
	if valkey := x.info["valkey_version"]; valkey != "" {
		name, v = "Valkey", valkey
	}
	major, rest, _ := strings.Cut(v, ".")
	minor, _, _ := strings.Cut(rest, ".")
	if !slices.Contains(tested[name], major+"."+minor) {
		x.warn("version", "it may work all the same; the tests can be run on it (docs/operations.md, Servers)",
			"%s %s is not among the versions that the tests were run on: %s %s", name, v, name, strings.Join(tested[name], ", "))
		return
	}
	// the second is Valkey's own name
	x.ok("version", "%s %s, %s", name, v, cmp.Or(x.info["redis_mode"], x.info["server_mode"]))
}

func (x *checkup) memory() {
	policy, limit := x.info["maxmemory_policy"], x.info["maxmemory"]
	switch {
	case policy == "noeviction":
		x.ok("maxmemory-policy", "noeviction")
	case policy == "":
		x.warn("maxmemory-policy", "see that it is noeviction", "this server does not say")
	case limit == "0":
		x.warn("maxmemory-policy", "CONFIG SET maxmemory-policy noeviction, before maxmemory is set",
			"%s; nothing is evicted yet, because maxmemory is not set", policy)
	default:
		x.problem("maxmemory-policy",
			"CONFIG SET maxmemory-policy noeviction: a full server deletes held locks and open stocks",
			"%s, and maxmemory is %s", policy, limit)
	}
}

func (x *checkup) lazyfree(ctx context.Context) {
	got, err := x.client.Do(ctx,
		x.client.B().ConfigGet().Parameter("lazyfree-lazy-expire", "lazyfree-lazy-user-del").Build()).AsStrMap()
	if err != nil {
		x.ok("lazyfree", "not known: this user may not run CONFIG GET, and needs not")
		return
	}
	var off []string
	for k, v := range got {
		if v != "yes" {
			off = append(off, k)
		}
	}
	if len(off) == 0 {
		x.ok("lazyfree", "on")
		return
	}
	slices.Sort(off)
	x.ok("lazyfree", "%s: off, the default (docs/operations.md, Big keys)", strings.Join(off, ", "))
}

func (x *checkup) persistence() {
	if x.info["aof_enabled"] == "1" {
		x.ok("persistence", "append-only file")
		return
	}
	x.warn("persistence", "set appendonly yes if locks, stocks and counters must outlive a restart",
		"no append-only file: a restart forgets what is held and sold since the last snapshot")
}

func (x *checkup) replicas() {
	n, _ := strconv.Atoi(x.info["connected_slaves"])
	switch {
	case x.info["role"] == "slave":
		x.problem("replicas", "connect to the primary, or through Sentinel (master_set)",
			"this server is a replica: it refuses every lock")
	case n == 0:
		x.ok("replicas", "none: there is no failover")
	default:
		x.ok("replicas", "%d connected; a failover may forget what they have not received: MinReplicas in the options of "+
			"programs, or fencing tokens", n)
	}
	if x.info["loading"] == "1" {
		x.problem("loading", "wait", "the server is loading its data")
	}
}

// clock compares the server's clock with that of this machine.
func (x *checkup) clock(ctx context.Context) {
	var best, offset time.Duration
	for range 5 {
		began := time.Now()
		parts, err := x.client.Do(ctx, x.client.B().Time().Build()).AsStrSlice()
		took := time.Since(began)
		if err != nil || len(parts) != 2 {
			x.problem("clock", "give the user +time", "TIME: %v", err)
			return
		}
		seconds, _ := strconv.ParseInt(parts[0], 10, 64)
		micros, _ := strconv.ParseInt(parts[1], 10, 64)
		if best == 0 || took < best {
			best, offset = took, time.Unix(seconds, micros*1000).Sub(began.Add(took/2))
		}
	}
	if offset.Abs() > time.Second+best {
		x.warn("clock", "see that one source slews both clocks. Leases do not depend on the difference, but a step of the "+
			"server's clock ends them early",
			"the server's differs from this machine's by %v", offset.Round(time.Millisecond))
		return
	}
	x.ok("clock", "the server's differs from this machine's by %v (within %v)", offset.Round(time.Millisecond),
		best.Round(10*time.Microsecond))
}

// latency is that of 100 pings, one after the other.
func (x *checkup) latency(ctx context.Context) {
	times := make([]time.Duration, 100)
	for i := range times {
		began := time.Now()
		if err := x.client.Do(ctx, x.client.B().Ping().Build()).Error(); err != nil {
			x.warn("latency", "give the user +ping", "PING: %v", err)
			return
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	median, longest := times[len(times)/2].Round(time.Microsecond), times[len(times)-1].Round(time.Microsecond)
	if longest > x.server.timeout/5 {
		x.warn("latency", "look for slow commands (SLOWLOG), swapping and a busy machine: a call that takes longer than "+
			"--call-timeout counts as unanswered",
			"median %v, longest of %d %v", median, len(times), longest)
		return
	}
	x.ok("latency", "median %v, longest of %d %v", median, len(times), longest)
}
