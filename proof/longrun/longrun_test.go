package longrun_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/proof/longrun"
)

func length(s string) string { return s }

func TestEach_SecondRun_GoesOnWithTheItemsLeft(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "results")
	var progress strings.Builder
	run := longrun.Run[string]{Name: "words", File: file, Progress: &progress}
	failure := errors.New("broken")
	var called []string
	do := func(_ context.Context, item string) (string, error) {
		called = append(called, item)
		if item == "c" && len(called) == 3 {
			return "", failure
		}
		return strings.ToUpper(item), nil
	}
	results, err := run.Each(t.Context(), []string{"a", "b", "c", "d"}, length, do)
	require.ErrorIs(t, err, failure)
	require.Equal(t, map[string]string{"a": "A", "b": "B"}, results)

	results, err = run.Each(t.Context(), []string{"a", "b", "c", "d"}, length, do)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "A", "b": "B", "c": "C", "d": "D"}, results)
	require.Equal(t, []string{"a", "b", "c", "c", "d"}, called)
	require.Contains(t, progress.String(), "words 4 of 4, d: D")
}

func TestEach_KilledWhileWriting_RunsTheItemAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	require.NoError(t, os.WriteFile(file, []byte("\n{\"Item\":\"a\",\"Result\":\"A\"}\n{\"Item\":\"b\",\"Res"), 0o644))
	run := longrun.Run[string]{File: file}
	var called []string
	do := func(_ context.Context, item string) (string, error) {
		called = append(called, item)
		return "again", nil
	}
	for range 2 {
		results, err := run.Each(t.Context(), []string{"a", "b"}, length, do)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "A", "b": "again"}, results)
	}
	require.Equal(t, []string{"b"}, called)
}

func TestEach_TimeOver_KeepsTheResults(t *testing.T) {
	run := longrun.Run[string]{For: time.Nanosecond}
	_, err := run.Each(t.Context(), []string{"a"}, length, func(context.Context, string) (string, error) {
		t.Error("an item began")
		return "", nil
	})
	require.ErrorIs(t, err, longrun.ErrTime)
}

func TestEach_ContextEnds_StopsWithoutAResult(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	run := longrun.Run[string]{}
	results, err := run.Each(ctx, []string{"a", "b"}, length, func(context.Context, string) (string, error) {
		cancel()
		return "half", nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, results)
}
