package rcounter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter"
)

// What is refused has added nothing: in parts each Add runs once, and those of one counter in their order.
func TestAdds_SeveralSlotsRefused_AreMadeInParts(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	trap, _ := p.RefuseSeveralSlots(redistest.CrossSlot)
	hub := rig.Hub(t, p.Server().Client(t))
	c := redistest.NoError(rcounter.New(hub, patient))(t)
	defer c.Close(ctx)
	a, b := c.Counter("a", rcounter.CounterOptions{Max: bound(4)}), c.Counter("b", rcounter.CounterOptions{})
	answers := c.AddTogether(ctx, rcounter.Adding{K: a, D: 1}, rcounter.Adding{K: b, D: 10}, rcounter.Adding{K: a, D: 2},
		rcounter.Adding{K: a, D: 7}, rcounter.Adding{K: b, D: -3})
	trap.Wait(t)
	for i, want := range []int64{1, 10, 3, 0, 7} {
		require.Equal(t, want, answers[i].Value, "%d: %v", i, answers)
		if i == 3 {
			require.ErrorIs(t, answers[i].Err, errs.ErrOutOfRange, "beyond what a stood at before the call")
		} else {
			require.NoError(t, answers[i].Err)
		}
	}
	require.Equal(t, "3", got(t, s, "a"))
	require.Equal(t, "7", got(t, s, "b"))
	require.Equal(t, "keys of several slots", hub.Stats().Lacks[0].Command)
}
