package redistest

import (
	"cmp"
	"time"
)

// Retries returns the RetryTimeout of clients in tests that are not about outages. A busy machine may not reply at
// once.
func Retries(callTimeout time.Duration) time.Duration {
	return 5 * cmp.Or(callTimeout, 500*time.Millisecond)
}
