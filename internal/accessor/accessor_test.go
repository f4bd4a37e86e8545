package accessor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/accessor"
)

func TestOf_SeveralRegistered_FindsEachByType(t *testing.T) {
	type client struct{ kept string }
	accessor.Register(func(c *client) *string { return &c.kept })
	accessor.Register(func(c *client) int { return len(c.kept) })
	require.Equal(t, "x", *accessor.Of[*string](&client{"x"}))
	require.Equal(t, 1, accessor.Of[int](&client{"x"}), "in several ways")
}
