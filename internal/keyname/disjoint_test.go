package keyname_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/stretchr/testify/require"
)

// form is how a key or channel of an object is made of its name.
type form struct {
	what     string
	of       func(n string) string
	unpaired bool // the kinds that have it refuse {n}
	hint     bool // a message there only says to ask: x and {x} share the channel, which is Redisson's
}

// forms are those of all kinds. An owner is a random id, which no name has in it.
func forms() []form {
	const owner = "\u00d8:1"
	all := []form{
		{what: "main", of: func(n string) string { return n }},
		{what: "latch channel", of: func(n string) string { return "redisson_countdownlatch__channel__{" + n + "}" }},
		{what: "queue of weights", of: func(n string) string {
			return keyname.Prefix("redlatch_queue", keyname.Suffix(n, "weighted"))
		}},
		{what: "queue of a once", of: func(n string) string {
			return keyname.Prefix("redlatch_queue", keyname.Suffix(n, "once"))
		}},
		{what: "token of a once", of: func(n string) string {
			return keyname.Prefix("redisson_lock_token", keyname.Suffix(n, "once"))
		}},
		{what: "channel of weights", of: func(n string) string { return keyname.Prefix("redisson_sc", keyname.Own(n)) }},
		{what: "permits, to a latch", of: func(n string) string { return keyname.Suffix(keyname.Own(n), "timeout") }},
		{what: "hold", unpaired: true, of: func(n string) string { return keyname.Suffix(n, owner+":rwlock_timeout:1") }},
		{what: "waiter", unpaired: true, of: func(n string) string {
			return keyname.Prefix("redisson_lock__channel", n) + ":" + owner
		}},
		{what: "kept", of: func(n string) string { return keyname.Prefix("redlatch_kept", n) + ":" + owner }},
		{what: "grants", of: func(n string) string { return keyname.Prefix("redlatch_grant", n) + ":" + owner }},
		{what: "ids", of: func(n string) string { return keyname.Prefix("rc", n) + ":i0.1" }},
	}
	for _, p := range keyname.Derived {
		switch p { // there is always more behind the name, or it is none of an object's
		case "rc", "redlatch_kept", "redlatch_grant", "redlatch_alive", "redisson_unlock_latch":
			continue
		}
		hint := p == "redisson_lock__channel" || p == "redisson_sc"
		f := form{what: p, hint: hint, unpaired: !hint && strings.HasPrefix(p, "redisson_"),
			of: func(n string) string { return keyname.Prefix(p, n) }}
		all = append(all, f)
		if keyname.Mark(p+":") != "" {
			all = append(all, form{what: "mark of " + p, hint: f.hint, unpaired: f.unpaired,
				of: func(n string) string { return keyname.Mark(f.of(n)) }})
		}
	}
	for _, s := range keyname.Endings {
		all = append(all, form{what: s, unpaired: s == "timeout", of: func(n string) string { return keyname.Suffix(n, s) }})
	}
	return all
}

// braced are the keys of kinds whose names have no braces.
func braced(n string) []string {
	size := strconv.Itoa(len(n))
	keys := []string{"rc:{" + n + "}:q" + size, "rc:{" + n + "}:l" + size}
	for _, key := range []string{"a", "a:b", "}", "{", "}:i0.1", ""} {
		keys = append(keys, "rc:"+n+":{"+key+"}:k"+size, "rc:"+n+":{a}"+key+":t"+size)
	}
	for _, tail := range []string{"", ":sale", ":orders", ":reservations", ":flags", ":ledger", ":endings", ":orders+",
		":p", ":a", ":g", ":e"} {
		keys = append(keys, "rc:{"+n+"}"+tail, "rc:{a}{"+n+"}"+tail)
	}
	return keys
}

// accepted are the names that Check accepts, of so many tokens at most.
func accepted(tokens []string, most int) (names []string) {
	var grow func(s string, left int)
	grow = func(s string, left int) {
		if keyname.Check(s) == nil {
			names = append(names, s)
		}
		if left > 0 {
			for _, x := range tokens {
				grow(s+x, left-1)
			}
		}
	}
	grow("", most)
	slices.Sort(names)
	return slices.Compact(names)
}

// No two names have a key or channel in common, whatever the kinds of their objects, and no name is a key that another
// object has. Names are all that can be made of a few tokens: of braces and colons, and of words that are in keys.
func TestCheck_AcceptedNames_ShareNoKey(t *testing.T) {
	for what, x := range map[string]struct {
		tokens []string
		most   int
	}{
		"braces": {[]string{"a", "b", "{", "}", ":"}, 6},
		"words":  {[]string{"a", "{a}", "{", "}", ":", "timeout", "plain", "redlatch_queue", "i0.1"}, 4},
	} {
		t.Run(what, func(t *testing.T) {
			names := accepted(x.tokens, x.most)
			type use struct {
				name, what string
				hint       bool
			}
			of, shown := map[string]use{}, 0
			claim := func(key string, u use) {
				other, ok := of[key]
				of[key] = u
				pair := other.name == "{"+u.name+"}" || u.name == "{"+other.name+"}"
				if !ok || other.name == u.name || pair && other.hint && u.hint {
					return
				}
				if shown++; shown <= 20 {
					t.Errorf("%q is a key of %q (%s) and of %q (%s)", key, other.name, other.what, u.name, u.what)
				}
			}
			all := forms()
			for _, n := range names {
				for _, f := range all {
					if !f.unpaired || keyname.CheckPair(n) == nil {
						claim(f.of(n), use{n, f.what, f.hint})
					}
				}
				if !strings.ContainsAny(n, "{}") {
					for _, key := range braced(n) {
						claim(key, use{n, "braced", false})
					}
				}
			}
			t.Logf("%d names, %d keys, %d shared", len(names), len(of), shown)
			require.Greater(t, len(names), 1000)
		})
	}
}
