// Package redlatchotel gives OpenTelemetry what a program does with redlatch: metrics, and spans of acquiring, holding
// and releasing.
//
//	telemetry, err := redlatchotel.New(redlatchotel.Options{Class: func(kind, name string) string {
//		class, _, _ := strings.Cut(name, ":") // "order:4711" is of class "order"
//		return class
//	}})
//	red, err := redlatch.Open(ctx, option, telemetry.Instrument(redlatch.Options{}))
//	...
//	telemetry.Watch(red)
//	defer telemetry.Shutdown(ctx) // before the providers'
//
// The providers are the global ones unless the options have others. For metrics alone take the TracerProvider of
// go.opentelemetry.io/otel/trace/noop, for spans alone the MeterProvider of go.opentelemetry.io/otel/metric/noop.
//
// # Metrics
//
// They are those of contrib/prometheus, named after OpenTelemetry's conventions: redlatch.acquisitions,
// redlatch.acquire.duration (in seconds) and so on. Their attributes are redlatch.kind, redlatch.class, redlatch.result
// and others, of few values each.
//
//   - kind is lock, election, semaphore, counter, stock, redpacket or limiter. Latches and barriers are semaphores.
//   - class is what Options.Class makes of the name; "all" without that function. The name itself is never an attribute
//     of a metric. There are at most Options.MaxClasses of each kind; names of further classes count under "other".
//   - result of a call that failed is what redlatch.Reason returns: not_acquired, canceled, lost, unavailable and
//     others.
//
// An event costs the update of one or two instruments, and nothing is sent to the server.
//
// # Spans
//
//   - "lock acquire", a child of the caller's span, from the call to its end. The requests are its children, if the
//     client under redlatch makes spans, as rueidisotel does. It has redlatch.result, redlatch.waited (whether it had
//     to wait for others), and how often it was woken (redlatch.wakeups.message, redlatch.wakeups.timer). Of a Multi or
//     Quorum each member has one; of members that one script acquired they are points in time. A vote of a Quorum that
//     is asked for again later begins a trace of its own.
//   - "lock hold", next to it: from the grant until Unlock has ended, or until the hold was lost. It is linked to the
//     span that acquired it. It is made when the hold ends, so a hold that lasts has none yet. A loss is its event
//     "lost" with redlatch.cause, and an error.
//   - "lock release", a child of the span under which Unlock was called, linked to the hold's.
//   - "semaphore acquire", "semaphore hold", "semaphore release" and "election ..." likewise; "semaphore await" of a
//     latch or a barrier. A CountingSemaphore knows no holders, and has no spans of holds.
//
// The status is an error for what went wrong, with the reason as its description and as error.type. A wait that ended
// without the lock (not_acquired, canceled, timeout) is none. Names are attributes (redlatch.name) only with
// Options.Names. Texts of errors are never recorded, because they have names in them.
//
// # Links to the holder
//
// A holder whose label has a trace can be found by those that waited for it:
//
//	hold, err := lock.WithLabel(redlatchotel.Label(ctx, "")).Lock(ctx)
//
// With Options.Links the span of an acquisition that waits is linked to the span that each holder's label names, of any
// process. The replies to an acquisition do not name the holder. So an acquisition that begins to wait has the holders
// looked up, once, in the background: one call of Inspect (Redis runs one script for it), which acquisitions of one
// name share that begin to wait at the same time. Nothing else pays for it. The answer is of a moment after the
// refusal: a holder that was very quick is not there any more. A label makes readers of a process hold the lock each
// for itself: see rlock.ReadWriteLock.Read.
package redlatchotel
