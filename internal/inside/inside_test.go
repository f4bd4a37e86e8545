package inside_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/inside"
)

func TestAClientIsLookedIntoAsItsPackageSays(t *testing.T) {
	type client struct{ kept string }
	inside.Reveal(func(c *client) *string { return &c.kept })
	inside.Reveal(func(c *client) int { return len(c.kept) })
	require.Equal(t, "x", *inside.Of[*string](&client{"x"}))
	require.Equal(t, 1, inside.Of[int](&client{"x"}), "in several ways")
}

func names(t *inside.Troubles) (all []string) {
	for _, x := range t.Last() {
		all = append(all, fmt.Sprint(x.What, " ", x.Name, " ", x.Count))
	}
	return all
}

func TestWhatAProgramReckonsWithIsNoTrouble(t *testing.T) {
	var all inside.Troubles
	for _, err := range []error{nil, errs.ErrNotAcquired, context.Canceled, fmt.Errorf("x: %w", context.DeadlineExceeded),
		errs.ErrClosed,
		errors.Join(errs.ErrUnavailable, context.Canceled)} {
		all.Add("acquire", "a", err)
	}
	require.Empty(t, all.Last())
	all.Add("acquire", "a", errors.Join(errs.ErrNotAcquired, errs.ErrLost))
	require.Len(t, all.Last(), 1)
}

func TestTroublesAreBoundedAndTheNewestComesFirst(t *testing.T) {
	var all inside.Troubles
	all.Add("renew", "cause", errs.ErrUnavailable)
	for i := range 10_000 {
		all.Add("hold", fmt.Sprint("l", i), errs.ErrLost)
	}
	require.Equal(t, []string{"hold l9999 1", "hold l9998 1", "hold l9997 1", "hold l9996 1", "hold l9995 1",
		"hold l9994 1", "hold l9993 1",
		"hold l9992 1", "renew cause 1"}, names(&all))
	for range 3 {
		all.Add("renew", "cause", fmt.Errorf("again: %w", errs.ErrUnavailable))
	}
	require.Equal(t, "renew cause 4", names(&all)[0], "the same again is the same, with its newest error")
	require.ErrorContains(t, all.Last()[0].Err, "again")
	for i := range 100 {
		all.Add(fmt.Sprint("w", i), "x", errs.ErrDenied)
	}
	require.Len(t, all.Last(), 16)
	require.Equal(t, "w99 x 1", names(&all)[0])
}

func TestTroublesMayComeFromAnywhere(t *testing.T) {
	var all inside.Troubles
	var done sync.WaitGroup
	for i := range 4 {
		done.Go(func() {
			for range 100 {
				all.Add("hold", fmt.Sprint(i), errs.ErrLost)
				all.Last()
			}
		})
	}
	done.Wait()
	total := 0
	for _, x := range all.Last() {
		total += x.Count
	}
	require.Equal(t, 400, total)
}
