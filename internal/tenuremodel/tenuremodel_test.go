package tenuremodel_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/tenuremodel"
)

type (
	config   = tenuremodel.Config
	faults   = tenuremodel.Faults
	arrivals = [3]uint8
)

// size is what is searched to its end.
type size struct {
	what   string
	config config
}

// small are searched by each run of the tests, in a few seconds together.
var small = []size{
	{"2 callers of one process", config{Arrivals: arrivals{2}}},
	{"1 of each of two", config{Arrivals: arrivals{1, 1}}},
	{"2; a message is doubled", config{Arrivals: arrivals{2}, Faults: faults{Doubled: 1}}},
	{"1; two are lost, one is doubled, two ticks late",
		config{Arrivals: arrivals{1}, Faults: faults{Lost: 2, Doubled: 1, Late: 2}}},
	{"1, 1; a message is lost", config{Arrivals: arrivals{1, 1}, Faults: faults{Lost: 1}}},
	{"1, 1; a process is paused", config{Arrivals: arrivals{1, 1}, Faults: faults{Pauses: 1}}},
	{"2; a process sleeps", config{Arrivals: arrivals{2}, Faults: faults{Sleeps: 1}}},
	{"1, 1; FLUSHALL", config{Arrivals: arrivals{1, 1}, Faults: faults{Flushes: 1}}},
	{"1, 1; a handle is dropped", config{Arrivals: arrivals{1, 1}, Faults: faults{Drops: 1}}},
	{"2; an owner is notified", config{Arrivals: arrivals{2}, Faults: faults{PassedOn: 1}}},
	{"1, 1; a renewal, a message is lost", config{Arrivals: arrivals{1, 1}, Faults: faults{Renewals: 1, Lost: 1}}},
	{"1, 1; ForceUnlock", config{Arrivals: arrivals{1, 1}, Faults: faults{Forced: 1}}},
	{"2; Close", config{Arrivals: arrivals{2}, Faults: faults{Closes: 1}}},
	{"1, 1; a process crashes", config{Arrivals: arrivals{1, 1}, Faults: faults{Crashes: 1}}},
}

// large are searched in full only.
var large = []size{
	{"2 of one, 1 of another, while one works and one is queued", config{Arrivals: arrivals{2, 1}, Contended: true}},
	{"2, 1", config{Arrivals: arrivals{2, 1}}},
	{"1, 1, 1", config{Arrivals: arrivals{1, 1, 1}}},
	{"2; lost, late", config{Arrivals: arrivals{2}, Faults: faults{Lost: 1, Late: 1}}},
	{"2; doubled, late", config{Arrivals: arrivals{2}, Faults: faults{Doubled: 1, Late: 1}}},
	{"1, 1; lost, late", config{Arrivals: arrivals{1, 1}, Faults: faults{Lost: 1, Late: 1}}},
	{"2, 1, contended; lost", config{Arrivals: arrivals{2, 1}, Contended: true, Faults: faults{Lost: 1}}},
	{"2, 1, contended; paused", config{Arrivals: arrivals{2, 1}, Contended: true, Faults: faults{Pauses: 1}}},
	{"2, 1, contended; sleeps", config{Arrivals: arrivals{2, 1}, Contended: true, Faults: faults{Sleeps: 1}}},
	{"2, 1, contended; ForceUnlock", config{Arrivals: arrivals{2, 1}, Contended: true, Faults: faults{Forced: 1}}},
	{"3, 1, contended", config{Arrivals: arrivals{3, 1}, Contended: true}},
	{"2, 1; FLUSHALL", config{Arrivals: arrivals{2, 1}, Faults: faults{Flushes: 1}}},
	{"2, 1; dropped", config{Arrivals: arrivals{2, 1}, Faults: faults{Drops: 1}}},
	{"2, 1; notified", config{Arrivals: arrivals{2, 1}, Faults: faults{PassedOn: 1}}},
	{"2, 1; two renewals", config{Arrivals: arrivals{2, 1}, Faults: faults{Renewals: 2}}},
	{"2, 1; Close", config{Arrivals: arrivals{2, 1}, Faults: faults{Closes: 1}}},
	{"2, 1; a crash", config{Arrivals: arrivals{2, 1}, Faults: faults{Crashes: 1}}},
}

// slow reports whether a search takes too long with the race detector, which has nothing to find: there is one
// goroutine.
func slow(c config) bool {
	return redistest.RaceEnabled && (c.Contended || c.Faults != faults{} || c.Arrivals[0]+c.Arrivals[1]+c.Arrivals[2] > 2)
}

