package errs

import (
	"context"
	"errors"
)

// state is the type of the exported errors: one state of things, and the short name by which metrics call it.
type state struct {
	reason, text string
	rank         int  // which of several counts: the lowest
	passes       bool // by itself: the same call may succeed later
}

func (s *state) Error() string { return s.text }

const (
	// the work may have run at the same time as another's: nothing else that went wrong matters as much
	rankLost     = iota
	rankMaxHold  //
	rankCanceled // the caller has gone: what that interrupted says nothing
	rankState    // all others, the outermost first
	rankTimeout  // the caller's time was over, where nothing says what it waited for
)

// New makes an error value. reason is its name for metrics.
func New(reason, text string) error { return &state{reason: reason, text: text, rank: rankState} }

// Passing is New for a state that passes by itself.
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

// find returns the state that counts among those in err's tree; nil: there is none.
//
//nolint:errorlint // it walks the tree itself: errors.As finds the first state, not the one that counts
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
