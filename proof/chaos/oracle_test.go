package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/rcounter/stock"
)

const msec = int64(time.Millisecond)

// hold is one acquisition: granted, given back or over, and what its holder was told.
func hold(client int, id string, from, to int64, n, token int64, out string) []event {
	return []event{
		{Client: client, Of: "x", Do: "take", ID: id, Call: (from - 1) * msec, Return: from * msec, To: (from + 1000) * msec,
			N: n, V: token, Out: "ok"},
		{Client: client, Of: "x", Do: "leave", ID: id, Call: to * msec, Return: (to + 1) * msec, To: to * msec, N: n,
			V: token, Out: out},
	}
}

func played(lists ...[]event) record {
	h := record{lease: lease, ended: map[int]int64{}}
	for _, l := range lists {
		h.events = append(h.events, l...)
	}
	return h
}

func call(of, do, id string, call, ret, v int64, out string) []event {
	return []event{{Client: 1, Of: of, Do: do, ID: id, Call: call * msec, Return: ret * msec, V: v, Out: out}}
}

func final(h record, f map[string]int64) record { h.final = f; return h }

// planting is a history of a primitive, and what its judge says of it; "": nothing.
type planting struct {
	of    string
	h     record
	wrong string
}

func judgedAs(t *testing.T, all map[string]planting) {
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(primitives, func(p primitive) bool { return p.name == c.of })
			require.GreaterOrEqual(t, i, 0, c.of)
			var v verdict
			primitives[i].judge(c.h, &v)
			found := append(v.Wrong, v.Unguarded...)
			if c.wrong == "" {
				require.Empty(t, found)
				return
			}
			require.Contains(t, strings.Join(found, "\n"), c.wrong)
		})
	}
}

