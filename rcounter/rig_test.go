package rcounter_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter"
)

var ctx = context.Background()

var (
	must        = rig.Must
	text        = rig.Text
	number      = rig.Number
	hash        = rig.Hash
	keys        = rig.Keys
	requireEnds = rig.RequireEnds
	serverNow   = rig.ServerNow
	newLossy    = rig.NewLossy
	dec         = rig.Dec
	eachCache   = rig.EachCache
	crowd       = rig.Crowd
)

type counting = rig.Counting

const hour = 3600_000 // ms

// patient are options for tests that are not about time: a busy machine may take its while.
var patient = rcounter.Options{CallTimeout: 10 * time.Second}

// on makes a client of the library on c.
func on(t testing.TB, c rueidis.Client, o rcounter.Options) *rcounter.Client {
	t.Helper()
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	rc := redistest.NoError(rcounter.New(rig.Hub(t, c), o))(t)
	t.Cleanup(func() { rc.Close(ctx) })
	return rc
}
