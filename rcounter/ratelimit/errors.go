package ratelimit

import (
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

var (
	// ErrInvalidName: the name of a limiter or a key cannot be used: a name that is empty, longer than 64 KiB or has braces, a
	// key longer than 1024 bytes, and both with a NUL byte or not UTF-8. Nothing was sent.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption: an option or argument is outside its bounds; the text names the field and the value. Nothing was sent.
	ErrInvalidOption = errs.ErrInvalidOption
	// ErrClosed: the Client was closed, or its hub. Nothing was sent.
	ErrClosed = errs.ErrClosed
	// ErrLimited: the turn of those who asked would come later than the caller is willing to wait. Nothing was taken.
	// The error is a *LimitedError.
	ErrLimited = errors.New("rate limited")
	// ErrWrongType: a key holds another type of value: another program uses the same name. Nothing was taken.
	ErrWrongType = errs.ErrWrongType
	// ErrUnavailable: the server did not run the request; nothing changed there. It wraps the cause: what rueidis
	// said, or ctx's error.
	ErrUnavailable = errs.ErrUnavailable
	// ErrDenied: the server does not know the user, or the user lacks a right; the text says which, as far as the server
	// tells, and for which operation.
	ErrDenied = errs.ErrDenied
	// ErrUnknownOutcome: the request was sent and no reply seen; the units may have been taken, or may be taken yet.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
)

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) { *err = errs.Edge("ratelimit", *err) }

// LimitedError is the ErrLimited of Limiter.Wait.
type LimitedError struct {
	Name, Key  string // as the caller gave them
	RetryAfter time.Duration
}

func (e *LimitedError) Error() string {
	return fmt.Sprintf("%v: %q of %q, for another %v", ErrLimited, e.Key, e.Name, e.RetryAfter)
}

// Unwrap returns ErrLimited.
func (e *LimitedError) Unwrap() error { return ErrLimited }
