package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/interop"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Late writes come under each lock, and none is lost where our guard checks our token. What is lost under other locks,
// and without a check, is no matter of tests but of the page.
func TestOurGuardLosesNoLateWrite(t *testing.T) {
	redistest.NeedServer(t)
	redistest.SkipShort(t)
	for i, row := range lateRows() {
		t.Run(strings.ReplaceAll(row.String(), "/", "-"), func(t *testing.T) {
			t.Parallel()
			release, err := row.lib.Release(t.Context())
			if err != nil && row.lib.Name == redissonLibrary.Name && os.Getenv(interop.RequireEnv) != "1" {
				t.Skip(err)
			}
			require.NoError(t, err)
			const trials = 2 * moments
			kinds := lateKinds[i%len(lateKinds):][:1]
			if row.ours() {
				kinds = lateKinds
			}
			counts, err := row.try(t.Context(), t, kinds, trials, trials)
			require.NoError(t, err)
			for _, kind := range kinds {
				c := counts[kind]
				t.Logf("%s: %+v", kind, *c)
				require.Equal(t, trials, c.Trials)
				require.Equal(t, trials, c.Taken+c.Refused+c.Withheld)
				if row.ours() {
					require.Zero(t, c.Lost, kind)
				}
			}
			text := latePage([]lateResult{{row: row, release: release, counts: counts}})
			require.Contains(t, text, "| "+row.lib.Name+" | "+checks[row.check]+" | "+what[kinds[0]]+" |")
		})
	}
}
