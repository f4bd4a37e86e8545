// Package ratelimit provides rate limiters on Redis or Valkey: units pass at a rate that all processes share.
//
//	api := limiters.Limiter("api", ratelimit.LimiterOptions{Rate: 10, Per: time.Second, Burst: 20})
//	admission, err := api.Allow(ctx, user, 1)
//	if err == nil && !admission.Allowed {
//		tooMany(admission.RetryAfter) // 429
//	}
//
// [Limiter.Allow] answers at once; [Limiter.Wait] sleeps until its units may pass. Each key, here a user, has a limit of its own.
//
// # What is promised
//
// In any interval of length T at most Burst + T * Rate / Per units pass, from all processes together, measured by the server's
// clock. A limiter admits; it does not allocate. A reply that is lost may count its units twice: too few units pass then, never
// too many.
//
// # What is not
//
// If a key is lost (evicted, deleted, a failover), the limiter starts again as if no unit had passed: up to Burst units too many
// pass. The same happens if the server's clock is set forward.
//
// # Errors
//
// ErrLimited is the one refusal that is not a mistake. The request did not run: ErrInvalidName, ErrInvalidOption and ErrClosed
// before anything was sent, ErrUnavailable. The server refused: ErrWrongType, ErrDenied. The outcome is unknown:
// ErrUnknownOutcome.
//
// A call lasts until it is answered, its context ends or Options.RetryTimeout is over, which is one CallTimeout unless it is set.
// Within that time it is sent again. The sleep of Wait comes after the answer. While the server is away every call fails so soon, and
// the program decides whether it lets everything pass, or nothing: see docs/counters.md.
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
// Wait takes its units at once, in the order in which the server runs the calls, and sleeps until they pass. It does not ask again.
//
// # Keys
//
// S is Options.KeyPrefix and the name of a limiter, which may not contain braces.
//
//	rc:{S:key}:qN  string  the limit of one key: at;level;per;id. N is the length of S. Without a key: rc:{S}:qN
//
// # Cost
//
// Every verb is one round trip of one EVALSHA, or none with LimiterOptions.PerProcess.
package ratelimit
