package rcounter_test

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

func TestCounter_LongestName_Works(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		_, err := on(t, srv.Client(t), patient).Counter(strings.Repeat("é", 32<<10), rcounter.CounterOptions{}).Incr(ctx)
		require.NoError(t, err)
	})
}
