package rcounter

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// write makes a call that writes, and reports it. Without an observer no clock is read.
func (k *Counter) write(ctx context.Context, call func() error) error {
	if k.c.calls.Observer == nil {
		return call()
	}
	began := time.Now()
	err := call()
	k.c.calls.Tell(ctx, errs.Event{Kind: errs.EventWritten, Name: k.name, Took: time.Since(began), Err: edged(err)})
	return err
}
