// Package rcounter provides counters on Redis or Valkey. A [Counter] is a 64-bit integer with bounds, under one key,
// that all processes share. Use [Counter.AddOnce] where a number must be right after retries, and [Counter.Incr] where
// it may be off by one.
//
//	points := counters.Counter("points:ann", rcounter.CounterOptions{Min: rcounter.Bound(0)})
//	total, replayed, err := points.AddOnce(ctx, "order:4711", 50) // once, however often it is called
//	total, err = points.Add(ctx, -30)                             // ErrOutOfRange below 0
//
// Sales (the first N orders get their units), red packets and rate limiters have packages of their own below this one.
//
// # What is guaranteed
//
// A Counter never passes its bounds: beyond them nothing is written. Values are exact over all 64 bits. AddOnce counts
// once for each id, whatever is lost, repeated, delayed or run twice on the way; an id is remembered for
// CounterOptions.Remember at least, about twice that at most.
//
// # What is not guaranteed
//
//   - Failover. Writes that the primary acknowledged and had not replicated are gone after a failover.
//   - Eviction, FLUSHALL and DEL. A Counter whose key is gone starts again at Initial.
//   - Safe repetition of the writing verbs other than AddOnce. Each is sent once; a lost reply is ErrUnknownOutcome.
//
// # Errors
//
// Compare with errors.Is. Errors that are not exported here are exported by package redlatch, which says what each
// means.
//
// A call lasts until it is answered, its context ends or Options.RetryTimeout is over, which is one CallTimeout unless
// it is set. Within that time a request that surely did not run is sent again, and so are Get and AddOnce, which may
// run twice.
//
// # Cost
//
// Every verb is one round trip: INCR, DECR, INCRBY or GET for a Counter without options, one EVALSHA otherwise. Where
// four or more calls of Add, Incr and Decr are under way in a client, the calls of one counter share a round trip (in a
// Cluster the calls of one slot). Each caller gets its own value, as if the calls had run one after the other. A caller
// that leaves a call that was sent gets ErrUnknownOutcome, as do all callers after a lost reply. Cached takes no round
// trip while the value is cached.
//
// In the repository, docs/design has the keys and the protocol.
package rcounter
