package rig

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// Writes is how many changes the server has made.
func Writes(t testing.TB, c rueidis.Client) int {
	t.Helper()
	for l := range strings.Lines(Text(t, c, "INFO", "persistence")) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(l), "rdb_changes_since_last_save:"); ok {
			v, err := strconv.Atoi(n)
			require.NoError(t, err)
			return v
		}
	}
	t.Fatal("no rdb_changes_since_last_save")
	return 0
}
