package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheProgramEndsWithBooksThatAreRight(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out), "%s", out.String())
	require.Contains(t, out.String(), "as Redis says 20, as the database says 20")
}
