package election

import (
	"cmp"
	"slices"
)

// workerState is a worker as the other workers see it.
type workerState struct {
	id, name string
	owned    []bool // by shard number
	drained  bool   // the worker should have no shard
}

// plan returns the shards that the member called id should have, in a slice by shard number. Members that see the same
// states make the same plan, and no shard moves without need:
//
//  1. Each of the m members that are not drained gets n/m shards. n%m of them get one more: first the members that have
//     more already, then by id.
//  2. A member that has more than that releases the shards with the highest numbers.
//  3. The released shards, and the shards without a worker, go in ascending order to the members that have too few, in
//     the order of their ids.
//
// The plan stays the same while it is carried out, in whatever order. The members with one more are those that had
// more, or the first by id, and only these ever get more. A moved shard leaves both lists of rule 3 at once, together
// with the place for it, and the other shards keep their places. So a member that sees a move late, or early, plans the
// same.
//
// In an outdated view two members may have the same shard. The shard then counts for the planning member,
// otherwise for the first by id:
//
//	A has 5 and should release it    B waits for the lock of 5, and reports no shard
//	unlocks 5                        has 5, reports it, and reads that A has it, too: it counts for B
//	reports that it has not 5
func plan(shardCount int, id string, members []workerState) (mine []bool) {
	mine = make([]bool, shardCount)
	order := slices.Clone(members)
	slices.SortFunc(order, func(first, second workerState) int {
		return cmp.Or(-compareBools(first.id == id, second.id == id), cmp.Compare(first.id, second.id))
	})
	owned, free := assigned(shardCount, order)
	order = slices.DeleteFunc(order, func(member workerState) bool { return member.drained })
	if len(order) == 0 {
		return mine
	}
	base, extra := shardCount/len(order), shardCount%len(order)
	slices.SortFunc(order, func(first, second workerState) int {
		return cmp.Or(-compareBools(len(owned[first.id]) > base, len(owned[second.id]) > base),
			cmp.Compare(first.id, second.id))
	})
	quota := map[string]int{}
	for i, member := range order {
		quota[member.id] = base
		if i < extra {
			quota[member.id]++
		}
	}
	for _, member := range members {
		keeps := min(quota[member.id], len(owned[member.id])) // 0 if the member is drained
		free = append(free, owned[member.id][keeps:]...)
		if member.id == id {
			for _, i := range owned[member.id][:keeps] {
				mine[i] = true
			}
		}
	}
	slices.Sort(free)
	slices.SortFunc(order, func(first, second workerState) int { return cmp.Compare(first.id, second.id) })
	for _, member := range order {
		missing := max(0, quota[member.id]-len(owned[member.id]))
		if member.id == id {
			for _, i := range free[:missing] {
				mine[i] = true
			}
		}
		free = free[missing:]
	}
	return mine
}

// assigned returns the shards of each member, and the shards of no member. A shard that several members report counts
// for the first of them.
func assigned(shardCount int, order []workerState) (owned map[string][]int, free []int) {
	taken := make([]bool, shardCount)
	owned = map[string][]int{}
	for _, member := range order {
		for i := range shardCount {
			if member.owned[i] && !taken[i] {
				taken[i] = true
				owned[member.id] = append(owned[member.id], i)
			}
		}
	}
	for i := range shardCount {
		if !taken[i] {
			free = append(free, i)
		}
	}
	return owned, free
}

// compareBools orders false before true.
func compareBools(first, second bool) int {
	switch {
	case first == second:
		return 0
	case first:
		return 1
	}
	return -1
}
