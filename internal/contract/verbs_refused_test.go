package contract_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
)

// unsent fails if refuse sends anything, or leaves anything on the server. The PINGs are not of refuse: rueidis sends
// one on each connection every second.
func unsent(t *testing.T, server *redistest.Server, refuse func()) {
	t.Helper()
	asking := server.Client(t)
	before := redistest.CommandCalls(t, asking)
	refuse()
	require.Zero(t, redistest.CommandCalls(t, asking).Since(before), "nothing was sent")
	require.Empty(t, server.Embedded.Keys())
}

// requireRefused fails unless all acts are refused, each by an error that begins with its package's name.
func requireRefused(ctx context.Context, t *testing.T, u use, what string, says ...any) {
	t.Helper()
	for _, a := range u.acts {
		err := a.do(ctx)
		for _, say := range says {
			switch say := say.(type) {
			case error:
				require.ErrorIs(t, err, say, "%s %s: %s", u.primitive, a.name, what)
			case string:
				require.ErrorContains(t, err, say, "%s %s: %s", u.primitive, a.name, what)
			}
		}
		requirePrefix(t, u.primitive, a.name, err)
	}
}

// requirePrefix fails unless the error begins with the package of a primitive.
func requirePrefix(t *testing.T, primitive, what string, err error) {
	t.Helper()
	name := packageOf(primitive) + ": "
	require.True(t, strings.HasPrefix(err.Error(), name), "%s %s: %v", primitive, what, err)
	require.NotContains(t, err.Error(), name+name, "%s %s", primitive, what)
	if primitive != "multi" && !strings.HasPrefix(err.Error(), "ratelimit: limit ") { // they repeat that of a member
		require.Equal(t, 1, strings.Count(err.Error(), name), "%s %s: %v", primitive, what, err)
	}
}

// badNames are names that no object has, by what is wrong with them.
var badNames = map[string]string{
	"empty": "", "too long": strings.Repeat("x", 64<<10+1), "not UTF-8": "a\xff", "a NUL byte": "a\x00b",
	"an open brace": "a{b", "empty braces": "a{}b", "empty braces first": "{}x",
	"a closing brace": "a}b", "a closing brace last": "a}",
}

// ofOthers are names that are keys of another object, by the prefix of the client that has them. A lock of such a name
// would be the queue of another lock, of another type than that needs.
var ofOthers = map[string][]string{
	"": {"redlatch_queue:{x}", "redlatch_rw:{x}", "redisson_lock_queue:{x}",
		"redlatch_leader:a{x}", "{x}:timeout", "{x}{}", "a{x}:latch", "{x}:o:1:rwlock_timeout:1"},
	"redlatch_": {"rwq:{x}"},
}

func TestVerb_BadName_IsRefusedUnsent(t *testing.T) {
	t.Parallel()
	server, ctx := redistest.Embedded(t), t.Context()
	red := open(t, server, redlatch.Options{})
	prefixed := open(t, server, redlatch.Options{KeyPrefix: "shop{1}:"})
	others := map[*redlatch.Client][]string{}
	for prefix, names := range ofOthers {
		others[open(t, server, redlatch.Options{KeyPrefix: prefix})] = names
	}
	unsent(t, server, func() {
		for what, name := range badNames {
			for _, u := range usesOf(ctx, red, name) {
				requireRefused(ctx, t, u, what, errs.ErrInvalidName)
			}
		}
		for client, names := range others {
			for _, name := range names {
				for _, u := range usesOf(ctx, client, name) {
					requireRefused(ctx, t, u, name, errs.ErrInvalidName)
				}
			}
		}
		for _, u := range countUses(prefixed, "") {
			requireRefused(ctx, t, u, "a prefix alone", errs.ErrInvalidName)
		}
		// A sale and a packet have keys of one tag.
		for says, u := range map[string]use{
			`"a{b}"`:      {"sale", openedActs(red.Sales().Sale("a{b}"))},
			`"shop{1}:a"`: {"sale", openedActs(prefixed.Sales().Sale("a"))},
			`"c{d}"`:      {"packet", packetActs(red.RedPackets().Packet("c{d}"))},
		} {
			requireRefused(ctx, t, u, "braces", errs.ErrInvalidName, says)
		}
	})
	_, err := redlatch.Open(ctx, server.Option(), redlatch.Options{KeyPrefix: "redlatch_queue:{x}"})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
}

// loops go on until their context ends, and return its cause as it is.
var loops = []string{"Shards.Observe", "Sale.KeepLedger", "Packet.KeepLedger"}

