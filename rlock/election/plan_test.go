package election_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock/election"
)

func count(has []bool) (n int) {
	for _, h := range has {
		if h {
			n++
		}
	}
	return n
}

// least is how many shards have to move: what members have above their share, where as many as can have one more.
func least(n int, view []election.Member) (moves int) {
	m := 0
	for _, x := range view {
		if !x.Drained {
			m++
		}
	}
	more := n % m
	for _, x := range view {
		switch over := count(x.Has) - n/m; {
		case x.Drained:
			moves += count(x.Has)
		case over > 0 && more > 0:
			more--
			moves += over - 1
		case over > 0:
			moves += over
		}
	}
	return moves
}

// From any division to the planned one, moved in any order, each member sees what the others have late: nothing moves
// that need not, and at the end all have their share. No shard has two owners: there are locks.
func TestPlan_AnyOrder_MovesAsLittleAsCanBe(t *testing.T) {
	t.Parallel()
	for seed := range uint64(redistest.Sized(20, 60, 1000)) {
		r := rand.New(rand.NewPCG(seed, 7))
		n, m := 1+r.IntN(40), 1+r.IntN(7)
		var real []election.Member
		for i := range m {
			real = append(real, election.Member{ID: fmt.Sprint("w", i), Has: make([]bool, n), Drained: i > 0 && r.IntN(5) == 0})
		}
		for i := range n { // a division that some are left out of
			if w := r.IntN(m + 1); w < m {
				real[r.IntN(w+1)].Has[i] = true
			}
		}
		said := make([][]bool, m) // what each has said last
		for i := range real {
			said[i] = slices.Clone(real[i].Has)
		}
		releases, expect := 0, least(n, real)
		for range 2500 {
			i := r.IntN(m)
			view := slices.Clone(real)
			for k := range view {
				if k != i {
					view[k].Has = said[k]
				}
			}
			r.Shuffle(m, func(a, b int) { view[a], view[b] = view[b], view[a] })
			mine := election.Plan(n, real[i].ID, view)
			for s := range n {
				taken := slices.ContainsFunc(real, func(x election.Member) bool { return x.Has[s] })
				switch {
				case real[i].Has[s] && !mine[s] && r.IntN(2) == 0:
					real[i].Has[s] = false
					releases++
				case !real[i].Has[s] && mine[s] && !taken && r.IntN(2) == 0:
					real[i].Has[s] = true
				}
			}
			if r.IntN(8) == 0 {
				said[i] = slices.Clone(real[i].Has)
			}
		}
		require.Equal(t, expect, releases, "seed %d", seed)
		all, few, most := 0, n, 0
		for _, x := range real {
			all += count(x.Has)
			if x.Drained {
				require.Zero(t, count(x.Has), "seed %d", seed)
			} else {
				few, most = min(few, count(x.Has)), max(most, count(x.Has))
			}
		}
		require.Equal(t, n, all, "seed %d", seed)
		require.LessOrEqual(t, most-few, 1, "seed %d", seed)
	}
}

// One that was cut off says what its functions have not yet stopped to work at, which is another's by now.
func TestPlan_TwoHaveAShard_MemberBelievesItself(t *testing.T) {
	t.Parallel()
	view := []election.Member{{ID: "a", Has: []bool{true, true, false}}, {ID: "b", Has: []bool{true, false, false}}}
	require.True(t, election.Plan(3, "b", view)[0])
}

func TestPlan_NoWorkers_IsEmpty(t *testing.T) {
	t.Parallel()
	require.Zero(t, count(election.Plan(3, "a",
		[]election.Member{{ID: "a", Has: []bool{true, true, true}, Drained: true}})))
}
