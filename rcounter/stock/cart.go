package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Cart is the answer to a cart. The zero Cart is no answer.
type Cart struct {
	// Outcome is Granted if all lines were granted, some by this call; Replayed if all were before; or else that of the first line
	// that was refused.
	Outcome Outcome
	// Lines are the answers to the lines, in the order of the stocks' names.
	Lines []LineGrant
	// Until is when the units go back unless the cart is confirmed: the first of the lines' Grant.Until. It is zero if nothing is
	// held.
	Until time.Time
}

// Won reports whether the claimant has the units of all lines: Granted or Replayed.
func (c Cart) Won() bool { return Grant{Outcome: c.Outcome}.Won() }

// finish sets what follows from the lines. The error is that of the first line that has one.
func (c *Cart) finish() (err error) {
	c.Outcome = Replayed
	for i := range c.Lines {
		l := &c.Lines[i]
		if l.Err != nil && err == nil {
			err = fmt.Errorf("line %.64q: %w", l.Stock, l.Err)
		}
		l.Err = edged(l.Err)
		if o := l.Grant.Outcome; c.Won() && o != 0 && (o == Granted || !l.Grant.Won()) {
			c.Outcome = o
		}
		if u := l.Grant.Until; !u.IsZero() && (c.Until.IsZero() || u.Before(c.Until)) {
			c.Until = u
		}
	}
	if err != nil {
		c.Outcome = 0
	}
	return err
}

// Reserve holds the units of all lines for claimant, or nothing, until Confirm sells them, Cancel gives them back, or ttl (at least a
// millisecond) is over by the server's clock. Then all go back by themselves. There are 1 to 16 lines, each of another stock. id is
// the caller's own, a new one for each cart; it is that of the reservation in each stock too. One round trip, repeated until
// answered.
//
// For each line holds what Stock.Reserve says. If a line is refused, the Cart has its Outcome, nothing is held, and Cart.Lines say
// which lines were refused, and why; the same id may be granted later. The same call again is Replayed. The same id with other
// stocks, other numbers or another claimant is ErrMismatch, while the cart is remembered: after its time is over, or it was cancelled,
// for the longest Spec.Remember of its stocks; once it is sold, until the retention of all its stocks is over.
//
// Errors: those of Stock.Reserve, with the Cart if they are the answers of lines (see LineGrant.Err), and ErrInvalidOption for lines.
func (g *Group) Reserve(ctx context.Context, id, claimant string, lines []Line, ttl time.Duration) (_ Cart, err error) {
	defer edge(&err)
	lines, err = checkLines("lines", lines)
	if err := cmp.Or(g.usable(), keyname.Required("id", id), keyname.Required("claimant", claimant), err, checkTTL(ttl)); err != nil {
		return Cart{}, err
	}
	t, err := g.cart(id, lines)
	if err != nil {
		return Cart{}, err
	}
	c, sold, until := t.soldOut(ctx)
	if sold {
		return c, nil
	}
	ctx, done := patience(ctx, until)
	defer done()
	args := []string{claimant, script.Millis(ttl)}
	for _, l := range lines {
		args = append(args, decimal(l.N))
	}
	began, turns := g.c.began(), make([]int64, len(t.stocks))
	for i, s := range t.stocks {
		turns[i] = s.shared().cache.turns.Load()
	}
	c, err = t.grants(ctx, actReserve, args...)
	for i, s := range t.stocks {
		var l LineGrant
		if c.Lines != nil {
			l = c.Lines[i]
		}
		s.shared().cache.heard(l.Grant, turns[i])
		if l.Grant.Outcome != 0 || err != nil {
			g.c.claimed(ctx, s.name, began, l.Grant, cmp.Or(l.Err, err))
		}
	}
	return c, err
}

