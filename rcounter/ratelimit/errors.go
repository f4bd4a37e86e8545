package ratelimit

import "github.com/redlatch/redlatch/internal/errs"

// The request did not run: nothing was taken.
var (
	// ErrInvalidName: the name of a limiter or a key cannot be used. A name is empty, longer than 64 KiB with its prefix,
	// or has braces; a key is longer than 1024 bytes; or either is not UTF-8 or has a NUL byte. Nothing was sent.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption: an option or argument is outside its bounds; the text names the field and the value. Nothing was
	// sent.
	ErrInvalidOption = errs.ErrInvalidOption
	// ErrClosed: the Client or its hub was closed. Nothing was sent.
	ErrClosed = errs.ErrClosed
	// ErrUnavailable: the server did not run the request. It wraps the cause: the error of rueidis, or of ctx.
	ErrUnavailable = errs.ErrUnavailable
)

// ErrLimited: Wait would have to wait until after its context's deadline, or longer than LimiterOptions.MaxWait.
// Nothing was taken. The Admission returned with it says how long.
var ErrLimited = errs.Passing("limited", "rate limited")

// The server refused, or its answer is not known.
var (
	// ErrWrongType: a key holds another type of value: another program uses the same name. Nothing was taken.
	ErrWrongType = errs.ErrWrongType
	// ErrDenied: the server does not know the user, or the user lacks a right. The text says which right and for which
	// operation, as far as the server reports it.
	ErrDenied = errs.ErrDenied
	// ErrUnknownOutcome: the request was sent and no reply came; the units may have been taken, or may still be taken.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
)

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) { *err = errs.Edge("ratelimit", *err) }
