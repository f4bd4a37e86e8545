package stock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/keyname"
)

// ReserveAll reserves a cart of stocks that need not share a server: the units of each line, in the order of the stocks' names, each
// under the id id + "/" + name, and all with one end, ttl from now. If a line is refused, it cancels those before it, and the Cart
// says which line it was, and why. There are 1 to 16 lines, each of another stock. Stocks of one sale that fit on one server are
// better in a Group, which holds all or nothing in one step.
//
// It is several calls, and no step of several stocks: while it goes on, units are held that may go back at once, and somebody else
// may hear SoldOut. It never holds more than was asked for, and each line once, whoever repeats it. If the process dies, or the
// error is one after which calls are repeated (ErrUnavailable, ErrUnknownOutcome, ErrNotReplicated, or the context has ended), what
// is held stays so until its end; ReserveAll again with the same arguments, from any process, reserves the other lines, CancelAll
// gives everything back. What could not be cancelled goes back at its end too.
//
// The same call again is Replayed if all lines were reserved before; Cart.Until is when the first of them ends. If the call takes
// longer than ttl, a line that it comes to then, and that nobody has reserved before, is Expired. After a refusal the cart is cancelled,
// which is remembered (Spec.Remember), so another try needs another id.
//
// Errors: ErrInvalidOption for lines, and those of Stock.Reserve.
func (c *Client) ReserveAll(ctx context.Context, id, claimant string, lines []Line, ttl time.Duration) (_ Cart, err error) {
	defer edge(&err)
	lines, err = checkLines("lines", lines)
	if err := cmp.Or(c.calls.Usable(nil), keyname.Required("id", id), keyname.Required("claimant", claimant), err, checkTTL(ttl, minReservation)); err != nil {
		return Cart{}, err
	}
	a, err := c.across(id, lines)
	if err != nil {
		return Cart{}, err
	}
	until := time.Now().Add(ttl)
	for i, s := range a.stocks {
		l := &a.cart.Lines[i]
		left, known := time.Until(until), true
		if left < minReservation { // what was reserved before, and perhaps sold since, is answered all the same
			left = minReservation
			var f found
			f, l.Err = s.find(ctx, a.id(i))
			known = f.record != ""
		}
		switch {
		case l.Err != nil:
		case known:
			l.Grant, l.Err = bare(s.Reserve(ctx, a.id(i), claimant, lines[i].N, left))
		default:
			l.Grant = Grant{Outcome: Expired}
		}
		if unanswered(l.Err) {
			return Cart{}, a.cart.finish()
		}
		if !l.Grant.Won() {
			a.giveUp(ctx, i)
			break
		}
	}
	err = a.cart.finish()
	return a.cart, err
}

// ConfirmAll sells the lines of a cart that ReserveAll has reserved. stocks are the names of all its stocks, in any order.
//
// The last line, by name, decides, and is confirmed first. Once it is sold, the cart is: CancelAll gives nothing back any more, and
// whoever calls ConfirmAll again sells the other lines. If it cannot be sold, nothing is; so a cart that was not reserved to the end
// is not sold in part. After that line the time of another may be over, because the process died in between, or by the servers'
// clocks. Then that line is not sold, its units have gone back, and the others are sold all the same. The Cart names it: its lines
// have what each of them was answered. For the lines that are missing ConfirmAllLate gets units, or the customer a refund.
//
// The Cart comes with the error if the lines were answered. Errors: those of Stock.Confirm, and ErrInvalidOption for stocks.
func (c *Client) ConfirmAll(ctx context.Context, id string, stocks ...string) (_ Cart, err error) {
	defer edge(&err)
	return c.confirmAll(ctx, id, stocks, (*Stock).Confirm, func(g Grant) bool { return g.Won() })
}

// ConfirmAllLate is ConfirmAll for a payment that may have come too late: each line whose time is over takes its units again, as far
// as they are left (Stock.ConfirmLate). Cart.Lines say which lines have none, and Grant.Missing of a line how many it could not get.
// Nothing is sold if the last line by name was cancelled, or its sale was taken back, or its stock is Paused or Suspended, or it was
// not reserved.
func (c *Client) ConfirmAllLate(ctx context.Context, id string, stocks ...string) (_ Cart, err error) {
	defer edge(&err)
	return c.confirmAll(ctx, id, stocks, (*Stock).ConfirmLate, func(g Grant) bool { return g.Outcome > 0 && g.Outcome <= UserLimit })
}

