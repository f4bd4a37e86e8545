package stock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Cart is the answer to a cart. The zero Cart is not an answer.
type Cart struct {
	// Outcome is Granted if all lines were granted, some by this call; Replayed if all were before; or else that of the
	// first line that was refused.
	Outcome Outcome
	// Lines are the answers to the lines, in the order of the stocks' names.
	Lines []LineGrant
	// Until is when the units go back unless the cart is confirmed: the first of the lines' Grant.Until. It is zero if
	// nothing is held.
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
		if o := l.Grant.Outcome; c.Won() && o != "" && (o == Granted || !l.Grant.Won()) {
			c.Outcome = o
		}
		if u := l.Grant.Until; !u.IsZero() && (c.Until.IsZero() || u.Before(c.Until)) {
			c.Until = u
		}
	}
	if err != nil {
		c.Outcome = ""
	}
	return err
}

// CartRequest is a request for the units of several stocks of a group, all or none.
type CartRequest struct {
	// ID is the caller's own, a new one for each cart. It is that of the reservation in each stock too.
	ID string
	// Lines are 1 to 16, in any order, each of another stock.
	Lines []Line
}

// Reserve holds the units of all lines for claimant, or nothing, until Confirm sells them, Cancel gives them back, or
// ttl (at least a millisecond) is over by the server's clock. Then all go back by themselves. One round trip, repeated
// until answered.
//
// For each line holds what Stock.Reserve says. If a line is refused, the Cart has its Outcome, nothing is held, and
// Cart.Lines say which lines were refused, and why; the same ID may be granted later. The same call again is Replayed.
// The same ID with other stocks, other numbers or another claimant is ErrMismatch, for as long as one of the stocks
// knows the ID: see Spec.Remember.
//
// Errors: those of Stock.Reserve, with the Cart if they are the answers of lines (see LineGrant.Err), and
// ErrInvalidOption for Lines.
func (g *Group) Reserve(ctx context.Context, claimant string, r CartRequest,
	ttl time.Duration) (answer Cart, err error) {
	defer edge(&err)
	lines, err := checkLines("lines", r.Lines, 1)
	if err := cmp.Or(g.usable(), keyname.Required("id", r.ID), keyname.Required("claimant", claimant), err,
		checkTTL(ttl)); err != nil {
		return Cart{}, err
	}
	t, err := g.cart(r.ID, lines)
	if err != nil {
		return Cart{}, err
	}
	c, sold, until := t.soldOut(ctx)
	if sold {
		return c, nil
	}
	ctx, done := untilContext(ctx, until)
	defer done()
	args := []string{claimant, script.Millis(ttl)}
	for _, l := range lines {
		args = append(args, decimal(l.N))
	}
	began, turns := g.c.began(), make([]int64, len(t.stocks))
	for i, s := range t.stocks {
		turns[i] = s.processState().cache.turns.Load()
	}
	c, err = t.grants(ctx, actReserve, args...)
	for i, s := range t.stocks {
		var l LineGrant
		if c.Lines != nil {
			l = c.Lines[i]
		}
		s.processState().cache.observe(l.Grant, turns[i])
		if l.Grant.Outcome != "" || err != nil {
			g.c.claimed(ctx, s.name, began, l.Grant, cmp.Or(l.Err, err))
		}
	}
	return c, err
}

