package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock/election"
)

var errFn = errors.New("fn ran under a context that had ended")

// acquiringVerbs acquire a shard and release it. ran reports whether the verb had it, or ran fn under it.
var acquiringVerbs = map[string]func(ctx context.Context, p *process) (ran bool, err error){
	"Slot": func(ctx context.Context, p *process) (bool, error) {
		s, err := p.elections.Shards("ids", 1).Slot(ctx, "ann")
		if err == nil {
			err = s.Release(context.Background())
		}
		return s != nil, err
	},
	"Shards.Run": func(ctx context.Context, p *process) (ran bool, err error) {
		done := errors.New("done")
		err = p.elections.Shards("ids", 1).Run(ctx, "ann", func(ctx context.Context, _ *election.Shard) error {
			if ran = true; ctx.Err() != nil {
				return errFn
			}
			return done
		})
		if errors.Is(err, done) {
			err = nil
		}
		return ran, err
	},
}

// TestAcquire_CtxOverBeforeTheGrant_HoldsNothing shows of shards what the suite shows of leaderships: it ends
// ctx before the call, while it waits, in the instant before the holder leaves, and as it is granted.
func TestAcquire_CtxOverBeforeTheGrant_HoldsNothing(t *testing.T) {
	t.Parallel()
	why := errors.New("the customer left")
	for name, call := range acquiringVerbs {
		t.Run(name, func(t *testing.T) {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				var onGrant func()
				o := election.Options{Observer: func(ctx context.Context, e redlatch.Event) context.Context {
					if e.Kind == redlatch.EventAcquired && onGrant != nil {
						onGrant()
					}
					return ctx
				}}
				p, other := start(t, servers[0], o), start(t, servers[0], election.Options{})
				refused := func(ran bool, err error) {
					t.Helper()
					require.False(t, ran, "%v", err)
					require.ErrorIs(t, err, why)
					ran, err = call(t.Context(), other)
					require.NoError(t, err, "nothing is left")
					require.True(t, ran)
				}
				ctx, leave := context.WithCancelCause(t.Context())
				leave(why)
				refused(call(ctx, p))

				ctx, leave = context.WithCancelCause(t.Context())
				slot := redistest.NoError(other.elections.Shards("ids", 1).Slot(t.Context(), "bob"))(t)
				type result struct {
					ran bool
					err error
				}
				ended := make(chan result, 1)
				go func() {
					ran, err := call(ctx, p)
					ended <- result{ran, err}
				}()
				time.Sleep(time.Minute)
				leave(why)
				got := <-ended // before the release, which could grant the slot to the call that leaves
				require.NoError(t, slot.Release(t.Context()))
				refused(got.ran, got.err)

				if name == "Slot" { // it runs no fn
					return
				}
				ctx, leave = context.WithCancelCause(t.Context())
				onGrant = func() { leave(why) }
				ran, err := call(ctx, p)
				onGrant = nil
				refused(ran, err)
			})
		})
	}
}