// In full, tens of millions of states are looked at, and progress from one in sixteen.
func TestNoStateOfTheModelBreaksAPromise(t *testing.T) {
	sizes := redistest.Sized(small[:1], small, slices.Concat(small, large))
	total := 0
	for _, s := range sizes {
		if slow(s.config) {
			continue
		}
		s.config.Calm = 16
		r := tenuremodel.Search(s.config)
		total += r.States
		require.Equal(t, tenuremodel.None, r.Violation, "%s: %v\n%s", s.what, r.Violation, strings.Join(r.Trace, "\n"))
		require.True(t, r.Exhausted, s.what)
		row := fmt.Sprintf("| %s | %d | %d |", s.what, r.States, r.Depth)
		t.Log(row)
		require.Contains(t, page(t), row, "the table of the page")
		if r.Overflows > 0 {
			t.Logf("%s: %d messages, tenures or places had no room", s.what, r.Overflows)
		}
	}
	t.Logf("%d states", total)
}

// without is what the search finds when a rule is off.
type without struct {
	rule   string
	config config
	finds  tenuremodel.Violation
	only   string // why it finds nothing
}

// inFull reports whether the search takes a second or more: one among many, or one to its end.
func (w without) inFull() bool {
	return w.config.Contended || w.config.Arrivals[0] > 2 || w.finds == tenuremodel.None
}

var rulesOff = []without{
	{rule: "a context of a turn that is over enters nothing", config: config{Arrivals: arrivals{2}},
		finds: tenuremodel.EndedContextEnters},
	{rule: "who takes a turn looks whether turns may still begin",
		config: config{Arrivals: arrivals{2}, Faults: faults{Flushes: 1, Late: 2}}, finds: tenuremodel.TurnLongAfterALoss},
	{rule: "who takes a turn looks at what is left of the lease",
		config: config{Arrivals: arrivals{2, 1}, Contended: true, Faults: faults{Sleeps: 1}}, finds: tenuremodel.TwoInside},
	{rule: "who gives a turn looks at the time of the tenure", config: config{Arrivals: arrivals{2, 1}},
		finds: tenuremodel.PassedWhileOthersStarve},
	{rule: "who gives a turn looks at what is left of the lease",
		config: config{Arrivals: arrivals{2}, Faults: faults{Sleeps: 1}},
		only:   "the one who takes the turn looks, too: for speed"},
	{rule: "where others may wait as many turns follow as callers waited", config: config{Arrivals: arrivals{3, 1}},
		finds: tenuremodel.PassedTooOften},
	{rule: "where others may wait, who comes when no caller waits here any more has no turn",
		config: config{Arrivals: arrivals{3, 1}}, finds: tenuremodel.PassedTooOften},
	{rule: "an owner that is known elsewhere has no further turn",
		config: config{Arrivals: arrivals{2}, Faults: faults{PassedOn: 1}}, finds: tenuremodel.KnownOwnerPassed},
	{rule: "whatever ends a tenure ends the turn that runs", config: config{Arrivals: arrivals{2}},
		finds: tenuremodel.TwoInside},
	{rule: "whatever ends a tenure, those that wait have another", config: config{Arrivals: arrivals{2}},
		finds: tenuremodel.NoProgress},
	{rule: "a handle that was dropped is not unlocked: its lease runs out first",
		config: config{Arrivals: arrivals{2}, Faults: faults{Drops: 1}}, finds: tenuremodel.TwoInside},
	{rule: "ForceUnlock ends a hold of its own client at once",
		config: config{Arrivals: arrivals{1, 1}, Faults: faults{Forced: 1}}, finds: tenuremodel.UnlockToldLost},
	{rule: "only a confirmed renewal moves the deadline",
		config: config{Arrivals: arrivals{1, 1}, Faults: faults{Renewals: 1, Lost: 1}}, finds: tenuremodel.UnlockToldLost},
	{rule: "the last caller that leaves withdraws the request", config: config{Arrivals: arrivals{2}},
		finds: tenuremodel.Orphan},
	{rule: "a caller that cannot use its turn gives the tenure back", config: config{Arrivals: arrivals{1}},
		finds: tenuremodel.Orphan},
	{rule: "what is granted when no caller waits is released at once", config: config{Arrivals: arrivals{2}},
		finds: tenuremodel.Orphan},
	{rule: "a release is repeated until no request can come after it", config: config{Arrivals: arrivals{1}},
		finds: tenuremodel.Orphan},
	{rule: "a request may run for the whole millisecond of its not-after",
		config: config{Arrivals: arrivals{1}, Faults: faults{Late: 2}}, finds: tenuremodel.Orphan},
	{rule: "the server refuses a request that comes too late",
		config: config{Arrivals: arrivals{1}, Faults: faults{Late: 2}}, finds: tenuremodel.Orphan},
	{rule: "the call that names a tenure is a request of that tenure",
		config: config{Arrivals: arrivals{2}, Faults: faults{Late: 1}}, finds: tenuremodel.Orphan},
	{rule: "only the run that releases the holder names the next",
		config: config{Arrivals: arrivals{2}, Faults: faults{Doubled: 1}}, finds: tenuremodel.Orphan},
	{rule: "a late reply sends no release in addition to an Unlock's", config: config{Arrivals: arrivals{2}},
		finds: tenuremodel.UnlockToldLost},
	{rule: "a grant that no caller waits for has the pending release sent at once",
		config: config{Arrivals: arrivals{1, 1}, Faults: faults{Lost: 1}},
		only:   "the release is sent again after the not-after: for speed"},
	{rule: "a grant that overtakes the reply is kept", config: config{Arrivals: arrivals{1, 1}, Faults: faults{Lost: 1}},
		only: "the next poll finds it: for speed"},
	{rule: "a grant is used if its ticket is that of the last refusal",
		config: config{Arrivals: arrivals{2, 1}, Contended: true, Faults: faults{Sleeps: 1}}, finds: tenuremodel.TwoInside},
	{rule: "a grant's lease counts from the question that was refused last",
		config: config{Arrivals: arrivals{2}, Faults: faults{Sleeps: 1}}, finds: tenuremodel.UnlockToldLost},
}

