package election

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Run campaigns, and calls fn each time it is elected, until fn has done its work or ctx ends. The ctx of fn is that of
// the leadership: it ends when the leadership is lost, and with Run's ctx. fn should return then. To finish what it has
// begun after Run's ctx has ended, fn works under l.Context(context.WithoutCancel(ctx)), which ends only with the
// leadership.
//
//   - fn returns, and the leadership lasts: Run resigns, and returns fn's error, joined with that of Resign.
//   - The leadership is lost, or reaches MaxHold: when fn has returned, Run campaigns again. What fn returned is
//     dropped, because it is usually the end of its ctx. fn never runs twice at a time.
//   - The client is closed: the error is ErrClosed, when fn has returned.
//   - ctx ends while Run campaigns: the error is that of [Election.Campaign].
//   - The server cannot be asked: Run tries again for as long as ctx lasts. Any other error of Campaign is returned.
//   - fn panics: Run resigns, and the panic goes on.
func (e *Election) Run(ctx context.Context, value string, fn func(ctx context.Context, l *Leadership) error) error {
	for failed := 0; ; {
		l, err := e.Campaign(ctx, value)
		switch ended := errs.Ended(ctx); {
		case err == nil && ended != nil: // as it was elected
			_ = l.Resign(ctx) // if it fails it goes on by itself
			return e.c.session.Error(fmt.Errorf("%q: %w: %w", e.name, errs.ErrNotAcquired, ended))
		case err == nil:
			failed = 0
			if lost, err := l.serve(ctx, fn); !lost {
				return err
			}
		case !script.NotAnswered(err) && !errors.Is(err, errs.ErrNotReplicated), !script.Pause(ctx, script.Backoff(failed)):
			return err
		default:
			failed++
		}
	}
}

// serve runs fn for one leadership, and reports whether the leadership ended before fn did.
func (l *Leadership) serve(ctx context.Context,
	fn func(ctx context.Context, l *Leadership) error) (lost bool, err error) {
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
