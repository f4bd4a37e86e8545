package quorummodel_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/quorummodel"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestTokensGrowInEveryState(t *testing.T) {
	t.Parallel()
	clients, restarts := redistest.Sized(2, 2, 3), redistest.Sized(0, 1, 2) // in full: some minutes, and some GB
	found := quorummodel.Search(quorummodel.Whole, clients, restarts)
	require.Empty(t, found.Wrong, strings.Join(found.Trace, "\n"))
	require.True(t, found.Exhausted)
	t.Logf("%d states", found.States)
}

// Each with the fewest clients and restarts with which the search finds it.
func TestEachRuleIsNeeded(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for rule, with := range map[quorummodel.Rule]struct{ clients, restarts int }{
		quorummodel.AsksMajority:  {2, 1},
		quorummodel.CountsItself:  {2, 1},
		quorummodel.DoubtsRestart: {2, 1},
		quorummodel.KeepsLater:    {3, 0}, // 16 million states: in full
		quorummodel.MajorityKeeps: {2, 0},
		quorummodel.AsksAll:       {2, 1},
	} {
		if with.clients > 2 && !redistest.Long() {
			continue
		}
		t.Run(rule.String(), func(t *testing.T) {
			t.Parallel()
			found := quorummodel.Search(rule, with.clients, with.restarts)
			require.NotEmpty(t, found.Wrong, "%d states", found.States)
			t.Logf("%d states:\n%s", found.States, strings.Join(found.Trace, "\n"))
		})
	}
}
