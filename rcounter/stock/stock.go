package stock

import (
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// Stock is a number of units of which each claimant gets at most one: first N win. Every unit has an ordinal, every
// answer is kept, and asking again gives the same one. It is an immutable description, safe for concurrent use, and
// costs nothing until used.
//
// All that decides is on the server, in one script: the claimant's record first, then the window in the server's own
// time, then what is left. A claim can therefore be repeated by anybody, at any time, until the records' retention is
// over, and the winner of the last unit who never saw the answer still wins when told "sold out" would be wrong.
//
// A stock that is not there grants nothing: only Open creates one. A stock that has lost records grants nothing and
// says ErrCorrupt. Not promised: that a grant acknowledged by a primary survives its failover to a replica that had
// not received it, and that the window keeps to the sale's time when the server's clock is stepped. A unique index
// over (sale, claimant) and (sale, ordinal) where the orders are kept is the last guard.
type Stock struct {
	c       *Client
	name    string
	keys    []string // what stock.lua names: stock, claimants, records, holds, flag, ledger
	refused error    // what is wrong with the name
	part    bool     // it is a shard

	known atomic.Pointer[shared]
}

// Stock describes the stock called name. Nothing is sent. A name that cannot be used, braces included, makes every
// verb of the result fail with ErrInvalidName.
func (c *Client) Stock(name string) *Stock {
	s := &Stock{c: c, name: name}
	key, refused := keyname.Braced(c.calls.KeyPrefix, name, "a stock")
	if s.refused = edged(refused); refused == nil {
		s.keys = []string{key, key + ":u", key + ":r", key + ":h", key + ":o", key + ":l"}
	}
	return s
}

// alone is refused, and for a shard that it is one: what gives a stock another limit, or makes it, belongs to the whole.
func (s *Stock) alone() error {
	if s.refused == nil && s.part {
		return errs.InvalidOption("stock", fmt.Sprintf("%.64q", s.name), "no shard: it is opened with the others, and neither resized nor restored")
	}
	return s.refused
}

// call is one of the stock's scripts with its arguments.
func (s *Stock) call(sc *script.Script, args ...string) script.Call {
	return script.Call{Script: sc, Keys: s.keys, Args: args}
}

// usable is the reason if no verb of s can run.
func (s *Stock) usable() error { return s.c.calls.Usable(s.refused) }

func decimal(v int64) string { return strconv.FormatInt(v, 10) }
