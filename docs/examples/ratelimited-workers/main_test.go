package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

const story = `(?s)^6 workers share 4 slots to a service that breaks when more call it at once
all at work: +\d+ calls/s
worker \d is killed, holding [1-4] of the slots for up to 5s
.*its slots are back after (\d+\.\d) s
the others at work: +\d+ calls/s
the service never had more than 4 calls at once; 0 were turned away
$`

func TestTheServiceIsNeverOverrunAndThroughputRecoversAfterAKill(t *testing.T) {
	redistest.SkipShort(t)
	bin := filepath.Join(t.TempDir(), "ratelimited-workers")
	out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	run := func(t *testing.T, args ...string) {
		t.Parallel()
		cmd := exec.Command(bin, append(args, "-workers", "6", "-slots", "4", "-lease", "5s", "-phase", "1s")...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output() // the program checks itself
		require.NoError(t, err, string(out))
		require.Regexp(t, story, string(out))
	}
	t.Run("embedded", func(t *testing.T) { run(t) })
	t.Run("redis", func(t *testing.T) { run(t, "-redis", redistest.Start(t).Addr()) })
}

func TestAServiceThatNobodyCallsIsNoSuccess(t *testing.T) {
	require.NoError(t, verdict(4, 4, 0, 100, 60))
	require.Error(t, verdict(4, 0, 0, 0, 0), "no worker ever called")
	require.Error(t, verdict(4, 4, 0, 100, 0))
	require.Error(t, verdict(4, 4, 0, 100, 40))
	require.Error(t, verdict(4, 5, 0, 100, 100))
	require.Error(t, verdict(4, 4, 1, 100, 100))
}

func TestNonsenseIsRefused(t *testing.T) {
	out, err := exec.Command("go", "run", ".", "-slots", "0").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "-slots is 0")
}
