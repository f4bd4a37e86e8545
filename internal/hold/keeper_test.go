package hold_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/stretchr/testify/require"
)

// newKeeper makes a keeper of a package "shop".
func newKeeper(t *testing.T) *hold.Keeper {
	hub := redistest.NoError(pubsub.New(redistest.Embedded(t).Client(t), pubsub.Options{}))(t)
	s := redistest.NoError(session.New(hub, "shop", "goods", session.Options{}))(t)
	keeper := hold.NewKeeper(s, "hold", "Unlock", lease.Config{})
	t.Cleanup(func() {
		keeper.Close(redistest.Ended())
		hub.Close(context.Background())
	})
	return keeper
}

func TestNewOwner_AnyLabel_IsUnique(t *testing.T) {
	k := newKeeper(t)
	seen := map[string]bool{}
	for _, label := range []string{"", "job", "", "a:b", "x:write", "write"} {
		owner := k.NewOwner(label)
		require.True(t, lease.Ours(owner), owner)
		require.False(t, seen[owner], owner)
		require.NotRegexp(t, ":write$", owner, "which is Redisson's mark of a writer")
		seen[owner] = true
	}
}

// holder is the Of of a lease, and keeps why the lease ended.
type holder struct {
	dropped bool
	why     chan error
}

func (h *holder) Ended(why error) {
	select {
	case h.why <- why:
	default: // Stop tells once more
	}
}

func (*holder) Renewed(error) {}
func (h *holder) InUse() bool { return !h.dropped }
func (*holder) Shown() string { return "" }
func (*holder) Records() int  { return 0 }

// keep has every lease renewed.
var keep = script.New("keep", `local all = {} for i = 1, #KEYS do all[i] = 1 end return all`)

// leased adds a lease, and returns why it ended.
func leased(k *hold.Keeper, name string, dropped bool) (l *lease.Lease, why chan error) {
	why = make(chan error, 1)
	l = &lease.Lease{Name: name, Key: name, Owner: k.NewOwner(""), Renew: keep, Of: &holder{dropped, why}}
	k.Engine.Add(l, time.Now(), time.Now(), time.Minute, true, 0)
	return l, why
}

// resource is held, and calls its function when it is being released.
type resource struct {
	hold.Holding
	sent func()
}

// newResource begins a holding of the name "a".
func newResource(k *hold.Keeper, sent func()) *resource {
	r := &resource{sent: sent}
	r.Lease = lease.Lease{Name: "a", Key: "a", Owner: k.NewOwner(""), Renew: keep}
	r.Begin(k, r)
	return r
}

func (r *resource) Send(context.Context, bool) (gone bool, err error) {
	r.sent()
	return false, nil
}

func (*resource) BatchKey() any                                  { return nil }
func (*resource) SendAll(context.Context, []*hold.Holding) error { return nil }
func (*resource) Label() string                                  { return "" }

func TestHolding_BeingReleased_IsNotReentered(t *testing.T) {
	k := newKeeper(t)
	sent := 0
	var o *resource
	o = newResource(k, func() {
		sent++
		require.ErrorIs(t, o.Enter(o.Turn()), errs.ErrLost, "its last handle has left")
		require.Zero(t, o.Count())
	})
	k.Engine.Add(&o.Lease, time.Now(), time.Now(), time.Minute, true, 0)
	require.NoError(t, k.Enter())
	first := o.Handle(true)

	require.NoError(t, o.Enter(o.Turn()))
	require.NoError(t, k.Enter())
	second := o.Handle(true)
	require.ErrorIs(t, o.Enter(o.Turn()+1), errs.ErrLost, "nor is another caller's turn")
	require.NoError(t, first.Release(context.Background(), nil))
	require.Zero(t, sent)
	require.NoError(t, second.Release(context.Background(), nil))
	require.Equal(t, 1, sent)
	require.ErrorIs(t, o.Enter(o.Turn()), errs.ErrLost)
}

// An owner that was replaced holds nothing. But a request of its own that was not answered may yet bring something.
func TestHolding_ReplacedWithARequestUnderWay_IsReleased(t *testing.T) {
	soon := time.Now().Add(time.Millisecond)
	for name, until := range map[string]time.Time{"all were answered": {}, "one was not": soon} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper(t)
			var sent atomic.Int32
			o := newResource(k, func() { sent.Add(1) })
			k.Engine.Add(&o.Lease, time.Now(), time.Now(), time.Minute, true, 0)
			require.NoError(t, o.Keep(true, until, ""))
			require.NoError(t, k.Engine.Remove(&o.Lease))
			o.Replaced(time.Time{})
			k.Retrier.Drain(t.Context())
			require.Equal(t, !until.IsZero(), sent.Load() > 0)
		})
	}
}

func TestClose_MayNotWait_NamesWhatIsLeft(t *testing.T) {
	k := newKeeper(t)
	for _, name := range []string{"b", "a"} {
		leased(k, name, false)
		require.NoError(t, k.Enter())
	}
	leased(k, "party", false)
	leased(k, "dropped", true) // which the log has told of, and nobody will release
	for range 21 {
		k.Retrier.Add(&hold.Pending{Name: "c", Until: time.Now().Add(time.Minute),
			Release: func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}})
	}
	why := errors.New("going down")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	err := k.Close(ctx)
	require.ErrorIs(t, err, why)
	require.ErrorContains(t, err,
		"shop: close: 3 still held, left to their leases: a, b, party; 21 unconfirmed releases given up, left to their "+
			"leases: c, c,")
	require.ErrorContains(t, err, "c and 1 more: going down")
	require.Equal(t, err, k.Close(context.Background()), "the result of the first")
}

func TestClose_Background_EndsBeforeIt(t *testing.T) {
	k := newKeeper(t)
	over := false
	require.True(t, k.Background(func(ctx context.Context) { <-ctx.Done(); over = true }))
	require.NoError(t, k.Close(redistest.Ended()))
	require.True(t, over)
}
