package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// form is how the units are sold: by default as a stock.Stock, from which a user claims one.
type form struct {
	Reserve bool  // a Stock: a unit is reserved, and sold when the user has paid
	Packet  int64 // a redpacket.Packet: the units are shares of so many cents, 0: none
}

func (f form) String() string {
	switch {
	case f.Reserve:
		return "reserve and confirm"
	case f.Packet > 0:
		return "red packet of " + money(f.Packet)
	}
	return "stock"
}

// money writes cents as an amount.
func money(cents int64) string { return fmt.Sprintf("%s.%02d", group(cents/100), cents%100) }

// goods is what is sold, in one of these forms.
type goods interface {
	open(ctx context.Context, units int64, openFor time.Duration) error
	claim(ctx context.Context, user string) (bought, error)
	lookup(ctx context.Context, user string) (bought, error) // ordinal 0: nothing
	status(ctx context.Context) (shelf, error)
	close(ctx context.Context) error // no more units are sold
}

// bought is what a user has.
type bought struct {
	outcome stock.Outcome
	ordinal int64
	cents   int64 // of a red packet
	epoch   int64
}

// shelf is the goods as they are now.
type shelf struct {
	stock.State
	cents int64 // of a red packet: how much was taken
}

func (f form) goods(stocks *stock.Client, packets *redpacket.Client, name string) goods {
	switch {
	case f.Packet > 0:
		return packetGoods{packets.Packet(name), f.Packet}
	case f.Reserve:
		return reservedGoods{stockGoods{stocks.Stock(name)}}
	}
	return stockGoods{stocks.Stock(name)}
}

func grantOf(g stock.Grant) bought {
	return bought{outcome: g.Outcome, ordinal: g.Ordinal, epoch: g.Epoch}
}

// stockGoods is a Stock.
type stockGoods struct{ stock *stock.Stock }

func (s stockGoods) open(ctx context.Context, units int64, openFor time.Duration) error {
	_, err := s.stock.Open(ctx, stock.Spec{Limit: units, OpenFor: openFor, Retain: retain})
	return err
}

func (s stockGoods) claim(ctx context.Context, user string) (bought, error) {
	g, err := s.stock.Claim(ctx, user)
	return grantOf(g), err
}

func (s stockGoods) lookup(ctx context.Context, user string) (bought, error) {
	h, err := s.stock.Lookup(ctx, stock.Units{Claimant: user})
	return bought{outcome: h.Outcome, ordinal: h.Ordinal, epoch: h.Epoch}, err
}

func (s stockGoods) status(ctx context.Context) (shelf, error) {
	st, err := s.stock.Inspect(ctx)
	return shelf{State: st}, err
}

func (s stockGoods) close(ctx context.Context) error { return s.stock.EndSale(ctx) }

// reservedGoods is a Stock of which a unit is held while its user pays.
type reservedGoods struct{ stockGoods }

const (
	// holdFor is how long a unit is held: longer than it takes to ask again for what a killed worker left.
	holdFor = time.Minute
	// maxHolds is how often a user may reserve anew, because the time to pay was over.
	maxHolds = 10
)

// holdID names a user's n-th reservation. Every worker asks for the first one first. So a worker that asks again finds
// what an earlier worker began.
func holdID(user string, n int) string { return strconv.Itoa(n) + "/" + user }

func (s reservedGoods) claim(ctx context.Context, user string) (bought, error) {
	for n := 1; ; n++ {
		id := holdID(user, n)
		r, err := s.stock.Reserve(ctx, user, stock.Request{ID: id, N: 1}, holdFor)
		if err != nil {
			return bought{}, err
		}
		if r.Outcome == stock.Expired && n < maxHolds {
			continue
		}
		if !r.Won() {
			return bought{outcome: r.Outcome, epoch: r.Epoch}, nil
		}
		// here the user would pay
		g, err := s.stock.Confirm(ctx, id)
		if g.Outcome == stock.Expired && n < maxHolds {
			continue
		}
		return grantOf(g), err
	}
}

// lookup sells what is still held for user: the user asked for it, and the claim was not refused.
func (s reservedGoods) lookup(ctx context.Context, user string) (bought, error) {
	for n := 1; n <= maxHolds; n++ {
		h, err := s.stock.Lookup(ctx, stock.Units{Request: holdID(user, n)})
		switch {
		case err != nil || h.Outcome == "":
			return bought{}, err
		case h.Outcome == stock.Expired:
			continue
		}
		g, err := s.stock.Confirm(ctx, holdID(user, n))
		return grantOf(g), err
	}
	return bought{}, nil
}

// packetGoods is a redpacket.Packet: a unit is a share of the money.
type packetGoods struct {
	packet *redpacket.Packet
	total  int64
}

func (p packetGoods) open(ctx context.Context, units int64, openFor time.Duration) error {
	_, err := p.packet.Send(ctx, redpacket.Spec{Total: p.total, Shares: units, OpenFor: openFor, Retain: retain})
	// a leader died while it was sending; the next one asks again, until that sending has expired
	if errors.Is(err, redpacket.ErrSending) {
		err = fmt.Errorf("%w: %w", redlatch.ErrUnavailable, err)
	}
	return err
}

// outcomes translates the outcomes of a packet to those of a stock.
var outcomes = map[redpacket.Outcome]stock.Outcome{redpacket.Granted: stock.Granted,
	redpacket.Replayed: stock.Replayed, redpacket.SoldOut: stock.SoldOut,
	redpacket.NotOpen: stock.NotOpen, redpacket.Ended: stock.Ended}

func shareOf(s redpacket.Share) bought {
	return bought{outcome: outcomes[s.Outcome], ordinal: s.Ordinal, cents: s.Cents, epoch: s.Epoch}
}

func (p packetGoods) claim(ctx context.Context, user string) (bought, error) {
	s, err := p.packet.Grab(ctx, user)
	return shareOf(s), err
}

// lookup reads all shares: it is for the few claims that are without an answer at the end.
func (p packetGoods) lookup(ctx context.Context, user string) (bought, error) {
	for s, err := range p.packet.Shares(ctx) {
		if err != nil || s.User == user {
			return shareOf(s), err
		}
	}
	return bought{}, nil
}

func (p packetGoods) status(ctx context.Context) (shelf, error) {
	st, err := p.packet.Inspect(ctx)
	if err != nil {
		return shelf{}, err
	}
	states := map[redpacket.Phase]stock.Phase{redpacket.PhaseOpen: stock.PhaseOpen, redpacket.PhaseEnded: stock.PhaseEnded,
		redpacket.PhaseRefunded: stock.PhaseClosed, redpacket.PhaseSending: stock.PhaseAbsent,
		redpacket.PhaseAbsent: stock.PhaseAbsent}
	if st.Phase == redpacket.PhaseOpen && st.Total != p.total {
		return shelf{}, fmt.Errorf("%w: the packet is one of %s", errOtherTotal, money(st.Total))
	}
	return shelf{State: stock.State{Phase: states[st.Phase], Limit: st.Shares, Sold: st.Taken,
		Remaining: st.Shares - st.Taken, Seq: st.Taken,
		Epoch: st.Epoch, UntilEnd: st.UntilEnd, UntilGone: st.UntilGone}, cents: st.TakenCents}, nil
}

// errOtherTotal: the packet of that name was sent with another total.
var errOtherTotal = errors.New("another total")

// close does nothing: a packet cannot be closed before its time. Users who tap again get what they have.
func (p packetGoods) close(context.Context) error { return nil }
