package script_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/script"
)

func TestMillis_Fraction_IsRoundedUp(t *testing.T) {
	for d, ms := range map[time.Duration]string{
		0: "0", 1: "1", time.Millisecond - 1: "1", time.Millisecond: "1", time.Millisecond + 1: "2",
		30 * time.Second: "30000", 30*time.Second + 1: "30001",
		-1: "0", -time.Millisecond: "-1", math.MaxInt64: "9223372036855",
	} {
		require.Equal(t, ms, script.Millis(d), "%d ns", d)
	}
}

func TestNotAfter_Fraction_IsRoundedDown(t *testing.T) {
	for d, at := range map[time.Duration]string{0: "5000", 1: "5000", time.Millisecond - 1: "5000",
		time.Millisecond: "5001", time.Second + 999*time.Microsecond: "6000"} {
		require.Equal(t, at, script.NotAfter(5000, d), "%d ns", d)
	}
}