// Confirm is the verb for a payment for a cart, in time or late, as Stock.Confirm is for a reservation. lines are all
// lines of the cart, in any order, each with the number of units that were paid for; with N 0, all that it holds.
// Repeated until answered; the same call again is Replayed.
//
// While the cart is held, all lines are sold, or none. If its time is over, each line takes its units again, as far as
// they are left: that is not all or none. Cart.Outcome is Granted or Replayed if every line has units; else it is that
// of the first line that has none, Expired for example, while others may have theirs. If a line was cancelled, or its
// sale was taken back, or one of the stocks does not know the id, nothing is sold. All this is final, and Cart.Lines
// say what each line has, and what is missing of it. If a stock is Suspended, Paused or NotStarted, that is the
// outcome; nothing is sold, and nothing decided.
//
// Each line is a reservation by itself too: Stock.Confirm of a line's stock, with the same id, sells that line alone,
// and Stock.Cancel gives it back. Confirm then finds the line Replayed and sells the others, or finds it Cancelled and
// sells nothing.
//
// Errors: ErrMismatch if the cart has other stocks, ErrInvalidOption for lines, and those of Stock.Confirm; the Cart
// comes with them if they are the answers of lines.
func (g *Group) Confirm(ctx context.Context, id string, lines ...Line) (answer Cart, err error) {
	defer edge(&err)
	sorted, err := checkLines("lines", lines, 0)
	if err != nil {
		return Cart{}, err
	}
	t, err := g.cart(id, sorted)
	if err != nil {
		return Cart{}, err
	}
	paid := make([]string, len(sorted))
	for i, l := range sorted {
		paid[i] = decimal(l.N)
	}
	c, err := t.grants(ctx, actConfirm, paid...)
	for i := range c.Lines {
		l := &c.Lines[i]
		if l.Grant = l.Grant.paid(sorted[i].N); sorted[i].N > 0 {
			t.stocks[i].processState().cache.forget() // a part may have come back
		}
	}
	return c, err
}

// Extend has a cart hold its units for ttl from now, all lines or none, as Stock.Extend does for a reservation: never
// shorter than they would be held anyway. If a line holds nothing any more, the Cart has its Outcome, and nothing is
// changed. stocks are the names of all stocks of the cart, in any order. Repeated until answered.
//
// Errors: ErrNotFound if a stock does not know the cart; ErrMismatch if it has other stocks; ErrInvalidOption; and
// those of Stock.Extend.
func (g *Group) Extend(ctx context.Context, id string, ttl time.Duration, stocks ...string) (cart Cart, err error) {
	defer edge(&err)
	t, err := g.named(id, stocks)
	if err := cmp.Or(err, checkTTL(ttl)); err != nil {
		return Cart{}, err
	}
	return t.grants(ctx, actExtend, script.Millis(ttl))
}

// Cancel gives back what the cart with that id holds, and reports whether this call did so. It is false if the cart's
// time was over, or it was confirmed (and stays so) or cancelled before. It is also false if there was no such cart. No
// later Reserve or Confirm of the id gets units, for as long as the stocks' Spec.Remember says. Lines that were
// confirmed by themselves stay sold. stocks are as in Extend. Repeated until answered.
//
// Errors: ErrMismatch: the cart has other stocks, or the id is that of a Claim in one of them; nothing was given back.
// And those of Stock.Cancel.
func (g *Group) Cancel(ctx context.Context, id string, stocks ...string) (done bool, err error) {
	defer edge(&err)
	n, err := g.undo(ctx, actCancel, id, stocks)
	return n > 0, err
}

// Return gives back what was sold of the cart with that id, once, and returns how many units of all lines came back by
// this call: 0, without an error, if they had come back before, or nothing was sold. What is only held stays held. A
// part of a line is given back by its stock: Stock.Return with the cart's id. stocks are as in Extend. Repeated until
// answered.
//
// Errors: those of Cancel.
func (g *Group) Return(ctx context.Context, id string, stocks ...string) (returned int64, err error) {
	defer edge(&err)
	return g.undo(ctx, actReturn, id, stocks)
}

// undo does an act that gives units back, and returns how many this call gave back.
func (g *Group) undo(ctx context.Context, v verb, id string, stocks []string) (n int64, err error) {
	t, err := g.named(id, stocks)
	if err != nil {
		return 0, err
	}
	reply, sent, err := t.send(ctx, v)
	if err != nil {
		return 0, err
	}
	c := Cart{Lines: t.lines()}
	for i, s := range t.stocks {
		d := doneIn(reply, i, sent)
		s.processState().cache.forget()
		if d.front < 0 {
			c.Lines[i].Err = s.verdict([]int64{d.front, -1, 0})
		}
		n += d.second
	}
	return n, c.finish()
}

