package stockmodel_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/oracle/stockmodel"
	"github.com/redlatch/redlatch/internal/redistest"
)

type faults = stockmodel.Faults

// size is what is searched to its end.
type size struct {
	what   string
	faults faults
}

// small are searched by each run of the tests, in a second together.
var small = []size{
	{"3 acts", faults{Acts: 3}},
	{"2 acts; one is doubled", faults{Acts: 2, Doubled: 1}},
	{"2 acts, 2 moves", faults{Acts: 2, Moves: 2}},
	{"2 acts, 2 moves; the stock is lost", faults{Acts: 2, Moves: 2, Losses: 1}},
}

// large are searched in full only.
var large = []size{
	{"4 acts", faults{Acts: 4}},
	{"4 acts; doubled", faults{Acts: 4, Doubled: 1}},
	{"5 acts", faults{Acts: 5}},
	{"3 acts, 2 moves", faults{Acts: 3, Moves: 2}},
	{"2 acts, 3 moves; a failover", faults{Acts: 2, Moves: 3, Failovers: 1}},
	{"3 acts, 1 move; a failover", faults{Acts: 3, Moves: 1, Failovers: 1}},
}

func TestStockModel_EveryState_KeepsThePromises(t *testing.T) {
	sizes := redistest.Sized(small[:1], small, slices.Concat(small, large))
	for _, s := range sizes {
		if redistest.RaceEnabled && s.faults.Moves > 0 {
			continue // there is one goroutine, and nothing for the detector to find
		}
		stockmodel.Search(stockmodel.Whole, s.faults).Holds(t, s.what)
	}
}

func TestStockModel_RuleOff_IsFoundWrong(t *testing.T) {
	redistest.SkipShort(t)
	met := map[stockmodel.Rule]bool{stockmodel.Whole: true}
	for _, c := range []struct {
		rule   stockmodel.Rule
		faults faults
		finds  string
	}{
		{stockmodel.RecordFirst, faults{Acts: 1, Doubled: 1}, stockmodel.Ledger},
		{stockmodel.HeldCounts, faults{Acts: 2}, stockmodel.Numbers},
		{stockmodel.LateTakes, faults{Acts: 3}, stockmodel.Numbers},
		{stockmodel.Final, faults{Acts: 3}, stockmodel.Lives},
		{stockmodel.Forbids, faults{Acts: 2}, stockmodel.Lives},
		{stockmodel.SeqGrows, faults{Acts: 4}, stockmodel.TwoHave},
		{stockmodel.Keeps, faults{Acts: 2, Doubled: 1}, stockmodel.TooFew},
		{stockmodel.NotAfter, faults{Acts: 2}, stockmodel.Lives},
		{stockmodel.Enters, faults{Acts: 1}, stockmodel.Ledger},
		{stockmodel.Once, faults{Acts: 1, Moves: 2}, stockmodel.Twice},
		{stockmodel.CommitFirst, faults{Acts: 1, Moves: 1}, stockmodel.Lost},
		{stockmodel.ReadOnly, faults{Acts: 2, Moves: 1}, stockmodel.Lost},
		{stockmodel.Unchanged, faults{Acts: 2, Moves: 2, Losses: 1}, stockmodel.Lost},
		{stockmodel.Compares, faults{Acts: 2, Moves: 2, Failovers: 1}, stockmodel.Lost},
		{stockmodel.Openings, faults{Acts: 2, Moves: 2, Losses: 1}, stockmodel.Lost},
	} {
		met[c.rule] = true
		if redistest.RaceEnabled && c.faults.Acts > 2 {
			continue
		}
		t.Run(c.rule.String(), func(t *testing.T) {
			stockmodel.Search(c.rule, c.faults).Finds(t, c.rule, c.finds, c.finds)
		})
	}
	for r := range stockmodel.Rules {
		require.True(t, met[r], "%v is never left out", r)
	}
}
