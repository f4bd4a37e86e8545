// Package redlatchdebug serves a page that shows the holds and waits of a redlatch.Client, in the manner of
// net/http/pprof:
//
//	internal := http.NewServeMux()
//	internal.Handle("/debug/redlatch", redlatchdebug.Handler(red))
//	go http.ListenAndServe("127.0.0.1:6060", internal)
//
// Mount the page where pprof is mounted, on a listener that only the operators reach. The page has nothing that could
// be used to unlock, join or log in: no password, and only the first characters of each owner and permit. But the page
// shows the names and labels of locks, the keys of rate limits, the server's address and error texts. A service that
// limits by API tokens should give the limiter a hash of each.
//
// The page has a package of its own, so that other programs link neither net/http nor html/template.
//
// # What it shows
//
//   - The waiting calls of this client: since when, until when, whether the server has refused them, and their place.
//   - The holds: since when, for how long it is still safe to act, whether the hold is renewed, and when the last
//     renewal was confirmed.
//   - Rate limits that refused a request of this process lately: the key, the units, and when so many units could pass.
//     Other limits are not remembered; with Options.RefusalTrust off, no limit is. And limiters whose policy answers,
//     because the server does not.
//   - The server's view of these objects: holders and queue, with the processes and labels; how many units may pass.
//     The page asks about the first 16 objects that it shows, objects with waiting calls first, all at the same time,
//     for one CallTimeout in all. If the server does not answer, the page says so and shows the rest.
//   - The watchdog of each client: renewals that fail, tracking, heartbeats, the estimate of the server's clock; its
//     options; releases that the server has not confirmed.
//   - Subscriptions, and the last 16 errors of each client: lost holds, refused subscriptions, lost connections, and
//     renewals, acquisitions and releases that failed for another reason than contention. The text of each error was in
//     the caller's error or in the log.
//
// # Cost
//
// No cost until the page is opened, except two words per waiting call. A request goes through all holds and waiting
// calls. Expected errors, such as ErrNotAcquired, are not kept; others cost a copy.
package redlatchdebug
