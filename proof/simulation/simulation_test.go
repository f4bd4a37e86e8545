package simulation_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/simulation"
)

// play runs the plans of some seeds.
func play(t *testing.T, how string, seeds []uint64, kinds ...string) (total simulation.Figures) {
	for _, seed := range seeds {
		p := simulation.Plays[how](seed, kinds...)
		r := simulation.Run(t, p, nil)
		total.Add(r.Figures)
		if len(r.Violations) > 0 {
			t.Errorf("seed %d of %s: %s\n%v\ngo -C proof run ./simulation/simulate -play %s -kinds %q -seeds %d -times 10",
				seed, how, r.Violations[0], p, how, strings.Join(kinds, ","), seed)
		}
	}
	return total
}

// In full, more than an hour is simulated.
func TestSimulation_EverySeed_KeepsThePromises(t *testing.T) {
	redistest.SkipShort(t)
	total := play(t, "plans", redistest.Seeds(t, redistest.Sized(2, 20, 210)))
	t.Log(total)
	require.Positive(t, total.Acquired)
}

// crowds plays crowds of each of some kinds.
func crowds(t *testing.T, how string, kinds []string) {
	redistest.SkipShort(t)
	seeds := []uint64{2}
	if redistest.Long() {
		seeds = redistest.Seeds(t, 2)
	}
	var total simulation.Figures
	for _, kind := range kinds {
		total.Add(play(t, how, seeds, kind))
	}
	t.Log(how, kinds, total)
	require.Positive(t, total.Acquired)
	require.Positive(t, total.Refused)
}

// The network is well, and callers give up after 0 to 20 ms, in each way that there is, on every kind.
func TestSimulation_CrowdGivesUp_LeavesNothingTakenOrIdle(t *testing.T) {
	crowds(t, "crowds", simulation.Crowds())
}

// Leases, labels and MaxHold are settled when a caller has its turn, and a process keeps its place in between.
func TestSimulation_CrowdHasTerms_LeavesNothingTakenOrIdle(t *testing.T) {
	crowds(t, "terms", simulation.Held())
}

// UnlockAfter leaves a lock taken until the server's end; and where nobody may subscribe, who waits asks once in a
// PollCap. Either has a bound of its own (progress.go).
func TestSimulation_CrowdKeepsOrHearsNothing_WaitsWithinItsBound(t *testing.T) {
	crowds(t, "keeping", simulation.Keeping())
	crowds(t, "mute", simulation.Held())
}

// Rate limits under every fault: what was answered is held against a plain model.
func TestSimulation_LimitsUnderFaults_AnswerAsTheModel(t *testing.T) {
	total := play(t, "plans", redistest.Seeds(t, redistest.Sized(2, 20, 200)), "limit", "limit", "limit")
	t.Log(total)
	require.Positive(t, total.Answers)
}

// Sales under every fault: a shop whose clients are killed and whose server forgets, Restore, and late, double and
// partial payments. Each reply is the model's, and no customer has paid without a unit or the money.
func TestSales_UnderFaults_BooksAreExact(t *testing.T) {
	redistest.SkipShort(t)
	total := play(t, "plans", redistest.Seeds(t, redistest.Sized(2, 10, 200)), "sale", "sale", "stock")
	t.Log(total)
	require.Positive(t, total.Followed)
	require.Positive(t, total.Restored)
}

func TestNewPlan_SameSeed_MakesTheSamePlan(t *testing.T) {
	for seed := range uint64(50) {
		p := simulation.NewPlan(seed)
		require.Equal(t, p, simulation.NewPlan(seed))
		require.Equal(t, p, p.Keep(p.Numbers()))
		require.Len(t, p.Keep([]int{3, 7}).Steps, 2)
	}
}
