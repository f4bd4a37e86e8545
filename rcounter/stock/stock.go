package stock

import (
	"strconv"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// Stock is a number of units that are sold first come, first served: the first N claims win. Every unit has an ordinal.
// Every answer is kept, and the same question gets the same answer. A Stock value is an immutable description. It is
// safe for concurrent use and costs nothing until it is used.
//
// Everything is decided on the server, in one script: the claimant's record comes first, then the window in the
// server's own time, then what is left. So any process can repeat a claim at any time until the retention is over. If
// the winner of the last unit never saw the answer and asks again, the answer is that unit and not SoldOut.
//
// A stock that is not there grants nothing: only Open creates one. A stock that has lost records grants nothing, and
// its verbs return ErrCorrupt. Two things are not promised: that a grant survives a failover to a replica that had not
// received it, and that the window keeps to the sale's time when the server's clock is stepped. A unique index over
// (sale, claimant) and (sale, ordinal) where the orders are kept is the last guard.
type Stock struct {
	c       *Client
	name    string
	keys    []string // what stock.lua names: stock, claimants, records, holds, flag, ledger, endings
	refused error    // what is wrong with the name

	known atomic.Pointer[processState]
}

// Stock describes the stock called name. It sends nothing. If the name cannot be used (it has braces, for example),
// every verb of the result returns ErrInvalidName.
//
// The name has no braces because the keys of a stock have braces of their own, which put them into one slot
// (TestStocks_Cluster_EveryVerbWorks).
func (c *Client) Stock(name string) *Stock {
	s := &Stock{c: c, name: name}
	key, refused := keyname.Braced(c.calls.KeyPrefix, name, "a stock")
	if s.refused = edged(refused); refused == nil {
		s.keys = stockKeys(key)
	}
	return s
}

func stockKeys(key string) []string {
	return []string{key, key + ":u", key + ":r", key + ":h", key + ":o", key + ":l", key + ":f"}
}

// call is one of the stock's scripts with its arguments.
func (s *Stock) call(sc *script.Script, args ...string) script.Call {
	return script.Call{Script: sc, Keys: s.keys, Args: args}
}

// usable is the reason if no verb of s can run.
func (s *Stock) usable() error { return s.c.calls.Usable(s.refused) }

func decimal(v int64) string { return strconv.FormatInt(v, 10) }
