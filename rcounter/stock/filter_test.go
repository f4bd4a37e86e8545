package stock_test

import (
	"strconv"
	"testing"

	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

func TestAFilterHasAllThatWasPutInAndLittleElse(t *testing.T) {
	t.Parallel()
	require.False(t, stock.FilterOf(nil)("anybody"))
	for _, name := range []func(i int) string{
		strconv.Itoa,
		func(i int) string { return "user-" + strconv.Itoa(i) + "@example.com" },
		func(i int) string { return string(rune('a'+i%26)) + strconv.Itoa(i/26) },
	} {
		const n = 100_000
		var in []string
		for i := range n {
			in = append(in, name(i))
		}
		has, wrong := stock.FilterOf(in), 0
		for i := range n {
			require.True(t, has(in[i]))
			if has(name(n + i)) {
				wrong++
			}
		}
		require.Less(t, wrong, n/100)
		t.Logf("%d of %d", wrong, n)
	}
}
