// Package stock sells a limited number of units on Redis or Valkey: the first N buyers win, and nothing is sold twice.
//
//	sale := client.Sale("phones")
//	err := sale.Open(ctx, stock.Spec{Limit: 100, OpenFor: time.Hour}) // every process may call it
//	a, err := sale.Buy(ctx, stock.Order{User: "ann"})
//	if err != nil {
//		return err // ask again, with the same order: the answer will be the same
//	}
//	if a.Won() {
//		ship(a.Lines[0].Ordinal) // 1 to 100
//	}
//
// An order has an id and one line or more. A shop does everything to an order by its id, and may repeat it:
//
//	Buy      sells at once                    Cancel  ends the order unless it is sold
//	Reserve  keeps units until they are paid  Return  ends the order, sold or not, or a part of what is sold
//	Extend   gives more time to pay           Status  changes nothing
//	Pay      for a payment, in time or late
//
// # Two rules
//
// An error means: nothing is known, or nothing was decided. Ask again with the same order. An error never means that
// money is to go back. An answer is what has become of the order:
//
//	Reserved  units are kept until Until                      Pay, Extend, Cancel
//	Sold      units are sold                                  Return
//	Lapsed    the time to pay was over; the units went back   Pay still sells what is left; Cancel ends it
//	Closed    it has no units and never will: Why             final
//	Refused   nothing was kept or sold, nothing is recorded   the same call may succeed later
//	""        of Status and Extend: the sale knows no such order
//
// Sold and Closed are decisions. Every caller gets the same decision, however often it asks, until Spec.Remember is
// over (Closed) or the retention (Sold). Money goes back by Answer.Refund, which is empty for everything but these.
//
// # Each verb, when it is repeated or late
//
//	              again                late                                  paused, not started  over
//	Buy, Reserve  the order as it is   -                                     ErrLater (new ones)  Refused (new ones)
//	Extend        ttl from then        Lapsed                                goes on              goes on
//	Pay           the same decision    Sold as far as units are left, else   reserved: Sold;      reserved: Sold;
//	                                   Closed                                lapsed: ErrLater     lapsed: Closed
//	Cancel        the order as it is   Closed                                goes on              goes on
//	Return        the order as it is   -                                     goes on              goes on
//
//	the sale is suspended (Restore runs)              every verb: ErrLater
//	the sale, or a part of it, is not on the server   every verb: ErrNoStock
//
// # What is guaranteed
//
// No unit has two buyers, an item never sells more than its limit, and an order is decided once. While nothing of an
// item is left, each process answers "sold out" itself, through its client-side cache: for orders of one line under
// New, and for Anyone. A returned unit ends that within milliseconds, and Options.SoldOutTrust in any case.
//
// # What is not guaranteed
//
// A failover forgets writes that were not replicated; see Options.MinReplicas, Options.Books and Sale.Restore. Keep a
// unique index over (sale, item, ordinal) in the order database. Start, end and times to pay move with the server's
// clock. An id that was forgotten (Spec.Remember) is a new one.
//
// In the repository, docs/sales.md is a page for users, and docs/design/sales.md has the races.
package stock
