// Package stock sells a limited number of units on Redis or Valkey: the first N claims win one each. Use it for
// sales, tickets and coupons, where many processes serve a crowd and no unit may be sold twice. A claimant gets the
// same answer however often it asks, so after an error it can ask again.
//
//	sale := stocks.Stock("sale")
//	_, err := sale.Open(ctx, stock.Spec{Limit: 100, OpenFor: time.Hour}) // from one process
//	if err != nil && !errors.Is(err, redlatch.ErrAlreadyOpen) {
//		return err
//	}
//	unit, err := sale.Claim(ctx, "ann")
//	if err != nil {
//		return err // claim again: the answer will be the same
//	}
//	if unit.Won() {
//		ship(unit.Ordinal) // 1 to 100
//	}
//
// [Stock.Claim] claims one unit for each claimant, or several with a [Request]. [Stock.Reserve] holds units until
// [Stock.Confirm] sells them, [Stock.Cancel] frees them or their time is over. A [Group] sells carts of several stocks.
// [Stock.KeepLedger] moves every sale into a database.
//
// # What is guaranteed
//
//   - A stock never grants more units than its limit, nor one ordinal twice. The server never gives a claimant who has
//     a unit a different answer. This holds for requests, reservations and units without a claimant too, whatever is
//     lost, repeated, delayed or run twice.
//   - Units that a reservation does not sell return to the stock exactly once, by the server's clock. The first answer
//     of Confirm is final.
//   - A cart is held, sold and given back as a whole.
//   - A stock fails closed. Without its keys every claim is NotOpen and every other call by an id is ErrNotOpen, and
//     only Open creates them. If some keys or records are missing, every call returns ErrCorrupt.
//
// # What is not guaranteed
//
//   - Failover. Grants that were not replicated are forgotten, and their ordinals are granted again.
//     Options.MinReplicas makes this less likely, and Stock.Restore repairs the stock. Keep a unique index over (sale,
//     epoch, ordinal) in the order database.
//   - Eviction, FLUSHALL and DEL. They stop the sale.
//   - The server's clock. Start, end and retention move with its steps.
//   - Failed claims. A claim that returned an error may still run while the stock sells; Claim or Lookup then returns
//     its unit. An act by an id (a request, Reserve, Confirm, Cancel, Return) does not run after its call.
//   - Late requests. What arrives after the retention applies to the next opening of the name.
//
// # Sold out
//
// Once the server has answered SoldOut, the process itself answers ClaimAny, and claims and reservations under [Fresh].
// It asks the server again within milliseconds after a unit came back, or within Options.SoldOutTrust if the server's
// message is lost. Other claims always ask the server.
//
// # Errors
//
// Sold out, not started and ended are outcomes in a [Grant], not errors. An error means that there is no answer; each
// verb lists its own. After ErrUnavailable, ErrUnknownOutcome and ErrNotReplicated, repeat the call with the same
// claimant and id.
//
// A call ends when it is answered, when its context ends, or after Options.RetryTimeout, by default one CallTimeout.
// Until then it is retried. Open, Ledger, Restore and other verbs that make several calls have that time for each.
//
// In the repository, docs/stocks.md has recipes, docs/guarantees.md the limits and tests of each promise, and
// docs/design the protocol, its cost and the keys.
package stock
