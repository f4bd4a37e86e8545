// Package profiles says what the servers and proxies of providers refuse, by their documents, and makes a proxy of the
// tests refuse the same. It stands in for what cannot be had here: what is behind it is a redis-server, so it shows
// what the library does about a refusal, and nothing else of a provider.
//
// What users reported, and a provider's documents do not say, names the report. What neither says is Assumed.
package profiles

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

// Profile is what a provider refuses.
type Profile struct {
	Name string
	// Source are the pages and reports, with the dates that they bear, or on which their stored copies were read.
	Source string
	// Refuses are the commands of those that redlatch sends, or its rueidis client.
	Refuses []Refusal
	// Literal: a script is refused where it does not name its commands and the elements of KEYS in its calls.
	Literal bool
	// OneSlot is the error's text for a script with keys of several slots; "": it runs, or nothing is known.
	OneSlot string
	// Limits are what else the documents say that is not tried here.
	Limits string

	// Lacks are the commands in pubsub.Stats.Lacks after the core of the tests has run, in their order.
	Lacks []string
	// Open is what the error of redlatch.Open says, "" where it works, and MinReplicas that of Open with MinReplicas.
	Open, MinReplicas string
	// Fails is what the error of the features says that work nowhere but by a refused command; by feature, "all" for all.
	Fails map[string]string
}

// Refusal is one command, and what becomes of it.
type Refusal struct {
	Command string // with a subcommand or first arguments: "CLIENT TRACKING"
	// Says is the error's text; in it %s is the command, or its first word for what ends with a subcommand of its own.
	// "" with Fate.
	Says string
	// Fate, if there is no error: LoseRequest closes the connection, LoseRequestSilently has nothing answered on it.
	Fate redistest.Fate
	// Assumed: no document says so.
	Assumed bool
}

// unknown is Redis' own text.
const unknown = "ERR unknown command '%s'"

// noPermission is Redis' own text for a user without the right.
const noPermission = "NOPERM this user has no permissions to run the '%s' command"

func refuse(says string, commands ...string) (all []Refusal) {
	for _, c := range commands {
		all = append(all, Refusal{Command: c, Says: says})
	}
	return all
}

func assume(says string, commands ...string) []Refusal {
	all := refuse(says, commands...)
	for i := range all {
		all[i].Assumed = true
	}
	return all
}

func lost(fate redistest.Fate, commands ...string) (all []Refusal) {
	for _, c := range commands {
		all = append(all, Refusal{Command: c, Fate: fate, Assumed: true})
	}
	return all
}

func join(lists ...[]Refusal) (all []Refusal) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// The commands of Stats.Lacks.
const (
	tracking  = "CLIENT TRACKING"
	subscribe = "SUBSCRIBE"
	numsub    = "PUBSUB NUMSUB"
	info      = "INFO"
	evalsha   = "EVALSHA"
	slots     = "keys of several slots"
)

