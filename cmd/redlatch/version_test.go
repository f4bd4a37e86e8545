//go:build unix

package main

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheVersionNamesTheProgramAndItsGo(t *testing.T) {
	var out strings.Builder
	require.Zero(t, execute([]string{"--version"}, streams{strings.NewReader(""), &out, &out}))
	require.True(t, strings.HasPrefix(out.String(), "redlatch "), out.String())
	require.True(t, strings.HasSuffix(out.String(), ", "+runtime.Version()+"\n"), out.String())
}
