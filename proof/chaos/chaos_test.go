package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// requireEnv makes a repository without the pinned commit a failure: a clone with all its history has it.
const requireEnv = "REDLATCH_REQUIRE_HISTORY"

func TestMain(m *testing.M) {
	if isClient() {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	unshim()
	os.Exit(code)
}

// run plays what the arguments say, and returns what was said.
func run(t *testing.T, args ...string) (said string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	dir := t.TempDir()
	var out, progress bytes.Buffer
	err = command(ctx, append([]string{"-failures", filepath.Join(dir, "failures")}, args...), &out, &progress)
	t.Logf("%v\n%s%s", args, &progress, &out)
	return progress.String() + out.String(), err
}

// Every fault but a split brain, which takes longest, befalls some deployment, and every deployment some faults: all of
// them in full, by the command.
func TestChaos_EachFaultAndDeploymentOnce_KeepsThePromises(t *testing.T) {
	redistest.NeedServer(t)
	redistest.SkipShort(t)
	t.Parallel()
	redistest.SideBySide(t, map[string]string{
		one:      "client paused,server killed,restart empty,lost reply,doubled request,clock back,eviction,full memory",
		sentinel: "black hole,failover,failover with WAIT,ACL change",
		cluster:  "slot migration,atomic slot migration,failover that forgets,CLIENT KILL,FLUSHALL,lost messages",
		five:     "client killed,server paused,clock forward,lost request,server stalls,delay,reset,SCRIPT FLUSH",
	}, func(t *testing.T, deployment, befalls string) {
		_, err := run(t, "-deployments", deployment, "-faults", befalls, "-duration", "300ms", "-quiet", "200ms")
		require.NoError(t, err)
	})
}

// All primitives in two versions at once: under a fault, and while each client is replaced by one of the other version.
func TestChaos_BesideThePinnedVersion_KeepsThePromises(t *testing.T) {
	redistest.NeedServer(t)
	redistest.SkipShort(t)
	said, err := run(t, "-old", "pinned", "-deployments", one, "-faults", "client killed,rolling deploy", "-duration",
		"300ms", "-quiet", "200ms")
	if errors.Is(err, errNoCommit) && os.Getenv(requireEnv) != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	for _, p := range primitives {
		if !p.quorum {
			require.Contains(t, said, "| "+p.name+" | 2 |", "each version has followed the other in both cells")
		}
	}
}

func TestProgramOf_NoSuchCommit_SaysHowToGetIt(t *testing.T) {
	_, err := programOf(t.Context(), strings.Repeat("0", 40))
	require.ErrorIs(t, err, errNoCommit)
	require.ErrorContains(t, err, "--unshallow")
}

// A client that breaks a rule is found, whichever it is.
func TestChaos_ClientBreaksARule_IsFound(t *testing.T) {
	redistest.NeedServer(t)
	t.Parallel()
	for broken, primitive := range map[string]string{"late": "fair", "steal": "reentrant", "newid": "stock",
		"uncounted": "counter", "twice": "counting"} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			said, err := run(t, "-deployments", one, "-faults", "none", "-primitives", primitive, "-duration", "2s", "-quiet",
				"0", "-break", broken)
			require.ErrorContains(t, err, "1 of 1 cells failed")
			require.Contains(t, said, "FAILED: "+primitive)
		})
	}
}

func TestRun_WithResultsInItsFile_GoesOnAndPrintsAll(t *testing.T) {
	redistest.NeedServer(t)
	t.Parallel()
	args := []string{"-deployments", one, "-primitives", "fenced,counter", "-duration", "100ms", "-quiet", "0", "-state",
		filepath.Join(t.TempDir(), "cells.jsonl")}
	said, err := run(t, append(args, "-faults", "reset")...)
	require.NoError(t, err)
	require.Contains(t, said, "one node: reset")
	said, err = run(t, append(args, "-faults", "none,reset")...)
	require.NoError(t, err)
	require.Contains(t, said, "one node: none")
	require.NotContains(t, said, "one node: reset", "it was run before")
	require.Contains(t, said, "2 combinations of a fault")
	require.Contains(t, said, "| reset | all connections of a client are reset | ok | – | – | – |")
}

func TestSoak_AnyLength_HasAsManyPiecesOnEachDeployment(t *testing.T) {
	for length, want := range map[time.Duration]int{time.Minute: 2, 40 * time.Minute: 2, time.Hour: 4, 8 * time.Hour: 24} {
		require.Equal(t, want, pieces(length, 2), length)
	}
}

func TestSoak_ValuesThatGrow_AreFound(t *testing.T) {
	x := piece{Length: time.Hour, Series: []*series{{},
		{Name: "busy", Unit: "number", Values: []float64{80, 90, 80, 300, 90, 300}},
		{Name: "leak", Unit: "MiB", Values: []float64{8, 8, 8, 8, 9, 9}}}}
	require.Empty(t, (&piece{Length: time.Minute, Series: x.Series}).grown())
	require.Equal(t, []string{"leak grew from 8.0 to 9.0, MiB"}, x.grown())
}

func TestSoak_TwoRuns_AddTheirPieces(t *testing.T) {
	redistest.NeedServer(t)
	t.Parallel()
	args := []string{"-soak", "8s", "-deployments", one, "-state", filepath.Join(t.TempDir(), "soak.jsonl")}
	said, err := run(t, args...)
	require.NoError(t, err)
	require.Contains(t, said, "| piece 001, one node | 0 | ")
	said, err = run(t, append(args, "-primitives", "fair", "-break", "late")...)
	require.ErrorContains(t, err, "1 of 1 pieces failed")
	require.Contains(t, said, "piece 002, one node: FAILED: fair: ")
}

func TestChaos_BadArguments_AreRefused(t *testing.T) {
	for want, args := range map[string]string{
		`no deployment "nowhere"`: "-deployments nowhere",
		"must be positive":        "-duration 0s",
		`nothing is broken by`:    "-break heart",
		"unexpected":              "everything",
		"flag provided but not ":  "-loud",
	} {
		var said bytes.Buffer
		require.ErrorContains(t, command(context.Background(), strings.Fields(args), &said, &said), want)
	}
}
