package contract_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Of the keys and channels that every kind of object of a name sends to the server, another name has none. Only
// channels of Redisson's on which a message is a hint to ask are those of x and of {x}. The same is shown of all forms
// of keys and many more names in package keyname; here it is shown that objects have no keys of another form.
func TestNames_KeysOfEveryKind_AreNoOtherNames(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	var mu sync.Mutex
	of := map[string][]string{} // names by key
	t.Run("of", func(t *testing.T) {
		for _, name := range []string{"x", "{x}", ":{x}", "{x}:", "{x}:x", "x{x}", "{x}x", "{x}{x}", "x:", ":x", "{x}:plain",
			"{x}{}", "{{x}", "{x}}", "{x}}{}", "{x}weighted", "redlatch_queue{x}"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				keys := keysOf(t, redistest.Start(t), name)
				mu.Lock()
				defer mu.Unlock()
				for _, key := range keys {
					of[key] = append(of[key], name)
				}
			})
		}
	})
	hints := []string{"redisson_lock__channel:{x}", "redisson_sc:{x}", "redlatch_grant:redisson_lock__channel:{x}",
		"redlatch_grant:redisson_sc:{x}"}
	for key, names := range of {
		if slices.Sort(names); len(names) > 1 && !(slices.Contains(hints, key) && slices.Equal(names, []string{"x", "{x}"})) {
			t.Errorf("%q is a key of %q", key, names)
		}
	}
	require.Greater(t, len(of), 300)
}

// keysOf returns the keys and channels that a process sends which uses every kind of object of that name.
func keysOf(t *testing.T, server *redistest.Server, name string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := redistest.NewProxy(t, server)
	var mu sync.Mutex
	var keys []string
	p.Trap(&redistest.Trap{Every: true, Fate: redistest.LoseRequest, Match: func(words []string) bool {
		mu.Lock()
		defer mu.Unlock()
		sent := keysIn(words)
		for _, key := range sent {
			if words[0] == "EVALSHA" && !strings.Contains(sent[0], "{k}") && // AllowAll, outside of a Cluster
				!strings.HasPrefix(key, "redisson_") && !strings.HasPrefix(key, "redlatch_grant") &&
				keyname.Slot(key) != keyname.Slot(sent[0]) {
				t.Errorf("keys of several slots: %q", words)
			}
		}
		keys = append(keys, sent...)
		return false
	}})
	red, admin := processes(t, p.Server(), 1)[0], server.Client(t)
	for _, u := range usesOf(ctx, red, name) {
		for _, a := range u.acts {
			limit, leave := context.WithTimeout(ctx, 10*time.Second)
			if a.waits { // in vain, or not at all
				limit, leave = context.WithTimeout(ctx, 20*time.Millisecond)
			}
			err := a.do(limit) // names that are refused have no keys
			leave()
			require.NotErrorIs(t, err, errs.ErrWrongType, a.name)
			if !a.waits { // otherwise its time may be over before it was answered
				require.NotErrorIs(t, err, errs.ErrUnavailable, a.name)
			}
		}
		require.NoError(t, admin.Do(ctx, admin.B().Flushall().Build()).Error()) // the next kind has the same keys
	}
	require.NoError(t, red.Close(ctx))
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(keys)
	return slices.Compact(keys)
}

// keysIn are the keys and channels of a call.
func keysIn(words []string) (keys []string) {
	switch strings.ToUpper(words[0]) {
	case "EVAL", "EVALSHA":
		n, _ := strconv.Atoi(words[2])
		keys = slices.Clone(words[3 : 3+n])
		for _, w := range words[3+n:] { // channels, without the prefix of those of processes
			if strings.HasPrefix(w, "redlatch_") && w != "redlatch_grant:" ||
				strings.HasPrefix(w, "redisson_") {
				keys = append(keys, w)
			}
		}
	case "SUBSCRIBE", "SSUBSCRIBE":
		keys = slices.Clone(words[1:])
	case "HELLO", "CLIENT", "CONFIG", "INFO", "COMMAND", "SCRIPT", "WAIT", "PUBSUB", "PING", "CLUSTER", "UNSUBSCRIBE",
		"SUNSUBSCRIBE", "SELECT", "ROLE", "ACL", "TIME", "QUIT", "MULTI", "EXEC":
	default:
		keys = slices.Clone(words[1:2])
	}
	return keys
}