// What a client may not do, or be told, is found, and what it may is not.
func TestOracle_PlantedViolation_IsFound(t *testing.T) {
	arrive := func(round string, client int64, at int64) []event {
		return []event{{Client: int(client), Of: "latch", Do: "arrive", ID: round, V: client, Call: at * msec}}
	}
	pass := func(round string, client int, at int64, out string) []event {
		return []event{{Client: client, Of: "latch", Do: "pass", ID: round, Call: at * msec, Return: at * msec, Out: out}}
	}
	stop := func(client int, id string, at int64) []event {
		return []event{{Client: client, Of: "x", Do: "stop", ID: id, Call: at * msec, To: at * msec}}
	}
	try := func(id string) []event { return []event{{Client: 1, Do: "try", ID: id, Call: 1}} }
	killed := func(h record, client int, at int64) record { h.ended[client] = at * msec; return h }
	judgedAs(t, map[string]planting{
		"one after the other": {"reentrant",
			played(hold(1, "a", 10, 20, 1, 0, "ok"), hold(2, "b", 20, 30, 1, 0, "ok")), ""},
		"two at a time": {"reentrant",
			played(hold(1, "a", 10, 20, 1, 0, "ok"), hold(2, "b", 19, 30, 1, 0, "ok")), "2 of 1 in use"},
		"works on after its deadline": {"reentrant",
			played(hold(1, "a", 10, 1200, 1, 0, "lost"), hold(2, "b", 1050, 1100, 1, 0, "ok")), "2 of 1 in use"},
		"killed, and another before its lease": {"fair",
			killed(played(hold(1, "a", 10, 0, 1, 0, "")[:1], hold(2, "b", 300, 400, 1, 0, "ok")), 1, 500), "2 of 1 in use"},
		"killed, and another after that": {"fair",
			killed(played(hold(1, "a", 10, 0, 1, 0, "")[:1], hold(2, "b", 1300, 1400, 1, 0, "ok")), 1, 100), ""},
		"killed while it gave it back": {"counting",
			killed(played(hold(1, "a", 10, 0, 2, 0, "")[:1], stop(1, "a", 20), hold(2, "b", 21, 400, 1, 0, "ok")), 1, 500), ""},
		"a lock's holder killed while it gave it back": {"fair",
			killed(played(hold(1, "a", 10, 0, 1, 0, "")[:1], stop(1, "a", 20), hold(2, "b", 21, 400, 1, 0, "ok")), 1, 500), ""},
		"released by who had lost it": {"plain",
			played(hold(1, "a", 10, 20, 1, 0, "ok"), hold(2, "b", 30, 2000, 1, 0, "ok"), hold(3, "c", 2100, 2200, 1, 0, "ok")),
			""},
		"two readers": {"readwrite",
			played(hold(1, "a", 10, 20, 1, 0, "ok"), hold(2, "b", 12, 30, 1, 0, "ok")), ""},
		"a reader and a writer": {"readwrite",
			played(hold(1, "a", 10, 20, 1, 0, "ok"), hold(2, "b", 12, 30, writer, 0, "ok")), "1001 of 1000 in use"},
		"all permits": {"semaphore",
			played(hold(1, "a", 10, 20, 1, 0, "ok"), hold(2, "b", 12, 30, 1, 0, "ok")), ""},
		"a permit too many": {"semaphore",
			played(hold(1, "a", 10, 20, 1, 0, "ok"), hold(2, "b", 12, 30, 2, 0, "ok")), "3 of 2 in use"},
		"a weight too much": {"weighted",
			played(hold(1, "a", 10, 20, 6, 0, "ok"), hold(2, "b", 12, 30, 6, 0, "ok")), "12 of 10 in use"},
		"a token again": {"fenced",
			played(hold(1, "a", 10, 20, 1, 7, "ok"), hold(2, "b", 30, 40, 1, 7, "ok")), "token 7 was given to a and to b"},
		"a lower token": {"fenced",
			played(hold(1, "a", 10, 20, 1, 7, "ok"), hold(2, "b", 30, 40, 1, 6, "ok")), "token 6 of b is lower than 7"},
		"a holder that the resource must refuse": {"fenced",
			played(hold(1, "a", 10, 50, 1, 6, "ok"),
				[]event{{Do: "write", ID: "z", V: 9, Call: 20 * msec}, {Do: "write", ID: "a", V: 6, Call: 30 * msec}}),
			"had to refuse a"},
		"all arrived": {"latch",
			played(arrive("1", 1, 1), arrive("1", 2, 2), arrive("1", 3, 3), pass("1", 1, 4, "ok")), ""},
		"passed before all had arrived": {"latch",
			played(arrive("1", 1, 1), arrive("1", 2, 2), arrive("1", 3, 5), pass("1", 1, 4, "ok")), "2 had arrived, of 3"},
		"passed and broken": {"barrier",
			played(arrive("1", 1, 1), arrive("1", 2, 2), arrive("1", 3, 3), pass("1", 1, 4, "ok"),
				pass("1", 2, 4, "broken_barrier")), "it was broken"},
		"the same answer twice": {"stock",
			played(call("stock", "claim", "u1", 1, 2, 5, "ok"), call("stock", "claim", "u1", 3, 4, 5, "ok")), ""},
		"a claimant with two units": {"stock",
			played(call("stock", "claim", "u1", 1, 2, 5, "ok"), call("stock", "claim", "u1", 3, 4, 6, "ok")),
			"u1 has unit 5 and unit 6"},
		"a unit of two": {"stock",
			played(call("stock", "claim", "u1", 1, 2, 5, "ok"), call("stock", "claim", "u2", 3, 4, 5, "ok")),
			"unit 5 is u1's and u2's"},
		"sold out to who has one": {"stock",
			played(call("stock", "claim", "u1", 1, 2, 5, "ok"), call("stock", "claim", "u1", 3, 4, 0, "sold out")),
			"answered that nothing is left"},
		"the server forgot one": {"stock",
			final(played(try("u1"), try("u2"), call("stock", "claim", "u1", 1, 2, 1, "ok"),
				call("stock", "claim", "u2", 3, 4, 2, "ok")), map[string]int64{"sold": 1, "limit": 9}), "given out 1, 2 have one"},
		"sold to nobody": {"stock",
			final(played(try("u1"), call("stock", "claim", "u1", 1, 2, 1, "ok")), map[string]int64{"sold": 2, "limit": 9}),
			"given out 2, 1 have one"},
		"oversold": {"stock",
			final(played(try("u1"), try("u2"), call("stock", "claim", "u1", 1, 2, 1, "ok"),
				call("stock", "claim", "u2", 3, 4, 2, "ok")), map[string]int64{"sold": 2, "limit": 1}), "2 have a unit, of 1"},
		"a reply that was lost": {"counter",
			final(played(try("a"), try("b"), call("counter", "count", "a", 1, 2, 1, "unknown_outcome"),
				call("counter", "count", "b", 1, 2, 2, "ok")), map[string]int64{"value": 2}), ""},
		"counted twice": {"counter",
			final(played(try("a"), call("counter", "count", "a", 1, 2, 1, "ok")), map[string]int64{"value": 2}),
			"stands at 2, and 1 to 1"},
		"a value of two": {"counter",
			played(try("a"), try("b"), call("counter", "count", "a", 1, 2, 1, "ok"),
				call("counter", "count", "b", 1, 2, 1, "ok")), "both counted to 1"},
	})
}

func TestOracle_PlantedHistory_FindsMoreThanThereIs(t *testing.T) {
	passes := func(n, every int64) (all []event) {
		for i := range n {
			all = append(all, call("limiter", "pass", "", i*every, i*every+1, 0, "ok")...)
		}
		return all
	}
	judgedAs(t, map[string]planting{
		"a rate":             {"limiter", played(passes(burst+20, 1000/rate)), ""},
		"more than the rate": {"limiter", played(passes(burst+20, 1)), "passed within"},
	})
}

