package script

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
)

// inline makes the call on the caller's goroutine.
//
// Hooks around the client see its context, and may derive others that outlast the call. So it is one of package
// context, made anew for each call and never used again, though that costs a timer
// (TestInPlace_HookDerivesContexts_TheyEndWithTheCall).
func (r *Runner) inline(ctx context.Context, c Call, limit time.Time, last *lastAnswer,
	dials int64) (rueidis.RedisMessage, error) {
	bounded, done := context.WithDeadline(ctx, limit)
	res, _ := r.exec(bounded, c)
	done()
	m, err := res.ToMessage()
	switch {
	case err == nil:
		r.answered(last, dials)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		if why := errs.Cut(errs.Ended(ctx)); why != nil {
			return m, errInFlight{why}
		}
		return m, errInFlight{r.late}
	case classify(err) == answered:
		r.answered(last, dials)
	}
	return m, err
}
