package simulation_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/simulation"
)

// What the scripts reply about a stock or cart, and what its ledger has, the model of stocks says, too, step by step.
func TestStocks_OnTheWire_FollowTheirModel(t *testing.T) {
	redistest.SkipShort(t)
	var total simulation.Figures
	for _, seed := range redistest.Seeds(t, redistest.Sized(2, 2, 200)) {
		r := simulation.Run(t, stockPlan(seed), nil)
		if total.Add(r.Figures); len(r.Violations) > 0 {
			t.Errorf("seed %d: %s", seed, r.Violations[0])
		}
	}
	t.Log(total)
	require.Positive(t, total.Followed)
}

// stockPlan is the plan of a seed, without what has the server forget, or its clock step: back, to before the start of
// a sale, which the model does not know.
func stockPlan(seed uint64) simulation.Plan {
	p := simulation.NewPlan(seed, "sale", "cart")
	p.Steps = slices.DeleteFunc(p.Steps, func(s simulation.Step) bool {
		return slices.Contains([]string{"empty", "failover", "flush-all", "clock"}, string(s.What))
	})
	return p
}
