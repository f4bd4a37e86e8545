//go:build unix

package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// checked runs check with these arguments, and returns its findings by what they are of.
func checked(t *testing.T, s *redistest.Server, code int, args ...string) map[string]finding {
	t.Helper()
	r := here(s, "", append([]string{"check", "--json"}, args...)...)
	require.Equal(t, code, r.code, "%s%s", r.out, r.err)
	var all []finding
	require.NoError(t, json.Unmarshal([]byte(r.out), &all), r.err)
	found := map[string]finding{}
	for _, f := range all {
		require.NotContains(t, found, f.What, "one line each")
		require.Contains(t, []string{"ok", "note", "warning", "problem"}, f.Level)
		require.NotEmpty(t, f.Says, f.What)
		if f.Level == "ok" {
			require.Empty(t, f.Means+f.Do, f.What)
		}
		found[f.What] = f
	}
	return found
}

// tried are the features that check tries.
var tried = []string{"locks", "read-write locks", "semaphores", "counters", "rate limits", "sales", "red packets",
	"elections"}

func TestCheck_BadSettings_AreReportedWithRemedies(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru", "--tcp-keepalive", "0",
		"--timeout", "77", "--appendonly", "yes", "--appendfsync", "no")
	found := checked(t, s, 1)
	require.Equal(t, finding{"problem", "maxmemory-policy", "allkeys-lru, and maxmemory is 1073741824",
		"a full server deletes held locks and open sales", "CONFIG SET maxmemory-policy noeviction"},
		found["maxmemory-policy"])
	for _, what := range append([]string{"connection", "server", "topology", "one server", "commands", "replicas",
		"Pub/Sub"}, tried...) {
		require.Equal(t, "ok", found[what].Level, what)
	}
	require.Equal(t, "warning", found["tcp-keepalive"].Level)
	require.Contains(t, found["timeout"].Says, "77 s")
	require.Equal(t, "note", found["appendonly"].Level)
	require.Contains(t, found["appendonly"].Says, "appendfsync no")
	require.Equal(t, "note", found["safe profile"].Level)
	require.Contains(t, found["safe profile"].Says, "maxmemory-policy is allkeys-lru")
	require.Equal(t, "it needs maxmemory-policy noeviction, a replica, better two, min-replicas-to-write 1",
		found["safe profile"].Do)

	s.Ask(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	s.Ask(t, "ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+@all", "-hset", "-subscribe")
	found = checked(t, s, 1, "--redis", "redis://poor:secret@"+s.Addr())
	require.Equal(t, "ok", found["maxmemory-policy"].Level)
	require.Equal(t, "problem", found["sales"].Level)
	require.Contains(t, found["sales"].Says, "+hset")
	require.Equal(t, "warning", found["Pub/Sub"].Level)

	r := here(s, "", "--redis", "redis://127.0.0.1:1", "check")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.out, "problem")
}

// traps has a proxy do that to commands. The error, if it answers one, has the command in place of %s.
func traps(fate redistest.Fate, says string, commands ...string) func(p *redistest.Proxy) {
	return func(p *redistest.Proxy) {
		for _, name := range commands {
			p.Trap(&redistest.Trap{Match: redistest.Command(name), Fate: fate, Every: true,
				Says: func(words []string) string { return strings.ReplaceAll(says, "%s", words[0]) }})
		}
	}
}