// Lookup returns what has come of each line of the cart with that id, all at one time, by the names of their stocks. It
// changes nothing. What a stock does not know, or has forgotten (Spec.Remember), has the Outcome 0. stocks are as in
// Extend. One round trip, repeated until answered.
//
// Errors: ErrMismatch if the cart has other stocks; ErrInvalidOption; and those of Stock.Lookup.
func (g *Group) Lookup(ctx context.Context, id string, stocks ...string) (held map[string]Holding, err error) {
	defer edge(&err)
	t, err := g.named(id, stocks)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	m, err := g.c.calls.Do(ctx, t.at.call(cartFind, id))
	if err != nil {
		return nil, err
	}
	return t.holdings(m, sent)
}

// holdings reads a reply of cartfind.lua.
func (t *cartStocks) holdings(m rueidis.RedisMessage, sent time.Time) (map[string]Holding, error) {
	parts, err := m.ToArray()
	if err != nil || len(parts) < 3 {
		return nil, malformed("find", t.at.keys[0])
	}
	var v []int64
	for _, p := range parts[:min(4, len(parts))] {
		n, _ := p.AsInt64()
		v = append(v, n)
	}
	if v[0] != stockOK {
		return nil, t.wrong(v)
	}
	if len(parts) != 3+2*len(t.stocks) {
		return nil, malformed("find", t.at.keys[0])
	}
	all := make(map[string]Holding, len(t.stocks))
	for i, name := range t.names {
		f := found{at: v[1], sent: sent}
		f.epoch, err = parts[3+2*i].AsInt64()
		if err == nil {
			f.record, err = parts[4+2*i].ToString()
		}
		if err != nil {
			return nil, malformed("find", t.at.keys[0])
		}
		switch f.record {
		case "":
			all[name] = Holding{Epoch: f.epoch}
			continue
		case recordDoubtful:
			return nil, t.stocks[i].verdict([]int64{stockRestoring, 0, 0})
		}
		h, ok := f.holding(t.id, f.record)
		if !ok {
			return nil, corrupt(t.stocks[i].keys[0], -1, 0)
		}
		if q, _ := parseRecord(f.record); q.cart() != "" && q.cart() != t.digest {
			return nil, fmt.Errorf("%w: on %q", errs.ErrMismatch, t.stocks[i].keys[0])
		}
		all[name] = h
	}
	return all, nil
}

// usable is the reason if no verb of g can run.
func (g *Group) usable() error { return g.c.calls.Usable(g.refused) }

// cartStocks is a cart's id and stocks, in the order of their names.
type cartStocks struct {
	id     string
	digest string // of the names, as the records of the lines have it: see cart.lua
	at     *Stock // has the keys of all
	stocks []*Stock
	names  []string
}

func (g *Group) cart(id string, lines []Line) (*cartStocks, error) {
	if err := cmp.Or(g.usable(), keyname.Required("id", id)); err != nil {
		return nil, err
	}
	t := &cartStocks{id: id, at: &Stock{c: g.c, name: g.tag}}
	all := sha256.New()
	for _, l := range lines {
		s := g.Stock(l.Stock)
		if s.refused != nil {
			return nil, s.refused
		}
		t.names = append(t.names, l.Stock)
		t.stocks = append(t.stocks, s)
		t.at.keys = append(t.at.keys, s.keys...)
		all.Write([]byte(l.Stock + "\x00")) // which no name has
	}
	t.digest = base64.RawURLEncoding.EncodeToString(all.Sum(nil)[:9])
	return t, nil
}

