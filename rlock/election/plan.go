package election

import (
	"cmp"
	"slices"
)

// member is a worker as the others see it.
type member struct {
	id, name string
	has      []bool // by shard
	drained  bool   // it is to have nothing
}

// plan returns which shards the member called id should have. All that see the same members and no one's change make
// the same plan, and no shard moves that need not:
//
//  1. Of m members that are not drained each is to have n/m shards, and n%m of them one more: first those that have
//     more already, then by id.
//  2. A member that has more than that gives up those of the highest numbers.
//  3. Those, and the shards that no member has, go in their order to the members that have too few, in the order of
//     their ids.
//
// It stays the same while it is carried out, in whatever order. The members with one more are those that had more, or
// the first by id, who are the only ones to get more. And a shard that has moved leaves both lists of 3 at once, with
// the place for it: the others keep theirs. So a member that sees a move late, or early, plans nothing else.
//
// A shard that two members have, in a view that is out of date, is that of the member itself, else of the first by id:
//
//	A has 5, is to give it up        B waits for the lock of 5, says that it has nothing
//	unlocks 5                        has 5, says so, and reads that A has it, too: it is B's
//	says that it has not 5
func plan(n int, id string, members []member) (mine []bool) {
	mine = make([]bool, n)
	order := slices.Clone(members)
	slices.SortFunc(order, func(a, b member) int {
		return cmp.Or(-compare(a.id == id, b.id == id), cmp.Compare(a.id, b.id))
	})
	has, free := assigned(n, order)
	order = slices.DeleteFunc(order, func(m member) bool { return m.drained })
	if len(order) == 0 {
		return mine
	}
	base, more := n/len(order), n%len(order)
	slices.SortFunc(order, func(a, b member) int {
		return cmp.Or(-compare(len(has[a.id]) > base, len(has[b.id]) > base), cmp.Compare(a.id, b.id))
	})
	quota := map[string]int{}
	for i, m := range order {
		quota[m.id] = base
		if i < more {
			quota[m.id]++
		}
	}
	for _, m := range members {
		keeps := min(quota[m.id], len(has[m.id])) // 0 if it is drained
		free = append(free, has[m.id][keeps:]...)
		if m.id == id {
			for _, i := range has[m.id][:keeps] {
				mine[i] = true
			}
		}
	}
	slices.Sort(free)
	slices.SortFunc(order, func(a, b member) int { return cmp.Compare(a.id, b.id) })
	for _, m := range order {
		lacks := max(0, quota[m.id]-len(has[m.id]))
		if m.id == id {
			for _, i := range free[:lacks] {
				mine[i] = true
			}
		}
		free = free[lacks:]
	}
	return mine
}

// assigned says which shards each member has, and which no member has. A shard that several have is the first one's.
func assigned(n int, order []member) (has map[string][]int, free []int) {
	taken := make([]bool, n)
	has = map[string][]int{}
	for _, m := range order {
		for i := range n {
			if m.has[i] && !taken[i] {
				taken[i] = true
				has[m.id] = append(has[m.id], i)
			}
		}
	}
	for i := range n {
		if !taken[i] {
			free = append(free, i)
		}
	}
	return has, free
}

func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
