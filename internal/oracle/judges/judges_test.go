package judges_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/oracle/judges"
)

func TestWinners_Contradictions_AreWrong(t *testing.T) {
	t.Parallel()
	one, two, dear := judges.Unit{Ordinal: 1}, judges.Unit{Ordinal: 2}, judges.Unit{Ordinal: 1, Worth: 5}
	for says, tell := range map[string]func(w *judges.Winners){
		"":                            func(w *judges.Winners) { w.Refused("cid") },
		"ann has unit 1 and unit 2":   func(w *judges.Winners) { w.Won("ann", two) },
		"ann has unit 1 and unit 1":   func(w *judges.Winners) { w.Won("ann", dear) },
		"unit 1 is ann's and bob's":   func(w *judges.Winners) { w.Won("bob", one) },
		"answered that nothing":       func(w *judges.Winners) { w.Refused("ann") },
		"have won units of 0":         func(w *judges.Winners) { w.Won("bob", two) },
		"2 have won units of 7 toget": func(w *judges.Winners) { w.Won("bob", judges.Unit{Ordinal: 2, Worth: 7}) },
	} {
		w := &judges.Winners{}
		w.Won("ann", one)
		w.Won("ann", one)
		tell(w)
		if says == "" {
			require.NoError(t, w.Exactly(1, 0))
			continue
		}
		require.ErrorContains(t, w.Exactly(1, 0), says)
	}
	w := &judges.Winners{}
	w.Won("ann", two)
	require.ErrorContains(t, w.Exactly(1, 0), "unit 1 is missing")
}

func TestRate_MoreThanItLets_IsExceeded(t *testing.T) {
	t.Parallel()
	r := judges.Rate{N: 10, Per: time.Second, Burst: 3}
	at := func(ms ...int64) (passed []judges.Passed) {
		for _, m := range ms {
			d := time.Duration(m) * time.Millisecond
			passed = append(passed, judges.Passed{From: d, To: d, N: 1})
		}
		return passed
	}
	require.Empty(t, r.Exceeded(at(0, 0, 0, 0, 100), 0))
	require.NotEmpty(t, r.Exceeded(at(0, 0, 0, 0, 0), 0))
	require.NotEmpty(t, r.Exceeded(at(900, 990, 990, 990, 990), 0), "in any stretch")
	require.Empty(t, r.Exceeded(at(900, 990, 990, 990, 990), .12), "by a clock that runs faster")
	late := at(0, 0, 0, 0)
	require.Empty(t, r.Exceeded(append(late, judges.Passed{From: -time.Second, N: 9}), 0), "it may have passed before")
}
