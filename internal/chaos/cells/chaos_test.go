package cells

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

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) {
	if Role() {
		if err := serve(os.Stdin, os.Stdout, nil); err != nil {
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
	return progress.String(), err
}

// Every fault but a split brain, which takes longest, befalls some deployment, and every deployment some faults: all of
// them in full, by the command.
func TestEachFaultOnceAndEachDeploymentOnce(t *testing.T) {
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

// A client that breaks a rule is found, whichever it is.
func TestAClientThatBreaksTheRulesIsFound(t *testing.T) {
	redistest.NeedServer(t)
	t.Parallel()
	for broken, primitive := range map[string]string{"late": "fair", "steal": "reentrant", "newid": "stock",
		"uncounted": "counter", "twice": "counting", "part": "cart"} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			said, err := run(t, "-deployments", one, "-faults", "none", "-primitives", primitive, "-duration", "2s", "-quiet",
				"0", "-break", broken)
			require.ErrorContains(t, err, "1 of 1 cells failed")
			require.Contains(t, said, "FAILED: "+primitive)
		})
	}
}

func TestARunIsResumedAndReported(t *testing.T) {
	redistest.NeedServer(t)
	t.Parallel()
	dir := t.TempDir()
	file, markdown, page := filepath.Join(dir, "cells.jsonl"), filepath.Join(dir, "new", "chaos.md"), filepath.Join(dir,
		"chaos.html")
	args := []string{"-deployments", one, "-primitives", "fenced,counter", "-duration", "100ms", "-quiet", "0", "-resume",
		file, "-markdown", markdown, "-html", page}
	said, err := run(t, append(args, "-faults", "reset")...)
	require.NoError(t, err)
	require.Contains(t, said, "one node: reset")
	said, err = run(t, append(args, "-faults", "none,reset")...)
	require.NoError(t, err)
	require.Contains(t, said, "one node: none")
	require.NotContains(t, said, "one node: reset", "it was run before")
	for name, want := range map[string]string{markdown: "2 combinations of a fault", page: "2 combinations of a fault",
		details(markdown): "all connections of a client are reset"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Contains(t, string(text), want)
	}
	text, err := os.ReadFile(markdown)
	require.NoError(t, err)
	require.Contains(t, string(text), "| reset | ok |")
	require.Contains(t, string(text), "## one node\n")
}

func TestACommandThatCannotBeIsRefused(t *testing.T) {
	for want, args := range map[string]string{
		`no deployment "nowhere"`: "-deployments nowhere",
		`no fault "bad luck"`:     "-faults=bad luck",
		`no primitive "mutex"`:    "-primitives mutex",
		"must be positive":        "-duration 0s",
		`nothing is broken by`:    "-break heart",
		"unexpected":              "everything",
		"flag provided but not ":  "-loud",
	} {
		var said bytes.Buffer
		list := strings.Fields(args)
		if strings.Contains(args, "=") {
			list = []string{args}
		}
		require.ErrorContains(t, command(context.Background(), list, &said, &said), want)
	}
}
