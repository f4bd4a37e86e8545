package redlatchledger

import "errors"

var (
	// ErrHole: the database lacks entries before those that Move was given, or has lost some that it had. They may have
	// gone to another function than Move, or the database was set back to a backup. Nothing was written. Restore does not
	// mend it either.
	ErrHole = errors.New("redlatchledger: entries are missing")
	// ErrUnbalanced: with these entries the shares of a packet would not add up to its total.
	ErrUnbalanced = errors.New("redlatchledger: the amounts do not add up")
)
