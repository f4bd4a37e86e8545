// Package errs holds what more than one public package returns or reports: errors, and the type of events.
// Package redlatch exports them, under the same names. They stand here, because the other packages cannot import that
// one, which is made of them.
package errs

import (
	"context"
	"errors"
	"fmt"
)

// There are three families: contended (another owner has it), lost (the caller had it), and unknown (the request was
// sent, and no reply was seen). The rest are refusals, and failures of the environment.
var (
	// ErrNotAcquired: contended. Another owner held it for as long as the caller was willing to wait.
	ErrNotAcquired = Passing("not_acquired", "not acquired")
	// ErrLost: the caller held it and no longer does: the lease ran out, or the key was removed or taken over.
	ErrLost = error(&state{reason: "lost", text: "lost", rank: rankLost})
	// ErrReleased: the handle was released by its owner; nothing is wrong.
	ErrReleased = New("released", "released")
	// ErrMaxHold: held for longer than Options.MaxHold allows.
	ErrMaxHold = error(&state{reason: "max_hold", text: "held longer than MaxHold", rank: rankMaxHold})
	// ErrUnavailable: the server did not run the request, or it was one that only reads; nothing changed there.
	ErrUnavailable = Passing("unavailable", "redis unavailable")
	// ErrUnknownOutcome: the request was sent and its reply was never seen; it may have run, or not, or may run yet.
	ErrUnknownOutcome = Passing("unknown_outcome", "outcome unknown")
	// ErrDenied: the server does not know the user, or the user lacks a right.
	ErrDenied = New("denied", "denied")
	// ErrNotReplicated: too few replicas confirmed a grant in time; it was taken back.
	ErrNotReplicated = Passing("not_replicated", "not replicated")
	// ErrReentry: the owner holds it already, and cannot hold it twice.
	ErrReentry = New("reentry", "held already by this owner")
	// ErrClosed: the client, hub or subscription was closed.
	ErrClosed = New("closed", "closed")
	// ErrInvalidName: a name that cannot be used; nothing was sent.
	ErrInvalidName = New("invalid_name", "invalid name")
	// ErrInvalidOption: an option or argument is outside its bounds; nothing was sent.
	ErrInvalidOption = New("invalid_option", "invalid option")
	// ErrWrongType: the key holds a value of another type; nothing was changed.
	ErrWrongType = New("wrong_type", "key holds another type")
	// ErrOverwritten is ErrLost for a lease whose key was overwritten with another type: it is ErrWrongType, too.
	ErrOverwritten = fmt.Errorf("%w: %w", ErrLost, ErrWrongType)
)

// InvalidOption returns the refusal of one field, with its value and what it must be.
func InvalidOption(field string, value any, must string) error {
	return fmt.Errorf("%w: %s is %v, must be %s", ErrInvalidOption, field, value, must)
}

// InvalidWord refuses a constant that is none of those of its type.
func InvalidWord[T ~string](field string, value T, must string) error {
	return InvalidOption(field, fmt.Sprintf("%.64q", string(value)), must)
}

// Ended returns why ctx ended: its error and, where the caller set one that says more, its cause. errors.Is finds both.
// It returns nil while ctx lasts.
func Ended(ctx context.Context) error {
	err, why := ctx.Err(), context.Cause(ctx)
	if why == nil || errors.Is(why, err) {
		return why
	}
	return fmt.Errorf("%w: %w", err, why)
}

// Cut marks err as the end of a try for no reason but its caller's patience. It says nothing of the server. Cut of nil
// is nil.
func Cut(err error) error {
	if err == nil {
		return nil
	}
	return cut{err}
}

// IsCut reports whether err, or what it wraps, was marked by Cut.
func IsCut(err error) bool {
	var c cut
	return errors.As(err, &c)
}

type cut struct{ error }

func (c cut) Unwrap() error { return c.error }