// All are the profiles. To see what the library does with each: go test -v ./internal/profiles
var All = []Profile{
	{
		Name:   "Redis",
		Source: "nothing is refused",
	},
	{
		Name: "ElastiCache, node-based, Redis OSS 7.1",
		Source: `"Restricted commands - Amazon ElastiCache", read 2026-11-28; CLIENT TRACKING: redis/rueidis#612, ` +
			`2024-08-20`,
		Refuses: join(
			refuse("ERR unknown subcommand 'tracking'. Try CLIENT HELP.", "CLIENT TRACKING"),
			refuse(unknown, "CONFIG"), // the text: gamenet/redis-memory-analyzer#3, 2016-02-11
		),
		Lacks: []string{tracking},
	},
	{
		Name: "ElastiCache Serverless",
		Source: `"Supported and restricted Valkey, Memcached, and Redis OSS commands - Amazon ElastiCache", read ` +
			`2026-11-28, which lists what is supported; WAIT: redisson/redisson#5586, 2024-01-24 and 2025-07-17`,
		Refuses: join(
			refuse(unknown, "WAIT", "CONFIG"),
			assume("ERR unknown subcommand 'tracking'. Try CLIENT HELP.", "CLIENT TRACKING"), // as node-based
		),
		Limits:      "it is a Cluster, with TLS; the tests here are of a single server",
		Lacks:       []string{tracking},
		MinReplicas: "the server refuses WAIT",
	},
	{
		Name: "MemoryDB",
		Source: `"Restricted commands - Amazon MemoryDB", read 2026-11-28: none of what redlatch sends but CONFIG, which ` +
			`the command redlatch asks`,
		Refuses: refuse(unknown, "CONFIG"),
		Limits:  "it is a Cluster, with TLS; the tests here are of a single server",
	},
	{
		Name: "Memorystore for Redis",
		Source: `"Product constraints", docs of Memorystore for Redis, read 2026-11-28: CLIENT, CLUSTER, CONFIG and ` +
			`others are blocked; "Supported commands" there has parts of CLIENT since Redis 6.x. The text: ` +
			`OptimalBits/bull#1210, 2019-02-08, Krukov/cashews#180, 2024-01-02`,
		Refuses: refuse("ERR unknown command `%s`, with args beginning with: ", "CLIENT", "CLUSTER", "CONFIG"),
		Lacks:   []string{tracking},
	},
	{
		Name: "Memorystore for Valkey",
		Source: `"Supported and blocked commands", docs of Memorystore for Valkey, read 2026-11-28: CLIENT TRACKING and ` +
			`CACHING are supported, CLIENT SETINFO is not in the list, and NOPERM is the answer to what is not`,
		Refuses: refuse(noPermission, "CLIENT SETINFO", "CONFIG GET"),
	},
	{
		Name: "Azure Cache for Redis",
		Source: `"How to configure Azure Cache for Redis", MicrosoftDocs/azure-docs, read 2026-11-28: "(error) ERR ` +
			`unknown command"`,
		Refuses: refuse(unknown, "CONFIG"),
		Limits:  "maxmemory-policy is volatile-lru there unless it is changed: Strict refuses it",
	},
	{
		Name: "Azure Managed Redis, Redis Cloud and Software, databases before 7.4",
		Source: `"Client-side caching compatibility with Redis Software and Redis Cloud", redis.io, read 2026-11-28: from ` +
			`7.4 on; the text: bezzad/HybridRedisCache#16, 2025-06-27. CLUSTER under the Enterprise policy: "Client ` +
			`libraries", Azure Managed Redis, read 2026-11-28; its text is the one that rueidis knows of`,
		Refuses: join(
			refuse("ERR command 'client|tracking' is not allowed", "CLIENT TRACKING"),
			assume("ERR command 'client|caching' is not allowed", "CLIENT CACHING"),
			refuse("ERR command is not allowed", "CLUSTER"),
			assume("ERR command 'config|get' is not allowed", "CONFIG GET"),
		),
		// redis.io, "Clustering", "Multi-key operations": a command whose keys are of several slots
		OneSlot: redistest.CrossSlot,
		Lacks:   []string{tracking, slots},
	},
	{
		Name: "Azure Managed Redis, Redis Cloud and Software, databases since 7.4",
		Source: `"Connection management commands compatibility" and "Pub/sub commands compatibility", redis.io, read ` +
			`2026-11-28: CLIENT TRACKING and PUBSUB are supported; CLUSTER as before 7.4`,
		Refuses: refuse("ERR command is not allowed", "CLUSTER"),
		OneSlot: redistest.CrossSlot,
		Lacks:   []string{slots},
	},
	{
		Name: "Upstash",
		Source: `"Redis API Compatibility", upstash/docs, read 2026-11-28: neither CLIENT TRACKING nor WAIT, nor sharded ` +
			`Pub/Sub nor CLUSTER is in the list; INFO answers (upstash/redis-js#340, 2023-04-11)`,
		Refuses: join(
			assume(unknown, "CLIENT TRACKING", "CLIENT CACHING", "WAIT", "SSUBSCRIBE", "CLUSTER", "CONFIG"),
		),
		Limits:      "INFO said redis_version:6.2.6 in 2023; Open refuses what says less than 7",
		Lacks:       []string{tracking},
		MinReplicas: "the server refuses WAIT",
	},
	{
		Name: "Alibaba Cloud Tair, cluster in proxy mode, script_check_enable 0",
		Source: `"Limits on commands supported by cluster and read/write splitting instances", alibabacloud.com, read ` +
			`2026-11-28: no CLIENT ID; the page of 2024 has no WAIT and no HELLO, either (help.aliyun.com 147892). The texts: ` +
			`redisson/redisson#4645, 2022-11-01, and #6716, 2025-08-01; of several slots: segmentfault.com ` +
			`1190000017050169, read 2026-11-28`,
		Refuses: join(
			refuse(unknown, "WAIT", "HELLO"),
			assume(unknown, "CLIENT TRACKING", "CLIENT CACHING", "CONFIG"),
		),
		OneSlot:     sameSlot,
		Lacks:       []string{tracking, slots},
		MinReplicas: "the server refuses WAIT",
	},
	{
		Name:   "Alibaba Cloud Tair, cluster in proxy mode",
		Source: `as above; scripts: "Lua scripting: limits of the cluster architecture", help.aliyun.com, read 2026-11-28`,
		Refuses: join(
			refuse(unknown, "WAIT", "HELLO"),
			assume(unknown, "CLIENT TRACKING", "CLIENT CACHING", "CONFIG"),
		),
		Literal:     true,
		Limits:      "keys of one call are of one slot",
		Lacks:       []string{tracking},
		MinReplicas: "the server refuses WAIT",
	},
	{
		Name: "Tencent Cloud, Redis 7.0",
		Source: `"Connection Group", tencentcloud.com 239/50393, 2026-03-17: no CLIENT TRACKING, HELLO for RESP2 only; ` +
			`"Command Reference Overview", 239/48367, 2026-03-17: unknown command is the text`,
		Refuses: join(
			refuse(unknown, "CLIENT TRACKING", "CLIENT CACHING"),
			refuse("NOPROTO unsupported protocol version", "HELLO 3"), // Redis' own text
		),
		Lacks: []string{tracking},
	},
	{
		Name: "Dragonfly",
		Source: `"Dragonfly API Compatibility", dragonflydb.io, read 2026-11-28: CLIENT TRACKING without BCAST and ` +
			`REDIRECT, which redlatch does not use; no WAIT`,
		Refuses:     refuse(unknown, "WAIT"),
		Limits:      `undeclared keys are refused ("Scripting with Lua"), unless the server's default_lua_flags allow them`,
		MinReplicas: "the server refuses WAIT",
	},
	{
		Name: "OCI Cache, sharded",
		Source: `"Unsupported Valkey and Redis Commands", docs.oracle.com, read 2026-11-28: no scripts where there are ` +
			`shards`,
		Refuses: assume(unknown, "EVAL", "EVALSHA", "SCRIPT", "CONFIG", "CLUSTER"),
		Fails:   map[string]string{"all": "unknown command"},
		Lacks:   []string{},
	},
	{
		Name: "Envoy, since it answers HELLO",
		Source: `"Redis", envoyproxy.io docs, read 2026-11-28: it has EVAL, EVALSHA, PUBLISH, MULTI, and no SUBSCRIBE, ` +
			`CLIENT, WAIT or PUBSUB. HELLO for RESP2 since envoyproxy/envoy#42744, 2025-12-22. The text: ` +
			`envoyproxy/envoy#17571, 2021-08-03, and #35727, 2024-08-16`,
		Refuses: join(
			refuse("NOPROTO unsupported protocol version", "HELLO 3"),
			refuse("unsupported command '%s'", "CLIENT", "SUBSCRIBE", "SSUBSCRIBE", "WAIT", "PUBSUB", "CLUSTER", "CONFIG"),
			assume("unsupported command '%s'", "INFO"),
		),
		OneSlot:     redistest.CrossSlot, // of the node of a Cluster behind it: it looks at the first key alone
		Limits:      "before several servers that are no Cluster it has a script run at that of its first key",
		Lacks:       []string{tracking, subscribe, info, slots},
		MinReplicas: "the server refuses WAIT",
		Fails:       map[string]string{"messages": "unsupported command"},
	},
	{
		Name:   "Envoy, before",
		Source: `envoyproxy/envoy#17571, 2021-08-03`,
		Refuses: refuse("unsupported command '%s'", "HELLO", "CLIENT", "SUBSCRIBE", "WAIT", "PUBSUB", "CLUSTER", "CONFIG",
			"INFO"),
		Open: "HELLO",
	},
	{
		Name: "twemproxy",
		Source: `"notes/redis.md", twitter/twemproxy, read 2026-11-28: EVAL and EVALSHA, and nothing of Pub/Sub, ` +
			`transactions, connections or servers; that it closes the connection is known of SELECT (its issues), and ` +
			`assumed of the rest`,
		Refuses: lost(redistest.LoseRequest, "HELLO", "CLIENT", "SUBSCRIBE", "WAIT", "PUBSUB", "CLUSTER", "CONFIG", "INFO",
			"MULTI", "PUBLISH"),
		Open: "HELLO",
	},
	{
		Name:        "a user without rights to what can be done without",
		Source:      "ACL, as docs/operations.md has it",
		Refuses:     refuse(noPermission, "CLIENT", "SUBSCRIBE", "WAIT", "PUBSUB", "INFO", "CLUSTER", "CONFIG", "MULTI"),
		Lacks:       []string{tracking, subscribe, info},
		MinReplicas: "the server refuses WAIT",
		Fails:       map[string]string{"messages": "denied"},
	},
	{
		Name:    "a server that knows neither PUBSUB nor EVALSHA",
		Source:  "to see these alone",
		Refuses: assume(unknown, "PUBSUB", "EVALSHA"),
		Lacks:   []string{evalsha, numsub},
	},
	{
		Name:   "a proxy that closes the connection",
		Source: "to see what is not answered at all",
		Refuses: join(
			lost(redistest.LoseRequest, "SUBSCRIBE", "WAIT", "INFO", "PUBSUB"),
			lost(redistest.LoseRequest, "CLIENT TRACKING ON OPTIN NOLOOP"), // of the connection that has keys tracked
		),
		Lacks:       []string{tracking, subscribe},
		MinReplicas: "WAIT",
		Fails:       map[string]string{"messages": "deadline"},
	},
	{
		Name:   "a proxy that never answers",
		Source: "to see what is not answered at all",
		Refuses: join(
			lost(redistest.LoseRequestSilently, "SUBSCRIBE", "WAIT", "INFO", "PUBSUB"),
			lost(redistest.LoseRequestSilently, "CLIENT TRACKING ON OPTIN NOLOOP"),
		),
		Lacks:       []string{},
		MinReplicas: "WAIT",
		Fails:       map[string]string{"messages": "deadline"},
	},
}

