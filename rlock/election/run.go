package election

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Run campaigns, and calls fn each time it is elected, until fn returns during its leadership or ctx ends. The ctx of
// fn is the context of the leadership: it ends when the leadership is lost, and with Run's ctx. fn should then return.
// To finish its work after Run's ctx has ended, fn uses l.Context(context.WithoutCancel(ctx)), which ends only with the
// leadership.
//
//   - fn returns, and the leadership lasts: Run resigns, and returns fn's error, joined with the error of Resign.
//   - The leadership is lost, or reaches MaxHold: Run campaigns again when fn has returned. The result of fn is
//     dropped, because it is usually the end of its ctx. fn never runs twice at a time.
//   - The client is closed: the error is ErrClosed, when fn has returned.
//   - ctx ends while Run campaigns: the error is the error of [Election.Campaign].
//   - The server does not answer: Run tries again for as long as ctx lasts. Any other error of Campaign is returned.
//   - fn panics: Run resigns, and the panic goes on.
func (e *Election) Run(ctx context.Context, value string,
	fn func(ctx context.Context, leadership *Leadership) error) error {
	for failures := 0; ; {
		leadership, err := e.Campaign(ctx, value)
		switch ended := errs.Ended(ctx); {
		case err == nil && ended != nil: // ctx ended during the election
			_ = leadership.Resign(ctx) // a failed release is retried in the background
			return e.client.session.Error(fmt.Errorf("%q: %w: %w", e.name, errs.ErrNotAcquired, ended))
		case err == nil:
			failures = 0
			if lost, err := leadership.serve(ctx, fn); !lost {
				return err
			}
		case !script.NotAnswered(err) && !errors.Is(err, errs.ErrNotReplicated),
			!script.Pause(ctx, script.Backoff(failures)):
			return err
		default:
			failures++
		}
	}
}

// serve runs fn for one leadership, and reports whether the leadership ended before fn did.
func (l *Leadership) serve(ctx context.Context,
	fn func(ctx context.Context, leadership *Leadership) error) (lost bool, err error) {
	defer func() {
		ended := l.Err()
		resigned := l.Resign(ctx)
		switch {
		case errors.Is(resigned, errs.ErrLost), ended != nil && !errors.Is(ended, errs.ErrReleased):
			lost, err = true, nil
		case resigned != nil:
			err = errors.Join(err, resigned)
		}
	}()
	return false, fn(l.Context(ctx), l)
}
