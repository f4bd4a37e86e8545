package rsemaphore_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/table"
)

// TestScripts_EachRow_DoesWhatItSays runs the tables in testdata/scripts.
func TestScripts_EachRow_DoesWhatItSays(t *testing.T) {
	t.Parallel()
	table.RunAll(t, "testdata/scripts", table.How{})
}

// TestScripts_FullMemory_RenewAndRelease needs a server whose memory can be full.
func TestScripts_FullMemory_RenewAndRelease(t *testing.T) {
	t.Parallel()
	table.Run(t, "testdata/full/memory.txt", table.How{Only: func(t *testing.T) *redistest.Server {
		return redistest.Start(t, "--maxmemory-policy", "noeviction")
	}})
}

// TestScripts_RightMissing_PermitsAreCounted needs a server whose user lacks a right.
func TestScripts_RightMissing_PermitsAreCounted(t *testing.T) {
	t.Parallel()
	table.Run(t, "testdata/denied/queue.txt", table.How{Only: func(t *testing.T) *redistest.Server {
		return redistest.Start(t)
	}})
}
