package leasemodel_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/leasemodel"
	"github.com/redlatch/redlatch/internal/redistest"
)

type (
	faults   = leasemodel.Faults
	acquires = [2]uint8
)

// size is what is searched to its end.
type size struct {
	what   string
	faults faults
}

// small are searched by each run of the tests, in a second together.
var small = []size{
	{"1 acquisition of each process", faults{Acquires: acquires{1, 1}}},
	{"2, 1", faults{Acquires: acquires{2, 1}}},
	{"1, 1; a renewal", faults{Acquires: acquires{1, 1}, Renewals: 1}},
	{"1, 1; a message is lost", faults{Acquires: acquires{1, 1}, Lost: 1}},
}

// large are searched in full only.
var large = []size{
	{"1, 1; a renewal and an Extend", faults{Acquires: acquires{1, 1}, Renewals: 1, Extends: 1}},
	{"1, 1; a renewal, a clock is slow", faults{Acquires: acquires{1, 1}, Renewals: 1, Slow: 1}},
	{"1, 1; a renewal, DEL", faults{Acquires: acquires{1, 1}, Renewals: 1, Forgets: 1}},
	{"1, 1; a process is paused", faults{Acquires: acquires{1, 1}, Pauses: 1}},
	{"1, 1; a process sleeps", faults{Acquires: acquires{1, 1}, Sleeps: 1}},
	{"1, 1; a message is doubled", faults{Acquires: acquires{1, 1}, Doubled: 1}},
	{"1, 1; a message is late", faults{Acquires: acquires{1, 1}, Late: 1}},
	{"1, 1; a renewal, lost", faults{Acquires: acquires{1, 1}, Renewals: 1, Lost: 1}},
	{"1, 1; a renewal, late", faults{Acquires: acquires{1, 1}, Renewals: 1, Late: 1}},
	{"1, 1; a renewal, doubled", faults{Acquires: acquires{1, 1}, Renewals: 1, Doubled: 1}},
	{"1, 1; a renewal, paused", faults{Acquires: acquires{1, 1}, Renewals: 1, Pauses: 1}},
	{"1, 1; a renewal, asleep", faults{Acquires: acquires{1, 1}, Renewals: 1, Sleeps: 1}},
	{"1, 1; an Extend, doubled", faults{Acquires: acquires{1, 1}, Extends: 1, Doubled: 1}},
	{"2, 1; late", faults{Acquires: acquires{2, 1}, Late: 1}},
	{"2, 1; a renewal, slow", faults{Acquires: acquires{2, 1}, Renewals: 1, Slow: 1}},
	{"1, 1; lost, late", faults{Acquires: acquires{1, 1}, Lost: 1, Late: 1}},
}

func TestNoStateOfDeadlinesBreaksAPromise(t *testing.T) {
	sizes := redistest.Sized(small[:1], small, slices.Concat(small, large))
	for _, s := range sizes {
		if redistest.RaceEnabled && s.faults != (faults{Acquires: s.faults.Acquires}) {
			continue // there is one goroutine, and nothing for the detector to find
		}
		leasemodel.Search(leasemodel.Whole, s.faults, true).Holds(t, s.what)
	}
}

// Each with what a search of at most some hundred thousand states finds it by; the longest in full only.
func TestWithoutARuleOfDeadlinesTheSearchFindsTheHarm(t *testing.T) {
	redistest.SkipShort(t)
	met := map[leasemodel.Rule]bool{leasemodel.Whole: true}
	for _, c := range []struct {
		rule   leasemodel.Rule
		faults faults
		finds  string
	}{
		{leasemodel.FromSend, faults{Acquires: acquires{1, 1}, Late: 1}, leasemodel.Two},
		{leasemodel.OwnSend, faults{Acquires: acquires{1, 1}, Late: 1}, leasemodel.Two},
		{leasemodel.Confirmed, faults{Acquires: acquires{1, 1}, Renewals: 1, Lost: 1}, leasemodel.Two},
		{leasemodel.AtDeadline, faults{Acquires: acquires{1, 1}, Renewals: 1, Lost: 1}, leasemodel.Two},
		{leasemodel.Margin, faults{Acquires: acquires{1, 1}, Slow: 1}, leasemodel.Two},
		{leasemodel.Durations, faults{Acquires: acquires{1, 1}}, leasemodel.Two},
		{leasemodel.RenewsOwn, faults{Acquires: acquires{1, 1}, Renewals: 1, Forgets: 1}, leasemodel.Two},
		{leasemodel.RenewsHeld, faults{Acquires: acquires{1, 0}, Renewals: 1}, leasemodel.Orphan},
		{leasemodel.Raises, faults{Acquires: acquires{1, 1}, Renewals: 1, Extends: 1}, leasemodel.Two},
		{leasemodel.AsksAgain, faults{Acquires: acquires{1, 1}, Extends: 1, Doubled: 1}, leasemodel.Two},
		{leasemodel.ReleasesOwn, faults{Acquires: acquires{2, 1}}, leasemodel.Two},
		{leasemodel.NotAfter, faults{Acquires: acquires{1, 0}, Doubled: 1}, leasemodel.Orphan},
		{leasemodel.LastRelease, faults{Acquires: acquires{1, 0}}, leasemodel.Orphan},
		{leasemodel.FromRefusal, faults{Acquires: acquires{2, 1}, Late: 1}, leasemodel.Two},
		{leasemodel.LastTicket, faults{Acquires: acquires{2, 1}, Late: 1}, leasemodel.Two},
		{leasemodel.FirstLease, faults{Acquires: acquires{2, 1}}, leasemodel.Two},
		{leasemodel.Jump, faults{Acquires: acquires{1, 1}, Sleeps: 1}, leasemodel.Two},
		{leasemodel.BeforeJump, faults{Acquires: acquires{1, 1}, Sleeps: 1}, leasemodel.Two},
	} {
		met[c.rule] = true
		if redistest.RaceEnabled || !redistest.Long() &&
			(c.faults.Late > 0 && c.faults.Acquires[0] > 1 || c.faults.Doubled > 0 && c.faults.Extends > 0) {
			continue
		}
		t.Run(c.rule.String(), func(t *testing.T) {
			leasemodel.Search(c.rule, c.faults, false).Finds(t, c.rule, c.finds, c.finds)
		})
	}
	for r := range leasemodel.Rules {
		require.True(t, met[r], "%v is never left out", r)
	}
}
