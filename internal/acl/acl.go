// Package acl knows which rights the user of a program needs on the server, for the command redlatch acl and for
// docs/access.md.
package acl

import (
	"slices"
	"strings"
)

// feature is what one client of the library, or the command redlatch inspect, needs.
type feature struct {
	name string
	// patterns of the keys of a name: the name itself, and the keys that have the name in the library's braces
	own      []string
	keys     []string // prefixes of the names in keys
	channels []string // and in channels
	fixed    []string // patterns without a name in them
	plain    string   // commands that Go sends
	scripts  string   // and those in scripts
}

// every is what all programs need: scripts, connecting, the server's clock and its settings, Redis Cluster.
const every = "evalsha eval ping info time client|tracking client|caching cluster|slots cluster|shards"

// pubsubCommands is what is needed to hear messages and to send them.
const pubsubCommands = "subscribe unsubscribe ssubscribe sunsubscribe publish spublish"

// published is how a script sends them.
const published = "publish spublish "

// cached are the commands around a cached read of rueidis whose entry ends with its key: others have a static TTL.
const cached = "multi exec pttl"

// counted is how a script asks who listens on a channel.
const counted = "pubsub|numsub pubsub|shardnumsub"

// latchChannel is Redisson's, which has braces whatever the name has.
const latchChannel = "redisson_countdownlatch__channel__"

var locks = feature{
	name: "locks", own: []string{"", "{"},
	keys: []string{"redlatch_queue", "redisson_lock_token", "redisson_lock_queue",
		"redisson_lock_timeout",
		"redlatch_fair", "redlatch_rw",
		"redlatch_rwq", "redlatch_blocked", "redlatch_kept"},
	channels: []string{"redisson_lock__channel", "redisson_rwlock", "redlatch_plain"},
	fixed:    []string{"~redlatch_alive:*", "&redlatch_grant:*"},
	plain:    pubsubCommands + " exists hmget" + " " + cached,
	scripts: published + counted +
		" exists pttl pexpire get set del hget hgetall hset hdel hlen hexists hmget hscan zadd zrem " +
		"zcard " +
		"zscore zcount zrange " +
		"rpush lpop lrange llen lindex lrem info time",
}

// features are all of them, in the order of the README.
var features = []feature{
	locks,
	{
		name: "elections", own: locks.own, keys: []string{"redlatch_queue", "redisson_lock_token", "redlatch_kept",
			"redlatch_leader", "redlatch_workers"},
		channels: []string{"redisson_lock__channel", "redlatch_leader"}, fixed: locks.fixed,
		plain: pubsubCommands + " exists get hexists hdel",
		scripts: published + counted + " exists pttl pexpire get set del hgetall hset hdel hmget hscan zadd zrem " +
			"zscore zrange lindex time",
	},
	{
		name: "semaphores", own: []string{"", "{"}, keys: []string{"redlatch_queue"},
		channels: []string{"redisson_sc", "redlatch_barrier", latchChannel},
		fixed:    locks.fixed, plain: pubsubCommands + " get set",
		scripts: published + counted +
			" exists pttl pexpire persist get set del incrby hget hgetall hset hdel hexists hincrby hmget hscan " +
			"zadd zrem zcard zscore zmscore " +
			"zcount zlexcount zrange zremrangebyscore time",
	},
	{
		name: "counters", own: []string{""}, keys: []string{"rc"}, plain: cached + " incr decr incrby get getrange",
		scripts: "pttl pexpire get set incrby hset hmget unlink time",
	},
	{
		name: "limits", keys: []string{"rc"}, plain: "get",
		scripts: "pexpire get set del unlink type zadd zrem zcard zcount zrange zremrangebyscore zscore time",
	},
	{
		name: "sales", keys: []string{"rc"}, plain: cached + " hget hscan xrange",
		scripts: "exists pttl pexpire del unlink rename hget hgetall hset hdel hexists hlen hmget hincrby " +
			"zadd zrem zcard zcount zrange rpush lpop lrange lindex llen xadd xlen xrange xtrim time",
	},
	{
		name: "packets", keys: []string{"rc"}, plain: "hscan",
		scripts: "exists pttl pexpire unlink hget hset hlen hmget hincrby rpush lpop lrange llen xadd xlen xrange xtrim " +
			"time",
	},
	{
		name: "inspect", own: []string{"", "{"}, keys: locks.keys[:len(locks.keys)-1], fixed: []string{"~redlatch_alive:*"},
		plain:   "scan exists hscan getrange",
		scripts: "pttl get hget hgetall hmget zcard zcount zlexcount zscore zrange lrange time",
	},
}