// Confirm sells what the cart with that id holds, all lines or none, and returns the ordinals of each line. stocks are the names of
// all stocks of the cart, in any order. Without them Confirm asks the server first, which takes one more round trip and finds the
// cart for as long as it is remembered (see Reserve). Repeated until answered; the same call again is Replayed.
//
// Each line is a reservation by itself too: Stock.Confirm of a line's stock, with the same id, sells that line alone, and
// Stock.Cancel gives it back. Confirm then finds the line Replayed and sells the others, or finds it Cancelled and sells nothing.
//
// Confirm is the verb for a payment, in time or late, as Stock.Confirm is. If the cart's time is over, each line takes its units again,
// as far as they are left: that is not all or none. Cart.Outcome is Granted or Replayed if every line has units; else it is that of the
// first line that has none, Expired for example, while others may have theirs. If a line was cancelled, or its sale was taken back, or
// one of the stocks does not know the id, nothing is sold. All this is final, and Cart.Lines say what each line has, and what is
// missing of it. If a stock is Suspended, Paused or NotStarted, nothing is sold, and nothing decided. Errors: ErrNotFound if there is
// no such cart, or none any more, ErrMismatch if
// the cart has other stocks, and those of Stock.Confirm; the Cart comes with them if they are the answers of lines.
func (g *Group) Confirm(ctx context.Context, id string, stocks ...string) (_ Cart, err error) {
	defer edge(&err)
	t, err := g.find(ctx, id, stocks)
	switch {
	case err != nil:
		return Cart{}, err
	case t.cancelled:
		return Cart{Outcome: Cancelled}, nil
	case len(t.stocks) == 0:
		return Cart{}, t.at.verdict([]int64{stockNone, 0, 0})
	}
	return t.grants(ctx, actConfirm, slices.Repeat([]string{"0"}, len(t.stocks))...)
}

// Cancel gives back what the cart with that id holds, and reports whether this call did so. It is false if the cart's time was over,
// or it was confirmed (and stays so) or cancelled before. It is also false if there was no such cart; then a later Reserve of that
// id is Cancelled, for an hour, or, if stocks are named, for as long as their Spec.Remember says. Lines that
// were confirmed by themselves stay sold. stocks are as in Confirm. Repeated until answered.
//
// Errors: ErrMismatch: the cart has other stocks, or the id is that of a Claim in one of them; nothing was given back. And those
// of Claim.
func (g *Group) Cancel(ctx context.Context, id string, stocks ...string) (_ bool, err error) {
	defer edge(&err)
	for {
		t, err := g.find(ctx, id, stocks)
		if err != nil || t.cancelled {
			return false, err
		}
		v, sent, err := t.send(ctx, actCancel)
		if err != nil {
			return false, err
		}
		if v[0] == stockOtherwise { // it was made since it was looked for
			continue
		}
		c, back := Cart{Lines: t.lines()}, false
		for i, s := range t.stocks {
			d := doneIn(v, i, sent)
			s.shared().cache.forget()
			if c.Lines[i].Err = nil; d.front < 0 {
				c.Lines[i].Err = s.verdict([]int64{d.front, -1, 0})
			}
			back = back || d.second > 0
		}
		return back, c.finish()
	}
}

// usable is the reason if no verb of g can run.
func (g *Group) usable() error { return g.c.calls.Usable(g.refused) }

// cartStocks is a cart's id and stocks, in the order of their names.
type cartStocks struct {
	id        string
	what      string   // as the server keeps it
	at        *Stock   // has all keys, the cart's first
	stocks    []*Stock // none: nothing is known of the cart
	names     []string
	cancelled bool // nothing is known but that
}

// cartSeparator separates the names of a cart's stocks. No name has a NUL byte.
const cartSeparator = "\x00"

func (g *Group) cart(id string, lines []Line) (*cartStocks, error) {
	t := &cartStocks{id: id, at: &Stock{c: g.c, name: g.tag, keys: []string{g.key + ":cart:" + id}}}
	for _, l := range lines {
		s := g.Stock(l.Stock)
		if s.refused != nil {
			return nil, s.refused
		}
		t.names = append(t.names, l.Stock)
		t.stocks = append(t.stocks, s)
		t.at.keys = append(t.at.keys, s.keys...)
	}
	t.what = strings.Join(t.names, cartSeparator)
	return t, nil
}

// find is the cart with that id and these stocks, or with those that the server knows of.
func (g *Group) find(ctx context.Context, id string, stocks []string) (*cartStocks, error) {
	var lines []Line
	var err error
	if len(stocks) > 0 {
		lines, err = checkStocks(stocks)
	}
	if err := cmp.Or(g.usable(), keyname.Required("id", id), err); err != nil {
		return nil, err
	}
	t, err := g.cart(id, lines)
	if err != nil || len(stocks) > 0 {
		return t, err
	}
	key := t.at.keys[0]
	m, err := g.c.calls.Do(ctx, script.Call{Script: cartFind, Keys: t.at.keys, Command: func(b rueidis.Builder) rueidis.Completed {
		return b.Get().Key(key).Build()
	}})
	if isNil(err) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	what, err := m.ToString()
	if err != nil {
		return nil, malformed("get", key)
	}
	if what == "" {
		t.cancelled = true
		return t, nil
	}
	for name := range strings.SplitSeq(what, cartSeparator) {
		lines = append(lines, Line{Stock: name})
	}
	return g.cart(id, lines)
}

