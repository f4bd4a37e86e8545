package load

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// Usage is what a server has done so far.
type Usage struct {
	Calls map[string]int64 // by command, those that scripts run included
	CPU   float64          // seconds
}

// ServerUsage asks INFO. Commands that scripts run are counted like those of clients. The error says so if the server
// keeps no command statistics, as embedded ones do not.
func ServerUsage(ctx context.Context, c rueidis.Client) (Usage, error) {
	u := Usage{Calls: map[string]int64{}}
	text, err := c.Do(ctx, c.B().Info().Section("commandstats", "cpu").Build()).ToString()
	if err != nil {
		return u, fmt.Errorf("INFO commandstats: %w", err)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls="); ok {
			n, _, _ := strings.Cut(rest, ",")
			u.Calls[name], err = strconv.ParseInt(n, 10, 64)
			if err != nil {
				return u, fmt.Errorf("INFO commandstats: %q: %w", line, err)
			}
		}
		for _, field := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if v, ok := strings.CutPrefix(line, field); ok {
				f, err := strconv.ParseFloat(v, 64)
				if err != nil {
					return u, fmt.Errorf("INFO cpu: %q: %w", line, err)
				}
				u.CPU += f
			}
		}
	}
	if len(u.Calls) == 0 {
		return u, fmt.Errorf("INFO commandstats: the server keeps none")
	}
	return u, nil
}

// Since is the number of calls from before to u of all commands except those named; the measuring itself (INFO) is
// never counted.
func (u Usage) Since(before Usage, except ...string) int64 {
	var sum int64
	for name, n := range u.Calls {
		if name != "info" && !slices.Contains(except, name) {
			sum += n - before.Calls[name]
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
		sum += u.Calls[name] - before.Calls[name]
	}
	return sum
}