// Features are the names that [Line] knows: the packages, and the search of redlatch inspect, which programs do not
// use.
func Features() (names []string) {
	for _, f := range features {
		names = append(names, f.name)
	}
	return names
}

// Commands returns the commands that the scripts of a feature run, and the commands that Go sends for it, each list
// separated by blanks.
func Commands(feature string) (inScripts, plain string) {
	for _, f := range features {
		if f.name == feature {
			return f.scripts, f.plain
		}
	}
	return "", ""
}

// Servers are the kinds of servers that [LineOn] knows.
var Servers = []string{"single", "sentinel", "cluster"}

// elsewhere are the commands that one kind of server is never sent, and more those that no other is.
var (
	elsewhere = map[string]string{
		"single":  "ssubscribe sunsubscribe spublish pubsub|shardnumsub",
		"cluster": "subscribe unsubscribe publish pubsub|numsub",
	}
	more = map[string]string{"sentinel": "role"}
)

// Line is the command that makes a user called so, whose password is the word secret, with the rights that these
// features need and no others; without any, all but those of inspect. With a prefix they are bounded to keys and
// channels of names that begin with it. Line returns "" for a feature that it does not know.
func Line(user, prefix string, of ...string) string { return LineOn("", user, prefix, of...) }

// LineOn is Line for one kind of server; "": for a single one and a Cluster.
func LineOn(server, user, prefix string, of ...string) string {
	if len(of) == 0 {
		of = Features()[:len(features)-1]
	}
	words := []string{"ACL", "SETUSER", user, "on", ">secret"}
	var channels, commands []string
	add := func(to *[]string, all ...string) {
		for _, s := range all {
			if !slices.Contains(*to, s) {
				*to = append(*to, s)
			}
		}
	}
	for _, name := range of {
		i := slices.IndexFunc(features, func(f feature) bool { return f.name == name })
		if i < 0 {
			return ""
		}
		f := features[i]
		add(&words, f.keyPatterns(prefix)...)
		add(&channels, f.channelPatterns(prefix)...)
		add(&commands, strings.Fields(every+" "+f.plain+" "+f.scripts+" "+more[server])...)
	}
	kind := server
	if kind == "sentinel" {
		kind = "single" // a sentinel deployment needs the same commands, and one more
	}
	never := strings.Fields(elsewhere[kind])
	commands = slices.DeleteFunc(commands, func(c string) bool { return slices.Contains(never, c) })
	words = append(words, channels...)
	for _, c := range commands {
		words = append(words, "+"+c)
	}
	return strings.Join(words, " ")
}

func (f *feature) keyPatterns(prefix string) (all []string) {
	if prefix == "" {
		return []string{"~*"}
	}
	for _, before := range f.own {
		all = append(all, named("~", before, prefix)...)
	}
	for _, before := range f.keys {
		all = append(all, named("~", before+":", prefix)...)
	}
	for _, pattern := range f.fixed {
		if pattern[0] == '~' {
			all = append(all, pattern)
		}
	}
	return all
}

func (f *feature) channelPatterns(prefix string) (all []string) {
	for _, before := range f.channels {
		switch {
		case before != latchChannel:
			all = append(all, named("&", before+":", prefix)...)
		case prefix == "":
			all = append(all, "&"+latchChannel+"*")
		default:
			all = append(all, "&"+latchChannel+"{"+globbed.Replace(prefix)+"*")
		}
	}
	for _, pattern := range f.fixed {
		if pattern[0] == '&' {
			all = append(all, pattern)
		}
	}
	return all
}

var globbed = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`)

// named returns the patterns of the names that consist of before, the prefix and any text. The library puts braces
// around a name without braces of its own.
func named(kind, before, prefix string) []string {
	p := globbed.Replace(prefix) + "*"
	switch {
	case prefix == "":
		return []string{kind + before + "*"}
	case strings.HasSuffix(before, "{"):
		if strings.Contains(prefix, "{") {
			return nil
		}
		return []string{kind + before + p}
	case before == "" || strings.Contains(prefix, "{"):
		return []string{kind + before + p}
	}
	return []string{kind + before + "{" + p, kind + before + p}
}
