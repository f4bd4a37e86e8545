package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Buy sells the units of an order at once. If the order is known, the answer is the order as it is, whatever the time.
// So after an error, ErrUnknownOutcome above all, call Buy again until it answers.
//
// Errors: ErrLater, ErrNoStock; ErrMismatch if the order was made with another user or other lines; ErrInvalidName for
// an order without ID, User and Anyone, and for an item that the sale does not have; ErrInvalidOption for lines;
// ErrOverflow; ErrNotReplicated, ErrUnavailable, ErrUnknownOutcome.
func (s *Sale) Buy(ctx context.Context, o Order) (answer Answer, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused, o.check()); err != nil {
		return Answer{}, err
	}
	return s.obtain(ctx, o, func(ctx context.Context) (Answer, error) {
		switch {
		case o.Anyone:
			return s.buyAnyone(ctx, o)
		case o.isSingle():
			d, err := s.processState().buys.Do(ctx, o.User)
			return s.answered(o.ID, o.Lines, d, err)
		}
		d, err := s.do(ctx, o.act(actBuy, 0))
		return s.answered(o.ID, o.Lines, d, err)
	})
}

// Reserve keeps the units of an order for ttl (at least 1 ms) by the server's clock: until Pay sells them or Cancel
// gives them back. Then they go back by themselves. If the order is known, the answer is the order as it is, and no
// time is added. Errors: as for Buy, and ErrInvalidOption for Anyone and for ttl.
func (s *Sale) Reserve(ctx context.Context, o Order, ttl time.Duration) (answer Answer, err error) {
	defer edge(&err)
	refused := cmp.Or(o.check(), checkTTL(ttl))
	if o.Anyone {
		refused = errs.InvalidOption("Anyone", true, "false for Reserve")
	}
	if err := s.c.calls.Usable(s.refused, refused); err != nil {
		return Answer{}, err
	}
	return s.obtain(ctx, o, func(ctx context.Context) (Answer, error) {
		d, err := s.do(ctx, o.act(actReserve, ttl))
		return s.answered(o.ID, o.Lines, d, err)
	})
}

// Extend keeps reserved units for ttl from now, never shorter than they are kept anyway. Other orders stay as they are.
// The State is "" if the sale knows no such order.
func (s *Sale) Extend(ctx context.Context, id string, ttl time.Duration) (answer Answer, err error) {
	defer edge(&err)
	return s.by(ctx, act{verb: actExtend, id: id, ttl: ttl}, checkTTL(ttl))
}

// Pay is for a payment, whenever it comes. paid are the lines that were paid for; none: all. Of a reserved order the
// units that were paid for are sold, and the rest goes back. Of a lapsed order as many units are sold as are left. An
// id that the sale does not know is Closed, Forbidden, from then on. The first decision stands, whatever later calls
// say was paid.
//
// Answer.Refund says what goes back to the customer, and nothing goes back beside an error. ErrMismatch: the order has
// no item that was paid for, and nothing was decided. ErrNoStock: also if Options.Books has units of an order that the
// server does not know; run Restore. Other errors: as for Buy.
func (s *Sale) Pay(ctx context.Context, id string, paid ...Line) (answer Answer, err error) {
	defer edge(&err)
	return s.by(ctx, act{verb: actPay, id: id, of: encodeLines(paid)}, checkLines(paid, 0))
}

// Cancel ends an order that is not sold. An id that the sale does not know is Closed, Forbidden. Errors: as for Pay.
//
// Each such id takes some 200 bytes of the server until Spec.Remember is over. Where anybody may name ids, call Status
// first, and cancel only what is there.
func (s *Sale) Cancel(ctx context.Context, id string) (answer Answer, err error) {
	defer edge(&err)
	return s.by(ctx, act{verb: actCancel, id: id})
}

