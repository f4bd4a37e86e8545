// Package stock sells a limited number of units on Redis, "first N win": at most one to a claimant, the same answer however
// often it is asked for.
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
// A Sharded stock is a stock in several shards, for a Cluster: its
// units are always exactly its limit, and SoldOut is said only if there was a moment, during the call, at which none was
// left anywhere or on its way between shards. A Block is a number of units that one process hands out by itself; those
// of a process that died stay sold until somebody settles them.
//
// # The life of a unit
//
//	        Claim, ClaimOnce, ClaimAny, Block
//	free ---------------------------------------> sold
//	^  |                                          |  ^
//	|  | Reserve                          Return, |  | Confirm: the unit
//	|  |                              ReturnOnce, |  | gets its ordinal
//	|  v                               ReturnAny, |  |
//	|  held --------------------------------------)--+
//	|   | Cancel, or its time is over  Block.Close|
//	+---+-----------------------------------------+
//
// A unit that comes back is free under a new ordinal. The record of what it was stays, so that the number of records still tells
// whether one is missing, and a late copy of a call that was answered finds its answer.
//
// # What is not
//
//   - Failover. A grant that the primary acknowledged and had not replicated is gone after a failover, and its ordinal
//     goes out again. Options.MinReplicas has grants confirmed by replicas first, which makes that less likely, and
//     Stock.Restore mends it afterwards; a unique index over (sale, epoch, ordinal) where orders are kept is the last guard.
//   - The server's clock. Start, end and retention are kept in it. If it is stepped, they move with the step.
//   - Eviction, FLUSHALL and DEL. Under a maxmemory-policy other than noeviction, a whole stock can go (NotOpen), or
//     its records (ErrCorrupt); both stop the sale.
//   - Claims given up on. A request of which the caller saw no reply, or a copy of it that the network held back, may
//     be served later, for as long as the stock sells: the claimant then has a unit that the next Claim or Lookup
//     tells, and that nobody else gets until it is returned. (Units of a ClaimAny given up on are returned by the
//     library, if it can ask the server within five call timeouts.)
//   - That a unit which came back is sold the moment it did. The process that returned it sells it at once, others
//     as soon as the server's message is there, within milliseconds, or within Options.SoldOutTrust if that is lost;
//     without client-side caching within 10 ms. Until then a claimant may still be told SoldOut elsewhere, the
//     winner of that unit too if it was won again since. Fresh asks the server. No process says by itself that somebody has a unit.
//   - Requests that come later than a stock's retention. They meet the next opening of the name.
//
// # Sold out
//
// Once the server has said that nothing is left, the process reads the winners once, and then answers SoldOut by itself to every
// claimant who is none of them. Whoever may be one asks the server. The server writes a small key, the flag, when the last unit
// goes and removes it when one comes back.
//
// With client-side caching every such answer looks at the flag in rueidis' cache first, and is given only if it is the
// flag of when the winners were read. So once the server's message that a unit came back is here, which takes
// milliseconds, the server is asked again; where the message is lost, that takes Options.SoldOutTrust at most. Without client-side
// caching (rueidis' DisableCache) the flag is asked for every 5 ms while claims come, and an answer goes by what was
// asked for no more than 10 ms ago. The process that returned a unit sells it at once.
//
// What stays inexact: for as long as the news of a return takes, a claimant who has won that unit in another process
// since can be told SoldOut here. A claimant who asks again, for whom that answer would be wrong, claims with Fresh.
//
// # Outcomes and errors
//
// Sold out, not open, not started and over are outcomes in a Grant, not errors. An error says that there is no
// answer, and of which kind: refused before anything was sent (ErrInvalidName, ErrInvalidOption, ErrClosed), refused
// by the server (ErrOutOfRange, ErrOverflow, ErrWrongType, ErrAlreadyOpen, ErrNotOpen, ErrMismatch,
// ErrCorrupt, ErrDenied and those of reservations and blocks), never run (ErrUnavailable), unknown (ErrUnknownOutcome), or granted
// and not confirmed by replicas (ErrNotReplicated).
//
// A call lasts until its context ends, and one whose context has no deadline for at most five call timeouts. Within
// that time every verb is sent again until it is answered: all may run twice.
//
// # Keys
//
// S is Options.KeyPrefix and the name of a stock, which may not contain braces.
//
//	rc:{S}     hash    a Stock: its numbers; times in ms of the server (open.lua)
//	rc:{S}:u   hash    its claimants: claimant -> ordinal;call, after a return 0;call;returned;by
//	rc:{S}:r   hash    its requests, reservations, units of nobody in particular, and how many each claimant has (stock.lua)
//	rc:{S}:h   zset    its reservations that hold units -> deadline
//	rc:{S}:o   string  there while it is sold out; the only key that is tracked
//	rc:{S}:l   stream  its ledger, if it keeps one
//	rc:{S}:s   hash    a Sharded stock: its plan (sharded_open.lua)
//	rc:{S#i/k} and so on: its i-th shard of k, a Stock, whose hash has its transfers too (sharded_prepare.lua); the name may
//	                   end in a number that puts it into the right slots
//
// A stock's hash ends retention after the stock's end, the flag of being sold out sooner. The other keys may be large, and a
// server frees what expires in one go; so they are left an hour more, and are unlinked in the background by the process
// that opened the stock, or by any call before or after. Only relative expiries are sent, computed in the scripts from the server's own TIME. A winner costs the
// server about 65 bytes and the length of the claimant, a request about 100 and the lengths of both names.
//
// # Cost
//
// Every verb is one round trip of one EVALSHA, but Open, Resize, Close and Restore, which ask first.
//
// Claims of one process on one stock share calls (Options.MaxBatch): one alone is sent at once, the others while it is under way
// together. And once the server has said that a stock is sold out the process answers by itself (Options.SoldOutTrust).
//
// A script of several keys gets TRYAGAIN while their slot is moving to another node of a Cluster, and is sent again until
// the move is through.
package stock