var (
	cartScript = script.Load("cart", files, "cart")
	cartFind   = script.Plain("get")
)

// isNil reports whether err says that there is no such key or field.
func isNil(err error) bool {
	var e *rueidis.RedisError
	return errors.As(err, &e) && e.IsNil()
}

// send runs cart.lua.
func (t *cartStocks) send(ctx context.Context, v verb, args ...string) (reply []int64, sent time.Time, err error) {
	call := session.CallID()
	reply, sent, unconfirmed := t.at.timely(ctx, 4+7*len(t.stocks), cartScript, func(notAfter string) []string {
		return append([]string{call, t.at.c.calls.Mark(), notAfter, string(v), t.id, t.what}, args...)
	})
	switch {
	case reply == nil:
		return nil, sent, unconfirmed
	case reply[0] == stockOtherwise:
		return reply, sent, nil
	case reply[0] < 0 && len(reply) > 3 && reply[3] > 0 && reply[3] <= int64(len(t.stocks)):
		return nil, sent, t.stocks[reply[3]-1].verdict(reply)
	case reply[0] != stockOK:
		return nil, sent, t.at.verdict(reply)
	}
	return reply, sent, unconfirmed
}

// doneIn is the answer for the i-th stock in a reply of cart.lua.
func doneIn(v []int64, i int, sent time.Time) done {
	d := v[4+7*i:]
	return done{front: d[0], second: d[1], third: d[2], asked: d[3], left: d[4], epoch: d[5], remaining: d[6], sent: sent}
}

func (t *cartStocks) lines() []LineGrant {
	lines := make([]LineGrant, len(t.names))
	for i, name := range t.names {
		lines[i].Stock = name
	}
	return lines
}

// grants makes a call that grants units, or confirms them.
func (t *cartStocks) grants(ctx context.Context, v verb, args ...string) (Cart, error) {
	reply, sent, err := t.send(ctx, v, args...)
	if reply == nil {
		return Cart{}, err
	}
	c := Cart{Lines: t.lines()}
	for i, s := range t.stocks {
		l := &c.Lines[i]
		l.Grant, l.Err = s.won(doneIn(reply, i, sent), t.id)
	}
	failed := c.finish()
	for _, l := range c.Lines { // what one line has is no decision while another may get its units later
		if o := l.Grant.Outcome; v == actConfirm && failed == nil && o != 0 && !o.Final() {
			c.Outcome = o
			break
		}
	}
	if err != nil && c.Won() { // unconfirmed; what was refused is forgotten by no failover
		return Cart{}, err
	}
	return c, failed
}

// soldOut is the answer that this process can give by itself under Fresh: a stock has nothing left. until is that of cache.soldOut.
func (t *cartStocks) soldOut(ctx context.Context) (c Cart, yes bool, until time.Time) {
	c.Outcome = SoldOut
	if !isFresh(ctx) {
		return c, false, until
	}
	for i, s := range t.stocks {
		epoch, yes, until := s.shared().cache.soldOut(ctx)
		if !until.IsZero() {
			return c, false, until
		}
		if yes {
			if c.Lines == nil {
				c.Lines = t.lines()
			}
			c.Lines[i].Grant = Grant{Outcome: SoldOut, Epoch: epoch}
			s.c.observe(ctx, Event{Kind: EventAnsweredLocally, Name: s.name, Outcome: SoldOut})
		}
	}
	return c, c.Lines != nil, until
}

// checkLines refuses the lines of a cart, or returns them in the order of their stocks' names.
func checkLines(what string, lines []Line) ([]Line, error) {
	if len(lines) < 1 || len(lines) > maxLines {
		return nil, errs.InvalidOption(what, len(lines), fmt.Sprintf("1 to %d", maxLines))
	}
	sorted := slices.Clone(lines)
	slices.SortFunc(sorted, func(a, b Line) int { return cmp.Compare(a.Stock, b.Stock) })
	for i, l := range sorted {
		if i > 0 && l.Stock == sorted[i-1].Stock {
			return nil, errs.InvalidOption(what, fmt.Sprintf("%.64q", l.Stock), "each of another stock")
		}
		if err := checkN("N", l.N); err != nil {
			return nil, fmt.Errorf("line %.64q: %w", l.Stock, err)
		}
	}
	return sorted, nil
}

// checkStocks is checkLines for the names of a cart's stocks.
func checkStocks(names []string) ([]Line, error) {
	lines := make([]Line, len(names))
	for i, name := range names {
		lines[i] = Line{Stock: name, N: 1}
	}
	return checkLines("stocks", lines)
}
