package election

import (
	"slices"
	"time"
)

// sightings are the workers as the worker self has seen them at its heartbeats. A new worker counts after it has been
// present for settle, and an absent worker stops counting after the same time. Other workers do not matter for this:
//
//   - The plan gives a new worker no shard yet. Otherwise each of several workers that start one after the other would
//     acquire all free shards, and give most of them up. And a worker that crashes soon after each start would always
//     be in the plan.
//   - An absent worker keeps its shards in the plan, because its heartbeat may only be late. Without this rule nothing
//     would be lost, but shards would move.
//
// If the workers waited until no worker had come or gone for some time, a deploy that replaces all workers in turn
// would leave the shards without a worker for as long as it lasts.
//
// If no worker has a shard, workers that start together divide the shards once: each waits until all count, but no
// longer than twice settle.
type sightings struct {
	self   string
	settle time.Duration
	seen   map[string]*sighting // by id
}

// sighting is the last known state of one worker.
type sighting struct {
	member
	present bool
	since   time.Time // of the last change of present or drained
}

func newSightings(self string, settle time.Duration) *sightings {
	return &sightings{self: self, settle: settle, seen: map[string]*sighting{}}
}

// update records the present members. It returns the members to plan for, and whether self may act by that plan.
func (v *sightings) update(now time.Time, members []member) (view []member, settled bool) {
	v.record(now, members)
	anyHas, anyNew := false, false
	for id, x := range v.seen {
		lasts, has := now.Sub(x.since) >= v.settle, slices.Contains(x.has, true)
		m := x.member
		switch {
		case !x.present && lasts:
			delete(v.seen, id)
			continue
		case !x.present && !has:
			continue
		case x.present && !lasts && !has:
			m.drained, anyNew = true, true
		}
		anyHas = anyHas || has
		view = append(view, m)
	}
	self := v.seen[v.self]
	if self == nil || !self.present {
		return view, false
	}
	there := now.Sub(self.since)
	switch {
	case slices.Contains(self.has, true):
		return view, true
	case !anyHas && anyNew && there < 2*v.settle:
		return view, false
	}
	return view, there >= v.settle
}

// record notes which workers are present at now.
func (v *sightings) record(now time.Time, members []member) {
	present := map[string]bool{}
	for _, m := range members {
		present[m.id] = true
		x := v.seen[m.id]
		if x == nil {
			x = &sighting{}
			v.seen[m.id] = x
		}
		if !x.present || x.drained != m.drained {
			x.since = now
		}
		x.member, x.present = m, true
	}
	for id, x := range v.seen {
		if x.present && !present[id] {
			x.present, x.since = false, now
		}
	}
}
