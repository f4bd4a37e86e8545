package stock

import (
	"strconv"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// Sale sells the units of one item or of several, first come, first served. A Sale value is an immutable description:
// it costs nothing, and all values of one name are the same sale. All keys of a sale are in one slot.
type Sale struct {
	c       *Client
	name    string
	keys    []string // those of sale.lua, and then those that Restore makes
	refused error    // what is wrong with the name

	known atomic.Pointer[processState]
}

// numKeys is how many keys sale.lua has.
const numKeys = 6

// Sale describes the sale called name. Sale sends nothing. If the name cannot be used (it has braces, for example),
// every verb returns ErrInvalidName.
func (c *Client) Sale(name string) *Sale {
	s := &Sale{c: c, name: name}
	key, refused := keyname.Braced(c.calls.KeyPrefix, name, "a sale")
	if refused != nil {
		s.refused = edged(refused)
		return s
	}
	for _, suffix := range []string{"sale", "orders", "reservations", "flags", "ledger", "endings", "orders+",
		"reservations+", "endings+"} {
		s.keys = append(s.keys, key+":"+suffix)
	}
	return s
}

// call is one of the sale's scripts with its arguments.
func (s *Sale) call(sc *script.Script, args ...string) script.Call {
	return script.Call{Script: sc, Keys: s.keys[:numKeys], Args: args}
}

// usable is the reason if no verb of s can run.
func (s *Sale) usable() error { return s.c.calls.Usable(s.refused) }

func decimal(v int64) string { return strconv.FormatInt(v, 10) }
