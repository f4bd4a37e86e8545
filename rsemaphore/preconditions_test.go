package rsemaphore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// The server is asked: another client may have resized it.
func TestAcquire_MoreThanThereIs_IsInvalid(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rsemaphore.Options{})
	_, err := r.c.Semaphore("s", 5).Acquire(within(t), 6)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "n is 6, must be 1 to 5")
	require.Empty(t, r.keys(t))
}
