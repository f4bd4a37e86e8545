package stock_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

var (
	raw         = rig.Raw
	must        = rig.Must
	text        = rig.Text
	number      = rig.Number
	hash        = rig.Hash
	keys        = rig.Keys
	requireEnds = rig.RequireEnds
	serverNow   = rig.ServerNow
	newLossy    = rig.NewLossy
	newLate     = rig.NewLate
	once        = rig.Once
	has         = rig.Has
	dec         = rig.Dec
	crowd       = rig.Crowd
)

type (
	twice     = rig.Twice
	recording = rig.Recording
)

// patient are options for tests that are not about time: a busy machine may take its while.
var patient = stock.Options{CallTimeout: 10 * time.Second}

// on makes a client of the library on c.
func on(t testing.TB, c rueidis.Client, o stock.Options) *stock.Client {
	t.Helper()
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	rc, err := stock.New(rig.Hub(t, c), o)
	require.NoError(t, err)
	t.Cleanup(func() { rc.Close(ctx) })
	return rc
}

// exact are options for tests whose clock jumps, or that count what is sent: every claim asks the server.
var exact = stock.Options{CallTimeout: patient.CallTimeout, SoldOutTrust: -1}

// spec is an opening that is open for as long as a test may last.
func spec(limit int64) stock.Spec {
	return stock.Spec{Limit: limit, OpenFor: time.Hour, Retain: time.Hour}
}

// opened is a fresh stock of limit units.
func opened(t testing.TB, c *stock.Client, name string, limit int64) *stock.Stock {
	t.Helper()
	s := c.Stock(name)
	_, err := s.Open(ctx, spec(limit))
	require.NoError(t, err)
	return s
}

// lifetime is the longest one of a stock.
const lifetime = 100 * 365 * 24 * time.Hour

// lookup is what claimant has by Claim.
func lookup(s *stock.Stock, claimant string) (stock.Holding, bool, error) {
	h, err := s.Lookup(ctx, stock.Units{Claimant: claimant})
	return h, h.Won(), err
}

// unitsOf is all that claimant has, by ordinal.
func unitsOf(s *stock.Stock, claimant string) ([]stock.Holding, error) {
	has := map[string]stock.Holding{}
	for h, err := range s.Holders(ctx, claimant) {
		if err != nil {
			return nil, err
		}
		has[h.Request] = h // it may come twice
	}
	return slices.SortedFunc(maps.Values(has), func(a, b stock.Holding) int {
		return cmp.Or(cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.Request, b.Request))
	}), nil
}
