package rcounter

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

// notInteger is the ErrWrongType of a string that is not an integer.
func notInteger(key, value string) error {
	return fmt.Errorf("%w: %q is %.64q, not a 64-bit integer", errs.ErrWrongType, key, value)
}

// malformed is the error of a reply that no script of ours gives.
func malformed(what, key string) error {
	return fmt.Errorf("unexpected reply to %s on %q", what, key)
}

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) { *err = edged(*err) }

func edged(err error) error { return errs.Edge("rcounter", err) }