// By default those rules are off that a search of some thousands of states finds to be missed.
func TestWithoutARuleTheSearchFindsWhatItPrevents(t *testing.T) {
	redistest.SkipShort(t)
	met := map[string]bool{}
	for _, c := range rulesOff {
		met[c.rule] = true
		if slow(c.config) || c.inFull() && !redistest.Long() {
			continue
		}
		t.Run(c.rule, func(t *testing.T) {
			c.config.Off = c.rule
			if c.finds == tenuremodel.NoProgress || c.finds == tenuremodel.None {
				c.config.Calm = 1
			}
			r := tenuremodel.Search(c.config)
			require.Equal(t, c.finds, r.Violation, strings.Join(r.Trace, "\n"))
			if c.finds == tenuremodel.None {
				require.True(t, r.Exhausted)
			}
			row := fmt.Sprintf("| %s | %v, %d events |", c.rule, r.Violation, len(r.Trace))
			if c.only != "" {
				row = fmt.Sprintf("| %s | nothing, of %d states: %s |", c.rule, r.States, c.only)
			}
			t.Logf("%s %d states\n%s", row, r.States, strings.Join(r.Trace, "\n"))
			require.Contains(t, page(t), row, "the table of the page")
		})
	}
	for _, r := range tenuremodel.Rules {
		require.True(t, met[r.Name], "%s is never off", r.Name)
	}
}

func page(t *testing.T) string {
	text, err := os.ReadFile("../../docs/tenures/searched.md")
	require.NoError(t, err)
	return string(text)
}

// A second run of a request is refused after its not-after, and until then it takes the lock, or a place, for an owner
// that may be through.
func TestASecondRunAfterItsReleaseIsTheOneOrphanThatIsKnown(t *testing.T) {
	r := tenuremodel.Search(config{Arrivals: arrivals{1}, Faults: faults{Doubled: 1}, Strict: true})
	require.Equal(t, tenuremodel.Orphan, r.Violation)
	require.Len(t, r.Trace, 8, strings.Join(r.Trace, "\n"))
}

// The model knows only what the library does.
func TestEveryRuleOfTheModelIsInTheCode(t *testing.T) {
	mutants, err := filepath.Glob("../redistest/mutants/*.go")
	require.NoError(t, err)
	var planted strings.Builder
	for _, name := range mutants {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		planted.Write(text)
	}
	for _, r := range tenuremodel.Rules {
		text, err := os.ReadFile(filepath.Join("../..", r.File))
		require.NoError(t, err)
		require.NotEmpty(t, r.Text, r.Name)
		require.True(t, strings.Contains(string(text), r.Text), "%s: %s does not contain %q", r.Name, r.File, r.Text)
		if r.Mutant != "" {
			require.True(t, strings.Contains(planted.String(), fmt.Sprintf("name: %q,", r.Mutant)), "%s: there is no mutant %q",
				r.Name, r.Mutant)
		}
	}
}

func TestATraceBeginsWithACallerAndEndsWithTheViolation(t *testing.T) {
	r := tenuremodel.Search(config{Arrivals: arrivals{1}, Off: "a caller that cannot use its turn gives the tenure back"})
	require.Len(t, r.Trace, 4)
	require.Contains(t, r.Trace[0], "A: a caller comes")
	require.Contains(t, r.Trace[3], "a caller leaves that was given its turn")
	require.Contains(t, r.Trace[3], "server: a1 for 4")
}
