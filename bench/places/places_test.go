package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/results"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Every place is set up, works and is written; in a short run those that are quickly there.
func TestEveryPlaceIsMeasured(t *testing.T) {
	redistest.NeedServer(t)
	t.Parallel()
	measured := len(places)
	args := []string{"-rounds", "2", "-turn", "20ms", "-out", filepath.Join(t.TempDir(), "made", "places.csv")}
	if testing.Short() && !redistest.Long() {
		measured = 5
		args = append(args, "-only", "TLS,AUTH and ACL,MinReplicas 1,1 ms away")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var table, progress bytes.Buffer
	err := command(ctx, args, &table, &progress)
	t.Logf("%s\n%s", &progress, &table)
	require.NoError(t, err)
	w, err := os.Open(args[5])
	require.NoError(t, err)
	defer w.Close()
	f, err := results.Read(w)
	require.NoError(t, err)
	require.Len(t, f.Rows, 2*2*measured)
	for _, r := range f.Rows {
		require.Zero(t, r.Errors, "%s: %s", r.Peer, r.Note)
		require.Positive(t, r.Ops, r.Peer)
	}
	require.Equal(t, 2*measured+1, strings.Count(table.String(), "\n"))
}

func TestACommandThatCannotBeIsRefused(t *testing.T) {
	for want, args := range map[string]string{
		`no place "nowhere"`:     "-only nowhere",
		"must be positive":       "-rounds 0",
		"unexpected":             "everything",
		"flag provided but not ": "-loud",
	} {
		var said bytes.Buffer
		require.ErrorContains(t, command(context.Background(), strings.Fields(args), &said, &said), want)
	}
}