// A command that is refused is a finding, with what is missing without it and what to set; nothing else fails.
func TestCheck_CommandRefused_NamesTheMissingFeature(t *testing.T) {
	t.Parallel()
	names := []string{"INFO", "CONFIG", "WAIT", "PUBSUB", "MULTI", "EVALSHA", "CLIENT TRACKING"}
	denied := func(what string) bool { return what == "EVALSHA" } // a user without it can do nothing
	for name, tt := range map[string]struct {
		before   func(t *testing.T, s *redistest.Server) (*redistest.Server, []string)
		says, do string
	}{
		"that no server has": {says: "unknown command", do: "leave MinReplicas at 0",
			before: func(t *testing.T, s *redistest.Server) (*redistest.Server, []string) {
				p := redistest.NewProxy(t, s)
				traps(redistest.RefuseRequest, "ERR unknown command '%s', with args", names...)(p)
				return p.Server(), nil
			}},
		"that a user may not run": {says: "no permissions", do: "give the user +wait",
			before: func(t *testing.T, s *redistest.Server) (*redistest.Server, []string) {
				line := []string{"ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+@all"}
				for _, name := range slices.DeleteFunc(slices.Clone(names), denied) {
					line = append(line, "-"+strings.ToLower(strings.ReplaceAll(name, " ", "|")))
				}
				s.Ask(t, line...)
				return s, []string{"--redis", "redis://poor:secret@" + s.Addr()}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, args := tt.before(t, redistest.Start(t))
			found := checked(t, s, 0, args...)
			for what, level := range map[string]string{
				"INFO": "warning", "CONFIG GET": "note", "WAIT": "note", "PUBSUB NUMSUB": "warning", "MULTI": "note",
				"EVALSHA": "warning", "CLIENT TRACKING": "warning",
			} {
				if args != nil && denied(what) {
					continue
				}
				require.Equal(t, level, found[what].Level, "%s: %v", what, found[what])
				require.NotEmpty(t, found[what].Means)
				require.NotEmpty(t, found[what].Do)
				require.NotContains(t, found["commands"].Says, what)
			}
			require.Contains(t, found["WAIT"].Says, tt.says)
			require.NotContains(t, found["WAIT"].Says, "with args")
			require.Contains(t, found["WAIT"].Do, tt.do)
			require.Contains(t, found["server"].Says, "Redis ", "by HELLO")
			for _, what := range tried {
				require.Equal(t, "ok", found[what].Level, what)
			}
			require.Equal(t, "note", found["safe profile"].Level)
			require.Equal(t, "it needs WAIT, INFO", found["safe profile"].Do)
			checked(t, s, 1, append(args, "--strict")...)
			require.Equal(t, "problem", checked(t, s, 1, append(args, "--survive-failover")...)["safe profile"].Level)
		})
	}
}

// What the proxies of providers do to calls; proof/rights/profiles says which.
func TestCheck_BehindAProxy_FindsWhatItDoes(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	unanswered := []string{"SUBSCRIBE", "WAIT", "INFO", "PUBSUB", "CLIENT TRACKING ON OPTIN NOLOOP"}
	lacking := []string{"Pub/Sub", "WAIT", "INFO", "PUBSUB NUMSUB", "CLIENT TRACKING"}
	for name, c := range map[string]struct {
		does  func(p *redistest.Proxy)
		code  int
		finds []string
	}{
		"no RESP3": {traps(redistest.RefuseRequest, "NOPROTO unsupported protocol version", "HELLO 3"), 0,
			[]string{"RESP3"}},
		"no HELLO":  {traps(redistest.RefuseRequest, "unsupported command '%s'", "HELLO"), 1, []string{"connection"}},
		"no script": {traps(redistest.RefuseRequest, "ERR bad lua script", "EVAL"), 1, []string{"locks", "sales"}},
		"one slot": {func(p *redistest.Proxy) { p.RefuseSeveralSlots(redistest.CrossSlot) }, 0,
			[]string{"keys of several slots"}},
		"closes":        {traps(redistest.LoseRequest, "", unanswered...), 0, lacking},
		"never answers": {traps(redistest.LoseRequestSilently, "", unanswered...), 0, lacking},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			s.Ask(t, "SCRIPT", "FLUSH") // the server would answer an EVALSHA of a script that it knows
			p := redistest.NewProxy(t, s)
			c.does(p)
			found := checked(t, p.Server(), c.code, "--call-timeout=3s")
			levels := [][]string{{"note", "warning"}, {"problem"}}[c.code]
			for _, what := range c.finds {
				require.Contains(t, levels, found[what].Level, "%s: %v", what, found)
			}
			for _, what := range tried {
				require.Equal(t, c.code == 0, found[what].Level == "ok", "%s: %v", what, found[what])
			}
		})
	}
}

// at is one of several servers.
func at(addr string) *redistest.Server { return &redistest.Server{Addrs: []string{addr}} }

// What check writes is under names of its own, also where the user may write nothing else; and it leaves nothing.
func TestCheck_LimitedUser_WritesOnlyItsOwnKeysAndRemovesThem(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*redistest.Server{"single": redistest.Start(t), "cluster": redistest.Cluster(t)} {
		t.Run(name, func(t *testing.T) {
			r := alone("acl", "--prefix", "shop:redlatch_check:", "--user", "checker")
			require.Zero(t, r.code, r.err)
			for _, addr := range s.Addrs {
				at(addr).Ask(t, strings.Fields(r.out)...)
				t.Cleanup(func() { at(addr).Ask(t, "ACL", "DELUSER", "checker") }) // the next test gets it
			}
			found := checked(t, s, 0, "--redis", "redis://checker:secret@"+s.Addr(), "--prefix", "shop:")
			for _, what := range append([]string{"Pub/Sub", "clock"}, tried...) {
				require.Equal(t, "ok", found[what].Level, "%s: %v", what, found[what])
			}
			for _, addr := range s.Addrs {
				left := redistest.NoError(at(addr).TryAskList(t, "KEYS", "*"))(t)
				for _, key := range left { // what says that a process is there ends by itself
					require.Contains(t, key, "redlatch_alive:")
					require.NotEqual(t, "-1", at(addr).Ask(t, "PTTL", key))
				}
			}
			require.Contains(t, found["topology"].Says, map[string]string{"single": "one server with 0 replicas",
				"cluster": "a Cluster: 3 primaries with 0 replicas"}[name])
		})
	}
}

