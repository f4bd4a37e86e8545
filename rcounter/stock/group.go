package stock

import (
	"cmp"

	"github.com/redlatch/redlatch/internal/keyname"
)

// Group is a set of stocks whose keys are in one slot of a Cluster, so that a cart of several of them is reserved,
// confirmed and cancelled in one script, all or none. A Group value is an immutable description. It is safe for
// concurrent use and costs nothing until it is used. One server runs all that the group's stocks do: what can be spread
// over a Cluster belongs into several groups, or into stocks of their own (docs/stocks.md has a recipe for a cart of
// those).
type Group struct {
	c       *Client
	tag     string
	key     string // rc:{tag}
	refused error  // what is wrong with the tag
}

// Group describes the stocks that share tag, such as the name of a sale. It sends nothing. If the tag cannot be used
// (it has braces, for example), every verb of the group and of its stocks returns ErrInvalidName.
func (c *Client) Group(tag string) *Group {
	g := &Group{c: c, tag: tag}
	var refused error
	g.key, refused = keyname.Braced(c.calls.KeyPrefix, tag, "a group of stocks")
	g.refused = edged(refused)
	return g
}

// Stock describes a stock of the group. It sends nothing, and the stock is like any other: it is opened and closed by
// itself, and has every verb. Observers and logs name it tag/name. Another group's stock of that name is another stock,
// and so is that of Client.Stock. If the name cannot be used, every verb of the stock returns ErrInvalidName.
func (g *Group) Stock(name string) *Stock {
	s := &Stock{c: g.c, name: g.tag + "/" + name, refused: g.refused}
	if s.refused != nil {
		return s
	}
	// rc:{tag}{name}: the first pair of braces makes the slot, and neither text has braces of its own.
	_, refused := keyname.Braced("", name, "a stock")
	key := g.key + "{" + name + "}"
	if s.refused = edged(cmp.Or(refused, keyname.Shape(key))); s.refused == nil {
		s.keys = stockKeys(key)
	}
	return s
}

// maxLines is how many stocks a cart may have: one of 16 takes the server about as long as a shared call.
const maxLines = 16

// Line is a line of a cart: so many units of a stock.
type Line struct {
	Stock string // the name that Group.Stock takes
	N     int64  // how many units, 1 to 2^53-1; of Confirm how many were paid for, 0 for all that it holds
}

// LineGrant is what a line of a cart was answered.
type LineGrant struct {
	Stock string
	// Grant is what Reserve or Confirm of this stock alone would have been answered. If its Outcome is 0, the line was not
	// in the way: it would have been granted, and was not, because another line was refused.
	Grant Grant
	// Err is why there is no Grant: ErrMismatch, for example.
	Err error
}
