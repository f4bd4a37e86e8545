// Package redlatchhttp limits the requests of an HTTP handler by rate limiters that all processes share, and answers
// repeated requests with the answer of the first (Idempotent).
//
//	api := red.Limiters().Limiter("api", ratelimit.LimiterOptions{Rate: 10, WhenDown: ratelimit.Open})
//	limited, err := redlatchhttp.New(red.Limiters(), redlatchhttp.Options{
//		Limits: []redlatchhttp.Limit{{Limiter: api, Key: redlatchhttp.ByHeader("X-User")}},
//	})
//	http.Handle("/", limited(handler))
//
// A request takes units of every Limit in one step, of all or of none. One that is refused gets status 429 and
// Retry-After. Every answer has the header fields of draft-ietf-httpapi-ratelimit-headers (of revision 8 and later,
// which have these two):
//
//	RateLimit-Policy: "api";q=10;w=1
//	RateLimit: "api";r=9;t=1
//
// q units are there in w seconds: with the generic cell rate algorithm the burst, and the seconds after which it is
// there again; r are left, and after t seconds all are. A ratelimit.SlidingWindow counts in slices, so t may be a 32nd
// of w longer than w. They are left out where a policy answered in place of the server, since then it is not known.
//
// A request that a limiter cannot judge, because Redis is down and its policy is ratelimit.Fail, gets 503.
//
// Options.Permits bounds how many requests are under way at a time, by a semaphore of all processes: beyond it a
// request gets 503.
package redlatchhttp
