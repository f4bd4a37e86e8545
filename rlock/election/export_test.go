package election

import (
	"slices"
	"strings"
	"time"
)

// Member is a worker in a view, for tests of the plan.
type Member struct {
	ID      string
	Has     []bool
	Drained bool
}

// Plan is plan.
func Plan(n int, id string, view []Member) []bool {
	var members []workerState
	for _, m := range view {
		members = append(members, workerState{id: m.ID, owned: m.Has, drained: m.Drained})
	}
	return plan(n, id, members)
}

// Sightings are sightings.
type Sightings struct{ v *sightings }

func NewSightings(self string, settle time.Duration) Sightings {
	return Sightings{newSightings(self, settle)}
}

// Update is sightings.update; the view is in the order of its ids.
func (s Sightings) Update(now time.Time, present ...Member) (view []Member, settled bool) {
	var members []workerState
	for _, m := range present {
		members = append(members, workerState{id: m.ID, owned: m.Has, drained: m.Drained})
	}
	all, settled := s.v.update(now, members)
	for _, m := range all {
		view = append(view, Member{m.id, m.owned, m.drained})
	}
	slices.SortFunc(view, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return view, settled
}

// Seen is how many workers are kept.
func (s Sightings) Seen() int { return len(s.v.seen) }
