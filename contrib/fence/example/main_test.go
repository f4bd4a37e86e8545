package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExample_PaysOnce(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out), "%s", out.String())
	require.Equal(t, `ann: refused, a later worker has the order: look at it again
ann: bob has paid it
payments booked: 1, by bob; cards charged: 1
`, out.String())
}
