package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

var ctx = context.Background()

var (
	raw      = rig.Raw
	must     = rig.Must
	number   = rig.Number
	keys     = rig.Keys
	newLossy = rig.NewLossy
	dec      = rig.Dec
)

type (
	counting = rig.Counting
	twice    = rig.Twice
)

// patient are options for tests that are not about time: a busy machine may take its while.
var patient = ratelimit.Options{CallTimeout: 10 * time.Second, AllowTimeout: 10 * time.Second, RefusalTrust: -1}

// only is the error of a Wait.
func only(_ ratelimit.Admission, err error) error { return err }

// on makes a client of the library on c.
func on(t testing.TB, c rueidis.Client, o ratelimit.Options) *ratelimit.Client {
	t.Helper()
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	rc := redistest.NoError(ratelimit.New(rig.Hub(t, c), o))(t)
	t.Cleanup(func() { rc.Close(ctx) })
	return rc
}
