package ledger_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/redistest/table"
)

func TestScripts_EachRow_DoesWhatItSays(t *testing.T) {
	t.Parallel()
	table.RunAll(t, "testdata/scripts", table.How{})
}