func TestOracle_PermitElectionOrLedgerFault_IsFound(t *testing.T) {
	taken := func(id string, from, to, round int64) []event {
		return []event{
			{Client: 1, Do: "take", ID: id, Call: from * msec, Return: from * msec, To: 1 << 62, N: 2, V: round, Out: "ok"},
			{Client: 1, Do: "leave", ID: id, Call: to * msec, Return: to * msec, To: to * msec, N: 2, V: round, Out: "ok"},
		}
	}
	lead := func(id string, from, to, token int64) []event {
		return append(hold(1, id, from, to, 1, token, "ok"), event{Do: "try", ID: id}, event{Do: "lead", ID: id, V: token})
	}
	sold := map[string]int64{"sold": 1, "limit": 1}
	entry := func(serial, ordinal int64, id, kind string) []event {
		e := stock.Entry{Serial: serial, Kind: kind, ID: id, Asked: 1, N: 1, Ordinal: ordinal}
		return []event{{Do: "try", ID: id}, {Do: "entry", ID: id, Entry: &e}}
	}
	judgedAs(t, map[string]planting{
		"permits one after the other": {"counting",
			final(played(taken("a", 1, 5, 0), taken("b", 5, 9, 0)), map[string]int64{"counting-0": permits}), ""},
		"permits of two rounds": {"counting", played(taken("a", 1, 5, 0), taken("b", 3, 9, 1)), ""},
		"too many permits":      {"counting", played(taken("a", 1, 5, 0), taken("b", 3, 9, 0)), "4 of 2 in use"},
		"a permit too many is left": {"counting",
			final(played(taken("a", 1, 5, 0)), map[string]int64{"counting-0": permits + 1}), "3 permits are free, of 2"},
		"two leaders, seen in between": {"election",
			played(lead("a", 10, 20, 1), lead("b", 30, 40, 2), call("election", "look", "a", 15, 16, 1, "ok")), ""},
		"two leaders at a time": {"election", played(lead("a", 10, 20, 1), lead("b", 15, 40, 2)), "2 of 1 in use"},
		"another's token": {"election",
			played(lead("a", 10, 20, 1), lead("b", 30, 40, 2), call("election", "look", "a", 35, 36, 2, "ok")),
			"token 2 was shown"},
		"shown when it had resigned": {"election",
			played(lead("a", 10, 20, 1), call("election", "look", "a", 25, 26, 1, "ok")), "after it had resigned"},
		"a ledger": {"ledger",
			final(played(entry(1, 1, "a", "sold"), entry(2, 1, "a", "returned"), entry(2, 1, "a", "returned"),
				entry(3, 2, "b", "sold"), call("ledger", "order", "b", 1, 2, 2, "sold"),
				call("ledger", "return", "a", 1, 2, 0, "closed")), sold), ""},
		"two entries of a number": {"ledger", played(entry(1, 1, "a", "sold"), entry(1, 1, "b", "sold")), "entry 1 is"},
		"an entry is missing":     {"ledger", final(played(entry(2, 1, "a", "sold")), sold), "entry 2 comes after entry 0"},
		"a unit sold twice": {"ledger", final(played(entry(1, 1, "a", "sold"), entry(2, 1, "a", "returned"),
			entry(3, 1, "b", "sold")), sold), "2 is the next ordinal"},
		"returned twice": {"ledger", final(played(entry(1, 1, "a", "sold"), entry(2, 1, "a", "returned"),
			entry(3, 1, "a", "returned")), sold), "it has no such units"},
		"a ledger of another sum": {"ledger", final(played(entry(1, 0, "a", "reserved")), sold), "by the server 1"},
		"more sold than there are": {"ledger", final(played(entry(1, 1, "a", "sold"), entry(2, 0, "b", "reserved")), sold),
			"1 sold, 1 reserved of 1"},
		"told and not in the ledger": {"ledger",
			final(played(entry(1, 1, "a", "sold"), call("ledger", "order", "b", 1, 2, 1, "sold")), sold), "b was answered sold"},
		"told to be closed, and sold": {"ledger",
			final(played(entry(1, 1, "a", "sold"), call("ledger", "cancel", "a", 1, 2, 0, "closed")), sold),
			"a was answered closed"},
	})
}

// Porcupine finds what intervals alone do not: a release that succeeds though another has the lock since.
func TestLinearizability_ReleaseWithoutAHold_IsFound(t *testing.T) {
	h := played(hold(1, "a", 10, 5000, 1, 0, "ok"), hold(2, "b", 1500, 1600, 1, 0, "ok"))
	h.events[1].To = 1010 * msec // it stopped in time, and its release says that it held the lock to the end
	var v verdict
	v.capacity(h, 1)
	require.Empty(t, v.Wrong)
	require.Error(t, linear(h))
}
