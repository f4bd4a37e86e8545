package load

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// Usage is how often a server has run each command so far, those that scripts run included.
type Usage map[string]int64

// ServerUsage asks INFO. Commands that scripts run are counted like those of clients, but not by an embedded server.
func ServerUsage(ctx context.Context, c rueidis.Client) (Usage, error) {
	u := Usage{}
	text, err := c.Do(ctx, c.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		return u, fmt.Errorf("INFO commandstats: %w", err)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls="); ok {
			n, _, _ := strings.Cut(rest, ",")
			u[name], err = strconv.ParseInt(n, 10, 64)
			if err != nil {
				return u, fmt.Errorf("INFO commandstats: %q: %w", line, err)
			}
		}
	}
	return u, nil
}

// Since is the number of calls from before to u of all commands except those named; the measuring itself (INFO) is
// never counted.
func (u Usage) Since(before Usage, except ...string) int64 {
	var sum int64
	for name, n := range u {
		if name != "info" && !slices.Contains(except, name) {
			sum += n - before[name]
		}
	}
	return sum
}

// scriptCalls are the commands that run a script.
var scriptCalls = []string{"eval", "evalsha", "fcall", "eval_ro", "evalsha_ro"}

// Scripts is the number of script calls from before to u: the round trips that a lock made of scripts needs.
func (u Usage) Scripts(before Usage) int64 {
	var sum int64
	for _, name := range scriptCalls {
		sum += u[name] - before[name]
	}
	return sum
}