func TestVerb_ContextEnded_NamesTheCause(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	red := open(t, server, redlatch.Options{})
	why := errors.New("the customer left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	unsent(t, server, func() {
		for _, u := range usesOf(ctx, red, "x") {
			for _, a := range u.acts {
				switch {
				case a.name == "CountingSemaphore.Release", a.name == "Shards.Run": // they give back all the same
				case slices.Contains(loops, a.name):
					require.ErrorIs(t, a.do(ctx), why, a.name)
				default:
					requireRefused(ctx, t, use{u.primitive, []act{a}}, "an ended context", context.Canceled, why)
				}
			}
		}
	})
}

func TestVerb_ClientOrHubClosed_IsErrClosed(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*redlatch.Client) error{
		"the client": func(red *redlatch.Client) error { return red.Close(t.Context()) },
		"the hub":    func(red *redlatch.Client) error { return red.Hub().Close(t.Context()) },
	} {
		t.Run(what, func(t *testing.T) {
			server, ctx := redistest.Embedded(t), t.Context()
			red := open(t, server, redlatch.Options{})
			uses := usesOf(ctx, red, "x")
			require.NoError(t, end(red))
			uses = append(uses, usesOf(ctx, red, "made afterwards")...)
			unsent(t, server, func() {
				for _, u := range uses {
					requireRefused(ctx, t, u, what, errs.ErrClosed)
				}
			})
			require.NoError(t, end(red), "the result of the first")
		})
	}
}

// refusals are the errors of calls with an argument that is out of bounds, by what each says.
type refusals map[string][]error

func TestVerb_BadArgument_IsNamedUnsent(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	red, other := open(t, server, redlatch.Options{}), open(t, server, redlatch.Options{})
	unsent(t, server, func() {
		for _, tables := range []map[string]map[error]refusals{
			badOfLocks(t, red), badOfPermits(t, red), badOfSales(t, red), badOfCounts(t, red, other),
		} {
			for _, primitive := range slices.Sorted(maps.Keys(tables)) {
				for is, table := range tables[primitive] {
					for says, all := range table {
						for i, err := range all {
							what := fmt.Sprintf("%s: %s: %d", primitive, says, i)
							require.ErrorIs(t, err, is, what)
							require.ErrorContains(t, err, says, what)
							requirePrefix(t, primitive, what, err)
						}
					}
				}
			}
		}
	})
}

// spoils are what another program may keep under the keys of an object named x.
var spoils = map[string][][]string{
	"lock": {{"RPUSH", "x", "v"}}, "election": {{"RPUSH", "x", "v"}},
	"once": {{"RPUSH", "{x:k}:once", "v"}, {"RPUSH", "{x:k}:answer", "v"},
		{"HSET", "{x:k}:answer", "answer", "v"}},
	"semaphore": {{"HSET", "x", "f", "v"}, {"SET", "x", "many"}, {"SET", "{x}:timeout", "v"}, {"SET", "{x}:notes", "v"},
		{"SADD", "{x}:timeout", "v"}},
	"weighted": {{"SET", "{x}:weighted", "v"}},
	"counting": {{"SET", "x", "many"}, {"HSET", "x", "f", "1"}},
	"latch":    {{"SET", "x", "many"}, {"HSET", "x", "f", "1"}, {"SET", "{x}:latch", "x"}},
	"barrier":  {{"SET", "{x}:barrier", "x"}},
	"counter":  {{"RPUSH", "x", "v"}},
	"packet":   {{"SET", "rc:{x}:p", "v"}},
	"sale":     {{"SET", "rc:{x}:sale", "v"}},
}

// whatever are verbs that do not read what is under the key.
var whatever = []string{"Election.Leader", "Election.Observe", "Semaphore.ExtendIDs", "Semaphore.InspectIDs",
	"CountingSemaphore.TrySetPermits", "CountDownLatch.TrySetCount", "CountDownLatch.Delete"}

func TestVerb_KeyOfAnotherType_IsErrWrongType(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		red, ctx, c := open(t, server, patient), t.Context(), server.Client(t)
		for _, u := range usesOf(ctx, red, "x") {
			of := u.primitive
			if packageOf(of) == "rlock" && of != "once" {
				of = "lock"
			}
			for _, spoil := range spoils[of] {
				rig.Must(t, c, "FLUSHALL")
				rig.Must(t, c, spoil...)
				for _, a := range u.acts {
					if slices.Contains(loops, a.name) || slices.Contains(whatever, a.name) {
						continue
					}
					err := a.do(ctx)
					require.ErrorIs(t, err, errs.ErrWrongType, "%s %s: %q", u.primitive, a.name, spoil)
					requirePrefix(t, u.primitive, a.name, err)
				}
				require.Len(t, rig.Keys(t, c), 1, "%s made something: %q", u.primitive, spoil)
			}
		}
	})
}
