//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The test program is also the clerk: see os.Executable in book.
func TestMain(m *testing.M) {
	for _, arg := range os.Args {
		if arg == "-clerk" {
			main()
			return
		}
	}
	os.Exit(m.Run())
}

func TestALateWriteDoesDamageOnlyWhereTheAccountDoesNotLook(t *testing.T) {
	for _, addr := range []string{"", realServer(t)} {
		name := "embedded"
		if addr != "" {
			name = "redis"
		}
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var out strings.Builder
			all, err := run(ctx, addr, &out)
			require.NoError(t, err, "%s", out.String())
			require.Len(t, all, 4)
			for _, x := range all {
				require.Equal(t, x.guarded, x.refused, "%+v", x)
				if x.guarded {
					require.EqualValues(t, opening+quick, x.balance, "%+v", x)
				} else {
					require.EqualValues(t, opening+slow, x.balance, "the quick clerk's deposit is gone: %+v", x)
				}
			}
			require.Contains(t, out.String(), "a deposit is lost")
		})
		if t.Failed() {
			return
		}
	}
}

// realServer starts a redis-server on a free port; "" and a word about it where there is none.
func realServer(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		require.NotEqual(t, "1", os.Getenv("REDLATCH_REQUIRE_REDIS"), "redis-server is required and not there")
		t.Log("no redis-server: embedded only")
		return ""
	}
	return startRedis(t)
}
