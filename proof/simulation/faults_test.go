package simulation_test

import (
	_ "embed"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/simulation"
)

// The faults are data, as those of proof/faults are: the simulation plants them in scripts on their way to the server.
// A plan or crowd of these kinds of objects finds the fault; the model refuses the script that has it.
//
//go:embed testdata/faults.txt
var faultTexts string

// planted is a fault, and which plans and models notice it.
type planted struct {
	simulation.Mutant
	plan  func(seed uint64, kinds ...string) simulation.Plan
	kinds []string
	model string
}

func plantedFaults(t *testing.T) (all []planted) {
	for paragraph := range strings.SplitSeq(strings.TrimSpace(faultTexts), "\n\n") {
		var f planted
		for line := range strings.SplitSeq(paragraph, "\n") {
			key, value, _ := strings.Cut(line, ": ")
			switch {
			case strings.HasPrefix(line, "-"):
				f.Old = line[1:]
			case strings.HasPrefix(line, "+"):
				f.New = line[1:]
			case key == "fault":
				f.Name = value
			case key == "plan":
				f.plan, f.kinds = simulation.NewPlan, strings.Fields(value)
			case key == "crowd":
				f.plan, f.kinds = simulation.NewCrowd, strings.Fields(value)
			case key == "model":
				f.model = value
			case key == "in":
				f.Of = value
			default:
				t.Fatalf("%q is no line of a fault", line)
			}
		}
		all = append(all, f)
	}
	return all
}

// find runs seeds until one finds the fault.
func (f *planted) find(t *testing.T) (p simulation.Plan, r simulation.Result) {
	for seed := range uint64(600) {
		p = f.plan(seed+1, f.kinds...)
		r = simulation.Run(t, p, &f.Mutant)
		if len(r.Violations) > 0 {
			t.Logf("%s: found by seed %d: %s", f.Name, p.Seed, r.Violations[0])
			return p, r
		}
	}
	t.Errorf("%s: not found by 600 seeds", f.Name)
	return p, r
}

// What the simulation is worth. By default those faults are planted that one of the first seeds finds.
func TestSimulation_PlantedFaults_AreFound(t *testing.T) {
	redistest.SkipShort(t)
	quick := []string{"a release takes any owner's hold", "a barrier lets go when one is missing",
		"the end of a reservation is not in the ledger", "an extension ends a reservation",
		"a Buy does not look for its own answer", "a sale sells past its limit"}
	for _, f := range plantedFaults(t) {
		if f.plan != nil && (redistest.Long() || slices.Contains(quick, f.Name)) {
			t.Run(f.Name, func(t *testing.T) { f.find(t) })
		}
	}
}

// followers follow what a plan does with a fault in the model of that name.
var followers = map[string]func(t *testing.T, seed uint64, m *simulation.Mutant) error{
	"deadlines": func(t *testing.T, seed uint64, m *simulation.Mutant) error {
		_, err := followLeases(t, simulation.Run(t, leasePlan(seed), m), nil)
		return err
	},
	"take-over": func(t *testing.T, seed uint64, m *simulation.Mutant) error {
		_, err := followTakeOver(t, simulation.Run(t, beatingPlan(seed), m))
		return err
	},
}

// A script with a planted fault does what its model does not: the model refuses it at that step. By default some of the
// faults are planted.
func TestModels_PlantedFaults_AreRefused(t *testing.T) {
	redistest.SkipShort(t)
	quick := []string{"a release takes any owner's hold", "a heartbeat moves nothing",
		"a heartbeat is not seen to move"}
	for _, f := range plantedFaults(t) {
		if f.model == "" || !redistest.Long() && !slices.Contains(quick, f.Name) {
			continue
		}
		t.Run(f.model+"/"+f.Name, func(t *testing.T) {
			for seed := uint64(1); seed <= 400; seed++ {
				if err := followers[f.model](t, seed, &f.Mutant); err != nil {
					t.Logf("by seed %d: %v", seed, err)
					return
				}
			}
			t.Error("no seed of 400 is refused")
		})
	}
}

// A fault whose text no script has any more is never planted; the search for it, minutes long, is left to what is
// larger.
func TestPlantedFaults_TheirTexts_AreInTheScripts(t *testing.T) {
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
	for _, f := range plantedFaults(t) {
		for _, words := range []string{f.Of, f.Old} {
			require.True(t, words != "" && slices.ContainsFunc(texts, func(text string) bool {
				return strings.Contains(text, words)
			}), "%s: %s", f.Name, words)
		}
		require.True(t, f.plan != nil || followers[f.model] != nil, f.Name)
	}
}

func TestShrink_FailingPlan_IsShortened(t *testing.T) {
	redistest.SkipShort(t)
	f := plantedFaults(t)[4]
	require.Equal(t, "a plain release does not compare owners", f.Name)
	p, _ := f.find(t)
	short, r := simulation.Shrink(t, p, &f.Mutant, 1)
	require.NotEmpty(t, r.Violations)
	require.Less(t, len(short.Steps), len(p.Steps)/2)
	t.Logf("%v%v", short, r.Violations)
}
