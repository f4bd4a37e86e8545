// Package rcounter counts on Redis: a Counter is a 64-bit integer with bounds, under one key, that all processes share.
//
// Stocks ("first N win"), red packets and rate limiters have packages of their own beside it.
//
// # What is promised
//
// A Counter never passes its bounds: beyond them nothing is written. Values are exact over all 64 bits. AddOnce counts once
// for each id, whatever is lost, repeated, delayed or run twice on the way.
//
// # What is not
//
//   - Failover. What the primary acknowledged and had not replicated is gone after a failover.
//   - Eviction, FLUSHALL and DEL. A Counter that goes starts again at Initial.
//   - Retries of the writing verbs, but AddOnce. They are sent once; a lost reply is ErrUnknownOutcome.
//
// # Errors
//
// An error says that there is no answer, and of which kind: refused before anything was sent (ErrInvalidName,
// ErrInvalidOption, ErrClosed), refused by the server (ErrOutOfRange, ErrOverflow, ErrWrongType, ErrMismatch, ErrDenied),
// never run (ErrUnavailable), or unknown (ErrUnknownOutcome).
//
// A call lasts until its context ends, and one whose context has no deadline for at most five call timeouts. Within
// that time, what surely did not run is sent again, and so are Get and AddOnce, which may run twice.
//
// # Keys
//
// P is Options.KeyPrefix.
//
//	P<name>    string  a Counter: INCR's and RAtomicLong's decimal integer; no end unless TTL
//	rc:{P<name>}:i0.0 to :i0.63 and :i1.0 to :i1.63, or rc:P<name>:i0.0 if the name has braces: hashes, the ids of a Counter's AddOnce
//
// # Cost
//
// Every verb is one round trip: INCR, DECR, INCRBY or GET for a Counter without options, one EVALSHA for the rest; but
// Cached, which takes none while the value is cached.
package rcounter
