// Package rcounter counts on Redis: Counter, a 64-bit integer with bounds, and Stock, "first N win": a limited number
// of units, at most one to a claimant, the same answer however often it is asked for.
//
// # What is promised
//
// A Stock never grants more units than its limit, never gives two claimants one ordinal, and never gives a claimant who
// has a unit another answer than that unit, whatever is lost, repeated, delayed or run twice on the way. Everything that decides is one script on
// the server:
//
//	the claimant's record  ->  the window, in server time  ->  what is left
//
// in this order, because the winner of the last unit may ask again. A refund is visible at once, since nothing is
// ever decremented first and put back afterwards. Ordinals come from a number that only grows; that of a returned
// unit is not used again.
//
// A Stock fails closed. Without its key it is NotOpen and no verb but Open creates it. If claimants' records are
// missing (evicted, deleted), it is ErrCorrupt from the next call on: the stock counts how many there must be.
//
// A Counter never passes its bounds: beyond them nothing is written. Values are exact over all 64 bits.
//
// # What is not
//
//   - Failover. A grant that the primary acknowledged and had not replicated is gone after a failover, and its ordinal
//     goes out again. A unique index over (sale, claimant) and (sale, ordinal) where orders are kept is the last guard.
//   - The server's clock. Start, end and retention are kept in it. If it is stepped, they move with the step.
//   - Eviction, FLUSHALL and DEL. Under a maxmemory-policy other than noeviction, a whole stock can go (NotOpen), or
//     its records (ErrCorrupt); both stop the sale. A Counter that goes starts again at Initial.
//   - Retries of a Counter's writing verbs. They are sent once; a lost reply is ErrUnknownOutcome.
//   - Claims given up on. A request of which the caller saw no reply, or a copy of it that the network held back, may
//     be served later, for as long as the stock sells: the claimant then has a unit that the next Claim or Lookup
//     tells, and that nobody else gets until it is returned.
//   - Requests that come later than a stock's retention. They meet the next opening of the name.
//
// # Outcomes and errors
//
// Sold out, not open, not started and over are outcomes in a Grant, not errors. An error says that there is no
// answer, and of which kind: refused before anything was sent (ErrInvalidName, ErrInvalidOption, ErrClosed), refused
// by the server (ErrOutOfRange, ErrOverflow, ErrNotInteger, ErrWrongType, ErrAlreadyOpen, ErrCorrupt), never run
// (ErrUnavailable), or unknown (ErrUnknownOutcome).
//
// A call lasts until its context ends, and one whose context has no deadline for at most five call timeouts. Within
// that time, what surely did not run is sent again, and so is every verb that may run twice: all but Counter's
// writing verbs.
//
// # Keys
//
// P is Options.KeyPrefix, S is P and the name of a stock, which may not contain braces.
//
//	P<name>    string  a Counter: INCR's and RAtomicLong's decimal integer; no end unless TTL
//	rc:{S}     hash    a Stock: limit sold seq recorded per start end gone epoch state token; times in ms of the server
//	rc:{S}:u   hash    its claimants: claimant -> ordinal;call, after a return 0;call;returned;by
//
// Both keys of a stock end in the same millisecond, retention after its end. Only relative expiries are sent, computed
// in the scripts from the server's own TIME. A winner costs the server about 65 bytes and the length of the claimant.
//
// # Cost
//
// Every verb is one round trip: INCR, DECR, INCRBY or GET for a Counter without options, one EVALSHA for the rest.
// A script of two keys gets TRYAGAIN while their slot is moving to another node of a Cluster, and is sent again until
// the move is through.
package rcounter
