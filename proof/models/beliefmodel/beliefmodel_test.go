package beliefmodel

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/models/model"
)

type one = [2]uint8

// size is what is searched to its end; the first of each are searched by each run of the tests, in a second together.
type size struct {
	what string
	Faults
}

const small = 4

var leaseSizes = []size{
	{"1 acquisition of each process", Faults{Acquires: one{1, 1}}},
	{"2, 1", Faults{Acquires: one{2, 1}}},
	{"1, 1; a renewal", Faults{Acquires: one{1, 1}, Renewals: 1}},
	{"1, 1; a message is lost", Faults{Acquires: one{1, 1}, Lost: 1}},
	{"1, 1; a renewal and an Extend", Faults{Acquires: one{1, 1}, Renewals: 1, Extends: 1}},
	{"1, 1; a renewal, a clock is slow", Faults{Acquires: one{1, 1}, Renewals: 1, Slow: 1}},
	{"1, 1; a renewal, DEL", Faults{Acquires: one{1, 1}, Renewals: 1, Forgets: 1}},
	{"1, 1; a process is paused", Faults{Acquires: one{1, 1}, Pauses: 1}},
	{"1, 1; a process sleeps", Faults{Acquires: one{1, 1}, Sleeps: 1}},
	{"1, 1; a message is doubled", Faults{Acquires: one{1, 1}, Doubled: 1}},
	{"1, 1; a message is late", Faults{Acquires: one{1, 1}, Late: 1}},
	{"1, 1; a renewal, lost", Faults{Acquires: one{1, 1}, Renewals: 1, Lost: 1}},
	{"1, 1; a renewal, late", Faults{Acquires: one{1, 1}, Renewals: 1, Late: 1}},
	{"1, 1; a renewal, doubled", Faults{Acquires: one{1, 1}, Renewals: 1, Doubled: 1}},
	{"1, 1; a renewal, paused", Faults{Acquires: one{1, 1}, Renewals: 1, Pauses: 1}},
	{"1, 1; a renewal, asleep", Faults{Acquires: one{1, 1}, Renewals: 1, Sleeps: 1}},
	{"1, 1; an Extend, doubled", Faults{Acquires: one{1, 1}, Extends: 1, Doubled: 1}},
	{"2, 1; late", Faults{Acquires: one{2, 1}, Late: 1}},
	{"2, 1; a renewal, slow", Faults{Acquires: one{2, 1}, Renewals: 1, Slow: 1}},
	{"1, 1; lost, late", Faults{Acquires: one{1, 1}, Lost: 1, Late: 1}},
}

var beatSizes = []size{
	{"1 acquisition", Faults{Acquires: one{1}}},
	{"1; a message is lost", Faults{Acquires: one{1}, Lost: 1}},
	{"1; the holder's clock is slow", Faults{Acquires: one{1}, Slow: 1}},
	{"1; the heartbeat is deleted", Faults{Acquires: one{1}, Forgets: 1}},
	{"2", Faults{Acquires: one{2}}},
	{"1; a process is paused", Faults{Acquires: one{1}, Pauses: 1}},
	{"1; a message is late", Faults{Acquires: one{1}, Late: 1}},
	{"1; lost, slow", Faults{Acquires: one{1}, Lost: 1, Slow: 1}},
	{"1; paused, slow", Faults{Acquires: one{1}, Pauses: 1, Slow: 1}},
	{"1; both are paused", Faults{Acquires: one{1}, Pauses: 2}},
	{"1; late, deleted", Faults{Acquires: one{1}, Late: 1, Forgets: 1}},
	{"2; lost", Faults{Acquires: one{2}, Lost: 1}},
}

func searchLeases(without Rule, f Faults) model.Result {
	return SearchLeases(without, f, without == Whole)
}

func TestBeliefs_InEveryState_AreTheServers(t *testing.T) {
	for _, of := range []struct {
		search func(Rule, Faults) model.Result
		sizes  []size
	}{{searchLeases, leaseSizes}, {SearchBeats, beatSizes}} {
		for _, s := range of.sizes[:redistest.Sized(1, small, len(of.sizes))] {
			if redistest.RaceEnabled && s.Faults != (Faults{Acquires: s.Acquires}) {
				continue // there is one goroutine, and nothing for the detector to find
			}
			of.search(Whole, s.Faults).Holds(t, s.what)
		}
	}
}

