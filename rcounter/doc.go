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
// The same holds for units claimed several at a time under the id of a request (ClaimOnce), for those reserved, and
// confirmed or cancelled or left to expire (Reserve), and for those claimed for nobody in particular (ClaimAny). Each
// is returned once, by its id. What a reservation holds goes back to the stock exactly once, decided by the server's clock.
//
// A Stock fails closed. Without its key it is NotOpen and no verb but Open creates it. If claimants' records are
// missing (evicted, deleted), it is ErrCorrupt from the next call on: the stock counts how many there must be.
//
// A Counter never passes its bounds: beyond them nothing is written. Values are exact over all 64 bits.
//
// A RedPacket is money in whole cents, split into shares once (Split) and handed out one to a user: what was taken, what is
// left and what was refunded always add up to the total. A ShardedStock is a stock in several shards, for a Cluster: its
// units are always exactly its limit, and SoldOut is said only if there was a moment, during the call, at which none was
// left anywhere or on its way between shards. A Block is a number of units that one process hands out by itself; those
// of a process that died stay sold until somebody settles them. A RateLimiter lets no more pass than its rate and burst
// allow, whoever asks; it is for admission, in front of a sale, and allocates nothing.
//
// # What is not
//
//   - Failover. A grant that the primary acknowledged and had not replicated is gone after a failover, and its ordinal
//     goes out again. Options.MinReplicas has grants confirmed by replicas first, which makes that less likely, and
//     Stock.Restore mends it afterwards; a unique index over (sale, epoch, ordinal) where orders are kept is the last guard.
//   - The server's clock. Start, end and retention are kept in it. If it is stepped, they move with the step.
//   - Eviction, FLUSHALL and DEL. Under a maxmemory-policy other than noeviction, a whole stock can go (NotOpen), or
//     its records (ErrCorrupt); both stop the sale. A Counter that goes starts again at Initial.
//   - Retries of a Counter's writing verbs, but AddOnce. They are sent once; a lost reply is ErrUnknownOutcome.
//   - Claims given up on. A request of which the caller saw no reply, or a copy of it that the network held back, may
//     be served later, for as long as the stock sells: the claimant then has a unit that the next Claim or Lookup
//     tells, and that nobody else gets until it is returned. (Units of a ClaimAny given up on are returned by the
//     library, if it can ask the server within five call timeouts.)
//   - That a unit which came back is sold the moment it did. The process that returned it sells it at once, others
//     as soon as the server's message is there, within milliseconds, or within SoldOutOptions.Trust if that is lost;
//     without client-side caching within 10 ms. Until then a claimant may still be told SoldOut elsewhere, the
//     winner of that unit too if it was won again since. Fresh asks the server. No process says by itself that somebody has a unit.
//   - Requests that come later than a stock's retention. They meet the next opening of the name.
//
// # Outcomes and errors
//
// Sold out, not open, not started and over are outcomes in a Grant, not errors. An error says that there is no
// answer, and of which kind: refused before anything was sent (ErrInvalidName, ErrInvalidOption, ErrClosed), refused
// by the server (ErrOutOfRange, ErrOverflow, ErrNotInteger, ErrWrongType, ErrAlreadyOpen, ErrNotOpen, ErrMismatch,
// ErrCorrupt and those of reservations), never run (ErrUnavailable), unknown (ErrUnknownOutcome), or granted and not
// confirmed by replicas (ErrUnconfirmed).
//
// A call lasts until its context ends, and one whose context has no deadline for at most five call timeouts. Within
// that time, what surely did not run is sent again, and so is every verb that may run twice: all but Counter's
// writing verbs, of which only AddOnce may.
//
// # Keys
//
// P is Options.KeyPrefix, S is P and the name of a stock, which may not contain braces.
//
//	P<name>    string  a Counter: INCR's and RAtomicLong's decimal integer; no end unless TTL
//	rc:{P<name>}:i0.0 to :i0.63 and :i1.0 to :i1.63, or rc:P<name>:i0.0 if the name has braces: hashes, the ids of a Counter's AddOnce
//	rc:{S}     hash    a Stock: its numbers; times in ms of the server (open.lua)
//	rc:{S}:u   hash    its claimants: claimant -> ordinal;call, after a return 0;call;returned;by
//	rc:{S}:r   hash    its requests, reservations, units of nobody in particular, and how many each claimant has (stock.lua)
//	rc:{S}:h   zset    its reservations that hold units -> deadline
//	rc:{S}:o   string  there while it is sold out; the only key that is tracked
//	rc:{S}:l   stream  its ledger, if it keeps one
//	rc:{S}:p   hash    a RedPacket: its numbers (redpacket.lua)
//	rc:{S}:a   list    its shares not yet taken, in cents
//	rc:{S}:g   hash    who took what: user -> ordinal;cents;call
//	rc:{S}:s   hash    a ShardedStock: its plan (sharded_open.lua)
//	rc:{S#i/k} and so on: its i-th shard of k, a Stock, whose hash has its transfers too (sharded_prepare.lua); the name may
//	                   end in a number that puts it into the right slots
//	rc:{S:key}:qN      a RateLimiter of one key: a string, at;level;per;id; N is the length of S; rc:{S}:qN without a key
//
// A stock's hash ends retention after the stock's end, the flag of being sold out sooner. The other keys may be large, and a
// server frees what expires in one go; so they are left an hour more, and are unlinked in the background by the process
// that opened the stock, or by any call before or after. So do a red packet's. Only relative expiries are sent, computed in the scripts from the server's own TIME. A winner costs the
// server about 65 bytes and the length of the claimant, a request about 100 and the lengths of both names.
//
// # Cost
//
// Every verb is one round trip: INCR, DECR, INCRBY or GET for a Counter without options, one EVALSHA for the rest; but
// Counter.Cached, which takes none while the value is cached, and Open, Resize, Close and Restore, which ask first.
//
// Claims of one process on one stock share calls (Combine): one alone is sent at once, the others while it is under way
// together. And once the server has said that a stock is sold out the process answers by itself (SoldOutOptions).
//
// A script of several keys gets TRYAGAIN while their slot is moving to another node of a Cluster, and is sent again until
// the move is through.
package rcounter
