package acl

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The line of the document is that of redlatch acl.
func TestLine_Document_ShowsTheSame(t *testing.T) {
	document, err := os.ReadFile("../../docs/access.md")
	require.NoError(t, err)
	require.True(t, slices.Contains(strings.Split(string(document), "\n"), Line("redlatch", "")),
		"write into docs/access.md:\n%s", Line("redlatch", ""))
}

func TestLine_Prefix_BoundsNamesLiterally(t *testing.T) {
	require.Contains(t, Line("u", "a*b:", "limits"), ` ~rc:{a\*b:* ~rc:a\*b:* `)
	require.Contains(t, Line("u", "{t}:", "semaphores"),
		` ~{t}:* ~redlatch_queue:{t}:* ~redlatch_alive:* &redisson_sc:{t}:* `)
	require.NotContains(t, Line("u", "p", "limits"), " ~p*")
	require.Contains(t, Line("u", "", "locks"), " ~* &redisson_lock__channel:* ")
	require.Empty(t, Line("u", "", "locks", "nothing"))
}

func TestLineOn_OneTopology_LeavesOutCommandsOfOthers(t *testing.T) {
	single, sentinel, cluster := LineOn("single", "u", "", "locks"), LineOn("sentinel", "u", "", "locks"),
		LineOn("cluster", "u", "", "locks")
	require.NotContains(t, single, "+ssubscribe")
	require.NotContains(t, single, "shardnumsub")
	require.Contains(t, single, " +subscribe ")
	require.Equal(t, len(single)+len(" +role"), len(sentinel))
	require.Contains(t, sentinel, "+role")
	require.NotContains(t, cluster, " +subscribe ")
	require.NotContains(t, cluster, "|numsub")
	require.Contains(t, cluster, " +ssubscribe ")
}
