package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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

// Every kind is still measured, and nothing fails in it; some of them in a usual run.
func TestEveryKindIsMeasured(t *testing.T) {
	redistest.NeedServer(t)
	t.Parallel()
	measured := []string{"reentrant", "read", "semaphore", "latch", "barrier"}
	if redistest.Long() {
		measured = nil
		for _, k := range kinds {
			measured = append(measured, k.name)
		}
	}
	var table, progress bytes.Buffer
	err := command(strings.Fields("-kinds "+strings.Join(measured, ",")+
		" -processes 2 -duration 100ms -window 50ms -warm 10ms -rounds 1 -settle 50ms -delay 200us"), &table, &progress)
	t.Logf("%s\n%s", &progress, &table)
	require.NoError(t, err)
	for _, name := range measured {
		require.Equal(t, 1, strings.Count(table.String(), "\n| "+name+" | "), name)
	}
	for line := range strings.Lines(table.String()) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) == len(header) && cells[0] != "| kind" && cells[0] != "| ---" {
			require.Equal(t, "0 |", cells[len(cells)-1], "errors")
		}
	}
}

func TestTheTableSaysHowTheCostsGrow(t *testing.T) {
	var out bytes.Buffer
	r := row{kind: "fair", processes: 2, acquired: 100, seconds: 2, scripts: 1, commands: 5, scriptCPU: 10, serverCPU: 20,
		worst: -1}
	few, many := r, r
	few.processes, many.processes, many.scripts, many.serverCPU = 10, 200, 3, 25
	write(&out, []row{r, few, many})
	require.Contains(t, out.String(), "| fair | 200 | 50 | 3.00 | 5.0 | 10 us | 25 us | - |")
	require.Contains(t, out.String(),
		"fair from 10 to 200 processes: script calls 3.00x, commands 1.00x, in scripts 1.00x, server CPU 1.25x")
}

func TestACommandThatCannotBeIsRefused(t *testing.T) {
	for want, args := range map[string]string{
		`no kind "nothing"`:      "-kinds nothing",
		`processes: "1"`:         "-processes 1",
		`processes: "x"`:         "-processes 2,x",
		"unexpected":             "everything",
		"must be positive":       "-rounds 0",
		"the duration a window":  "-duration 1ms",
		"flag provided but not ": "-loud",
	} {
		var said bytes.Buffer
		require.ErrorContains(t, command(strings.Fields(args), &said, &said), want)
	}
}
