package stock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

func TestAStockThatItsOwnerKnowsIsNotOpenedASecondTime(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s := on(t, raw, exact).Stock("s")
		asked, before, down := 0, false, error(nil)
		o := spec(2)
		o.Opened = func(context.Context) (bool, error) {
			asked++
			return before, down
		}
		for name, open := range map[string]func() error{
			"Open":       func() error { _, err := s.Open(ctx, o); return err },
			"OpenOrJoin": func() error { _, err := s.OpenOrJoin(ctx, o); return err },
		} {
			must(t, raw, "FLUSHALL")
			asked, before, down = 0, false, errors.New("the database is down")
			require.ErrorIs(t, open(), down, name)
			require.Equal(t, stock.NotOpen, claimed(t, s, "ann").Outcome)
			down = nil
			require.NoError(t, open(), name)
			require.Equal(t, 2, asked)
			require.True(t, claimed(t, s, "ann").Won())

			before = true
			_, err := s.OpenOrJoin(ctx, o)
			require.NoError(t, err, "it stands")
			require.Equal(t, 2, asked, "only where there is none")
			must(t, raw, "FLUSHALL")
			require.ErrorIs(t, open(), errs.ErrCorrupt, name)
			require.Equal(t, stock.NotOpen, claimed(t, s, "bob").Outcome, "nothing is sold twice")
		}
	})
}
