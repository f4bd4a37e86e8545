//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestOnce_SameKey_PrintsTheStoredOutput(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	count := filepath.Join(t.TempDir(), "count")
	script := "echo run >> " + count + "; echo output; echo token $REDLATCH_TOKEN >&2"
	once := func(more ...string) result {
		return run(t, urlOf(s), append([]string{"once", "report", "today", "--call-timeout=5s"}, more...)...)
	}
	for i := range 3 {
		r := once("--", "sh", "-c", script)
		require.Zero(t, r.code, r.err)
		require.Equal(t, "output\n", r.out)
		require.Equal(t, i == 0, strings.Contains(r.err, "token 1"), r.err)
	}
	text, err := os.ReadFile(count)
	require.NoError(t, err)
	require.Equal(t, "run\n", string(text))
	require.Equal(t, exitData, once("--", "true").code, "another command")
	require.Zero(t, once("--fingerprint", "sh -c "+script, "--", "true").code)
	shown := statuses(t, run(t, urlOf(s), "inspect", "report:today", "--json", "--call-timeout=5s"))
	require.Equal(t, "once", shown[0].Kind)
	require.EqualValues(t, 7, *shown[0].AnswerBytes)
	inspected := run(t, urlOf(s), "inspect", "report:today", "--call-timeout=5s").out
	require.Regexp(t, "7 bytes, fresh for (23h59m|24h)", inspected)
}

func TestOnce_CommandFails_KeepsNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for range 2 {
		r := run(t, urlOf(s), "once", "report", "today", "--call-timeout=5s", "--", "sh", "-c", "echo half; exit 7")
		require.Equal(t, 7, r.code)
		require.Equal(t, "half\n", r.out)
	}
	for _, args := range [][]string{{"once", "a"}, {"once", "a", "b"}, {"once", "a:b", "c", "--", "true"},
		{"once", "a", "b", "--keep", "-1s", "--", "true"}} {
		require.Equal(t, exitUsage, run(t, urlOf(s), args...).code, args)
	}
	require.Equal(t, exitCommand, run(t, urlOf(s), "once", "a", "b", "--", "no-such-command").code)
}
