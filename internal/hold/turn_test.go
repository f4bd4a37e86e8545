package hold_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/session"
)

// tenure is a resource that the callers of a process have in turns.
type tenure struct{ hold.Holding }

func (*tenure) Send(context.Context, bool) (gone bool, err error) { return false, nil }
func (*tenure) BatchKey() any                                     { return nil }
func (*tenure) SendAll(context.Context, []*hold.Holding) error    { return nil }
func (*tenure) Label() string                                     { return "" }
func (*tenure) Next(bool) bool                                    { return true }
func (*tenure) Gone()                                             {}

// A turn may end after rlock has looked at the handle under whose context it re-enters, and before Enter:
//
//	a goroutine under A's context: A lasts
//	                                           A: Unlock; the turn is B's
//	Enter
func TestHolding_EnterAfterItsTurn_IsLost(t *testing.T) {
	t.Parallel()
	o := &tenure{}
	o.Begin(&hold.Keeper{Session: &session.Session{}}, o)
	o.Follow(false)
	a := o.Handle(true)
	require.NoError(t, o.Enter(a.Turn()))
	o.Retreat(time.Time{})
	require.True(t, o.Pass(a))
	require.ErrorIs(t, o.Enter(a.Turn()), errs.ErrLost)
	require.NoError(t, o.Enter(o.Turn()))
}

// Without a next turn the last handle releases the holding, and no other caller has it.
func TestHolding_MayHaveNoNextTurn_IsNotPassed(t *testing.T) {
	t.Parallel()
	for name, bar := range map[string]func(o *hold.Holding){
		"its callers have their turns at once": func(o *hold.Holding) { o.Follow(true) },
		"other processes are next":             func(o *hold.Holding) { o.Follow(false); o.BarNext() },
	} {
		t.Run(name, func(t *testing.T) {
			o := &tenure{}
			o.Begin(&hold.Keeper{Session: &session.Session{}}, o)
			bar(&o.Holding)
			require.False(t, o.Pass(o.Handle(true)))
		})
	}
}
