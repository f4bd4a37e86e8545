// Package ratelimit provides rate limiters on Redis or Valkey: units pass at a rate that all processes share.
//
//	api := limiters.Limiter("api", ratelimit.LimiterOptions{Rate: 10, Burst: 20})
//	admission, err := api.Allow(ctx, user, 1)
//	if err == nil && !admission.Allowed {
//		tooMany(admission.RetryAfter) // 429
//	}
//
// [Limiter.Allow] answers at once; [Limiter.Wait] sleeps until its units may pass. Each key, here a user, has a limit of its own.
// [Client.AllowAll] takes units of several limits, all or none.
//
// # What is promised
//
// In any interval of length T at most Burst + T * Rate / Per units pass, from all processes together, measured by the server's
// clock; with the other algorithms at most Rate in any Per, or in each unit of the calendar. A limiter admits; it does not allocate. A reply
// that is lost may count its units twice: too few units pass then, never too many. Waiters that leave give their turns to the next.
//
// An Allow lasts for Options.AllowTimeout at most, 50 ms. While the server does not answer, the limiter's Policy does: an error, nothing
// passes, everything does, or a share of the rate in each process.
//
// # What is not
//
// If a key is lost (evicted, deleted, a failover), the limiter starts again as if no unit had passed: up to Burst units too many
// pass. The same happens if the server's clock is set forward, and if a limiter gets another Algorithm. The policies Open and Local let
// more pass than was promised, while the server is down.
//
// # Errors
//
// ErrLimited is the one refusal that is not a mistake. The request did not run: ErrInvalidName, ErrInvalidOption and ErrClosed
// before anything was sent, ErrUnavailable. The server refused: ErrWrongType, ErrDenied. The outcome is unknown:
// ErrUnknownOutcome.
//
// An Allow, AllowAtMost, AllowAll or Peek lasts until it is answered, its context ends or Options.AllowTimeout is over. Every other call
// lasts until its context ends or Options.RetryTimeout is over, which is one CallTimeout unless it is set. Within that time each is sent
// again, but for Set and Unset. The sleep of Wait comes after the answer. While the server is away every call fails so soon, or
// LimiterOptions.WhenDown answers: see docs/counters.md.
//
// # Protocol
//
// This is the generic cell rate algorithm in its form with a level, in whole numbers. A unit adds Per to the level, and every
// microsecond takes Rate off. A unit passes while the level stays within Burst * Per. The script keeps the level, the time
// of it and the id of the call that changed it last, by which a second run of the same call knows its own work.
//
//	level
//	Burst*Per -|- - - - - - - - - - - - - - - - -   above it: not yet
//	           |      /\
//	           |  /\ /  \
//	           | /  '    \        each unit adds Per; the level falls by Rate a microsecond
//	         0 +-----------'-------------------->   time
//
// Wait and Reserve take their units at once, in the order in which the server runs the calls, for a turn that may be yet to come: they do
// not ask again. While there are turns to come, all of them are kept, in a sorted set. So one that is given back leaves a hole of which the
// instant is known, which the next that reserves gets, and through which time passes as through a free level if nobody does. What would
// happen if the level were lowered instead is told in lua/lib/limit.lua.
//
// # Shared calls
//
// Where four and more requests are under way in a client, they share calls of one script, in a Cluster those of one slot. They are answered as
// one after the other; each caller keeps its own patience. Requests for as many units of one limit cost the server no more than one of
// them. A key that the server has refused is refused in the process for as long as
// the server said, for Options.RefusalTrust at most.
//
// # Keys
//
// S is Options.KeyPrefix and the name of a limiter, which may not contain braces; N is the length of S. A limit is one key, which ends when
// nothing counts any more.
//
//	rc:{S}:qN      the limit without a key
//	rc:S:{key}:kN  the limit of a key
//	rc:S:key:tN    the limit of a key that has a {tag} of its own
//	rc:{S}:lN      string: the terms of the name, if Limiter.Set keeps them on the server: terms;at;by. It has no end.
//
// A limit is a string, or with GCRA while there are turns to come a sorted set; lua/lib/limit.lua says what is in it.
// While it is a sorted set, each Allow of it counts as a WRONGTYPE in INFO errorstats, because GET is tried first.
//
// # Cost
//
// Every verb is one round trip of one EVALSHA, which requests share in a crowd; or none with LimiterOptions.PerProcess.
package ratelimit
