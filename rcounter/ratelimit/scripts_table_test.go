package ratelimit_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/table"
)

// TestScripts_EachRow_DoesWhatItSays runs the tables in testdata/scripts. They count microseconds that drain, so only
// the embedded server runs them, whose clock stands still.
func TestScripts_EachRow_DoesWhatItSays(t *testing.T) {
	t.Parallel()
	table.RunAll(t, "testdata/scripts", table.How{Only: func(t *testing.T) *redistest.Server {
		return redistest.Embedded(t)
	}})
}
