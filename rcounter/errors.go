package rcounter

import (
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

// Refusals: nothing was sent, and sending the same again will be refused again.
var (
	// ErrInvalidName: the name of a counter or stock, a claimant, an id, or the key of a limit cannot be used: empty, too
	// long, not UTF-8, with a NUL byte, or, of a name, with braces where they would take the keys apart in a Cluster. Every verb of the
	// Counter or Stock returns that of a name.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption: an option or argument is outside its bounds; the text names the field and the value.
	ErrInvalidOption = errs.ErrInvalidOption
	// ErrClosed: the Client was closed, or its hub.
	ErrClosed = errs.ErrClosed
)

// Answers of the server by which nothing was changed there.
var (
	// ErrOutOfRange: the counter would pass Min or Max. It stands where it stood; nothing was written. An Add's error
	// is a *RangeError.
	ErrOutOfRange = errors.New("out of range")
	// ErrOverflow: the counter would leave the 64-bit integers, or a stock has given out ordinal MaxLimit. Nothing
	// was written.
	ErrOverflow = errors.New("overflow")
	// ErrNotInteger: the key holds a string that Redis does not take for a 64-bit integer ("010", "1.0", "1e3", " 1",
	// "" and the like). It is left as it is; Counter.Set replaces it.
	ErrNotInteger = errors.New("value is not a 64-bit integer")
	// ErrWrongType: a key holds another type of value: another program uses the same name.
	ErrWrongType = errs.ErrWrongType
	// ErrAlreadyOpen: the stock exists, opened by another call of Open, and its results are still retained. The error
	// is an *AlreadyOpenError.
	ErrAlreadyOpen = errors.New("already open")
	// ErrMismatch: the id of a request or reservation has been used before with another claimant, another number of
	// units, or for the other of the two, or that of AddOnce to add another number. Nothing was changed; a new request needs a
	// new id.
	ErrMismatch = errors.New("id used before with other arguments")
	// ErrReservationExpired: the reservation's time was over, by the server's clock, before it was confirmed. Its units
	// have gone back to the stock.
	ErrReservationExpired = errors.New("reservation expired")
	// ErrReservationCancelled: the reservation was cancelled, perhaps before it was made.
	ErrReservationCancelled = errors.New("reservation cancelled")
	// ErrReservationReturned: the reservation was confirmed and its units were returned.
	ErrReservationReturned = errors.New("reservation returned")
	// ErrNoReservation: there is no reservation of that id.
	ErrNoReservation = errors.New("no such reservation")
	// ErrNotOpen: there is no stock to resize or restore. (A claim on it is no error: NotOpen.)
	ErrNotOpen = errors.New("no such stock")
	// ErrRestoring: another call of Restore has begun since; that one goes on, this one has ended.
	ErrRestoring = errors.New("restored by another call")
	// ErrCorrupt: the keys of a stock do not agree: records of claimants are missing (evicted, deleted, lost in a
	// failover) or a number in it cannot be. Nothing is granted any more, because a claimant who has a unit could be
	// given a second one. Restore mends it from the caller's own records of the sale; deleting the stock's keys
	// makes the name free.
	ErrCorrupt = errors.New("corrupt")
)

// Failures to get an answer.
var (
	// ErrUnavailable: the server did not run the request; nothing changed there. It wraps the cause: what rueidis
	// said, or ctx's error.
	ErrUnavailable = errs.ErrUnavailable
	// ErrDenied: the server does not know the user, or the user lacks a right; the text says which, as far as the server
	// tells, and for which operation. What a script wrote before the command that was refused stands: once the user has
	// the right, every verb of Stock can be called again with the same arguments.
	ErrDenied = errs.ErrDenied
	// ErrUnknownOutcome: the request was sent and no reply seen; it may have run, or may run yet. Every verb of Stock
	// can then be called again, with the same arguments, and gives the one answer. The writing verbs of Counter
	// cannot, but for AddOnce: sent again, they may count twice, which is why they are sent once.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
	// ErrUnconfirmed: units were granted, but fewer than Options.MinReplicas replicas confirmed it in time, so that a
	// failover may forget it. Nothing is taken back: the same call, with the same claimant or id, is safe to repeat
	// and answers with the same units once it is confirmed.
	ErrUnconfirmed = errors.New("not confirmed by enough replicas")
)

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) {
	if _, done := (*err).(*named); *err != nil && !done {
		*err = &named{*err}
	}
}

// edged is err as edge leaves it.
func edged(err error) error {
	edge(&err)
	return err
}

// named is an error with the package's name in front.
type named struct{ error }

func (e *named) Error() string { return "rcounter: " + e.error.Error() }
func (e *named) Unwrap() error { return e.error }

// RangeError is the ErrOutOfRange of Incr, Decr and Add.
type RangeError struct {
	Key   string // as on the server, prefix included
	Value int64  // where the counter stands
	Delta int64  // what was to be added
	Bound int64  // the Min or Max that Value + Delta would have passed
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("%v: %q stands at %d, adding %d would pass %d", ErrOutOfRange, e.Key, e.Value, e.Delta, e.Bound)
}

// Unwrap returns ErrOutOfRange.
func (e *RangeError) Unwrap() error { return ErrOutOfRange }

// AlreadyOpenError is the ErrAlreadyOpen of Stock.Open.
type AlreadyOpenError struct {
	Key   string // as on the server
	Epoch int64  // of the opening that stands
}

func (e *AlreadyOpenError) Error() string {
	return fmt.Sprintf("%v: %q, epoch %d", ErrAlreadyOpen, e.Key, e.Epoch)
}

// Unwrap returns ErrAlreadyOpen.
func (e *AlreadyOpenError) Unwrap() error { return ErrAlreadyOpen }

// corrupt says what of key does not fit together.
func corrupt(key string, recorded, found int64) error {
	if recorded < 0 {
		return fmt.Errorf("%w: %q has numbers that cannot be", ErrCorrupt, key)
	}
	return fmt.Errorf("%w: %q counts %d records, and %d are there", ErrCorrupt, key, recorded, found)
}

// malformed is a reply that none of our scripts gives.
func malformed(what, key string) error {
	return fmt.Errorf("unexpected reply to %s on %q", what, key)
}
