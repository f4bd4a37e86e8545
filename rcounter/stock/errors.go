package stock

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

// These are answers of the server, by which nothing was changed there. All other errors are those of package redlatch.
var (
	// ErrNotOpen: there is no stock of that name. It was never opened, its retention is over, or the server has lost it.
	// So nothing is known of what the call names, and nothing was decided: look in your own records. A claim, a request
	// and a reservation are answered by the Outcome NotOpen instead, which is not final.
	ErrNotOpen = errs.New("not_open", "no such stock")
	// ErrRestoring: of Restore, another call of it began later; that one goes on, this one has ended. Of other calls: a
	// Restore is writing the records at this moment, or was broken off less than a minute ago; or the stock is Suspended
	// and does not know what the call names, since the record may be lost. Nothing was changed, so the call can be made
	// again.
	ErrRestoring = errs.New("restoring", "restored by another call")
	// ErrNotFound: the stock has no reservation of that id to extend.
	ErrNotFound = errs.New("not_found", "no such reservation")
)

// corrupt says what of key does not fit together.
func corrupt(key string, recorded, found int64) error {
	if recorded < 0 {
		return fmt.Errorf("%w: %q has numbers that are impossible", errs.ErrCorrupt, key)
	}
	return fmt.Errorf("%w: %q counts %d records, and %d are there", errs.ErrCorrupt, key, recorded, found)
}

// ledgerMismatch says that the ledger key has lost entries, or was given some.
func ledgerMismatch(key string, should, found int64) error {
	return fmt.Errorf("%w: the ledger %q should have %d entries, and has %d", errs.ErrCorrupt, key, should, found)
}

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) { *err = errs.Edge("stock", *err) }

// edged is err as edge leaves it.
func edged(err error) error { return errs.Edge("stock", err) }

// malformed is a reply that none of our scripts gives.
func malformed(what, key string) error {
	return fmt.Errorf("unexpected reply to %s on %q", what, key)
}
