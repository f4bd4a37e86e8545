package rcounter

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

// Refusals: nothing was sent, and sending the same again will be refused again.
var (
	// ErrInvalidName: the name of a counter or an id of AddOnce cannot be used: empty, too long (64 KiB, or 1024 bytes for an
	// id), not UTF-8, with a NUL byte, or with braces where they would take the keys apart in a Cluster. Every verb of the
	// Counter returns that of its name.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption: an option or argument is outside its bounds; the text names the field and the value.
	ErrInvalidOption = errs.ErrInvalidOption
	// ErrClosed: the Client was closed, or its hub.
	ErrClosed = errs.ErrClosed
)

// Answers of the server by which nothing was changed there.
var (
	// ErrOutOfRange: the counter would pass Min or Max. It stands where it stood; nothing was written. Add and AddOnce
	// return that value beside it.
	ErrOutOfRange = errs.ErrOutOfRange
	// ErrOverflow: the counter would leave the 64-bit integers. Nothing was written.
	ErrOverflow = errs.ErrOverflow
	// ErrWrongType: the key holds another type of value, or a string that Redis does not take for a 64-bit integer ("010",
	// "1.0", "1e3", " 1", "" and the like; the text says which): another program uses the same name. It is left as it is;
	// Counter.Set replaces a string.
	ErrWrongType = errs.ErrWrongType
	// ErrMismatch: the id of an AddOnce has been used before to add another number. Nothing was changed; a new request
	// needs a new id.
	ErrMismatch = errs.ErrMismatch
)

// Failures to get an answer.
var (
	// ErrUnavailable: the server did not run the request; nothing changed there. It wraps the cause: what rueidis
	// said, or ctx's error.
	ErrUnavailable = errs.ErrUnavailable
	// ErrDenied: the server does not know the user, or the user lacks a right; the text says which, as far as the server
	// tells, and for which operation.
	ErrDenied = errs.ErrDenied
	// ErrUnknownOutcome: the request was sent and no reply seen; it may have run, or may run yet. AddOnce can then be called
	// again, with the same arguments, and adds once. The other writing verbs cannot: sent again, they may count twice, which
	// is why they are sent once.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
)

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) { *err = errs.Edge("rcounter", *err) }

// edged is err as edge leaves it.
func edged(err error) error { return errs.Edge("rcounter", err) }

// notInteger is the ErrWrongType of a string that is no integer.
func notInteger(key, value string) error {
	return fmt.Errorf("%w: %q is %.64q, not a 64-bit integer", ErrWrongType, key, value)
}

// malformed is a reply that none of our scripts gives.
func malformed(what, key string) error {
	return fmt.Errorf("unexpected reply to %s on %q", what, key)
}