// The safe profile is tried: Open must take the server, and a replica must confirm a lock.
func TestCheck_SurviveFailover_TriesTheSafeProfile(t *testing.T) {
	t.Parallel()
	s := redistest.SentinelWith(t, "--appendonly", "yes", "--min-replicas-to-write", "1")
	sentinels := "redis://" + s.Addrs[0] + "?addr=" + s.Addrs[1] + "&addr=" + s.Addrs[2] + "&master_set=main"
	primary := s.Pairs[0].Primary
	found := checked(t, s.Server, 0, "--redis", sentinels, "--survive-failover")
	require.Equal(t, "ok", found["safe profile"].Level, found["safe profile"])
	require.Contains(t, found["topology"].Says, "Sentinel main: "+primary.Addr()+" with 1 replicas")
	require.Equal(t, "ok", found["min-replicas-to-write"].Level)

	primary.Ask(t, "CONFIG", "SET", "min-replicas-to-write", "0")
	found = checked(t, s.Server, 1, "--redis", sentinels, "--survive-failover")
	require.Equal(t, "problem", found["safe profile"].Level)
	require.Equal(t, "it needs min-replicas-to-write 1", found["safe profile"].Do)
	require.Equal(t, "note", found["min-replicas-to-write"].Level)

	require.Equal(t, "problem", checked(t, s.Pairs[0].Replica, 1, "--call-timeout=1s")["topology"].Level)
}

func TestCheck_TooFewReplicas_IsAProblem(t *testing.T) {
	t.Parallel()
	found := checked(t, redistest.Start(t, "--min-replicas-to-write", "1"), 1, "--call-timeout=4s")
	require.Equal(t, finding{"problem", "min-replicas-to-write", "0 good replicas, and 1 are required",
		"nothing is granted (NOREPLICAS)", "repair replication"}, found["min-replicas-to-write"])
	for _, what := range tried {
		require.Equal(t, "problem", found[what].Level, what)
	}
}

// As behind a Kubernetes Service over several servers that know nothing of each other.
func TestCheck_ConnectionsEndAtDifferentServers_IsAProblem(t *testing.T) {
	t.Parallel()
	addrs := []string{redistest.Start(t).Addr(), redistest.Start(t).Addr()}
	l := redistest.NoError(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	var turn atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				s, err := net.Dial("tcp", addrs[turn.Add(1)%2])
				if err != nil {
					return
				}
				defer s.Close()
				go func() {
					io.Copy(s, c)
					s.Close()
				}()
				io.Copy(c, s)
			}()
		}
	}()
	found := checked(t, at(l.Addr().String()), 1)
	require.Equal(t, "problem", found["one server"].Level)
	require.Contains(t, found["one server"].Do, "Kubernetes Service")
}

// A line whose round trip is longer than the call timeout makes calls fail. It is no command that is missing.
func TestCheck_SlowLine_NothingIsCalledMissing(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t))
	proxy.Delay(100*time.Millisecond, 100*time.Millisecond)
	found := checked(t, proxy.Server(), 1, "--call-timeout=150ms")
	require.Equal(t, "ok", found["one server"].Level, found["one server"])
	for _, what := range []string{"RESP3", "CLIENT TRACKING", "MULTI", "EVALSHA", "PUBSUB NUMSUB", "INFO"} {
		require.Contains(t, found["commands"].Says, what)
		require.NotContains(t, found, what)
	}
	require.NotEqual(t, "warning", found["Pub/Sub"].Level, found["Pub/Sub"])
	require.Equal(t, "problem", found["locks"].Level)
	require.Contains(t, found["locks"].Do, "--call-timeout")
}

// Six connections are made one after the other, which takes longer than 10 s.
func TestCheck_VerySlowLine_IsOneServer(t *testing.T) {
	redistest.SkipShort(t)
	if !redistest.Long() {
		t.Skip("it takes a minute: REDLATCH_LONG=1")
	}
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t))
	proxy.Delay(350*time.Millisecond, 350*time.Millisecond)
	require.Equal(t, "ok", checked(t, proxy.Server(), 1)["one server"].Level)
}