// named is the cart with that id and the stocks of these names.
func (g *Group) named(id string, stocks []string) (*cartStocks, error) {
	lines := make([]Line, len(stocks))
	for i, name := range stocks {
		lines[i].Stock = name
	}
	lines, err := checkLines("stocks", lines, 0)
	if err := cmp.Or(g.usable(), keyname.Required("id", id), err); err != nil {
		return nil, err
	}
	return g.cart(id, lines)
}

var (
	cartScript = script.Load("cart", files, "cart")
	cartFind   = script.Load("cart find", files, "cartfind").Reads()
)

// send runs cart.lua.
func (t *cartStocks) send(ctx context.Context, v verb, args ...string) (reply []int64, sent time.Time, err error) {
	call := session.CallID() + "+" + t.digest
	reply, sent, unconfirmed := t.at.timely(ctx, 4+7*len(t.stocks), cartScript, func(notAfter string) []string {
		return append([]string{call, t.at.c.calls.Mark(), notAfter, string(v), t.id}, args...)
	})
	switch {
	case reply == nil:
		return nil, sent, unconfirmed
	case reply[0] != stockOK:
		return nil, sent, t.wrong(reply)
	}
	return reply, sent, unconfirmed
}

// wrong is the error of a reply that is about one of the stocks, or about the cart.
func (t *cartStocks) wrong(reply []int64) error {
	if len(reply) > 3 && reply[3] > 0 && reply[3] <= int64(len(t.stocks)) {
		return t.stocks[reply[3]-1].verdict(reply)
	}
	return t.at.verdict(reply)
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
	for _, l := range c.Lines { // what one line has is not a decision while another may get its units later
		if o := l.Grant.Outcome; v == actConfirm && failed == nil && o != "" && !o.Final() {
			c.Outcome = o
			break
		}
	}
	decided := slices.ContainsFunc(c.Lines, func(l LineGrant) bool { return l.Grant.Outcome.Final() })
	if err != nil && decided { // unconfirmed
		return Cart{}, err
	}
	return c, failed
}

// soldOut is the answer that this process can give by itself under Fresh: a stock has nothing left. until is that of
// cache.soldOut.
func (t *cartStocks) soldOut(ctx context.Context) (c Cart, yes bool, until time.Time) {
	c.Outcome = SoldOut
	if !isFresh(ctx) {
		return c, false, until
	}
	for i, s := range t.stocks {
		epoch, yes, until := s.processState().cache.soldOut(ctx)
		if !until.IsZero() {
			return c, false, until
		}
		if yes {
			if c.Lines == nil {
				c.Lines = t.lines()
			}
			c.Lines[i].Grant = Grant{Outcome: SoldOut, Epoch: epoch}
			s.c.calls.Tell(ctx,
				errs.Event{Kind: errs.EventAnsweredLocally, Name: s.name, Outcome: string(SoldOut)})
		}
	}
	return c, c.Lines != nil, until
}

// checkLines refuses the lines of a cart, each of which has at least so many units, or returns them in the order of
// their stocks' names.
func checkLines(what string, lines []Line, least int64) ([]Line, error) {
	if len(lines) < 1 || len(lines) > maxLines {
		return nil, errs.InvalidOption(what, len(lines), fmt.Sprintf("1 to %d", maxLines))
	}
	sorted := slices.Clone(lines)
	slices.SortFunc(sorted, func(a, b Line) int { return cmp.Compare(a.Stock, b.Stock) })
	for i, l := range sorted {
		if i > 0 && l.Stock == sorted[i-1].Stock {
			return nil, errs.InvalidOption(what, fmt.Sprintf("%.64q", l.Stock), "each of another stock")
		}
		if l.N < least || l.N > maxLimit {
			return nil, fmt.Errorf("line %.64q: %w", l.Stock,
				errs.InvalidOption("N", l.N, fmt.Sprintf("between %d and %d", least, int64(maxLimit))))
		}
	}
	return sorted, nil
}
