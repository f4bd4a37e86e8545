package election

import (
	"slices"
	"time"
)

// sightings are the workers as the worker self has seen them at its heartbeats. A new worker counts after it has been
// present for settleTime, and an absent worker stops counting after the same time. Other workers do not matter for
// this:
//
//   - The plan gives a new worker no shard yet. Otherwise each of several workers that start one after the other would
//     acquire all free shards, and release most of them. And a worker that crashes soon after each start would always
//     be in the plan.
//   - An absent worker keeps its shards in the plan, because its heartbeat may only be late. Without this rule nothing
//     would be lost, but shards would move.
//
// If the workers waited until no worker had come or gone for some time, a deploy that replaces all workers in turn
// would leave the shards without a worker for as long as it lasts.
//
// If no worker has a shard, workers that start together divide the shards once: each waits until all count, but no
// longer than twice settleTime.
type sightings struct {
	self       string
	settleTime time.Duration
	seen       map[string]*sighting // by id
}

// sighting is the last known state of one worker.
type sighting struct {
	workerState
	present   bool
	changedAt time.Time // the last change of present or drained
}

func newSightings(self string, settleTime time.Duration) *sightings {
	return &sightings{self: self, settleTime: settleTime, seen: map[string]*sighting{}}
}

// update records the present members. It returns the members for the plan, and whether self may act by that plan.
func (v *sightings) update(now time.Time, members []workerState) (view []workerState, settled bool) {
	v.record(now, members)
	anyOwner, anyNew := false, false
	for id, seen := range v.seen {
		hasSettled, hasShards := now.Sub(seen.changedAt) >= v.settleTime, slices.Contains(seen.owned, true)
		member := seen.workerState
		switch {
		case !seen.present && hasSettled:
			delete(v.seen, id)
			continue
		case !seen.present && !hasShards:
			continue
		case seen.present && !hasSettled && !hasShards:
			member.drained, anyNew = true, true
		}
		anyOwner = anyOwner || hasShards
		view = append(view, member)
	}
	self := v.seen[v.self]
	if self == nil || !self.present {
		return view, false
	}
	presentFor := now.Sub(self.changedAt)
	switch {
	case slices.Contains(self.owned, true):
		return view, true
	case !anyOwner && anyNew && presentFor < 2*v.settleTime:
		return view, false
	}
	return view, presentFor >= v.settleTime
}

// record updates the sightings with the members that are present at now.
func (v *sightings) record(now time.Time, members []workerState) {
	present := map[string]bool{}
	for _, member := range members {
		present[member.id] = true
		seen := v.seen[member.id]
		if seen == nil {
			seen = &sighting{}
			v.seen[member.id] = seen
		}
		if !seen.present || seen.drained != member.drained {
			seen.changedAt = now
		}
		seen.workerState, seen.present = member, true
	}
	for id, seen := range v.seen {
		if seen.present && !present[id] {
			seen.present, seen.changedAt = false, now
		}
	}
}
