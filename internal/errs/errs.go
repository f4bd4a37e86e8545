// Package errs holds the errors and the type of events that more than one public package returns or reports.
// Package redlatch exports both under the same names. The other packages cannot import redlatch, because redlatch
// imports them.
package errs

import (
	"context"
	"errors"
	"fmt"
)

// There are three families: contended (another owner has the lock), lost (the caller had the lock), and unknown (the
// request was sent, and no reply was seen). The rest are refusals and failures of the environment.
var (
	// ErrNotAcquired: contended. Another owner held the lock for as long as the caller was willing to wait.
	ErrNotAcquired = Passing("not_acquired", "not acquired")
	// ErrLost: the caller's hold is over: its lease ran out, or its key was removed or taken over.
	ErrLost = error(&state{reason: "lost", text: "lost", rank: rankLost})
	// ErrReleased: the handle was released by its owner; nothing is wrong.
	ErrReleased = New("released", "released")
	// ErrMaxHold: held for longer than Options.MaxHold allows.
	ErrMaxHold = error(&state{reason: "max_hold", text: "held longer than MaxHold", rank: rankMaxHold})
	// ErrUnavailable: the server did not run the request, or the request only reads; nothing changed on the server.
	ErrUnavailable = Passing("unavailable", "redis unavailable")
	// ErrUnknownOutcome: the request was sent and its reply was never seen. The request may have run, or may still run.
	ErrUnknownOutcome = Passing("unknown_outcome", "outcome unknown")
	// ErrDenied: the server does not know the user, or the user lacks a right.
	ErrDenied = New("denied", "denied")
	// ErrNotReplicated: too few replicas confirmed a grant in time; the grant was taken back.
	ErrNotReplicated = Passing("not_replicated", "not replicated")
	// ErrReentry: the owner holds the lock already, and cannot hold it twice.
	ErrReentry = New("reentry", "held already by this owner")
	// ErrClosed: the client, hub or subscription was closed.
	ErrClosed = New("closed", "closed")
	// ErrInvalidName: a name that cannot be used; nothing was sent.
	ErrInvalidName = New("invalid_name", "invalid name")
	// ErrInvalidOption: an option or argument is outside its bounds; nothing was sent.
	ErrInvalidOption = New("invalid_option", "invalid option")
	// ErrWrongType: the key holds a value of another type; nothing was changed.
	ErrWrongType = New("wrong_type", "key holds another type")
	// ErrNewer: a later version wrote the object for later versions only; nothing was changed.
	ErrNewer = New("newer", "written by a newer version")
	// ErrAnswered: the caller of a Once got the stored answer. It is for the Observer; no call returns it.
	ErrAnswered = New("answered", "answered")
	// ErrOverwritten is ErrLost and ErrWrongType: the lease's key was overwritten with another type.
	ErrOverwritten = fmt.Errorf("%w: %w", ErrLost, ErrWrongType)
)

// Errors of counters, sales and red packets.
var (
	// ErrOutOfRange: a value is beyond its bounds; nothing was written.
	ErrOutOfRange = New("out_of_range", "out of range")
	// ErrOverflow: a number does not fit; nothing was written.
	ErrOverflow = New("overflow", "overflow")
	// ErrMismatch: an id was used before with other arguments; nothing was changed.
	ErrMismatch = New("mismatch", "id used before with other arguments")
	// ErrAlreadyOpen: another call has sent the packet; nothing was changed.
	ErrAlreadyOpen = New("already_open", "already open")
	// ErrCorrupt: keys do not agree with each other; nothing is granted any more.
	ErrCorrupt = New("corrupt", "corrupt")
)

// InvalidOption returns the refusal of one field, with its value and its bounds.
func InvalidOption(field string, value any, must string) error {
	return fmt.Errorf("%w: %s is %v, must be %s", ErrInvalidOption, field, value, must)
}

// InvalidWord returns the refusal of a constant that its type does not have.
func InvalidWord[T ~string](field string, value T, must string) error {
	return InvalidOption(field, fmt.Sprintf("%.64q", string(value)), must)
}

// Ended returns why ctx ended, or nil while ctx lasts. The error wraps the context's error and, if the caller set one
// that says more, its cause.
func Ended(ctx context.Context) error {
	err, why := ctx.Err(), context.Cause(ctx)
	if why == nil || errors.Is(why, err) {
		return why
	}
	return fmt.Errorf("%w: %w", err, why)
}

// Cut marks err as the end of a try whose caller had no more patience: err says nothing about the server. Cut of nil is
// nil.
func Cut(err error) error {
	if err == nil {
		return nil
	}
	return cut{err}
}

// IsCut reports whether err or an error that it wraps was marked by Cut.
func IsCut(err error) bool {
	var c cut
	return errors.As(err, &c)
}

type cut struct{ error }

func (c cut) Unwrap() error { return c.error }

// Edge returns err with the name of the package that returns it in front. An error that has one already stays as it is.
func Edge(pkg string, err error) error {
	if _, done := err.(*edged); done || err == nil { //nolint:errorlint // the outermost: what is inside is not in front
		return err
	}
	return &edged{pkg, err}
}

type edged struct {
	pkg string
	error
}

func (e *edged) Error() string { return e.pkg + ": " + e.error.Error() }
func (e *edged) Unwrap() error { return e.error }