// harm is what a search of at most some hundred thousand states finds without a rule.
type harm struct {
	rule  Rule
	finds string
	Faults
}

// leaseRules are the 18 rules of leases.
var leaseRules = []harm{
	{FromSend, Two, Faults{Acquires: one{1, 1}, Late: 1}},
	{OwnSend, Two, Faults{Acquires: one{1, 1}, Late: 1}},
	{Confirmed, Two, Faults{Acquires: one{1, 1}, Renewals: 1, Lost: 1}},
	{AtDeadline, Two, Faults{Acquires: one{1, 1}, Renewals: 1, Lost: 1}},
	{Margin, Two, Faults{Acquires: one{1, 1}, Slow: 1}},
	{Durations, Two, Faults{Acquires: one{1, 1}}},
	{RenewsOwn, Two, Faults{Acquires: one{1, 1}, Renewals: 1, Forgets: 1}},
	{RenewsHeld, Orphan, Faults{Acquires: one{1, 0}, Renewals: 1}},
	{Raises, Two, Faults{Acquires: one{1, 1}, Renewals: 1, Extends: 1}},
	{AsksAgain, Two, Faults{Acquires: one{1, 1}, Extends: 1, Doubled: 1}},
	{ReleasesOwn, Two, Faults{Acquires: one{2, 1}}},
	{NotAfter, Orphan, Faults{Acquires: one{1, 0}, Doubled: 1}},
	{LastRelease, Orphan, Faults{Acquires: one{1, 0}}},
	{FromRefusal, Two, Faults{Acquires: one{2, 1}, Late: 1}},
	{LastTicket, Two, Faults{Acquires: one{2, 1}, Late: 1}},
	{FirstLease, Two, Faults{Acquires: one{2, 1}}},
	{Jump, Two, Faults{Acquires: one{1, 1}, Sleeps: 1}},
	{BeforeJump, Two, Faults{Acquires: one{1, 1}, Sleeps: 1}},
}

// beatRules are the 12 rules of heartbeats.
var beatRules = []harm{
	{FromSend, Taken, Faults{Acquires: one{1}, Slow: 1}},
	{Confirmed, Taken, Faults{Acquires: one{1}, Slow: 1}},
	{FromAsk, Taken, Faults{Acquires: one{1}, Slow: 1}},
	{Gap, Taken, Faults{Acquires: one{1}, Slow: 1}},
	{Margin, Taken, Faults{Acquires: one{1}, Slow: 1}},
	{OwnClock, Taken, Faults{Acquires: one{1}}},
	{Change, Taken, Faults{Acquires: one{1}}},
	{SeenHeld, Taken, Faults{Acquires: one{2}}},
	{FromReply, Taken, Faults{Acquires: one{1}, Slow: 1}},
	{ToSend, Taken, Faults{Acquires: one{1}, Slow: 1}},
	{ByOwner, Taken, Faults{Acquires: one{2}}},
	{NewOwner, Taken, Faults{Acquires: one{2}}},
}

// The longest searches are made in full only.
func TestBeliefs_WithoutARule_AreFoundWrong(t *testing.T) {
	redistest.SkipShort(t)
	met := map[Rule]bool{Whole: true}
	for _, c := range slices.Concat(leaseRules, beatRules) {
		met[c.rule] = true
		long := c.Late > 0 && c.Acquires[0] > 1 || c.Doubled > 0 && c.Extends > 0
		if redistest.RaceEnabled || long && !redistest.Long() {
			continue
		}
		search, shown := searchLeases, c.finds
		if c.finds == Taken {
			search, shown = SearchBeats, "taken from a living holder"
		}
		t.Run(c.rule.String(), func(t *testing.T) { search(c.rule, c.Faults).Finds(t, c.rule, c.finds, shown) })
	}
	for r := range Rules {
		require.True(t, met[r], "%v is never left out", r)
	}
}
