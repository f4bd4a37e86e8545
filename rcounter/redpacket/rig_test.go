package redpacket_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/redpacket"
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
	dec         = rig.Dec
)

type (
	counting  = rig.Counting
	recording = rig.Recording
)

// hour is in ms.
const hour = 3600_000

// patient are options for tests that are not about time: a busy machine may take its while.
var patient = redpacket.Options{CallTimeout: 10 * time.Second}

// on makes a client of the library on c.
func on(t testing.TB, c rueidis.Client, o redpacket.Options) *redpacket.Client {
	t.Helper()
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	rc := redistest.NoError(redpacket.New(rig.Hub(t, c), o))(t)
	t.Cleanup(func() { rc.Close(ctx) })
	return rc
}

// The bounds of a packet.
const (
	maxTotal  = 1<<53 - 1
	maxShares = 1_000_000
)
