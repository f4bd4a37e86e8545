package tenuremodel_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/oracle/tenuremodel"
	"github.com/redlatch/redlatch/internal/redistest"
)

// slow reports whether a search takes too long with the race detector, which has nothing to find: there is one
// goroutine.
func slow(c tenuremodel.Config) bool {
	return redistest.RaceEnabled && (c.Contended || c.Faults != tenuremodel.Faults{} || c.Arrivals[0]+c.Arrivals[1] > 2)
}

// documented looks for a row of the tables of what was searched.
func documented(t *testing.T, row string) {
	t.Log(row)
	text, err := os.ReadFile("../../../docs/tenures/searched.md")
	require.NoError(t, err)
	require.Contains(t, string(text), row, "the table of the page")
}

// Progress is looked at from one state in sixteen.
func TestTenureModel_EveryState_KeepsThePromises(t *testing.T) {
	total := 0
	for _, s := range tenuremodel.Sizes[:redistest.Sized(1, len(tenuremodel.Sizes), len(tenuremodel.Sizes))] {
		if slow(s.Config) {
			continue
		}
		s.Calm = 16
		r := tenuremodel.Search(s.Config)
		total += r.States
		require.Empty(t, r.Wrong, "%s: %s", s.Name, strings.Join(r.Trace, "\n"))
		require.True(t, r.Exhausted, s.Name)
		documented(t, fmt.Sprintf("| %s | %d | %d |", s.Name, r.States, r.Depth))
	}
	t.Logf("%d states", total)
}

// By default those rules are off that a search of some thousands of states finds to be missed.
func TestTenureModel_RuleOff_IsFoundWrong(t *testing.T) {
	redistest.SkipShort(t)
	for _, c := range tenuremodel.Rules {
		if slow(c.Config) || (c.Contended || c.Arrivals[0] > 2) && !redistest.Long() {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			c.Off = c.Name
			r := tenuremodel.Search(c.Config)
			require.Equal(t, c.Finds, r.Wrong, strings.Join(r.Trace, "\n"))
			t.Logf("%d states\n%s", r.States, strings.Join(r.Trace, "\n"))
			documented(t, fmt.Sprintf("| %s | %s, %d events |", c.Name, r.Wrong, len(r.Trace)))
		})
	}
}

// A second run of a request is refused after its not-after, and until then it takes the lock, or a place, for an owner
// that may be through.
func TestTenureModel_SecondRunAfterItsRelease_IsTheOnlyOrphan(t *testing.T) {
	r := tenuremodel.Search(tenuremodel.Config{Arrivals: [3]uint8{1}, Strict: true,
		Faults: tenuremodel.Faults{Doubled: 1}})
	require.Equal(t, tenuremodel.Orphan, r.Wrong)
	require.Len(t, r.Trace, 8, strings.Join(r.Trace, "\n"))
}
