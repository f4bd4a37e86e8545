// Package rcounter provides counters on Redis or Valkey. A Counter is a 64-bit integer with bounds, under one key, that all
// processes share. Use [Counter.AddOnce] where a number must be right after retries, and [Counter.Incr] where it may be off by one.
//
//	points := counters.Counter("points:ann", rcounter.CounterOptions{Min: rcounter.Bound(0)})
//	total, replayed, err := points.AddOnce(ctx, "order:4711", 50) // once, however often it is called
//	total, err = points.Add(ctx, -30)                             // ErrOutOfRange below 0
//
// Stocks (the first N users get a unit each), red packets and rate limiters have packages of their own below this one.
//
// # What is promised
//
// A Counter never passes its bounds: beyond them nothing is written. Values are exact over all 64 bits. AddOnce counts once
// for each id, whatever is lost, repeated, delayed or run twice on the way.
//
// # What is not
//
//   - Failover. What the primary acknowledged and had not replicated is gone after a failover.
//   - Eviction, FLUSHALL and DEL. A Counter whose key is gone starts again at Initial.
//   - Safe repetition of the writing verbs other than AddOnce. They are sent once; a lost reply is ErrUnknownOutcome.
//
// # Errors
//
// There are three families. The request did not run: ErrInvalidName, ErrInvalidOption and ErrClosed before anything was sent,
// ErrUnavailable. The server refused: ErrOutOfRange, ErrOverflow, ErrWrongType, ErrMismatch, ErrDenied. The outcome is unknown:
// ErrUnknownOutcome.
//
// A call lasts until it is answered, its context ends or Options.RetryTimeout is over, which is one CallTimeout unless it is set.
// Within that time a request that surely did not run is sent again, and so are Get and AddOnce, which may run twice.
//
// # Protocol
//
// A Counter without options uses INCR, DECR, INCRBY and GET themselves. With options, one script checks the bounds and adds.
// No value becomes a Lua number there, because Lua's numbers are doubles: INCRBY adds, and bounds are compared as decimal text.
//
// AddOnce writes each id beside the counter, in two hashes that alternate. New ids go into the later hash:
//
//	           Remember        Remember        Remember
//	i0   |---- takes ids ----|-- only read --|---- takes ids ---
//	i1                       |-- takes ids --|-- only read --|
//	     ^ begun             ^ i0 is as old as an id must be remembered: i1 is emptied and takes over
//
// When the later hash is as old as an id must be remembered (CounterOptions.Remember), all ids in the other one are older. It is
// then emptied and takes over. So an id is remembered for Remember at least, for about twice that at most, and needs no
// expiry of its own, which hash fields have from Redis 7.4 on only. There are 64 pairs of hashes, by a checksum of the id, so
// that the server never frees many ids at once.
//
// # Shared calls
//
// Where four and more calls of Add, Incr and Decr are under way in a client, those of one counter become one INCRBY of their sum, or one
// script, and each caller is told its own value, as if the calls had run one after the other. In a Cluster that is so for each slot. Where
// calls of a counter carry fewer than two requests on the average, the next 256 are sent alone. Each caller keeps its own patience: one that leaves a call that was sent gets ErrUnknownOutcome, and the others their values. A lost reply is
// unknown to all in the call. A shared call carries the trace of its first caller.
//
// Cached reads go through the client-side cache of rueidis, where an entry lasts for as long as the caller that read it
// wanted. The name of an entry is its command with all arguments. Therefore each maxStale reads a range of the value with an end
// of its own, beyond all digits.
//
// # Keys
//
// P is Options.KeyPrefix.
//
//	P<name>            string  a decimal integer, as INCR and RAtomicLong keep it; no expiry unless CounterOptions.TTL
//	rc:{P<name>}:i0.n  hash    ids of AddOnce, n from 0 to 63; rc:P<name>:i0.n if the name has braces
//	rc:{P<name>}:i1.n  hash    the other one of each pair
//
// # Cost
//
// Every verb is one round trip: INCR, DECR, INCRBY or GET for a Counter without options, one EVALSHA otherwise. In a crowd it is a part of
// one. Cached takes none while the value is cached.
package rcounter
