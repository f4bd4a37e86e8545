package rsemaphore_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestClient_New_HasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	a, b := newRig(t, s, rsemaphore.Options{}), newRig(t, s, rsemaphore.Options{})
	require.NotEqual(t, a.c.ID(), b.c.ID())
	require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`),
		a.c.ID())
}
