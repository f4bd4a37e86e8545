package rsemaphore

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

// ErrCapacityMismatch: the object exists on the server with another capacity than the caller's. For a semaphore that
// was resized, or is [Semaphore.Shared], the request is for more than the capacity there. Nothing was changed. The text
// has both numbers.
var ErrCapacityMismatch = errs.New("capacity_mismatch", "capacity mismatch")

// NotAcquiredError is the error of an acquisition that ended without the permits. It is redlatch.NotAcquiredError,
// which is one type for locks and permits.
type NotAcquiredError = errs.NotAcquiredError

// capacityMismatch returns ErrCapacityMismatch with the server's capacity, and the caller's capacity or number.
func capacityMismatch(name string, has int64, wanted int) error {
	return fmt.Errorf("%w: %q has %d, not %d", ErrCapacityMismatch, name, has, wanted)
}
