package stock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

// modelAct is what happened: at which shard, -1 for none, and to which name, 0 for whichever is there.
type modelAct struct {
	what  string
	shard int
	name  uint8
}

func (a modelAct) String() string {
	switch {
	case a.shard < 0:
		return a.what
	case a.name == 0:
		return fmt.Sprintf("%s shard %d", a.what, a.shard)
	}
	return fmt.Sprintf("%s shard %d by name %d", a.what, a.shard, a.name)
}

// modelResult is what a search found: how many states there are, in how many of them all is sold, and what is wrong in the
// nearest state in which something is, with the way there.
type modelResult struct {
	states, soldOut int
	wrong           string
	trace           []string
}

func (m modelResult) String() string { return m.wrong + ": " + strings.Join(m.trace, "; ") }

// searchModel goes through all states, the nearest first. If nothing can be lost, all must still be sold from every state by
// steps that a process takes that comes new, and no unit may be missing.
func searchModel(r modelRules, size modelSize) modelResult {
	type step struct {
		from int32
		act  modelAct
	}
	first := firstState(size)
	ids := map[modelState]int32{first: 0}
	states, steps := []modelState{first}, []step{{from: -1}}
	safe := size.losses == 0 && size.failovers == 0
	var edges [][2]int32
	found := func(id int32, wrong string) modelResult {
		m := modelResult{states: len(states), wrong: wrong}
		for ; steps[id].from >= 0; id = steps[id].from {
			m.trace = append(m.trace, steps[id].act.String())
		}
		slices.Reverse(m.trace)
		return m
	}
	var ends []int32 // where all is sold
	for id := int32(0); int(id) < len(states); id++ {
		s := states[id]
		if wrong := s.wrong(size); wrong != "" {
			return found(id, wrong)
		}
		if s.sold == 2*size.units {
			ends = append(ends, id)
		}
		s.next(r, size, func(act modelAct, anew bool, t modelState) {
			to, known := ids[t]
			if !known {
				to = int32(len(states))
				ids[t] = to
				states, steps = append(states, t), append(steps, step{id, act})
			}
			if safe && anew {
				edges = append(edges, [2]int32{to, id})
			}
		})
	}
	if safe {
		if id, ok := stuck(len(states), edges, ends); ok {
			return found(id, "the rest is never sold")
		}
	}
	return modelResult{states: len(states), soldOut: len(ends)}
}

// stuck is the first state from which none of ends is reached; edges lead back.
func stuck(states int, edges [][2]int32, ends []int32) (int32, bool) {
	slices.SortFunc(edges, func(a, b [2]int32) int { return int(a[0] - b[0]) })
	begin := make([]int32, states+1)
	for _, e := range edges {
		begin[e[0]+1]++
	}
	for i := range states {
		begin[i+1] += begin[i]
	}
	reaches := make([]bool, states)
	for _, id := range ends {
		reaches[id] = true
	}
	for queue := slices.Clone(ends); len(queue) > 0; {
		id := queue[0]
		queue = queue[1:]
		for _, e := range edges[begin[id]:begin[id+1]] {
			if !reaches[e[1]] {
				reaches[e[1]] = true
				queue = append(queue, e[1])
			}
		}
	}
	id := slices.Index(reaches, false)
	return int32(id), id >= 0
}

// Every order of two openings, claims, transfers, losses of shards, failovers to older replicas, and late copies of every
// request there is.
func TestNoOrderOfOpeningsLossesAndLateCopiesOversells(t *testing.T) {
	t.Parallel()
	sizes := []modelSize{
		{units: 2, transfers: 2},
		{units: 1, transfers: 2, losses: 1},
		{units: 1, failovers: 1, losses: 1},
		{units: 1, transfers: 1, failovers: 1},
	}
	if redistest.Long() {
		sizes = append(sizes, modelSize{units: 1, failovers: 2}, modelSize{units: 1, transfers: 1, losses: 1, failovers: 1},
			modelSize{units: 1, transfers: 2, losses: 2, failovers: 1}, modelSize{units: 2, transfers: 2, losses: 2},
			modelSize{units: 2, transfers: 2, failovers: 1})
	}
	for _, size := range sizes {
		m := searchModel(modelRules{}, size)
		require.Empty(t, m.wrong, "%+v: %v", size, m)
		require.Positive(t, m.soldOut, "nothing sells")
		t.Logf("%+v: %d states, all sold in %d", size, m.states, m.soldOut)
	}
}

// Each rule is needed: without it the same search finds what goes wrong, and prints the shortest way there.
func TestWithoutAnyRuleOfTheShardsTheSearchFindsWhatGoesWrong(t *testing.T) {
	t.Parallel()
	lossy := modelSize{units: 1, losses: 1}
	moving := modelSize{units: 1, transfers: 2}
	failing := modelSize{units: 1, transfers: 1, failovers: 1}
	for _, tc := range []struct {
		name  string
		rules modelRules
		size  modelSize
		wrong string
	}{
		{"a shard has the name of its opening", modelRules{namedByEpoch: true}, lossy, "units"},
		{"the caller names the shard", modelRules{namedByCaller: true}, lossy, "units"},
		{"the plan has no names", modelRules{unfixed: true}, lossy, ""},
		{"the plan's names are written again", modelRules{fixedAgain: true}, lossy, ""},
		{"the plan's names are not confirmed", modelRules{planUnsure: true}, modelSize{units: 1, losses: 1, failovers: 1}, "sells"},
		{"live does not compare the name", modelRules{liveAny: true}, lossy, ""},
		{"any shard may be debited", modelRules{debitAny: true}, modelSize{units: 1, transfers: 1, losses: 1}, "sold"},
		{"a debit before the last has arrived", modelRules{debitOver: true}, modelSize{units: 2, transfers: 2}, "units"},
		{"a debit writes nothing down", modelRules{debitBlank: true}, moving, "units"},
		{"a debit is not confirmed", modelRules{debitUnsure: true}, failing, "units"},
		{"a credit is added each time", modelRules{creditEach: true}, moving, "units"},
		{"a credit is compared with the last one only", modelRules{creditOther: true}, moving, "units"},
		{"a credit is not confirmed", modelRules{creditUnsure: true}, failing, "units"},
		{"acknowledged before it has arrived", modelRules{ackEarly: true}, moving, "units"},
		{"any transfer is acknowledged", modelRules{ackAny: true}, moving, "units"},
		{"a claim is not confirmed", modelRules{claimUnsure: true}, modelSize{units: 1, failovers: 1}, "units"},
		{"nobody completes a transfer of another", modelRules{deserted: true}, moving, "never sold"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := searchModel(tc.rules, tc.size)
			require.NotEmpty(t, m.trace, "the search finds nothing in %d states", m.states)
			t.Log(m)
		})
	}
}
