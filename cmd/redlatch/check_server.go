//go:build unix

package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

// node is one server, as it describes itself. A field is empty if the server refuses to tell it.
type node struct {
	addr                string
	hello, info, config map[string]string
	noInfo, noConfig    error
	alone               bool // the only server of the client
}

func (n *node) replica() bool { return n.info["role"] == "slave" }

// configured are the settings that check asks for.
const configured = "CONFIG GET appendfsync min-replicas-to-write min-replicas-max-lag timeout tcp-keepalive " +
	"lazyfree-lazy-expire lazyfree-lazy-user-del stop-writes-on-bgsave-error"

// describe asks every server what it is. HELLO is allowed to all users, INFO where CONFIG is forbidden.
func (x *checkup) describe(ctx context.Context) {
	for addr, client := range x.client.Nodes() {
		n := &node{addr: addr, hello: map[string]string{}, alone: len(x.client.Nodes()) == 1}
		said, _ := x.send(ctx, client, "HELLO").AsMap() // INFO says the same if HELLO is refused, and the reverse
		for k, v := range said {
			if text, err := v.ToString(); err == nil {
				n.hello[k] = text
			}
		}
		text, err := x.send(ctx, client, "INFO").ToString()
		n.info, n.noInfo = fields(text), err
		n.config, n.noConfig = x.send(ctx, client, configured).AsStrMap()
		x.nodes = append(x.nodes, n)
	}
	slices.SortFunc(x.nodes, func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.info["role"], b.info["role"]), strings.Compare(a.addr, b.addr))
	})
}

// send sends commands, one after the other, on a connection of their own: a proxy may close it, or keep silent, at a
// command that it does not know. send returns the last reply, or the first error.
func (x *checkup) send(ctx context.Context, client rueidis.Client, lines ...string) (r rueidis.RedisResult) {
	ctx, cancel := context.WithTimeout(ctx, x.bound)
	defer cancel()
	conn, release := client.Dedicate()
	defer release()
	defer conn.Close()
	for _, line := range lines {
		if r = conn.Do(ctx, conn.B().Arbitrary(strings.Fields(line)...).Build()); r.Error() != nil {
			break
		}
	}
	return r
}

// patience returns how long check waits for a reply on a new connection: four times the time of the first connection.
// A slow network must not look like a missing command.
func (x *checkup) patience(ctx context.Context) time.Duration {
	x.bound = 10 * time.Second
	began := time.Now()
	x.send(ctx, x.client, "HELLO")
	return max(x.server.timeout, min(4*time.Since(began), x.bound))
}

// unanswered reports whether err says only that no answer came in time.
func unanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, redlatch.ErrUnknownOutcome)
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