// Return ends an order, sold or not. keep is for sold orders only: of each line so many units stay, the first ones. An
// id that the sale does not know is Closed, Forbidden, unless keep is given. Errors: as for Pay.
func (s *Sale) Return(ctx context.Context, id string, keep ...Line) (answer Answer, err error) {
	defer edge(&err)
	return s.by(ctx, act{verb: actReturn, id: id, of: encodeLines(keep)}, checkLines(keep, 0))
}

// Status is the order as it is. The State is "" if the sale knows no such order.
func (s *Sale) Status(ctx context.Context, id string) (answer Answer, err error) {
	defer edge(&err)
	return s.by(ctx, act{verb: actStatus, id: id})
}

// by does an act to an order by its id.
func (s *Sale) by(ctx context.Context, a act, refused ...error) (Answer, error) {
	if err := s.c.calls.Usable(s.refused, append(refused, checkID(a.id, true))...); err != nil {
		return Answer{}, err
	}
	if strings.HasPrefix(a.id, anyonePrefix) {
		return s.byPart(ctx, a)
	}
	book := s.c.book(s.name)
	a.forbids = book == nil
	d, err := s.do(ctx, a)
	if err == nil && d.code == codeUnknown && book != nil {
		if err := s.askBook(ctx, book, a.id); err != nil {
			return Answer{}, err
		}
		a.forbids = true
		d, err = s.do(ctx, a)
	}
	return s.answered(a.id, nil, d, err)
}

// askBook returns ErrNoStock if the book has units of an order that the server does not know.
func (s *Sale) askBook(ctx context.Context, book Book, id string) error {
	entries, err := book.Order(ctx, id)
	if err != nil {
		return err
	}
	f := newFold()
	for _, e := range entries {
		f.add(e)
	}
	if o := f.orders[id]; o != nil && o.state == 'S' {
		return fmt.Errorf("%w: %w: %q has forgotten the order %.64q, of which its book has units", ErrNoStock,
			errs.ErrCorrupt, s.keys[0], id)
	}
	return nil
}

// answered is the answer to an act on the order id. asked are the lines of a new order.
func (s *Sale) answered(id string, asked []Line, d decided, err error) (Answer, error) {
	if err != nil {
		a := Answer{}
		if errors.Is(err, ErrLater) { // of all acts of the call; other reasons are codes of each
			a.Why = "suspended"
		}
		return a, err
	}
	a := Answer{ID: id, Epoch: d.at.epoch}
	switch d.code {
	case codeOK:
		if d.text == "" {
			return a, nil
		}
		is, ok := parseRecord(id, d.text, d.at)
		if !ok {
			return Answer{}, s.verdict([3]int64{codeCorrupt, -1})
		}
		is.Again = d.again
		return is, nil
	case codeSoldOut, codeUserLimit, codeEnded:
		a.State, a.Why = Refused, refusedWhy[d.code]
		a.Lines = leftOf(asked, d.text)
		return a, nil
	case codePaused:
		return Answer{Why: Paused}, s.verdict([3]int64{d.code})
	case codeNotYet:
		a = Answer{Why: NotStarted}
		if ms, err := strconv.ParseInt(d.text, 10, 64); err == nil {
			a.Until = d.at.sent.Add(script.Duration(ms))
		}
		return a, s.verdict([3]int64{d.code})
	case codeCorrupt, codeNone, codeSuspended, codeLedger:
		return Answer{}, malformed("act", s.keys[0]) // no act has that code
	}
	return Answer{}, s.verdict([3]int64{d.code})
}

var refusedWhy = map[int64]string{codeSoldOut: SoldOut, codeUserLimit: UserLimit, codeEnded: Ended}

// leftOf is what is left of each line that was asked for, as act.lua says it. Of a sale that has ended it says nothing.
func leftOf(asked []Line, text string) []Line {
	left := slices.Clone(asked)
	for i := range left {
		var n string
		n, text, _ = strings.Cut(text, ",")
		left[i].N, _ = strconv.ParseInt(n, 10, 64)
	}
	return left
}
