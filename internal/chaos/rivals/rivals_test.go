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

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/chaos/cells"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) {
	if ok, err := role(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	} else if ok {
		return
	}
	if cells.Role() {
		cells.Contest(libraries, claims)
	}
	os.Exit(m.Run())
}

func play(t *testing.T, args ...string) (said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var out, progress bytes.Buffer
	err := cells.Play(ctx, libraries, claims, args, &out, &progress)
	t.Logf("%v\n%s", args, &progress)
	require.NoError(t, err)
	return progress.String()
}

// A part of the contest works: two libraries, a fault of a client and one of a server. What comes of it is no matter of
// tests but of the page.
func TestRivalsContend(t *testing.T) {
	redistest.NeedServer(t)
	redistest.SkipShort(t)
	dir := t.TempDir()
	page := filepath.Join(dir, "new", "rivals.md")
	said := play(t, "-only", "redsync/holder-killed,etcd/server-stalls", "-duration", "100ms", "-quiet", "100ms", "-edn",
		dir, "-markdown", page,
		"-resume", filepath.Join(dir, "rivals.jsonl"))
	require.NotContains(t, said, "not run")
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, want := range []string{"| redsync/holder-killed | 1 |", "| etcd/server-stalls | 1 |",
		"## What documents claim"} {
		require.Contains(t, string(text), want)
	}
	for _, name := range []string{"redsync-holder-killed.edn", "etcd-server-stalls.edn"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Contains(t, string(text), ":type :invoke, :f :acquire")
		require.Equal(t, porcupine.Ok, asMutex(t, string(text)), name)
	}
}

// asMutex judges a history as Knossos does with its model of a mutex.
func asMutex(t *testing.T, edn string) porcupine.CheckResult {
	model := porcupine.Model{
		Init: func() any { return false },
		Step: func(state, input, _ any) (bool, any) {
			acquires := input.(string) == "acquire"
			return state.(bool) != acquires, acquires
		},
	}
	var history []porcupine.Operation
	open := map[int]porcupine.Operation{}
	for line := range strings.Lines(edn) {
		var index, process int
		var typ, f string
		var at int64
		_, err := fmt.Sscanf(strings.ReplaceAll(line, ",", ""),
			"{:index %d :process %d :type :%s :f :%s :value nil :time %d", &index, &process, &typ, &f, &at)
		require.NoError(t, err, line)
		if typ == "invoke" {
			require.NotContains(t, open, process, "a process has one call at a time")
			open[process] = porcupine.Operation{ClientId: process, Input: f, Call: at}
			continue
		}
		o := open[process]
		delete(open, process)
		if o.Return = at; typ == "info" {
			if f == "acquire" {
				continue // it may have happened or not: here none did
			}
			o.Return = 1<<63 - 1
		}
		if typ != "fail" {
			history = append(history, o)
		}
	}
	return porcupine.CheckOperationsTimeout(model, history, time.Minute)
}
