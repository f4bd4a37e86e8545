package session

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// CloseTime is for how long a Close waits whose ctx has no end. A hold that was never released, as after a return before its
// Unlock, would otherwise keep a deferred Close(context.Background()) waiting for ever.
const CloseTime = 10 * time.Second

// Bounded is the ctx of a Close.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() != nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, CloseTime)
}

// Leftovers is the error of a Close whose ctx ended first: what is left to its lease, nil if nothing is. pending are the names of
// releases that were not confirmed.
func Leftovers(ctx context.Context, names, pending []string) error {
	var problems []string
	if len(names) > 0 {
		problems = append(problems, fmt.Sprintf("%d still held, left to their leases: %s", len(names), shorten(names)))
	}
	if len(pending) > 0 {
		problems = append(problems, fmt.Sprintf("%d unconfirmed releases given up, left to their leases: %s", len(pending), shorten(pending)))
	}
	switch why := context.Cause(ctx); {
	case len(problems) == 0:
		return nil
	case why == nil:
		return fmt.Errorf("close: %s", strings.Join(problems, "; "))
	default:
		return fmt.Errorf("close: %s: %w", strings.Join(problems, "; "), why)
	}
}

// shorten keeps an error readable.
func shorten(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}
