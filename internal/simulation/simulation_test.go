package simulation_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/simulation"
)

// In full, more than an hour is simulated.
func TestTheSimulatedLibraryKeepsItsPromises(t *testing.T) {
	redistest.SkipShort(t)
	var total simulation.Figures
	for _, seed := range redistest.Seeds(t, redistest.Sized(1, 2, 210)) {
		p := simulation.NewPlan(seed)
		r := simulation.Run(t, p, nil)
		total.Add(r.Figures)
		if len(r.Violations) > 0 {
			t.Errorf("seed %d: %s\n%v\ngo run ./internal/simulation/simulate -seeds %d -times 10", seed, r.Violations[0], p,
				seed)
		}
	}
	t.Log(total)
	require.Positive(t, total.Acquired)
}

// The network is well, and callers give up after 0 to 20 ms, in each way that there is. By default one kind is
// played, by a seed that has found faults with it.
func TestACrowdThatGivesUpLeavesNothingTakenAndNothingIdle(t *testing.T) {
	redistest.SkipShort(t)
	var total simulation.Figures
	usual := []string{"plain", "spin"}
	for _, kind := range redistest.Sized(usual, usual, simulation.Crowds()) {
		seeds := []uint64{2}
		if redistest.Long() {
			seeds = redistest.Seeds(t, 2)
		}
		for _, seed := range seeds {
			r := simulation.Run(t, simulation.NewCrowd(seed, kind), nil)
			total.Add(r.Figures)
			if len(r.Violations) > 0 {
				t.Errorf("%s, seed %d: %s\ngo run ./internal/simulation/simulate -crowds -kinds %s -seeds %d -v", kind, seed,
					r.Violations[0], kind, seed)
			}
		}
	}
	t.Log(total)
	require.Positive(t, total.Acquired)
	require.Positive(t, total.Refused)
}

// UnlockAfter leaves a lock taken until the server's end; and where nobody may subscribe, who waits asks once in a
// PollCap. Either has a bound of its own (progress.go). By default one kind of each is played.
func TestACrowdThatKeepsOrHearsNothingHasItsOwnBound(t *testing.T) {
	redistest.SkipShort(t)
	for how, crowd := range map[string]struct {
		plan  func(seed uint64, kinds ...string) simulation.Plan
		kinds []string
	}{"keeping": {simulation.NewKeepingCrowd, simulation.Keeping()},
		"mute": {simulation.NewMuteCrowd, simulation.Held()}} {
		var total simulation.Figures
		usual := []string{"reentrant", "plain"}
		for _, kind := range redistest.Sized(usual[:1], usual[:1], crowd.kinds) {
			seeds := []uint64{2}
			if redistest.Long() {
				seeds = redistest.Seeds(t, 2)
			}
			for _, seed := range seeds {
				r := simulation.Run(t, crowd.plan(seed, kind), nil)
				total.Add(r.Figures)
				if len(r.Violations) > 0 {
					t.Errorf("%s, seed %d: %s\ngo run ./internal/simulation/simulate -crowds -%s -kinds %s -seeds %d -v", kind, seed,
						r.Violations[0], how, kind, seed)
				}
			}
		}
		t.Logf("%s: %v", how, total)
		require.Positive(t, total.Acquired)
		require.Positive(t, total.Refused)
	}
}

// Rate limits under every fault: what was answered is held against a plain model.
func TestLimitsKeepTheirPromiseWhateverGoesWrong(t *testing.T) {
	var total simulation.Figures
	for _, seed := range redistest.Seeds(t, redistest.Sized(1, 2, 200)) {
		r := simulation.Run(t, simulation.NewPlan(seed, "limit", "limit", "limit"), nil)
		total.Add(r.Figures)
		if len(r.Violations) > 0 {
			t.Errorf("seed %d: %s\ngo run ./internal/simulation/simulate -kinds limit,limit,limit -seeds %d -v", seed,
				r.Violations[0], seed)
		}
	}
	t.Log(total)
	require.Positive(t, total.Answers)
}

// What the simulation is worth. By default those faults are planted that one of the first seeds finds.
func TestTheSimulationFindsPlantedFaults(t *testing.T) {
	redistest.SkipShort(t)
	quick := []string{
		"a release takes any owner's hold", "a barrier lets go when one is missing",
	}
	names := redistest.Sized(quick, quick, nil)
	for i := range simulation.Mutants {
		m := &simulation.Mutants[i]
		if names != nil && !slices.Contains(names, m.Name) {
			continue
		}
		p, r, tried := simulation.Kill(t, m, 600)
		if len(r.Violations) == 0 {
			t.Errorf("not found by %d seeds: %s", tried, m.Name)
			continue
		}
		t.Logf("%s: found by seed %d: %s", m.Name, p.Seed, r.Violations[0])
	}
}

// A fault whose text no script has any more is never planted; the search for it, minutes long, is left to what is
// larger.
func TestPlantedFaultsApply(t *testing.T) {
	var texts []string
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".lua") {
			var text []byte
			text, err = os.ReadFile(path)
			texts = append(texts, string(text))
		}
		return err
	})
	require.NoError(t, err)
	for _, m := range simulation.Mutants {
		has := func(words string) bool {
			return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, words) })
		}
		require.True(t, has(m.Of), "%s: %s", m.Name, m.Of)
		require.True(t, has(m.Old), "%s: %s", m.Name, m.Old)
	}
}

func TestAPlanThatFailsIsShortened(t *testing.T) {
	redistest.SkipShort(t)
	m := simulation.MutantOf("a plain release does not compare owners")
	p, r, _ := simulation.Kill(t, m, 600)
	require.NotEmpty(t, r.Violations)
	short, r := simulation.Shrink(t, p, m, 1)
	require.NotEmpty(t, r.Violations)
	require.Less(t, len(short.Steps), len(p.Steps)/2)
	t.Logf("%v%v", short, r.Violations)
}

func TestASeedMakesOnePlan(t *testing.T) {
	for seed := range uint64(50) {
		p := simulation.NewPlan(seed)
		require.Equal(t, p, simulation.NewPlan(seed))
		require.Equal(t, p, p.Keep(p.Numbers()))
		require.Len(t, p.Keep([]int{3, 7}).Steps, 2)
	}
}
