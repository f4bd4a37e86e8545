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
	Left    time.Duration // of the holder's lease when last heard of, negative if unknown
	Failure error         // why the server could not be asked when it was last tried; nil if it said "held"
	Cause   error         // the context's; nil if the time was up
}

// DidGiveUp reports whether err is the *GaveUp of a wait. One that wraps it is another wait's, and an answer.
func DidGiveUp(err error) bool {
	_, ok := err.(*GaveUp) //nolint:errorlint // see above
	return ok
}

func (g *GaveUp) Error() string {
	return fmt.Sprintf("gave up waiting (failure: %v, cause: %v)", g.Failure, g.Cause)
}

// Final returns an error of a try that ends the wait where the loop would ask again: the outcome of a request is
// unknown, and another request could do a second time what the first did. Ending.Explain returns err itself.
func Final(err error) error { return final{err} }

// final unwraps to nothing, so that the loop does not see an error after which it would ask again.
type final struct{ err error }

func (f final) Error() string { return f.err.Error() }

// Ending is what must be known of a wait to tell its caller how it ended.
type Ending struct {
	Package string // begins the error's text
	Name    string // of what was waited for
	// Unsure: a try before the last may have taken what was waited for, so an error must not say that nothing has
	// happened.
	Unsure bool
	// TakesBack: what a try that was cut short may have taken is taken back without the caller. So whose context ended has
	// only waited, whether or not a request was under way then.
	TakesBack bool
	// Contended returns the error of a wait during which the server refused until the end. With a Failure it is that of a
	// wait of which nothing is known but that its caller's context ended.
	Contended func(gaveUp *GaveUp) error
}

// Explain returns what the caller gets for an error of Waiters.Wait; nil is nil.
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
