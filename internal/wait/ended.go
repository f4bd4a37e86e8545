package wait

import (
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// GaveUp is the error of a wait that ended without a grant.
type GaveUp struct {
	Left    time.Duration // the rest of the holder's lease by the last reply; negative: not known
	Failure error         // of the last request; nil if the server replied "held"
	Cause   error         // of the context's end; nil if Request.Until has passed
}

// Published is the error of a wait that a result ended: a reply, or a message to this waiter. The waiter has no hold,
// and no entry in the server's queue.
type Published struct {
	Result string
	// The result is valid for Lasts from an instant on that is not before Since. Lasts is 0 if the result was made after
	// Since: the caller knows how long a new result lasts.
	Since time.Time
	Lasts time.Duration
}

func (*Published) Error() string { return errs.ErrAnswered.Error() }
func (*Published) Unwrap() error { return errs.ErrAnswered }

// DidGiveUp reports whether err is the *GaveUp of this wait. An error that wraps a *GaveUp is the result of another
// wait, which a try has returned.
func DidGiveUp(err error) bool {
	_, ok := err.(*GaveUp) //nolint:errorlint // see above
	return ok
}

func (g *GaveUp) Error() string {
	return fmt.Sprintf("gave up waiting (failure: %v, cause: %v)", g.Failure, g.Cause)
}

// Final returns an error of a try after which the loop makes no other request: the outcome of the first request is
// unknown, and another request could have the same effect a second time. Ending.Explain returns err itself.
func Final(err error) error { return final{err} }

// final has no Unwrap, so that the loop does not find an error after which it would make another request.
type final struct{ err error }

func (f final) Error() string { return f.err.Error() }

// Ending turns the error of a wait into the error of its caller.
type Ending struct {
	Package string // begins the error's text
	Name    string // of the lock, permit or latch
	// Unsure: a request before the last may have been granted, so an error must not say that nothing has happened.
	Unsure bool
	// TakesBack: the package releases the grant of a request that the caller's context cut short. So a caller whose
	// context ended has only waited, even if a request was under way then.
	TakesBack bool
	// Contended returns the error of a wait that the server refused until the end. With a Failure, only the end of the
	// caller's context is known of the wait.
	Contended func(gaveUp *GaveUp) error
}

// Explain returns the caller's error for an error of Waiters.Wait. Explain(nil) is nil.
func (e Ending) Explain(err error) error {
	var gaveUp *GaveUp
	var finalErr final
	switch {
	case err == nil:
		return nil
	case errors.As(err, &finalErr):
		return fmt.Errorf("%s: %w", e.Package, finalErr.err)
	case !errors.As(err, &gaveUp):
		return fmt.Errorf("%s: %w", e.Package, err)
	case errors.Is(gaveUp.Cause, errs.ErrClosed):
		return fmt.Errorf("%s: %q: %w", e.Package, e.Name, gaveUp.Cause)
	case gaveUp.Failure == nil, e.TakesBack && gaveUp.Cause != nil && errs.IsCut(gaveUp.Failure):
		return e.Contended(gaveUp)
	}
	failure := gaveUp.Failure
	if e.Unsure {
		failure = script.Unsure(failure)
	}
	if gaveUp.Cause == nil {
		return fmt.Errorf("%s: %w", e.Package, failure)
	}
	return fmt.Errorf("%s: %w: %w", e.Package, failure, gaveUp.Cause)
}
