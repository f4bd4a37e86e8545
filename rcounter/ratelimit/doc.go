// Package ratelimit provides rate limiters on Redis or Valkey: units pass at a rate that all processes share.
//
//	api := limiters.Limiter("api", ratelimit.LimiterOptions{Rate: 10, Burst: 20})
//	admission, err := api.Allow(ctx, user, 1)
//	if err == nil && !admission.Allowed {
//		tooMany(admission.RetryAfter) // 429
//	}
//
// [Limiter.Allow] answers at once; [Limiter.Wait] sleeps until its units may pass. Each key, here a user, has a limit
// of its own. [Client.AllowAll] takes units of several limits, all or none.
//
// # What is guaranteed
//
// In any interval of length T at most Burst + T * Rate / Per units pass, from all processes together, by the server's
// clock; with the other algorithms at most Rate in any Per, or in each unit of the calendar. A limiter admits; it does
// not allocate. A lost reply may count its units twice: then too few pass, never too many. Waiters that leave give
// their turns to the next.
//
// An Allow lasts for Options.AllowTimeout at most, 50 ms. While the server does not answer, the limiter's Policy does:
// an error, nothing passes, everything does, or a share of the rate in each process.
//
// # What is not guaranteed
//
// A lost key (evicted, deleted, a failover) starts again as if no unit had passed: up to Burst units too many pass. So
// it is when the server's clock is set forward, and when a limiter gets another Algorithm. The policies Open and Local
// let more pass while the server is down.
//
// # Errors
//
// Compare with errors.Is. Errors that are not exported here are exported by package redlatch, which says what each
// means. ErrLimited is the one refusal that is not a mistake.
//
// An Allow, AllowAtMost, AllowAll or Peek lasts until it is answered, its context ends or Options.AllowTimeout is over.
// Every other call lasts until its context ends or Options.RetryTimeout is over, which is one CallTimeout unless it is
// set. Within that time each is sent again, except Set and Unset. Wait sleeps after the answer. While the server is
// away every call fails that soon, or LimiterOptions.WhenDown answers: see docs/counters.md.
//
// # Cost
//
// Every verb is one round trip of one EVALSHA. Where four or more requests are under way in a client they share calls,
// in a Cluster those of one slot, and are answered as if one came after the other; each caller keeps its own patience.
// The process refuses a key that the server has refused for as long as the server said, for Options.RefusalTrust at
// most.
//
// In the repository, docs/design has the keys and the protocol.
package ratelimit
