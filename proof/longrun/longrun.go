// Package longrun runs work that takes too long for one sitting: a list of items, each with a result that is kept in a
// file. A later run of the same list goes on with the items that have no result yet. Faults, seeds and chaos use it.
package longrun

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Run is a list of items under one file of results.
type Run[R any] struct {
	Name     string        // begins each progress line
	File     string        // the results, one JSON object a line; "" keeps them in memory only
	For      time.Duration // no item begins later than this; 0 sets no limit
	Progress io.Writer     // nil prints nothing
}

// kept is a line of the file.
type kept[R any] struct {
	Item   string
	Result R
}

// ErrTime says that the time of a run was over before its items. The next run of the same file goes on.
var ErrTime = errors.New("the time is over; run the same command again to go on")

// Each calls do for every item without a result and returns the results of all items. It stops at the first error of
// do; the results so far stay in the file. say describes a result in the progress line.
func (r *Run[R]) Each(ctx context.Context, items []string, say func(R) string,
	do func(ctx context.Context, item string) (R, error),
) (map[string]R, error) {
	results, err := r.read()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for i, item := range items {
		if _, done := results[item]; done {
			continue
		}
		if r.For > 0 && time.Since(began) > r.For {
			return results, ErrTime
		}
		started := time.Now()
		result, err := do(ctx, item)
		if ctx.Err() != nil {
			return results, context.Cause(ctx)
		}
		if err != nil {
			return results, fmt.Errorf("%s: %w", item, err)
		}
		results[item] = result
		if err := r.add(kept[R]{item, result}); err != nil {
			return results, err
		}
		if r.Progress != nil {
			fmt.Fprintf(r.Progress, "%s %d of %d, %s: %s (%.1f s)\n", r.Name, i+1, len(items), item, say(result),
				time.Since(started).Seconds())
		}
	}
	return results, nil
}

func (r *Run[R]) read() (map[string]R, error) {
	results := map[string]R{}
	if r.File == "" {
		return results, nil
	}
	f, err := os.Open(r.File)
	if errors.Is(err, os.ErrNotExist) {
		return results, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var k kept[R]
		// A run that was killed while it wrote leaves part of a line. Its item has no result.
		if json.Unmarshal(lines.Bytes(), &k) == nil {
			results[k.Item] = k.Result
		}
	}
	return results, lines.Err()
}

func (r *Run[R]) add(k kept[R]) error {
	if r.File == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(r.File), 0o755); err != nil {
		return err
	}
	line, err := json.Marshal(k)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(r.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	// The line begins with a newline, so that it does not continue part of a line that a killed run left.
	_, err = f.Write(append([]byte("\n"), line...))
	return errors.Join(err, f.Close())
}
