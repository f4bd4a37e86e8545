package takeovermodel_test

import (
	"slices"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/takeovermodel"
)

type faults = takeovermodel.Faults

// size is what is searched to its end.
type size struct {
	what   string
	faults faults
}

// small are searched by each run of the tests, in a second together.
var small = []size{
	{"1 acquisition", faults{Acquires: 1}},
	{"1; a message is lost", faults{Acquires: 1, Lost: 1}},
	{"1; the holder's clock is slow", faults{Acquires: 1, Slow: 1}},
	{"1; the heartbeat is deleted", faults{Acquires: 1, Deletes: 1}},
}

// large are searched in full only.
var large = []size{
	{"2", faults{Acquires: 2}},
	{"1; a process is paused", faults{Acquires: 1, Pauses: 1}},
	{"1; a message is late", faults{Acquires: 1, Late: 1}},
	{"1; lost, slow", faults{Acquires: 1, Lost: 1, Slow: 1}},
	{"1; paused, slow", faults{Acquires: 1, Pauses: 1, Slow: 1}},
	{"1; both are paused", faults{Acquires: 1, Pauses: 2}},
	{"1; late, deleted", faults{Acquires: 1, Late: 1, Deletes: 1}},
	{"2; lost", faults{Acquires: 2, Lost: 1}},
}

func TestNoLockIsTakenFromALivingHolderInAnyState(t *testing.T) {
	sizes := redistest.Sized(small[:1], small, slices.Concat(small, large))
	for _, s := range sizes {
		if redistest.RaceEnabled && s.faults != small[0].faults {
			continue // there is one goroutine, and nothing for the detector to find
		}
		takeovermodel.Search(takeovermodel.Whole, s.faults).Holds(t, s.what)
	}
}

func TestWithoutARuleOfTakeOverTheSearchFindsTheHarm(t *testing.T) {
	redistest.SkipShort(t)
	with := map[takeovermodel.Rule]faults{
		takeovermodel.FromSend:  {Acquires: 1, Slow: 1},
		takeovermodel.Confirmed: {Acquires: 1, Slow: 1},
		takeovermodel.FromAsk:   {Acquires: 1, Slow: 1},
		takeovermodel.Gap:       {Acquires: 1, Slow: 1},
		takeovermodel.Margin:    {Acquires: 1, Slow: 1},
		takeovermodel.OwnClock:  {Acquires: 1},
		takeovermodel.Change:    {Acquires: 1},
		takeovermodel.SeenHeld:  {Acquires: 2},
		takeovermodel.FromReply: {Acquires: 1, Slow: 1},
		takeovermodel.ToSend:    {Acquires: 1, Slow: 1},
		takeovermodel.ByOwner:   {Acquires: 2},
		takeovermodel.NewOwner:  {Acquires: 2},
	}
	for rule := takeovermodel.Whole + 1; rule < takeovermodel.Rules; rule++ {
		if redistest.RaceEnabled && with[rule] != small[0].faults {
			continue
		}
		t.Run(rule.String(), func(t *testing.T) {
			takeovermodel.Search(rule, with[rule]).Finds(t, rule, takeovermodel.Taken, "taken from a living holder")
		})
	}
}
