package errs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
)

func names(t *errs.RecentErrors) (all []string) {
	for _, x := range t.Last() {
		all = append(all, fmt.Sprint(x.What, " ", x.Name, " ", x.Count))
	}
	return all
}

func TestRecentErrors_ExpectedErrors_AreNotKept(t *testing.T) {
	var all errs.RecentErrors
	for _, err := range []error{nil, errs.ErrNotAcquired, context.Canceled, fmt.Errorf("x: %w", context.DeadlineExceeded),
		errs.ErrClosed,
		errors.Join(errs.ErrUnavailable, context.Canceled)} {
		all.Add("acquire", "a", err)
	}
	require.Empty(t, all.Last())
	all.Add("acquire", "a", errors.Join(errs.ErrNotAcquired, errs.ErrLost))
	require.Len(t, all.Last(), 1)
}

func TestRecentErrors_VeryMany_KeepsTheLastEightOfEachAct(t *testing.T) {
	var all errs.RecentErrors
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

func TestRecentErrors_ConcurrentCalls_DoNotRace(t *testing.T) {
	var all errs.RecentErrors
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
