//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/keyname"
)

// node is one server, as it describes itself. What it refuses to say is empty.
type node struct {
	addr                string
	hello, info, config map[string]string
	noInfo, noConfig    error
	offset, within      time.Duration // its clock, less that of this machine
}

func (n *node) replica() bool { return n.info["role"] == "slave" }

// configured are the settings that CONFIG GET is asked for.
var configured = []string{"appendfsync", "min-replicas-to-write", "min-replicas-max-lag", "timeout", "tcp-keepalive",
	"lazyfree-lazy-expire", "lazyfree-lazy-user-del", "stop-writes-on-bgsave-error"}

// describe asks every server what it is. HELLO is allowed to all users, INFO where CONFIG is forbidden.
func (x *checkup) describe(ctx context.Context) {
	for addr, client := range x.client.Nodes() {
		n := &node{addr: addr, hello: map[string]string{}}
		said, _ := x.one(ctx, client, "HELLO").AsMap() // what it refuses INFO says, and the other way round
		for k, v := range said {
			if text, err := v.ToString(); err == nil {
				n.hello[k] = text
			}
		}
		text, err := x.one(ctx, client, "INFO").ToString()
		n.info, n.noInfo = fields(text), err
		n.config, n.noConfig = x.one(ctx, client, append([]string{"CONFIG", "GET"}, configured...)...).AsStrMap()
		x.nodes = append(x.nodes, n)
	}
	slices.SortFunc(x.nodes, func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.info["role"], b.info["role"]), strings.Compare(a.addr, b.addr))
	})
}

// one sends one command on a connection of its own: a proxy may close it, or keep silent, at a command that it does not
// know.
func (x *checkup) one(ctx context.Context, client rueidis.Client, words ...string) rueidis.RedisResult {
	ctx, cancel := context.WithTimeout(ctx, x.server.timeout)
	defer cancel()
	conn, release := client.Dedicate()
	defer release()
	defer conn.Close()
	return conn.Do(ctx, conn.B().Arbitrary(words...).Build())
}

// fields are the lines of INFO.
func fields(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[k] = v
		}
	}
	return info
}

// tested are the versions that the tests were run on: the table in docs/versions.md. What is older than
// Redis 7.0 is refused before it is asked.
var tested = map[string][]string{
	"Redis":  {"7.0", "7.2", "7.4", "8.0", "8.2", "8.6"},
	"Valkey": {"8.0", "8.1", "9.1"},
}

// ownVersions are the fields in which servers that claim to be some Redis say what they are.
var ownVersions = []struct{ field, name string }{
	{"dragonfly_version", "Dragonfly"}, {"garnet_version", "Garnet"}, {"kvrocks_version", "Kvrocks"},
	{"upstash_version", "Upstash"}, {"rlec_version", "Redis Enterprise"}, {"valkey_version", "Valkey"},
}

// product is what a server says that it is, in INFO, or in HELLO where INFO is refused; "" if in neither.
func product(hello, info map[string]string) (name, version string) {
	for _, own := range ownVersions {
		if v := cmp.Or(info[own.field], hello[own.field]); v != "" {
			return own.name, strings.TrimLeft(v, "dfgrv-")
		}
	}
	version = cmp.Or(info["redis_version"], hello["version"])
	switch {
	case info["mvcc_depth"] != "", strings.Contains(info["executable"], "keydb"):
		return "KeyDB", version
	case hello["server"] == "valkey":
		return "Valkey", version
	case version != "":
		return "Redis", version
	}
	return "", ""
}

// hosts are endings of the names of hosts by which a service is known that INFO does not name.
var hosts = []struct{ ends, name string }{
	{".cache.amazonaws.com", "Amazon ElastiCache"}, {".memorydb.amazonaws.com", "Amazon MemoryDB"},
	{".redis.cache.windows.net", "Azure Cache for Redis"}, {".redis.azure.net", "Azure Managed Redis"},
	{".upstash.io", "Upstash"}, {".redis-cloud.com", "Redis Cloud"}, {".redislabs.com", "Redis Cloud"},
	{".rds.aliyuncs.com", "Alibaba Cloud Tair"}, {".dragonflydb.cloud", "Dragonfly Cloud"},
}

// service is the managed service that a server belongs to, as far as it or its address says; "" if neither does.
func service(info map[string]string, addrs ...string) string {
	if os := info["os"]; strings.HasPrefix(os, "Amazon ") {
		return os
	}
	for _, addr := range addrs {
		host, _, err := net.SplitHostPort(addr)
		for _, h := range hosts {
			if err == nil && strings.HasSuffix(host, h.ends) {
				return h.name
			}
		}
	}
	return ""
}

