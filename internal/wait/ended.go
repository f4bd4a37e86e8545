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

func (g *GaveUp) Error() string {
	return fmt.Sprintf("gave up waiting (failure: %v, cause: %v)", g.Failure, g.Cause)
}

// Final has the error of a try end the wait where the loop would ask again: the outcome of a request is unknown, and
// another could do a second time what the first did. Ending.Explain returns err itself.
func Final(err error) error { return final{err} }

// final unwraps to nothing, so that the loop does not see what asking again might mend.
type final struct{ err error }

func (f final) Error() string { return f.err.Error() }

// Ending is what is to be known of a wait to tell its caller how it ended.
type Ending struct {
	Package string // begins the error's text
	Name    string // of what was waited for
	// Unsure: a try before the last may have taken what was waited for, so an error must not say that nothing has happened.
	Unsure bool
	// Contended is the error of a wait during which the server was asked and said no until its end.
	Contended func(g *GaveUp) error
}

// Explain turns the error of Queue.Wait into what the caller is told; nil is nil.
func (e Ending) Explain(err error) error {
	var g *GaveUp
	var f final
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return fmt.Errorf("%s: %w", e.Package, f.err)
	case !errors.As(err, &g):
		return fmt.Errorf("%s: %w", e.Package, err)
	case errors.Is(g.Cause, errs.ErrClosed):
		return fmt.Errorf("%s: %q: %w", e.Package, e.Name, g.Cause)
	case g.Failure == nil:
		return e.Contended(g)
	}
	failure := g.Failure
	if e.Unsure {
		failure = script.Unsure(failure)
	}
	if g.Cause == nil {
		return fmt.Errorf("%s: %w", e.Package, failure)
	}
	return fmt.Errorf("%s: %w: %w", e.Package, failure, g.Cause)
}
