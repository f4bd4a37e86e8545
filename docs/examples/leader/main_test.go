package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestEverySuccessorComesLongBeforeTheLease(t *testing.T) {
	redistest.SkipShort(t)
	bin := filepath.Join(t.TempDir(), "leader")
	out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	run := func(t *testing.T, args ...string) {
		cmd := exec.Command(bin, args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		require.NoError(t, err, string(out))
		require.Regexp(t, `(?s)leads; .*SIGTERM\): candidate \d follows.*SIGKILL\): candidate \d follows.*`+
			`SIGSTOP\): candidate \d follows.*finds that it leads no more.* pieces of work done`, string(out))
	}
	t.Run("embedded", func(t *testing.T) { t.Parallel(); run(t) })
	t.Run("redis", func(t *testing.T) { t.Parallel(); run(t, "-redis", redistest.Start(t).Addr()) })
}
