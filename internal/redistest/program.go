package redistest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// ServerEnv names the program that tests start as their server: a path, or a name to look for in PATH. Without it,
// redis-server.
const ServerEnv = "REDLATCH_SERVER"

// Program returns the path of the program that tests start as their server.
func Program() (string, error) { return exec.LookPath(cmp.Or(os.Getenv(ServerEnv), "redis-server")) }

// VersionOf returns the name and version of the program bin.
func VersionOf(bin string) (name, version string, err error) {
	out, err := exec.Command(bin, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("%s --version: %w", bin, err)
	}
	words := strings.Fields(string(out)) // "Redis server v=7.0.15 sha=…"
	if len(words) < 3 || !strings.HasPrefix(words[2], "v=") {
		return "", "", fmt.Errorf("%s --version: no version in %q", bin, out)
	}
	return words[0], strings.TrimPrefix(words[2], "v="), nil
}