// confirmAll confirms all lines, the last one first, and the others if goesOn says so of that one's answer.
func (c *Client) confirmAll(ctx context.Context, id string, stocks []string, confirm func(*Stock, context.Context, string) (Grant, error), goesOn func(Grant) bool) (Cart, error) {
	a, err := c.named(id, stocks)
	if err != nil {
		return Cart{}, err
	}
	last := len(a.stocks) - 1
	for i := last; i >= 0; i-- {
		l := &a.cart.Lines[i]
		l.Grant, l.Err = bare(confirm(a.stocks[i], ctx, a.id(i)))
		if unanswered(l.Err) {
			return Cart{}, a.cart.finish()
		}
		if i == last && !goesOn(l.Grant) {
			break
		}
	}
	err = a.cart.finish()
	return a.cart, err
}

// CancelAll gives back what the lines of a cart hold, and reports whether this call did so for any. If the cart was confirmed, it
// gives nothing back: see ConfirmAll. Lines that were not reserved yet never will be under this id, for as long as their Spec.Remember
// says. stocks are as in ConfirmAll. After an error it can be repeated.
func (c *Client) CancelAll(ctx context.Context, id string, stocks ...string) (back bool, err error) {
	defer edge(&err)
	a, err := c.named(id, stocks)
	if err != nil {
		return false, err
	}
	back, _, err = a.cancel(ctx, len(a.stocks)-1)
	return back, err
}

// across is a cart over stocks that share nothing.
type across struct {
	name   string
	stocks []*Stock
	cart   Cart
}

func (c *Client) across(id string, lines []Line) (*across, error) {
	a := &across{name: id}
	for _, l := range lines {
		s := c.Stock(l.Stock)
		a.stocks = append(a.stocks, s)
		a.cart.Lines = append(a.cart.Lines, LineGrant{Stock: l.Stock})
		if err := cmp.Or(s.refused, keyname.Text("id and stock", id+"/"+l.Stock)); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (c *Client) named(id string, stocks []string) (*across, error) {
	lines, err := checkStocks(stocks)
	if err := cmp.Or(c.calls.Usable(nil), keyname.Required("id", id), err); err != nil {
		return nil, err
	}
	return c.across(id, lines)
}

// id is the id of a line.
func (a *across) id(i int) string { return a.name + "/" + a.cart.Lines[i].Stock }

// cancel cancels the last line and then the first n, unless the cart was confirmed.
//
// The last line decides, in one step of its own stock: it is either sold or given back. The others are sold only after it is, and
// given back only once it cannot be sold any more. So no cart is sold and given back in parts by two processes at a time
// (TestConfirmAllAndCancelAllAtOnceLeaveEveryCartWhole). It is reserved last too: where it is held, the others were.
func (a *across) cancel(ctx context.Context, n int) (back, sold bool, err error) {
	last := len(a.stocks) - 1
	back, err = a.stocks[last].Cancel(ctx, a.id(last))
	if err == nil && !back {
		sold, err = a.stocks[last].hasSold(ctx, a.id(last))
	}
	if err != nil || sold {
		return false, sold, err
	}
	for i, s := range a.stocks[:n] {
		b, err := s.Cancel(ctx, a.id(i))
		if back = back || b; err != nil {
			return back, false, err
		}
	}
	return back, false, nil
}

// giveUp cancels the lines before the i-th, which was refused.
func (a *across) giveUp(ctx context.Context, i int) {
	if i == 0 {
		return
	}
	_, sold, err := a.cancel(context.WithoutCancel(ctx), i)
	if sold || err != nil { // sold: another process has reserved the whole cart meanwhile, and confirmed it
		return
	}
	for j := range i {
		a.cart.Lines[j].Grant = Grant{}
	}
}

// hasSold reports whether the reservation with that id was sold, and perhaps returned since.
func (s *Stock) hasSold(ctx context.Context, id string) (bool, error) {
	f, err := s.find(ctx, id)
	if err != nil || f.record == "" {
		return false, err
	}
	r, ok := parseRecord(f.record)
	if !ok {
		return false, corrupt(s.keys[0], -1, 0)
	}
	return r.state == "G" || r.state == "R", nil
}

// unanswered reports whether err leaves open what became of a call.
func unanswered(err error) bool {
	for _, e := range []error{ErrUnavailable, ErrUnknownOutcome, ErrNotReplicated, ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// bare is the answer of a verb, with its error as it was before it got the package's name.
func bare(g Grant, err error) (Grant, error) { return g, cmp.Or(errors.Unwrap(err), err) }
