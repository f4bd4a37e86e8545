// Package stock sells a limited number of units on Redis: the first N claims win. A claimant gets at most one unit, and
// the same answer however often it asks.
//
//	sale := stocks.Stock("sale")
//	_, err := sale.Open(ctx, stock.Spec{Limit: 100, OpenFor: time.Hour}) // in one place, once
//	unit, err := sale.Claim(ctx, "ann")                                  // after an error: again
//	if unit.Won() {
//		ship(unit.Ordinal)
//	}
//
// [Stock.Claim] is for one unit for each user, and with a [Request] for several, [Stock.Reserve] and [Stock.Confirm]
// for units that are paid first, [Group] for carts of several stocks, and [Stock.KeepLedger] for every sale in a
// database.
//
// # What is promised
//
// A Stock never grants more units than its limit. It never gives two claimants one ordinal. The server never gives a
// claimant who has a unit another answer than that unit. All of this holds whatever is lost, repeated, delayed or run
// twice on the way.
//
// The same holds for units that are claimed several at a time under the id of a request, for units that are
// reserved, and then confirmed, cancelled or left to expire (Reserve), and for units without a claimant (ClaimAny).
// Each of them is returned once, by its id. What a reservation holds goes back to the stock exactly once; the server's
// clock decides.
//
// A Stock fails closed. Without its key every claim is NotOpen, and no verb but Open creates the key. The stock counts
// how many records there must be: if some are missing (evicted, deleted), every call from then on is ErrCorrupt.
//
// A cart of a Group is held, sold and given back as a whole: one script decides for all its stocks before it writes to
// the first.
//
// # The life of a unit
//
//	        Claim, ClaimAny
//	free ---------------------------------> sold
//	^  |                                    |  ^
//	|  | Reserve                            |  | Confirm: the unit
//	|  v                                    |  | gets its ordinal
//	|  held --------------------------------)--+
//	|   | Cancel, Confirm of a part,        |
//	|   | or its time is over               | Return
//	+---+-----------------------------------+
//
// Confirm takes units of a reservation whose time was over again, as a claim does. One rule says how many units a verb
// with an id gets: all or none, and fewer only where Request.UpTo says so, or for a Confirm that comes late, whose
// customer has paid: Grant.Missing is how many fewer. What a Confirm has decided stays so.
//
// A unit that comes back is free under a new ordinal. The record of what it was stays: the number of records still
// tells whether one is missing, and a late copy of a call that was answered finds its answer. The record of a
// reservation or request that has ended is forgotten after Spec.Remember, and its id is a new one then. No late copy
// finds it forgotten, because no call of these verbs runs later than its caller's patience, by the server's clock, and
// Spec.Remember is longer than two calls. (A call that is made just before its id is forgotten may meet it as a new
// one.)
//
// # What is not promised
//
//   - Failover. A grant that the primary acknowledged and had not replicated is gone after a failover, and its ordinal
//     goes out again. Options.MinReplicas has grants confirmed by replicas first, which makes that less likely.
//     Stock.Restore repairs it afterwards. A unique index over (sale, epoch, ordinal) where the orders are kept is the
//     last guard.
//   - The server's clock. Start, end and retention are counted on it. If it is stepped, they move with the step.
//   - Eviction, FLUSHALL and DEL. Under a maxmemory-policy other than noeviction a whole stock can vanish (NotOpen), or
//     its records (ErrCorrupt). Both stop the sale.
//   - Claims that were given up. A request whose reply the caller did not see may be served later, and so may a copy of
//     it that the network held back, for as long as the stock sells. The claimant then has a unit. The next Claim or
//     Lookup tells which, and no other claimant gets it until it is returned. (The library itself returns units of a
//     ClaimAny that was given up, if it can ask the server within five call timeouts.) An act by an id (a request,
//     Reserve, Confirm, Cancel, Return) is not served later than its caller's patience, by the server's clock: the
//     request names that instant, for each act of a shared call its own.
//   - That a unit which came back is sold at once. The process that returned it sells it at once. Other processes do
//     when the server's message arrives, within milliseconds; if the message is lost, within Options.SoldOutTrust.
//     Until then another process may still answer SoldOut to ClaimAny and under Fresh. No process says by itself that
//     a claimant has a unit.
//   - Requests that arrive after a stock's retention. They meet the next opening of the name.
//
// # A claim
//
// A claim is one script. It asks five questions, in this order, and everything is decided before the first write:
//
//  1. Is the stock there? If not: NotOpen.
//  2. Are all records there? If not: ErrCorrupt. A claimant whose record is missing could get a second unit.
//  3. What does this claimant have? A unit: the same answer as before. This comes before the next two, because the
//     winner of the last unit, or of one before the end, may ask again.
//  4. Does the stock sell now, by the server's time? If not: NotStarted, Ended, Paused or Suspended.
//  5. Is a unit left, and may this claimant have it? If not: SoldOut or UserLimit. Before that answer the script ends
//     the reservations whose time is over, and their units are free.
//
// Every call has an id of its own, which is written with the record. By it a second run of the script knows its own
// work. A return is visible at once, since nothing is ever taken first and put back afterwards. Ordinals come from a
// number that only grows.
//
// # Sold out
//
// Once the server has said that nothing is left, the process answers SoldOut by itself, for as long as a small key, the
// flag, is in rueidis' client-side cache. The flag is there while nothing is left. The process so answers ClaimAny, and
// claims and reservations under Fresh, whose claimant and id cannot have units. Any other claimant may have won and
// asks the server, in shared calls.
//
//	server                                 process
//	the last unit goes: flag
//	                                       a claim: the server says SoldOut
//	                                       reads the flag through the cache
//	                                       ClaimAny: the flag is in the cache: SoldOut,
//	                                       without a request
//	a unit comes back: no flag
//	          ---- invalidation ---->      the cached flag is gone
//	                                       ClaimAny: asks the server
//
// So once the server's message that a unit came back arrives, which takes milliseconds, the process asks the server
// again. If that message is lost, it does so within Options.SoldOutTrust. Without client-side caching (rueidis'
// DisableCache) every claim asks the server. The process that returned a unit sells it at once.
//
// # Carts
//
// In a Group one script has the stocks of a cart decide one after the other, each as for a reservation alone, with the
// cart's id. If none refuses, they write one after the other. Nothing is kept of the cart itself: its lines have a
// digest of the names of its stocks in their records, so other stocks are refused, and a cart is known for as long as
// its lines.
//
// # Restore
//
//  1. It asks for the stock's revision and for the server's time.
//  2. It suspends the stock, if that is still the revision and a time of the server's has not passed. So a late copy of
//     this step suspends nothing. Every later step names the id of this round, which the stock keeps; all others are
//     refused.
//  3. It reads the winners that the caller has, and refuses two of them with one ordinal.
//  4. It reads the stock's records, and compares both as intervals of ordinals.
//  5. It writes what differs, 128 records at a time, each with the text that it replaces. It writes the holds anew.
//  6. If a return or a cancellation changed something meanwhile, it takes a new round id and goes back to 4.
//  7. It sets the numbers of units and ordinals, and the stock sells on, unless it was closed.
//
// # Outcomes and errors
//
// Sold out, not open, not started and over are outcomes in a Grant, not errors, and so is what became of a reservation.
// An error says that there is no answer. There are five families. Nothing was sent: ErrInvalidName, ErrInvalidOption,
// ErrClosed. The server refused: ErrOutOfRange, ErrOverflow, ErrWrongType, ErrAlreadyOpen, ErrNotOpen, ErrMismatch,
// ErrCorrupt, ErrDenied. The request did not run: ErrUnavailable. The outcome is unknown: ErrUnknownOutcome. Units were
// granted, and too few replicas know: ErrNotReplicated.
//
// A call lasts until it is answered, its context ends or Options.RetryTimeout is over, which is one CallTimeout unless
// it is set. Within that time every verb is sent again: all may run twice. Where a verb makes several calls (Open,
// Ledger, Restore and the like) each has that time.
//
// # Keys
//
// S is Options.KeyPrefix and the name of a stock, which may not contain braces.
//
//	rc:{S}     hash    a Stock: its numbers; times in ms of the server (open.lua)
//	rc:{S}:u   hash    its claimants: claimant -> ordinal;call, after a return 0;call;returned;by
//	rc:{S}:r   hash    its requests, reservations, units without a claimant, and how many each claimant has (stock.lua)
//	rc:{S}:h   zset    its reservations that hold units -> deadline
//	rc:{S}:o   string  the flag, there while nothing is left; the only key that is tracked
//	rc:{S}:l   stream  its ledger, if it keeps one: entries 1-0, 2-0 and so on (stock.lua)
//	rc:{S}:f   list    its reservations and requests that have ended -> until when each is remembered
//	rc:{G}{S}  hash    a stock S of the Group G, with the other keys in the same way: rc:{G}{S}:u and so on
//	redlatch_stock:{S}  channel of what movers publish of the ledger: JSON arrays of {s serial, k kind, e epoch, o first ordinal, n units,
//	                   c claimant, r request, at us of the server}, of at most 64 KiB; empty fields are left out (events.go)
//
// A stock's hash expires when its retention is over, and the flag sooner. The other keys can be large, and a server
// stands still while it frees a large key that expires. So they expire an hour later, and before that they are unlinked
// in the background, by the process that opened the stock or by any call after the retention. Only relative expiries
// are sent; the scripts compute them from the server's own TIME. A winner costs the server about 65 bytes and the
// length of the claimant. A request costs about 100 bytes and the lengths of both names.
//
// # Cost
//
// Every verb is one round trip of one EVALSHA, except Open, Change, EndSale, Delete and Restore, which ask first, and
// Holders, which reads all records. So does the first act by
// an id that a client sends to a server: it asks for the server's time.
//
// Claims of one process on one stock share calls (Options.MaxBatch). A claim that finds no call under way is sent at
// once; those that come while one is under way are sent together. Acts by an id (requests, Reserve, Confirm, Cancel,
// Return and their kin) share calls with each other, from 8 on that are under way, and so do looks at an id. Each is
// answered for itself. No id is twice in a call: equal acts on an id are one, and an act that differs from another on
// its id goes into the next call.
//
// A script of several keys gets TRYAGAIN while their slot moves to another node of a Cluster. It is sent again until
// the move is over.
package stock