// identity says what the server is.
func (x *checkup) identity(context.Context) {
	const page = "see docs/kubernetes-and-managed.md for what was seen there; the tests can be run on it " +
		"(docs/versions.md)"
	n := x.nodes[0]
	name, version := product(n.hello, n.info)
	of := service(n.info, append(slices.Clone(x.option.InitAddress), n.addr)...)
	if name == "" {
		says := "it says neither by INFO nor by HELLO what it is: a proxy stands in between, or the user may not ask"
		if of != "" {
			says += "; its address is one of " + of
		}
		x.add(finding{"warning", "server", says, "nothing below is known that only INFO tells",
			"give the user +info; " + page})
		return
	}
	says := name + " " + version
	if of != "" {
		says += ", of " + of
	}
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	switch {
	case !slices.Contains(tested[name], major+"."+minor):
		known := "no version of it"
		if len(tested[name]) > 0 {
			known = "only " + name + " " + strings.Join(tested[name], ", ")
		}
		x.add(finding{"warning", "server", "%s: the tests were not run on it, %s", "it may work all the same", page}, says,
			known)
	case of != "":
		x.add(finding{"note", "server", says, "the tests were run on this version, and not on this service",
			"see docs/kubernetes-and-managed.md for what its documents say"})
	default:
		x.ok("server", says)
	}
}

// topology says how the servers stand to each other, and who follows a failover.
func (x *checkup) topology(context.Context) {
	n, replicas := x.nodes[0], 0
	for _, n := range x.nodes {
		of, _ := strconv.Atoi(n.info["connected_slaves"])
		replicas += of
	}
	database := ""
	if x.option.SelectDB != 0 {
		database = fmt.Sprintf(", database %d", x.option.SelectDB)
	}
	with := fmt.Sprintf(" with %d replicas", replicas)
	if n.noInfo != nil {
		with = " with replicas that only INFO shows"
	}
	switch mode := x.client.Mode(); {
	case mode == rueidis.ClientModeCluster:
		primaries := 0
		for _, n := range x.nodes {
			if !n.replica() {
				primaries++
			}
		}
		x.ok("topology", "a Cluster: %d primaries%s%s", primaries, with, database)
		return
	case mode == rueidis.ClientModeSentinel:
		x.ok("topology", "Sentinel %s: %s%s%s", x.option.Sentinel.MasterSet, n.addr, with, database)
		return
	case n.replica():
		x.add(finding{"problem", "topology", "this server is a replica", "it refuses every lock",
			"connect to the primary, or through Sentinel (master_set)"})
		return
	case n.info["cluster_enabled"] == "1":
		x.add(finding{"note", "topology", "a Cluster behind one address%s",
			"what stands in between decides which commands work",
			"give --redis a second address (?addr=) to be a client of the Cluster itself"}, database)
		return
	}
	says := "one server" + with + database
	if replicas > 0 {
		x.add(finding{"note", "topology", says, "programs follow a failover only if this address does",
			"name the sentinels (?master_set=) if there are any"})
		return
	}
	x.ok("topology", says)
}

// connections is how many oneServer opens.
const connections = 6

// oneServer looks whether all connections end at the same server, each by a key of its own that all others look for.
// Behind a load balancer, or a Kubernetes Service over several servers, they do not: and two processes hold one lock.
func (x *checkup) oneServer(ctx context.Context) {
	if x.client.Mode() != rueidis.ClientModeStandalone {
		return
	}
	const do = "connect to the primary itself, by Sentinel or as a client of the Cluster: " +
		"not through a load balancer or a Kubernetes Service over several servers"
	var keys []string
	for i := range connections {
		keys = append(keys, fmt.Sprintf("%s:{seen}:%d", x.server.prefix+x.name, i))
	}
	defer func() {
		for _, key := range keys {
			x.remove(ctx, key)
		}
	}()
	var all []rueidis.DedicatedClient
	replicas := 0
	for _, key := range keys {
		conn, release := x.client.Dedicate() // all at once, so each is a connection of its own
		defer release()
		defer conn.Close()
		all = append(all, conn)
		err := conn.Do(ctx, conn.B().Set().Key(key).Value("1").Px(10*time.Second).Build()).Error()
		var no *rueidis.RedisError
		if errors.As(err, &no) && strings.HasPrefix(no.Error(), "READONLY") {
			replicas++
		} else if err != nil {
			x.add(finding{"note", "one server", "not known: SET: %v", "", ""}, err)
			return
		}
	}
	if replicas == connections {
		return // topology has said so
	}
	for _, conn := range all {
		n, err := conn.Do(ctx, conn.B().Exists().Key(keys...).Build()).AsInt64()
		if err != nil {
			x.add(finding{"note", "one server", "not known: EXISTS: %v", "", ""}, err)
			return
		}
		if replicas > 0 || n < connections {
			x.apart = true
			x.add(finding{"problem", "one server", "of %d connections, some end at other servers",
				"two processes hold one lock at the same time", do}, connections)
			return
		}
	}
	x.ok("one server", "%d connections see each other's writes", connections)
}

// remove takes away what would last, also when ctx has ended; without the right to it, what is left ends by itself.
func (x *checkup) remove(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.server.timeout)
	defer cancel()
	x.client.Do(ctx, x.client.B().Del().Key(key).Build())
}

// removeToken takes away what a Fenced lock keeps after it is free.
func (x *checkup) removeToken(ctx context.Context, name string) {
	x.remove(ctx, keyname.Prefix("redisson_lock_token", x.server.prefix+name))
}
