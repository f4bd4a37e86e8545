package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/results"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Every kind is still measured, leaves nothing on the server, and is written.
func TestEveryKindIsMeasuredAndLeavesNothing(t *testing.T) {
	redistest.NeedServer(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	defer func(of int) { kinds[3].processes = of }(kinds[3].processes)
	kinds[3].processes = 3
	file := filepath.Join(t.TempDir(), "made", "scale.csv")
	var table, progress bytes.Buffer
	err := command(ctx, []string{"-scale", "0.002", "-watch", "100ms", "-out", file}, &table, &progress)
	t.Logf("%s\n%s", &progress, &table)
	require.NoError(t, err)
	w, err := os.Open(file)
	require.NoError(t, err)
	defer w.Close()
	f, err := results.Read(w)
	require.NoError(t, err)
	require.Len(t, f.Rows, len(kinds))
	require.Equal(t, len(kinds)+1, strings.Count(table.String(), "\n"))
	for _, r := range f.Rows {
		require.Positive(t, r.Commands, r.Peer)
		for _, c := range columns {
			if v, ok := r.Value(c.key); c.key == "left_keys" {
				require.True(t, ok, r.Peer)
				require.Zero(t, v, r.Peer)
			}
		}
	}
}

func TestACommandThatCannotBeIsRefused(t *testing.T) {
	for want, args := range map[string]string{
		`no kind "nothing"`:      "-only nothing",
		"scale must be":          "-scale 2",
		"unexpected":             "everything",
		"flag provided but not ": "-loud",
	} {
		var said bytes.Buffer
		require.ErrorContains(t, command(context.Background(), strings.Fields(args), &said, &said), want)
	}
}
