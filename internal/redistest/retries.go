package redistest

import (
	"cmp"
	"time"
)

// Retries is the RetryTimeout of clients in tests of something else than outages: the machine may be busy, and then a
// call is not answered at once.
func Retries(callTimeout time.Duration) time.Duration {
	return 5 * cmp.Or(callTimeout, 500*time.Millisecond)
}
