package model_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/model"
)

// add is a step of a counter that is set to 0 again when it is 12.
type add int

func (a add) String() string { return fmt.Sprintf("adds %d", int(a)) }

func counter(wrong func(n *int) string) model.Machine[int, add] {
	return model.Machine[int, add]{
		Follow: func(n *int, emit func(*int, add)) {
			for _, a := range []add{1, 5} {
				next := (*n + int(a)) % 12
				emit(&next, a)
			}
		},
		Wrong: wrong,
		Show:  func(n *int) string { return fmt.Sprint(*n) },
	}
}

func TestASearchLooksAtEveryState(t *testing.T) {
	looked := map[int]bool{}
	r := model.Search(counter(func(n *int) string {
		require.False(t, looked[*n])
		looked[*n] = true
		return ""
	}))
	require.Equal(t, model.Result{States: 12, Depth: 5, Exhausted: true}, r)
	require.Len(t, looked, 11, "all but the first")
}

func TestATraceIsAShortestOne(t *testing.T) {
	r := model.Search(counter(func(n *int) string {
		if *n == 7 {
			return "it is 7"
		}
		return ""
	}))
	require.Equal(t, "it is 7", r.Wrong)
	require.Len(t, r.Trace, 3, "two of 1 and one of 5")
	require.Contains(t, r.Trace[2], "7")
	require.False(t, r.Exhausted)
}

// A counter of which the even numbers are seen: what is odd is passed in silence.
func TestWaysEndWhereAMachineDoesNotDoWhatWasSeen(t *testing.T) {
	w := model.From(0)
	hidden := func(n int, emit func(int)) {
		if n%2 == 0 {
			emit(n + 1)
			emit(n + 3)
		}
	}
	for _, seen := range []int{2, 8} {
		require.True(t, w.Unfold(10, hidden))
		w = w.See(func(n int, emit func(int)) {
			if n%2 == 1 && n+1 == seen {
				emit(seen)
			}
		})
		if seen == 2 {
			require.Len(t, w, 1, "%v", w)
		}
	}
	require.Empty(t, w, "from 2 it comes to 3 and 5, so 4 or 6 is seen next")
	require.False(t, model.From(0).Unfold(1, hidden), "there are more ways than one")
}