// Before starts a proxy in front of a server that refuses what p refuses.
func (p *Profile) Before(t testing.TB, server *redistest.Server) *redistest.Server {
	t.Helper()
	proxy := redistest.NewProxy(t, server)
	for _, r := range p.Refuses {
		fate := r.Fate
		if r.Says != "" {
			fate = redistest.RefuseRequest
		}
		proxy.Trap(&redistest.Trap{Match: redistest.Command(r.Command), Fate: fate, Every: true,
			Says: func(words []string) string { return r.text(words) }})
	}
	if p.OneSlot != "" {
		proxy.Trap(&redistest.Trap{Every: true, Fate: redistest.RefuseRequest, Match: redistest.SeveralSlots,
			Says: func([]string) string { return p.OneSlot }})
	}
	if p.Literal {
		proxy.Trap(&redistest.Trap{Every: true, Fate: redistest.RefuseRequest,
			Match: func(words []string) bool {
				return redistest.Command("EVAL")(words) && len(words) > 1 && !literal(words[1])
			},
			Says: func([]string) string { return notLiteral }})
	}
	return proxy.Server()
}

// text is the answer to a call.
func (r *Refusal) text(words []string) string {
	if !strings.Contains(r.Says, "%s") {
		return r.Says
	}
	command := strings.ToLower(words[0])
	if strings.HasPrefix(r.Says, "NOPERM") && len(words) > 1 && len(r.Command) > len(words[0]) {
		command += "|" + strings.ToLower(words[1])
	} else if !strings.HasPrefix(r.Says, "NOPERM") {
		command = words[0]
	}
	return fmt.Sprintf(r.Says, command)
}

// sameSlot is the text of Alibaba Cloud for a script with keys of several slots.
const sameSlot = "ERR eval/evalsha command keys must be in same slot"

// notLiteral is the text of Alibaba Cloud.
const notLiteral = "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using " +
	"the KEYS array"

var (
	call    = regexp.MustCompile(`redis\.p?call\s*(\()?\s*([^,)]*)(?:,\s*([^,)]*))?`)
	quoted  = regexp.MustCompile(`^(?:'(\w+)'|"(\w+)")$`)
	keyless = map[string]bool{"time": true, "publish": true, "spublish": true, "pubsub": true, "info": true}
)

// literal reports whether each call of a script names its command, and its first key as an element of KEYS.
func literal(script string) bool {
	for _, m := range call.FindAllStringSubmatch(script, -1) {
		name := quoted.FindStringSubmatch(strings.TrimSpace(m[2]))
		if m[1] == "" || name == nil {
			return false
		}
		if !keyless[strings.ToLower(name[1]+name[2])] && !strings.HasPrefix(strings.TrimSpace(m[3]), "KEYS[") {
			return false
		}
	}
	return true
}