// tested are the versions that the tests were run on: the table in docs/versions.md. A server older than Redis 7.0 is
// refused before it is asked.
var tested = map[string][]string{
	"Redis":  {"7.0", "7.2", "7.4", "8.0", "8.2", "8.6"},
	"Valkey": {"8.0", "8.1", "9.0", "9.1"},
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

// identity says what the server is.
func (x *checkup) identity(context.Context) {
	const page = "read docs/kubernetes-and-managed.md, or run the tests on it (docs/versions.md)"
	n := x.nodes[0]
	name, version := product(n.hello, n.info)
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	f := finding{Level: "ok", What: "server", Says: name + " " + version}
	switch {
	case name == "":
		f = finding{"warning", "server",
			"neither INFO nor HELLO says what it is: there is a proxy in between, or the user lacks +info",
			"settings that only INFO has are not known", "give the user +info; " + page}
		if unanswered(n.noInfo) {
			f.Says = fmt.Sprintf("it answered neither INFO nor HELLO within %v", x.bound)
		}
	case !slices.Contains(tested[name], major+"."+minor):
		known := "nor any other version of it"
		if len(tested[name]) > 0 {
			known = "only " + name + " " + strings.Join(tested[name], ", ")
		}
		f.Level, f.Means, f.Do = "warning", "it may work nevertheless", page
		f.Says += ": not tested, " + known
	}
	x.add(f)
}

// luaMended are the patch releases from which on no vulnerability of Lua is known: CVE-2025-49844, and where its fix is
// known CVE-2026-23631. A branch that is not listed began with the fixes; Redis 7.0 ended without them.
var luaMended = map[string]int{
	"Redis 7.2": 14, "Redis 7.4": 9, "Redis 8.0": 4, "Redis 8.2": 6, "Redis 8.4": 3, "Redis 8.6": 3,
	"Valkey 8.0": 6, "Valkey 8.1": 7, "Valkey 9.0": 4,
}

// lua says whether users that may call EVAL can do more than that.
func (x *checkup) lua(context.Context) {
	const means = "a user who may call EVAL may run code on the server, or as another user"
	n := x.nodes[0]
	name, version := product(n.hello, n.info)
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 3 {
		return
	}
	branch := name + " " + parts[0] + "." + parts[1]
	patch, err := strconv.Atoi(parts[2])
	mended, listed := luaMended[branch]
	switch {
	case branch == "Redis 7.0":
		x.add(finding{"note", "Lua", branch + " has no release with the fix of CVE-2025-49844", means,
			"see that your distribution has it, as Debian's 7.0.15 has"})
	case listed && err == nil && patch < mended:
		x.add(finding{"warning", "Lua", fmt.Sprintf("%s %s is older than the fixes of CVE-2025-49844 or CVE-2026-23631",
			name, version), means, fmt.Sprintf("update to %s.%d, or see that your distribution has the fixes", branch, mended)})
	}
}

// topology tells the servers' roles, and whether clients follow a failover.
func (x *checkup) topology(context.Context) {
	n, primaries, replicas := x.nodes[0], 0, 0
	for _, n := range x.nodes {
		of, _ := strconv.Atoi(n.info["connected_slaves"])
		replicas += of
		if !n.replica() {
			primaries++
		}
	}
	with := fmt.Sprintf(" with %d replicas", replicas)
	if n.noInfo != nil {
		with = ", and an unknown number of replicas"
	}
	if x.option.SelectDB != 0 {
		with += fmt.Sprintf(", database %d", x.option.SelectDB)
	}
	f := finding{Level: "ok", What: "topology", Says: "one server" + with}
	switch mode := x.client.Mode(); {
	case mode == rueidis.ClientModeCluster:
		f.Says = fmt.Sprintf("a Cluster: %d primaries%s", primaries, with)
	case mode == rueidis.ClientModeSentinel:
		f.Says = fmt.Sprintf("Sentinel %s: %s%s", x.option.Sentinel.MasterSet, n.addr, with)
	case n.replica():
		f = finding{"problem", "topology", "this server is a replica", "it refuses every lock",
			"connect to the primary, or through Sentinel (master_set)"}
	case n.info["cluster_enabled"] == "1":
		f = finding{"note", "topology", "a Cluster behind one address",
			"the proxy decides which commands work",
			"give --redis a second address (?addr=) to connect to the Cluster itself"}
	case replicas > 0:
		f.Level, f.Means = "note", "programs follow a failover only if this address does"
		f.Do = "connect through the sentinels (?master_set=), if there are any"
	}
	x.add(f)
}

// connections is how many oneServer opens.
const connections = 6

// seen are the keys of oneServer.
func (x *checkup) seen() (keys []string) {
	for i := range connections {
		keys = append(keys, fmt.Sprintf("%s:{seen}:%d", x.server.prefix+x.name, i))
	}
	return keys
}

// oneServer looks whether all connections end at the same server, each by a key of its own that all others look for.
// Behind a load balancer, or a Kubernetes Service over several servers, they do not: and two processes hold one lock.
func (x *checkup) oneServer(ctx context.Context) {
	if x.client.Mode() != rueidis.ClientModeStandalone {
		return
	}
	keys := x.seen()
	var all []rueidis.DedicatedClient
	replicas := 0
	for _, key := range keys {
		conn, release := x.client.Dedicate() // all at once, so each is a connection of its own
		defer release()
		defer conn.Close()
		all = append(all, conn)
		err := conn.Do(ctx, conn.B().Set().Key(key).Value("1").Px(time.Hour).Build()).Error()
		if err != nil && strings.HasPrefix(err.Error(), "READONLY") {
			replicas++
		} else if err != nil {
			x.add(finding{Level: "note", What: "one server", Says: "not known: SET: %v"}, err)
			return
		}
	}
	if replicas == connections {
		return // topology has said so
	}
	for _, conn := range all {
		n, err := conn.Do(ctx, conn.B().Exists().Key(keys...).Build()).AsInt64()
		switch {
		case err != nil:
			x.add(finding{Level: "note", What: "one server", Says: "not known: EXISTS: %v"}, err)
			return
		case replicas > 0 || n < connections:
			x.apart = true
			x.add(finding{"problem", "one server", "%d connections reach different servers",
				"two processes hold one lock at the same time", "connect to the primary itself, through Sentinel or as a " +
					"Cluster client: not through a load balancer or a Kubernetes Service over several servers"}, connections)
			return
		}
	}
	x.ok("one server", "%d connections see each other's writes", connections)
}

// setting is a finding about what INFO and CONFIG GET say. Its text names their fields by $, and says by $at which of
// several servers it is. Of the settings of one subject the first counts that any server meets.
type setting struct {
	finding
	When  []string // all of them: see node.meets
	Unmet string   // the setting that the safe profile needs; without a level it is all that the setting says
}

//go:embed settings.json
var settingsJSON []byte

// meets reports whether a condition holds: a field, "is", "isnt", "over", "under" or "nears" (is more than nine tenths
// of), and a value or, after $, another field. The value of an unknown field is "none".
func (n *node) meets(condition string) bool {
	words := strings.Fields(condition)
	have, value := cmp.Or(n.get(words[0]), "none"), words[2]
	if field, is := strings.CutPrefix(value, "$"); is {
		value = n.get(field)
	}
	x, _ := strconv.ParseFloat(have, 64) // a text counts as 0
	y, _ := strconv.ParseFloat(value, 64)
	switch words[1] {
	case "is":
		return have == value
	case "isnt":
		return have != value
	case "over":
		return x > y
	case "under":
		return x < y
	}
	return y > 0 && x > 0.9*y
}

// get is a field of CONFIG GET or of INFO; their names differ.
func (n *node) get(field string) string {
	if field == "alone" && n.alone {
		return "yes"
	}
	return cmp.Or(n.config[field], n.info[field])
}

// settings looks at what INFO and CONFIG GET say. Where INFO is refused, commands has said so.
func (x *checkup) settings(context.Context) {
	done := ""
	var settings []setting
	_ = json.Unmarshal(settingsJSON, &settings) // embedded, and tests see what it finds
	for _, s := range settings {
		i := slices.IndexFunc(x.nodes, func(n *node) bool {
			return n.noInfo == nil && !slices.ContainsFunc(s.When, func(c string) bool { return !n.meets(c) })
		})
		if i < 0 || s.What == done || x.nodes[0].noInfo != nil {
			continue
		}
		said := func(text string) string {
			return os.Expand(text, func(field string) string {
				switch {
				case field != "at":
					return cmp.Or(x.nodes[i].get(field), "an unknown number")
				case x.nodes[i].alone:
					return ""
				}
				return " at " + x.nodes[i].addr
			})
		}
		if s.Unmet != "" {
			x.unmet = append(x.unmet, said(s.Unmet))
		}
		if f := s.finding; f.Level != "" {
			f.Says, done = said(f.Says), f.What
			x.add(f)
		}
	}
}

// clock compares the clocks of the servers and of this machine: the server that is promoted in a failover reads the
// ends of leases by its own.
func (x *checkup) clock(ctx context.Context) {
	var longest, ahead, behind time.Duration // a round trip, and the clocks that differ most from that of this machine
	for _, client := range x.client.Nodes() {
		began := time.Now()
		now, err := client.Do(ctx, client.B().Time().Build()).AsIntSlice()
		took := time.Since(began)
		if err == nil && len(now) != 2 {
			err = fmt.Errorf("%d numbers", len(now))
		}
		if err != nil {
			x.add(finding{"problem", "clock", "TIME: %v", "no lease can be granted", "give the user +time"}, err)
			return
		}
		off := time.Unix(now[0], now[1]*1000).Sub(began.Add(took / 2)).Round(time.Millisecond)
		longest, ahead, behind = max(longest, took), max(ahead, off), min(behind, off)
	}
	if apart := ahead - behind; apart > time.Second+longest {
		x.add(finding{"warning", "clock", "the clocks of the servers and of this machine are %v apart",
			"a failover, or a step of a server's clock, ends leases early or late",
			"slew the clocks of all servers from one source"}, apart)
	} else {
		x.ok("clock", "the clocks of the servers and of this machine are %v apart (within %v)", apart,
			longest.Round(10*time.Microsecond))
	}
}
