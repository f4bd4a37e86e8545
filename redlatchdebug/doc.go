// Package redlatchdebug has a page for people that shows what a redlatch.Client holds and waits for, in the manner of net/http/pprof:
//
//	internal := http.NewServeMux()
//	internal.Handle("/debug/redlatch", redlatchdebug.Handler(red))
//	go http.ListenAndServe("127.0.0.1:6060", internal)
//
// The page has no secrets by which anybody could unlock, join or log in: no password, and of each owner and permit only the first
// characters. But it shows the names and labels of locks, the keys of rate limits, the server's address and error texts: a service that limits
// by API tokens gives the limiter a hash of each. So mount it where pprof is mounted,
// on a listener that only the operators reach, and not on that of the public.
//
// It is a package of its own, and not a method of redlatch.Client, so that a program which does not want it links neither net/http nor
// html/template.
//
// # What it shows
//
//   - What this client waits for: since when, until when, whether the server has refused it, who stands before it.
//   - What it holds: since when, for how long it is still safe to act, whether it is renewed and when that was last confirmed.
//   - Rate limits that refused a request of this process lately: of which key, how many units, and when so many could pass. The
//     others that it uses are not remembered; with Options.RefusalTrust off none is. And which limiters have a policy answer, because
//     the server does not.
//   - For these, what the server says: holders and queue, with the processes and labels; how many units may pass. The server is asked for the first 16 objects
//     that are shown, the waited-for first, all at the same time, for one CallTimeout in all. If it does not answer, the page says so
//     and shows the rest.
//   - The watchdog of each client: renewals that fail, tracking, heartbeats, the estimate of the server's clock; its options; releases
//     that the server has not confirmed.
//   - Subscriptions, and the last 16 errors of each client: what was lost, renewals, acquisitions and releases that failed for another
//     reason than that somebody else held the lock, refused subscriptions and lost connections. The text of each was in the caller's
//     error or in the log.
//
// # The request
//
// GET and HEAD; all else is 405. Nothing can be changed through it. The parameters are
//
//	format=json   the same as JSON; html is the default
//	name=order    only what has this in its name, or a limit's key, as it is written
//	n=100         how many holds, waits and pending releases at most, 1 to 10,000; the oldest are shown. Defaults to 100
//	server=no     do not ask the server
//	refresh=5     the page loads itself again, 1 to 3600 s
//
// An unknown value is 400, with a text that names it.
//
// # JSON
//
// One object. Fields that are named here keep their names and meanings; others may come. What ends in _ms is a number of milliseconds,
// with a fraction where it matters; null, or no such field: there is none.
//
//	at, process, open_ms, closed                 when, host:pid, since when, whether Close was called
//	mode, nodes                                  standalone, sentinel or cluster; addresses
//	waits, holds, pending_releases, limits       each {total, shown: [...]}: total is how many match, shown the first n of them
//	  waits:   client, kind, name, waiting_ms, gives_up_ms, refused, before, ticket, permits, error
//	  holds:   client, kind, name, owner, label, permits, handles, held_ms, safe_ms, lease_ms, renewed, confirmed_ms, failing,
//	           max_hold_ms, forgotten
//	  pending: client, name, given_up_ms
//	  limits:  client, kind, name, key, units, burst, refused_ms, passes_ms
//	policies                                     name, policy, last_ms
//	server                                       answered, asked, error, objects, omitted
//	  objects: client, kind, name, key, error, held, lease_left_ms, capacity, free, holders, waiters
//	  holders: owner, label, process, here, lease_left_ms, count
//	  waiters: owner, label, process, here, waiting_ms
//	clients                                      client, closed, held, renewed, failing, waiting, calls, tracking, hand_overs,
//	                                             heartbeat_ms, beaten_ms, missed, slept_ms, clock, options
//	  clock:   ahead_ms, within_ms, age_ms, servers
//	subscriptions                                channels, confirmed, connections
//	errors                                       client, at, what, name, reason, error, count
//
// safe_ms is how long the holder may still act, as Hold.Until has it: what is left of the lease, or of the trust in heartbeats if that
// is less. client is locks, elections, semaphores, counters, stocks, red_packets, limiters or hub. kind is the kind of the lock, as Fair, the
// type in rsemaphore, or the algorithm of a limit. Of a limit capacity is what can pass at once after a pause, free what may pass now, and
// lease_left_ms the time until all may. ahead_ms is how far the server's clock is ahead of this machine's; no lease depends on it. reason is that of
// redlatch.Reason.
//
// # Costs
//
// Nothing while nobody looks, but for two words for each call that waits. A look goes through all that is held and waited
// for. Errors that a program reckons with, such as ErrNotAcquired, are not kept; others cost a copy.
package redlatchdebug
