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
// The waiting calls and the holds of this client, rate limits that refused a request of this process lately, and the
// server's view of these objects: holders, queue, free units. The page asks about the first 16 objects, all at the same
// time, for one CallTimeout in all; if the server does not answer, the page says so and shows the rest. Then watchdogs,
// options, subscriptions, releases that the server has not confirmed, and the last 16 errors of each client. Expected
// errors, such as ErrNotAcquired, are not kept.
//
// There is no cost until the page is opened, except two words per waiting call.
//
// # Contention
//
// [Contention] is a profile for go tool pprof: how long which calls waited, and for which holders.
//
// # JSON
//
// With format=json, [Handler] answers with one object. The fields that are named here keep their names and meanings;
// others may come. Fields that end in _ms are milliseconds, with a fraction where it matters. A field without a value
// is null or missing.
//
//	at, process, open_ms, closed                 when, host:pid, since when, whether Close was called
//	mode, nodes                                  standalone, sentinel or cluster; addresses
//	waits, holds, pending_releases, limits       each {total, shown: [...]}: total is how many match, shown the first n
//	  waits:   client, kind, name, waiting_ms, gives_up_ms, refused, before, ticket, permits, error
//	  holds:   client, kind, name, owner, label, permits, handles, held_ms, safe_ms, lease_ms, renewed, confirmed_ms,
//	           failing, max_hold_ms, forgotten
//	  pending: client, name, given_up_ms
//	  limits:  client, kind, name, key, units, burst, refused_ms, passes_ms
//	policies                                     name, policy, last_ms
//	server                                       answered, asked, error, objects, omitted
//	  objects: client, kind, name, key, error, held, lease_left_ms, capacity, free, holders, waiters
//	  holders, waiters: owner, label, process, here, lease_left_ms or waiting_ms, count
//	clients                                      client, closed, held, renewed, failing, waiting, calls, tracking,
//	                                             hand_overs, heartbeat_ms, beaten_ms, missed, slept_ms, clock, options
//	subscriptions                                channels, confirmed, connections
//	lacks; errors                                command, effect, error; client, at, what, name, reason, error, count
//
// safe_ms is how long the holder may still act, as Hold.Until has it. For a limit, capacity is how many units can pass
// at once after a pause, free how many may pass now, and lease_left_ms the time until all may.
package redlatchdebug
