package rlock

import "github.com/redlatch/redlatch/internal/errs"

// ErrReentry is returned if the owner holds this lock already, and the lock cannot be re-entered; or if the owner has a
// read hold and requests the write side of the same lock. Nothing changed. All other errors are those of package
// redlatch.
var ErrReentry = errs.ErrReentry

// NotAcquiredError is the error of an acquisition that ended without the lock. It is redlatch.NotAcquiredError, which
// is one type for locks and permits.
type NotAcquiredError = errs.NotAcquiredError