// A server that was not tested is one to warn of; one that is too old is not worked with at all.
func TestCheck_TestedVersions_AreThoseOfTheDocuments(t *testing.T) {
	text := redistest.NoError(os.ReadFile("../../docs/versions.md"))(t)
	documented := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (Redis|Valkey) (\d+\.\d+)\.\d+ \| \d`).
		FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = append(documented[m[1]], m[2])
	}
	require.Equal(t, documented, tested)
}

func TestCheck_EachServerVersion_HasItsLevel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		level, says string
		hello, info string
	}{
		{"ok", "Redis 7.0.15", "", "redis_version:7.0.15"},
		{"ok", "Redis 8.0.99", "server:redis version:8.0.99", ""},
		{"ok", "Valkey 9.1.2", "", "redis_version:7.2.4 valkey_version:9.1.2"},
		{"ok", "Valkey 8.1.1", "server:valkey version:8.1.1", ""},
		{"warning", "Redis 99.0.1: not tested, only Redis 7.0", "", "redis_version:99.0.1"},
		{"warning", "Valkey 99.1.0", "", "redis_version:7.2.4 valkey_version:99.1.0"},
		{"warning", "Dragonfly 1.40.1: not tested, nor any other version", "",
			"redis_version:7.4.0 dragonfly_version:df-v1.40.1"},
		{"warning", "KeyDB 6.3.4", "", "redis_version:6.3.4 mvcc_depth:0"},
		{"warning", "Garnet 1.0.8", "server:redis version:7.4.3 garnet_version:1.0.8", ""},
		{"warning", "Kvrocks 2.17.0", "", "redis_version:4.0.0 kvrocks_version:2.17.0"},
		{"warning", "Upstash 1.10.5", "", "upstash_version:1.10.5 redis_version:6.2.6"},
		{"warning", "Redis Enterprise 7.4.2-22", "", "redis_version:7.4.0 rlec_version:7.4.2-22"},
		{"warning", "neither INFO nor HELLO says", "", ""},
	} {
		parsed := func(text string) map[string]string { return fields(strings.Join(strings.Fields(text), "\n")) }
		n := &node{addr: "127.0.0.1:6379", hello: parsed(c.hello), info: parsed(c.info)}
		x := &checkup{nodes: []*node{n}}
		x.identity(t.Context())
		require.Len(t, x.all, 1)
		require.Equal(t, c.level, x.all[0].Level, "%+v: %v", c, x.all[0])
		require.Contains(t, x.all[0].Says, c.says)
	}
}

func TestCheck_LuaVulnerable_IsSaidWithTheRelease(t *testing.T) {
	t.Parallel()
	for version, says := range map[string]finding{
		"redis_version:7.0.15":                       {Level: "note", Do: "see that your distribution has it"},
		"redis_version:7.4.8":                        {Level: "warning", Do: "update to Redis 7.4.9"},
		"redis_version:8.0.3":                        {Level: "warning", Do: "update to Redis 8.0.4"},
		"redis_version:7.2.4 valkey_version:8.1.6":   {Level: "warning", Do: "update to Valkey 8.1.7"},
		"redis_version:7.4.9":                        {},
		"redis_version:8.8.0":                        {},
		"redis_version:7.2.4 valkey_version:9.1.2":   {},
		"redis_version:7.4.0 rlec_version:7.4.2-22":  {},
		"redis_version:7.2":                          {},
		"redis_version:7.2.x":                        {},
		"redis_version:6.3.4 mvcc_depth:0 patch:1.1": {},
	} {
		x := &checkup{nodes: []*node{{info: fields(strings.Join(strings.Fields(version), "\n"))}}}
		x.lua(t.Context())
		if says.Level == "" {
			require.Empty(t, x.all, version)
			continue
		}
		require.Len(t, x.all, 1, version)
		require.Equal(t, says.Level, x.all[0].Level, version)
		require.Contains(t, x.all[0].Do, says.Do)
	}
}

// The table has what a finding means and what to do about it on lines of their own.
func TestCheck_Table_HasMeaningAndRemedyOnTheirOwnLines(t *testing.T) {
	t.Parallel()
	r := here(redistest.Start(t), "", "check")
	require.Zero(t, r.code, r.err)
	lines := strings.Split(r.out, "\n")
	i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "warning  appendonly ") })
	require.GreaterOrEqual(t, i, 0, r.out)
	require.Contains(t, lines[i+1], " !  a restart forgets what is held")
	require.Contains(t, lines[i+2], " -> CONFIG SET appendonly yes")
}
