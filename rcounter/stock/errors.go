package stock

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

// The errors of the package. The first three refuse a call before anything is sent. The last four say that there is no
// answer. All others are answers of the server, by which nothing was changed there.
var (
	// ErrClosed: the Client was closed, or its hub.
	ErrClosed = errs.ErrClosed
	// ErrInvalidName: the name of a stock, a claimant or an id cannot be used. It is empty, too long (64 KiB, or 1024
	// bytes for a claimant or an id), not UTF-8, has a NUL byte, or, if it is the name of a stock, has braces. If it is
	// the stock's name, every verb of the Stock returns this error.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption: an option or argument is outside its bounds; the text names the field and the value.
	ErrInvalidOption = errs.ErrInvalidOption

	// ErrNotOpen: there is no stock to change or restore. (A claim on it is no error: NotOpen.)
	ErrNotOpen = errs.New("not_open", "no such stock")
	// ErrAlreadyOpen: the stock exists, opened by another call of Open, and its results are still retained. The epoch
	// returned with the error is that of the existing stock.
	ErrAlreadyOpen = errs.ErrAlreadyOpen
	// ErrWrongType: a key holds another type of value: another program uses the same name.
	ErrWrongType = errs.ErrWrongType
	// ErrCorrupt: the keys of a stock do not agree: records of claimants are missing (evicted, deleted, lost in a
	// failover) or a number is impossible. The stock grants nothing any more, because a claimant who has a unit could be
	// given a second one. Restore repairs it from the caller's own records of the sale; deleting the stock's keys
	// makes the name free.
	ErrCorrupt = errs.ErrCorrupt
	// ErrRestoring: of Restore, another call of it began later; that one goes on, this one has ended. Of other calls: a
	// Restore is writing the records at this moment, or was broken off less than a minute ago. Nothing was changed, so the
	// call can be made again.
	ErrRestoring = errs.New("restoring", "restored by another call")
	// ErrOutOfRange: a limit below what is sold and held, or more than 1024 returned parts of one grant.
	ErrOutOfRange = errs.ErrOutOfRange
	// ErrOverflow: the stock has given out ordinal 2^53-1.
	ErrOverflow = errs.ErrOverflow

	// ErrNotFound: the stock has no reservation of that id, or there is no stock.
	ErrNotFound = errs.New("not_found", "no such reservation")
	// ErrMismatch: the id of a request or reservation has been used before with another claimant, another number of
	// units, or for the other of the two: a new request needs a new id. Of OpenOrJoin: the stock that stands was opened
	// with another Spec, and the text says in what.
	ErrMismatch = errs.ErrMismatch

	// ErrUnavailable: the server did not run the request; nothing changed there. It wraps the cause: what rueidis
	// said, or ctx's error.
	ErrUnavailable = errs.ErrUnavailable
	// ErrUnknownOutcome: the request was sent and no reply seen; it may have run, or may run later. Every verb
	// can then be called again, with the same arguments, and gives the one answer.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
	// ErrNotReplicated: units were granted, but fewer than Options.MinReplicas replicas confirmed it in time, so that a
	// failover may forget it. Nothing is taken back: the same call, with the same claimant or id, can be repeated
	// and answers with the same units once they are confirmed.
	ErrNotReplicated = errs.ErrNotReplicated
	// ErrDenied: the server does not know the user, or the user lacks a right; the text says which, as far as the server
	// tells, and for which operation. What a script wrote before the command that was refused stands: once the user has
	// the right, every verb of Stock can be called again with the same arguments.
	ErrDenied = errs.ErrDenied
)

// corrupt says what of key does not fit together.
func corrupt(key string, recorded, found int64) error {
	if recorded < 0 {
		return fmt.Errorf("%w: %q has numbers that are impossible", ErrCorrupt, key)
	}
	return fmt.Errorf("%w: %q counts %d records, and %d are there", ErrCorrupt, key, recorded, found)
}

// misled says that the ledger key has lost entries, or was given some.
func misled(key string, should, found int64) error {
	return fmt.Errorf("%w: the ledger %q should have %d entries, and has %d", ErrCorrupt, key, should, found)
}

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) { *err = errs.Edge("stock", *err) }

// edged is err as edge leaves it.
func edged(err error) error { return errs.Edge("stock", err) }

// malformed is a reply that none of our scripts gives.
func malformed(what, key string) error {
	return fmt.Errorf("unexpected reply to %s on %q", what, key)
}
