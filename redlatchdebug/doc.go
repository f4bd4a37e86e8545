// Package redlatchdebug has a page that shows people what a redlatch.Client holds and waits for, in the manner of
// net/http/pprof:
//
//	internal := http.NewServeMux()
//	internal.Handle("/debug/redlatch", redlatchdebug.Handler(red))
//	go http.ListenAndServe("127.0.0.1:6060", internal)
//
// Mount it where pprof is mounted, on a listener that only the operators reach. The page has nothing that could be used
// to unlock, join or log in: no password, and only the first characters of each owner and permit. But it shows the
// names and labels of locks, the keys of rate limits, the server's address and error texts: a service that limits by
// API tokens should give the limiter a hash of each.
//
// It is a package of its own, so that a program which does not use it links neither net/http nor html/template.
//
// # What it shows
//
//   - What this client waits for: since when, until when, whether the server has refused it, what stands before it.
//   - What it holds: since when, for how long it is still safe to act, whether it is renewed and when that was last
//     confirmed.
//   - Rate limits that refused a request of this process lately: of which key, how many units, and when that many could
//     pass. The others are not remembered; with Options.RefusalTrust off none is. And which limiters have a policy
//     answer, because the server does not.
//   - For these, what the server says: holders and queue, with the processes and labels; how many units may pass. It is
//     asked for the first 16 objects that are shown, the waited-for first, all at the same time, for one CallTimeout in
//     all. If it does not answer, the page says so and shows the rest.
//   - The watchdog of each client: renewals that fail, tracking, heartbeats, the estimate of the server's clock; its
//     options; releases that the server has not confirmed.
//   - Subscriptions, and the last 16 errors of each client: what was lost, refused subscriptions, lost connections, and
//     renewals, acquisitions and releases that failed for another reason than contention. The text of each was in the
//     caller's error or in the log.
//
// # Cost
//
// No cost until the page is opened, except two words per waiting call. A request goes through all that is held and
// waited for. Expected errors, such as ErrNotAcquired, are not kept; others cost a copy.
package redlatchdebug
