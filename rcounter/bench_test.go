package rcounter_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
)

// The floor of everything here.
func BenchmarkRawINCR(b *testing.B) {
	c := redistest.Start(b).Client(b)
	both(b, func() error { return c.Do(ctx, c.B().Incr().Key("k").Build()).Error() })
}

func BenchmarkIncr(b *testing.B) {
	k := on(b, redistest.Start(b).Client(b), patient).Counter("k", rcounter.CounterOptions{})
	both(b, func() error { _, err := k.Incr(ctx); return err })
}

func BenchmarkIncrBounded(b *testing.B) {
	k := on(b, redistest.Start(b).Client(b), patient).Counter("k", rcounter.CounterOptions{Max: bound(maxInt)})
	both(b, func() error { _, err := k.Incr(ctx); return err })
}
