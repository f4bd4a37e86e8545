package stock

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

const (
	maxUnits    = 1<<53 - 1 // to which the server's Lua counts exactly
	maxLines    = 16        // of an order
	maxItems    = 1024      // of a sale
	maxLifetime = 100 * 365 * 24 * time.Hour
)

// Order names what is wanted.
type Order struct {
	// ID is the shop's: a new one for each order, and never the customer's choice. "" is the User: one order for each. Ids
	// do not begin with "~".
	ID string
	// User counts for Item.PerUser. "" with an ID: nobody.
	User string
	// Lines are up to 16, each of another item, all or none. None is one unit of a sale of one item. A repeated order has
	// the same lines, in the same order.
	Lines []Line
	// UpTo: as many as there are will do, of each line; Refused only if there is not one.
	UpTo bool
	// New says that the ID was never used. Then the process may say SoldOut by itself, without asking the server.
	New bool
	// Anyone, in place of ID and User, buys units of one line for whoever it is, as fast as a counter. Answer.ID names
	// them, for Return. No later call can ask for these units, so after an error the library gives them back.
	Anyone bool
}

// Line is so many units of an item; "" is that of a sale of one item. In answers Ordinal is the number of the first,
// from 1 in the order of selling, and 0 while they are reserved. No ordinal is given twice.
type Line struct {
	Item    string
	N       int64
	Ordinal int64
}

// anyonePrefix begins the ids that the library makes for orders of Anyone.
const anyonePrefix = "~"

// checkID refuses the id of an order. isMade accepts the ids that the library makes.
func checkID(id string, isMade bool) error {
	if !isMade && strings.HasPrefix(id, anyonePrefix) {
		return fmt.Errorf("%w: the id %.64q begins with %q, as those of Anyone", errs.ErrInvalidName, id, anyonePrefix)
	}
	return keyname.Required("id", id)
}

// checkItem refuses a name of an item. Records and counts have items beside these signs.
func checkItem(name string) error {
	if strings.ContainsAny(name, ",;|+") {
		return fmt.Errorf("%w: the item %.64q has one of \",;|+\"", errs.ErrInvalidName, name)
	}
	return keyname.Text("item", name)
}

// checkLines refuses lines; those of a payment or a return may have no units of an item.
func checkLines(lines []Line, least int64) error {
	if len(lines) > maxLines {
		return errs.InvalidOption("Lines", len(lines), fmt.Sprintf("at most %d", maxLines))
	}
	for i, l := range lines {
		if l.N < least || l.N > maxUnits {
			return errs.InvalidOption("Line.N", l.N, fmt.Sprintf("%d to %d", least, int64(maxUnits)))
		}
		if err := checkItem(l.Item); err != nil {
			return err
		}
		for _, other := range lines[:i] {
			if other.Item == l.Item {
				return errs.InvalidOption("Lines", fmt.Sprintf("%.64q twice", l.Item), "of different items")
			}
		}
	}
	return nil
}

// oneUnit are the lines of an order by default. No function changes the lines of an order.
var oneUnit = []Line{{N: 1}}

// check refuses an order, and fills in the ID and the Lines that it has by default.
func (o *Order) check() error {
	if o.Lines == nil {
		o.Lines = oneUnit
	}
	if len(o.Lines) == 0 {
		return errs.InvalidOption("Lines", 0, fmt.Sprintf("nil, or 1 to %d", maxLines))
	}
	if err := checkLines(o.Lines, 1); err != nil {
		return err
	}
	if o.Anyone {
		if o.ID != "" || o.User != "" {
			return fmt.Errorf("%w: an order of Anyone has an ID or a User", errs.ErrInvalidName)
		}
		if len(o.Lines) > 1 {
			return errs.InvalidOption("Lines", len(o.Lines), "one for Anyone")
		}
		return nil
	}
	o.ID = cmp.Or(o.ID, o.User)
	if o.ID == "" { // a bug that loses the user must not sell
		return fmt.Errorf("%w: an order has no ID, no User and no Anyone", errs.ErrInvalidName)
	}
	return cmp.Or(checkID(o.ID, false), keyname.Text("user", o.User))
}

// isSingle reports whether the script of Buy takes the order: one unit of the item "", for its user.
func (o *Order) isSingle() bool {
	return o.ID == o.User && len(o.Lines) == 1 && o.Lines[0].Item == "" && o.Lines[0].N == 1
}

// act is the order as an act.
func (o *Order) act(verb string, ttl time.Duration) act {
	a := act{verb: verb, id: o.ID, user: o.User, of: encodeLines(o.Lines), ttl: ttl}
	if o.UpTo {
		a.of = "+" + a.of
	}
	return a
}

// encodeLines writes lines as acts.lua reads them.
func encodeLines(lines []Line) string {
	text := make([]byte, 0, 24)
	for i, l := range lines {
		if i > 0 {
			text = append(text, '|')
		}
		text = append(append(text, l.Item...), ',')
		text = strconv.AppendInt(text, l.N, 10)
	}
	return string(text)
}

func checkTTL(ttl time.Duration) error {
	if ttl < time.Millisecond || ttl > maxLifetime {
		return errs.InvalidOption("ttl", ttl, fmt.Sprintf("between 1ms and %v", maxLifetime))
	}
	return nil
}
