package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

const story = `shop:    holds order:7
billing: joined the hold and is at work
         order:7 held by 2: shop, billing
shop:    done, has released
         order:7 held by 1: billing
others:  turned away
billing: done, has released
         order:7 is free
others:  order:7 acquired
`

func TestTheOrderIsFreeWhenBothAreDone(t *testing.T) {
	redistest.SkipShort(t)
	bin := filepath.Join(t.TempDir(), "rpc-join")
	out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	run := func(t *testing.T, args ...string) {
		cmd := exec.Command(bin, args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		require.NoError(t, err, string(out))
		// the two owners' random ids decide who is listed first
		require.Contains(t, []string{story, swapped()}, string(out[:len(story)]))
		require.Contains(t, string(out), "says: 409 Conflict")
		require.Contains(t, string(out), "lost")
	}
	t.Run("embedded", func(t *testing.T) { run(t) })
	t.Run("redis", func(t *testing.T) { run(t, "-redis", redistest.Start(t).Addr()) })
}

func swapped() string {
	const a, b = "held by 2: shop, billing", "held by 2: billing, shop"
	return strings.Replace(story, a, b, 1)
}
