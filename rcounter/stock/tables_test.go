package stock_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/redistest/table"
)

// TestScripts_EachRow_DoesWhatItSays runs the tables in testdata/scripts, which call the scripts themselves.
func TestScripts_EachRow_DoesWhatItSays(t *testing.T) {
	t.Parallel()
	table.RunAll(t, "testdata/scripts", table.How{})
}
