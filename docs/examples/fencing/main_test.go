//go:build unix

package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
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
	for name, server := range map[string]func(t *testing.T) string{
		"embedded": func(*testing.T) string { return "" },
		"redis":    func(t *testing.T) string { return redistest.Start(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			addr := server(t)
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
	}
}
