// Package redlatchprom counts for Prometheus what a program does with redlatch.
//
// A [Collector] gets the events of all clients as their Observer, and asks their Stats when it is scraped:
//
//	collector := redlatchprom.New(redlatchprom.Options{Class: func(kind, name string) string {
//		class, _, _ := strings.Cut(name, ":") // "order:4711" is of class "order"
//		return class
//	}})
//	prometheus.MustRegister(collector)
//	red, err := redlatch.Open(ctx, option, collector.Instrument(redlatch.Options{}))
//	...
//	collector.Watch(red)
//
// It sends nothing to the server. An event costs the update of one or two counters. A panic of the user's function is
// caught and logged by the client that reported the event.
//
// # Labels
//
//   - kind is lock, election, semaphore, counter, stock, redpacket or limiter: the package that reported it. Latches
//     and barriers are semaphores.
//   - class is what Options.Class makes of the name; "all" without that function. The name itself is never a label.
//     There are at most Options.MaxClasses of each kind; names of further classes count under "other".
//   - result, cause, outcome and by have the few values that their metric's help lists. An error's value is what
//     redlatch.Reason returns.
//
// So the number of series of a process is bounded: some 70 for each class of locks that meets everything, of which 32
// are buckets.
//
// The most common of them:
//
//	not_acquired      another had it for as long as the call waited
//	canceled          the caller's context was cancelled
//	timeout           the caller's deadline ended before the server answered
//	lost              it was held, and is not any more
//	max_hold          the hold was older than MaxHold
//	not_replicated    too few replicas confirmed it
//	unavailable       nothing ran on the server
//	unknown_outcome   a request was sent and not answered
//	denied            a right is missing, or the password is wrong
//	closed            the client or its hub was closed
//	other             an error of no package of redlatch
//
// The dashboard grafana.json and the rules alerts.yaml in this folder use these metrics and no others.
package redlatchprom
