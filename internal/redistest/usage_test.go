package redistest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestUsage_Overlapping_MostIsTheirSum(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	u := &redistest.Usage{}
	require.Zero(t, u.Most())
	u.Add(at(0), at(10), 2)
	u.Add(at(10), at(20), 3)
	u.Add(at(5), at(5), 9)
	require.Equal(t, 3, u.Most())
	u.Add(at(9), at(11), 1)
	require.Equal(t, 4, u.Most())
}
