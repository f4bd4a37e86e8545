package redlatchtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// docs/testing.md has what follows, word for word.

// Write writes the report, unless another process does. It reports whether it did.
func Write(ctx context.Context, red *redlatch.Client, write func(context.Context) error) (bool, error) {
	err := red.Locks().Reentrant("report").WithWait(5*time.Second).Do(ctx, write)
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return false, nil
	}
	return err == nil, err
}

func TestWrite_HeldElsewhere_WritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		srv.HoldElsewhere("report")
		wrote, err := Write(t.Context(), srv.Open(), nil) // waits 5 s of the bubble's time
		if wrote || err != nil {
			t.Fatal(wrote, err)
		}
	})
}

func TestWrite_LockLost_Stops(t *testing.T) {
	srv := redlatchtest.New(t)
	_, err := Write(t.Context(), srv.Open(), func(ctx context.Context) error {
		srv.Lose("report")
		<-ctx.Done() // moments later: the server tells the holder
		return context.Cause(ctx)
	})
	if !errors.Is(err, redlatch.ErrLost) {
		t.Fatal(err)
	}
}

func TestWrite_RedisDown_GivesUpAndLaterWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		red := srv.Open()
		down := srv.Break(redlatchtest.Fault{Kind: redlatchtest.Unavailable})
		began := time.Now()
		if _, err := Write(t.Context(), red, nil); !errors.Is(err, redlatch.ErrUnavailable) {
			t.Fatal(err)
		}
		t.Log("gave up after", time.Since(began))

		time.AfterFunc(3*time.Second, down.Heal)
		began = time.Now()
		wrote, err := Write(t.Context(), red, func(context.Context) error { return nil })
		if !wrote || err != nil {
			t.Fatal(wrote, err)
		}
		t.Log("wrote after", time.Since(began).Round(time.Second))
	})
}
