package load

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Usage is what a server has done so far.
type Usage struct {
	Calls map[string]int64 // by command, those that scripts run included
	Times map[string]int64 // by command, µs; those of a script are the script's, too
	CPU   float64          // seconds
}

// ServerUsage asks INFO. Commands that scripts run are counted like those of clients. The error says so if the server
// keeps no command statistics, as embedded ones do not.
func ServerUsage(ctx context.Context, c rueidis.Client) (Usage, error) {
	u := Usage{Calls: map[string]int64{}, Times: map[string]int64{}}
	text, err := c.Do(ctx, c.B().Info().Section("commandstats", "cpu").Build()).ToString()
	if err != nil {
		return u, fmt.Errorf("INFO commandstats: %w", err)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls="); ok {
			n, rest, _ := strings.Cut(rest, ",usec=")
			us, _, _ := strings.Cut(rest, ",")
			u.Calls[name], err = strconv.ParseInt(n, 10, 64)
			if err == nil {
				u.Times[name], err = strconv.ParseInt(us, 10, 64)
			}
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
		if name != "info" && !contains(except, name) {
			sum += n - before.Calls[name]
		}
	}
	return sum
}

// Minus returns what was done from before to u.
func (u Usage) Minus(before Usage) Usage { return u.combine(before, -1) }

// Plus returns what was done in u and in o.
func (u Usage) Plus(o Usage) Usage { return u.combine(o, 1) }

func (u Usage) combine(o Usage, sign int64) Usage {
	sum := Usage{Calls: map[string]int64{}, Times: map[string]int64{}, CPU: u.CPU + float64(sign)*o.CPU}
	for _, x := range []struct {
		of   Usage
		sign int64
	}{{u, 1}, {o, sign}} {
		for name, n := range x.of.Calls {
			sum.Calls[name] += x.sign * n
		}
		for name, n := range x.of.Times {
			sum.Times[name] += x.sign * n
		}
	}
	return sum
}

// scriptCalls are the commands that run a script.
var scriptCalls = []string{"eval", "evalsha", "fcall", "eval_ro", "evalsha_ro"}

// ScriptTime is how long the server was in scripts from before to u.
func (u Usage) ScriptTime(before Usage) time.Duration {
	var us int64
	for _, name := range scriptCalls {
		us += u.Times[name] - before.Times[name]
	}
	return time.Duration(us) * time.Microsecond
}

// Scripts is the number of script calls from before to u: the round trips that a lock made of scripts needs.
func (u Usage) Scripts(before Usage) int64 {
	var sum int64
	for _, name := range scriptCalls {
		sum += u.Calls[name] - before.Calls[name]
	}
	return sum
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
