package rights_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/rights/profiles"
)

// finding is one line of `redlatch check --json`.
type finding struct{ Level, What, Says string }

// The command is a module of its own, so the test builds it and runs it as a user does.
func TestCheck_BehindEveryProvider_ReportsItsRefusals(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	redistest.SkipShort(t)
	program := filepath.Join(t.TempDir(), "redlatch")
	out, err := exec.Command("go", "-C", "../../cmd/redlatch", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := map[string]string{"CLIENT TRACKING": "CLIENT TRACKING", "HELLO 3": "RESP3", "WAIT": "WAIT", "INFO": "INFO",
		"CONFIG": "CONFIG GET", "CONFIG GET": "CONFIG GET", "PUBSUB": "PUBSUB NUMSUB", "EVALSHA": "EVALSHA",
		"SUBSCRIBE": "Pub/Sub", "MULTI": "MULTI"}
	for _, p := range profiles.All {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			s.Ask(t, "SCRIPT", "FLUSH") // the server would answer a refused EVALSHA of a script that it knows
			code := 0
			if p.Open != "" || p.Fails["all"] != "" || p.Literal {
				code = 1
			}
			found := check(t, program, p.Before(t, s), code)
			if p.Open != "" {
				require.Equal(t, "problem", found["connection"].Level)
				return
			}
			for _, r := range p.Refuses {
				line := lines[r.Command]
				if line == "" || line == "CLIENT TRACKING" && found["RESP3"].Level != "" {
					continue
				}
				require.Contains(t, []string{"note", "warning"}, found[line].Level, "%s: %v", r.Command, found)
			}
			if p.OneSlot != "" {
				require.Equal(t, "note", found["keys of several slots"].Level, found)
			}
			for _, feature := range []string{"locks", "read-write locks", "semaphores", "counters", "rate limits", "stocks",
				"red packets", "elections"} {
				if p.Literal { // some scripts do not name their keys in their calls
					require.True(t, found[feature].Level == "ok" || bytes.Contains([]byte(found[feature].Says),
						[]byte("bad lua script")), "%s: %v", feature, found[feature])
					continue
				}
				require.Equal(t, p.Fails["all"] == "", found[feature].Level == "ok", "%s: %v", feature, found[feature])
			}
		})
	}
}

// check runs `redlatch check` and returns its findings by their subject.
func check(t *testing.T, program string, s *redistest.Server, code int) map[string]finding {
	t.Helper()
	cmd := exec.Command(program, "--redis", "redis://"+s.Addr(), "--call-timeout=5s", "check", "--json",
		"--call-timeout=4s")
	var messages bytes.Buffer
	cmd.Stderr = &messages
	out, err := cmd.Output()
	exit := 0
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		exit = failed.ExitCode()
	} else {
		require.NoError(t, err)
	}
	require.Equal(t, code, exit, "%s%s", out, &messages)
	var all []finding
	require.NoError(t, json.Unmarshal(out, &all), &messages)
	found := map[string]finding{}
	for _, f := range all {
		found[f.What] = f
	}
	return found
}
