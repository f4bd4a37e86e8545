package rsemaphore_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/rsemaphore"
)

// For, WithLabel and WithRevision copy a Semaphore for every use.
func TestSemaphore_Copied_IsSmall(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, unsafe.Sizeof(rsemaphore.Semaphore{}), uintptr(72))
}
