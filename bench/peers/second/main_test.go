package main

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m, nil) }

// The counts of docs/keep-go-redis.md: connections for commands, and one more for changed keys once locks are held.
func TestTheSecondClientHasAsManyConnectionsAsThePageSays(t *testing.T) {
	redistest.NeedServer(t)
	redistest.SkipShort(t)
	var out strings.Builder
	costs, err := run(t.Context(), config{slice: 150 * time.Millisecond, rounds: 1, locks: 64}, &out)
	require.NoError(t, err)
	t.Log(out.String())
	most := 4
	if runtime.GOMAXPROCS(0) < 4 {
		most = 2
	}
	require.Zero(t, costs[states[0]].connections)
	require.LessOrEqual(t, costs[states[1]].connections, most)
	require.LessOrEqual(t, costs[states[2]].connections, most+1)
	require.Greater(t, costs[states[2]].connections, 1)
	require.NotEmpty(t, costs[states[3]].took)
	require.Zero(t, costs[states[4]].connections)
}
