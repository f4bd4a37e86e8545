package rcounter

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

// The server refused: the counter stands where it stood.
var (
	// ErrOutOfRange: the counter would pass Min or Max. Add and AddOnce return its value with the error.
	ErrOutOfRange = errs.ErrOutOfRange
	// ErrOverflow: the counter would leave the 64-bit integers.
	ErrOverflow = errs.ErrOverflow
	// ErrWrongType: the key holds another type of value, or a string that Redis does not take for a 64-bit integer ("010",
	// "1.0", "1e3", " 1", "" and the like; the text says which): another program uses the same name. Counter.Set replaces
	// a string.
	ErrWrongType = errs.ErrWrongType
	// ErrDenied: the server does not know the user, or the user lacks a right. The text says which right and for which
	// operation, as far as the server reports it.
	ErrDenied = errs.ErrDenied
)

// ErrMismatch: the id of an AddOnce has been used before to add another number. A new request needs a new id.
var ErrMismatch = errs.ErrMismatch

// notInteger is the ErrWrongType of a string that is no integer.
func notInteger(key, value string) error {
	return fmt.Errorf("%w: %q is %.64q, not a 64-bit integer", ErrWrongType, key, value)
}

// The request did not run: nothing changed on the server.
var (
	// ErrInvalidName: the name of a counter or an id of AddOnce cannot be used. It is empty, too long (64 KiB for a name
	// with its prefix, 1024 bytes for an id), not UTF-8, or has a NUL byte or braces that would put the counter's keys
	// into two Cluster slots. Every verb of the Counter returns the error of its name. Nothing was sent.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption: an option or argument is outside its bounds; the text names the field and the value. Nothing was
	// sent.
	ErrInvalidOption = errs.ErrInvalidOption
	// ErrClosed: the Client or its hub was closed. Nothing was sent.
	ErrClosed = errs.ErrClosed
	// ErrUnavailable: the server did not run the request. It wraps the cause: the error of rueidis, or of ctx.
	ErrUnavailable = errs.ErrUnavailable
)

// malformed is the error of a reply that no script of ours gives.
func malformed(what, key string) error {
	return fmt.Errorf("unexpected reply to %s on %q", what, key)
}

// ErrUnknownOutcome: the request was sent and no reply came; it may have run, or may still run. AddOnce can then be
// called again with the same arguments, and adds once. The other writing verbs cannot: called again, they may count
// twice. That is why the library sends them once.
var ErrUnknownOutcome = errs.ErrUnknownOutcome

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) { *err = edged(*err) }

func edged(err error) error { return errs.Edge("rcounter", err) }
