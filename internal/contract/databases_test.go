package contract_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// A Cluster of Valkey 9 has several databases, if its cluster-databases says so; any other has one.
func TestDatabase_OfACluster_IsUsedOrRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	known, err := s.TryAskList(t, "CONFIG", "GET", "cluster-databases")
	numbered := err == nil && len(known) > 0
	if numbered {
		s = redistest.ReplicatedClusterWith(t, "--cluster-databases", "4").Server
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func(db int) (*redlatch.Client, error) {
		o := s.Option()
		o.SelectDB = db
		c, err := redlatch.Open(ctx, o, redlatch.Options{})
		if err == nil {
			t.Cleanup(func() { c.Close(context.WithoutCancel(ctx)) })
		}
		return c, err
	}
	_, err = open(9)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "SelectDB")
	if !numbered {
		return
	}
	var in3, also3, in0 *redlatch.Client
	for c, db := range map[**redlatch.Client]int{&in3: 3, &also3: 3, &in0: 0} {
		*c, err = open(db)
		require.NoError(t, err)
	}
	for _, name := range []string{"a", "b", "c"} { // on several nodes
		h := redistest.NoError(in3.Locks().Reentrant(name).Lock(ctx))(t)
		other, err := in0.Locks().Reentrant(name).TryLock(ctx, 0, 0)
		require.NoError(t, err, "another database has a lock of its own")
		_, err = also3.Locks().Reentrant(name).TryLock(ctx, 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		got := make(chan error, 1)
		go func() {
			h, err := also3.Locks().Reentrant(name).Lock(ctx)
			if err == nil {
				err = h.Unlock(ctx)
			}
			got <- err
		}()
		require.NoError(t, other.Unlock(ctx))
		require.NoError(t, h.Unlock(ctx))
		require.NoError(t, <-got)

		require.NoError(t, in3.Sales().Sale(name).Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Hour}))
		require.NoError(t, err1(also3.Sales().Sale(name).Buy(ctx, stock.Order{User: "ann"})))
		require.ErrorIs(t, err1(in0.Sales().Sale(name).Buy(ctx, stock.Order{User: "ann"})), stock.ErrNoStock)
	}
}
