package salesearch

import (
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

// sizes are searched to their ends; the first small ones by each run of the tests.
var sizes = []struct {
	what string
	Faults
}{
	{"7 acts", Faults{Acts: 7}},
	{"5 acts; one is doubled", Faults{Acts: 5, Doubled: 1}},
	{"3 acts, 2 moves", Faults{Acts: 3, Moves: 2}},
	{"2 acts, 1 move; a failover, a Restore", Faults{Acts: 2, Moves: 1, Restores: 1, Failovers: 1}},
	{"2 acts; 2 Restores, a copy", Faults{Acts: 2, Restores: 2, Doubled: 1}},
	{"4 acts, 3 moves", Faults{Acts: 4, Moves: 3}},
	{"3 acts, 2 moves; a failover", Faults{Acts: 3, Moves: 2, Failovers: 1}},
	{"2 acts, 2 moves; a failover, a Restore", Faults{Acts: 2, Moves: 2, Restores: 1, Failovers: 1}},
	{"1 act, 1 move; a failover, 2 Restores", Faults{Acts: 1, Moves: 1, Restores: 2, Failovers: 1}},
}

const small = 5

func TestSale_EachState_KeepsThePromises(t *testing.T) {
	for i, size := range sizes {
		if i == 0 || !redistest.RaceEnabled && (i < small || redistest.Long()) { // there is one goroutine
			Search(Whole, size.Faults).Holds(t, size.what)
		}
	}
}

func TestSale_WithoutARule_BreaksAPromise(t *testing.T) {
	for _, row := range []struct {
		rule Rule
		Faults
		finds string
	}{
		{RecordFirst, Faults{Acts: 1, Doubled: 1}, Unlike},
		{Final, Faults{Acts: 5}, Undone},
		{Forbids, Faults{Acts: 2}, Undone},
		{AsksBook, Faults{Acts: 2, Moves: 1, Failovers: 1}, Refunded},
		{SeqGrows, Faults{Acts: 3}, Unlike},
		{NotAfter, Faults{Acts: 2, Doubled: 1}, Again},
		{Enters, Faults{Acts: 1}, Unlike},
		{Once, Faults{Acts: 1, Moves: 2}, Twice},
		{CommitFirst, Faults{Acts: 1, Moves: 1}, Lost},
		{ReadOnly, Faults{Acts: 2, Moves: 1}, Lost},
		{Unchanged, Faults{Acts: 2, Moves: 1, Failovers: 1}, Lost},
		{Compares, Faults{Acts: 2, Moves: 2, Failovers: 1}, Lost},
		{Openings, Faults{Acts: 1, Moves: 1, Restores: 1, Failovers: 1}, Apart},
		{Suspends, Faults{Acts: 1, Restores: 1}, Lost},
		{Drains, Faults{Acts: 1, Restores: 1}, Lost},
		{Rounds, Faults{Restores: 2}, Apart},
		{Before, Faults{Restores: 2, Doubled: 1}, Stopped},
		{FromOpening, Faults{Restores: 2}, Apart},
	} {
		t.Run(row.rule.String(), func(t *testing.T) {
			Search(row.rule, row.Faults).Finds(t, row.rule, row.finds, row.finds)
		})
	}
}
