//go:build unix && !solaris && !aix

package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/databases"
)

// The test program is also the holder that is stopped: see spawn.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-holder") {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestPaused_LostUpdates(t *testing.T) {
	redistest.NeedServer(t)
	guards := slices.Clone(kinds)
	if os.Getenv(redistest.RequireEnv) != "1" {
		for prefix, server := range map[string]*databases.Server{
			"postgresql": databases.PostgreSQL, "mariadb": databases.MariaDB,
		} {
			if _, err := server.Create(); err != nil {
				t.Logf("without %s: %v", prefix, err)
				guards = slices.DeleteFunc(guards, func(g string) bool { return strings.HasPrefix(g, prefix) })
			}
		}
	}
	counts, err := try(t.Context(), guards, 16, 16, 200*time.Millisecond)
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, table(&out, guards, counts))
	t.Log("\n" + out.String())
	for _, g := range guards {
		// Each of 16 is in one of four moments. The late write comes between the reading and the writing of the other holder
		// in 4, and after both in 4 more.
		require.GreaterOrEqual(t, counts[g+"-"+none].Lost, 8, "%s: without a guard updates are lost", g)
		require.GreaterOrEqual(t, counts[g+"-"+write].Lost, 4, "%s: and with a check of the writing alone", g)
		require.GreaterOrEqual(t, counts[g+"-"+guard].Refused, 8, g)
		require.Zero(t, counts[g+"-"+guard].Lost, g)
		for _, way := range ways {
			require.Equal(t, 16, counts[g+"-"+way].Trials)
		}
	}
}
