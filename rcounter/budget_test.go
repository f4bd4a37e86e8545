package rcounter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
)

// What an Incr may cost above Redis' own INCR: in counts, because times say more about the machine than about the code.
func TestBudgetOfIncr(t *testing.T) {
	if redistest.RaceEnabled {
		t.Skip("allocations are counted without the race detector; go test ./... does")
	}
	c := redistest.Start(t).Client(t)
	k := on(t, c, patient).Counter("k", rcounter.CounterOptions{})
	incr := func() {
		if _, err := k.Incr(ctx); err != nil {
			t.Error(err)
		}
	}
	for range 100 {
		incr()
	}
	before := redistest.CommandCalls(t, c)
	allocs := testing.AllocsPerRun(500, incr)
	after := redistest.CommandCalls(t, c)
	require.Equal(t, 501, after["incr"]-before["incr"])
	for name, n := range after {
		switch name {
		case "incr", "info", "hello", "ping", "quit", "client|tracking", "client|setinfo":
			// connections are made and pinged beside
		default:
			require.Equal(t, before[name], n, "%s", name)
		}
	}
	for range 4 { // what runs beside, as the runtime does, only adds
		allocs = min(allocs, testing.AllocsPerRun(500, incr))
	}
	t.Logf("%v allocations an Incr", allocs)
	require.LessOrEqual(t, allocs, 6.0) // of them four for the context that hooks around the client see
}
