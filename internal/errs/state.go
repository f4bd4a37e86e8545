package errs

import (
	"context"
	"errors"
)

// state is the type of the exported errors: a state, and its short name for metrics.
type state struct {
	reason, text string
	rank         int  // of several states the lowest rank counts
	passes       bool // the same call may succeed later
}

func (s *state) Error() string { return s.text }

const (
	rankLost = iota // counts most, because the work may have run beside another owner's
	rankMaxHold
	rankCanceled // the caller left; errors of the calls that were cut short say nothing
	rankState    // all others, the outermost first
	rankTimeout  // the caller's time ended, and no other state says why it had to wait
)

// New returns a new error value. reason is its name for metrics.
func New(reason, text string) error { return &state{reason: reason, text: text, rank: rankState} }

// Passing is New for a state in which the same call may succeed later.
func Passing(reason, text string) error {
	return &state{reason: reason, text: text, rank: rankState, passes: true}
}

var (
	canceled = &state{reason: "canceled", rank: rankCanceled}
	timeout  = &state{reason: "timeout", rank: rankTimeout}
)

// Reason is what redlatch.Reason returns.
func Reason(err error) string {
	if err == nil {
		return "ok"
	}
	if s := find(err); s != nil {
		return s.reason
	}
	return "other"
}

// Retryable is what redlatch.Retryable returns.
func Retryable(err error) bool {
	s := find(err)
	var o *once
	return s != nil && s.passes && !(errors.Is(s, ErrUnknownOutcome) && errors.As(err, &o))
}

// find returns the state with the lowest rank in err's tree, or nil if the tree has no state.
//
//nolint:errorlint // errors.As finds the first state, not that with the lowest rank
func find(err error) (best *state) {
	var s *state
	switch err {
	case nil:
		return nil
	case context.Canceled:
		return canceled
	case context.DeadlineExceeded:
		return timeout
	}
	if s, _ = err.(*state); s != nil {
		return s
	}
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		return find(x.Unwrap())
	case interface{ Unwrap() []error }:
		for _, e := range x.Unwrap() {
			if s = find(e); s != nil && (best == nil || s.rank < best.rank) {
				best = s
			}
		}
	}
	return best
}

// Once marks an ErrUnknownOutcome of a call that must not be repeated, because both runs would count.
func Once(err error) error {
	if !errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	return &once{err}
}

type once struct{ error }

func (o *once) Unwrap() error { return o.error }
