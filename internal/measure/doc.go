// Package measure says what is counted of a program that uses redlatch, whatever counts it: the instruments, the
// observers that feed them, the clients that are asked for their Stats, and the classes of names. The modules in
// contrib hand it on to Prometheus and to OpenTelemetry. No package of the library imports it.
package measure

import "context"

// Instrument is one thing that is counted. There is one value of each, so they are compared by address.
type Instrument struct {
	Name   string // in lower case, with underscores
	Help   string
	Unit   string // as OpenTelemetry writes units; "s" of a Duration
	Type   Type
	Labels []string // names of its labels, in the order of their values
}

// Type says how an instrument is fed.
type Type int

// The types of instruments.
const (
	Counter  Type = iota // Sink.Add
	Duration             // Sink.Record: a histogram of seconds
	Gauge                // Watched.Each: a value of the moment
	Total                // Watched.Each: a count that only rises
)

// Sink takes in what the observers get. ctx is the observer's, and labels are the values of the instrument's
// Labels.
type Sink interface {
	Add(ctx context.Context, i *Instrument, n float64, labels ...string)
	Record(ctx context.Context, i *Instrument, seconds float64, labels ...string)
}

// The instruments that observers feed.
var (
	Acquisitions = count("acquisitions", "{acquisition}",
		"Acquisitions of locks and permits that ended, by result: acquired, or an error.", "kind", "class", "result")
	AcquireTime = took("acquire", "How long acquisitions took, waiting included.", "kind", "class", "acquired")
	Releases    = count("releases", "{release}",
		"Unlocks and releases of permits, by result: released, or an error.", "kind", "class", "result")
	HoldTime = took("hold", "How long locks and permits were held that were released.", "kind", "class")
	Losses   = count("losses", "{hold}",
		"Holds and permits that ended without a release, by cause: lost, overwritten, max_hold or closed.", "kind", "class",
		"cause")
	Renewals = count("renewals", "{renewal}",
		"Renewals of leases, by result: confirmed or failed. A failure is not final.", "kind", "class", "result")
	Wakeups   = count("wakeups", "{wakeup}", "Wake-ups of waiters, by message or timer.", "kind", "class", "by")
	Takeovers = count("takeovers", "{hold}", "Holds and permits of crashed processes that this one took over.",
		"class")
	AwaitTime = took("await",
		"How long calls of Await of latches and barriers took, by result: reached, or an error.", "class", "result")
	Claims = count("claims", "{claim}",
		"Orders and claims that the server answered, by outcome: sold, grabbed, replayed, sold_out and others, or an error.",
		"kind", "class", "outcome")
	ClaimedUnits = count("claimed_units", "{unit}",
		"Units that were sold or reserved, or cents of red packets that were grabbed.", "kind", "class")
	ClaimTime    = took("claim", "How long claims took for which the server was asked.", "kind", "class")
	LocalAnswers = count("local_answers", "{claim}",
		"Orders of sales that are sold out, and calls of a Once, that the process answered without the server, by outcome.",
		"class", "outcome")
	Writes = count("writes", "{write}", "Writes of counters, by result: written, or an error.", "class",
		"result")
	WriteTime  = took("write", "How long writes of counters took.", "class")
	Admissions = count("admissions", "{request}",
		"Requests that rate limiters judged, by result: allowed, refused, would_refuse, or an error.", "class", "result")
	AdmitTime   = took("admit", "How long that took.", "class")
	Settlements = count("settlements", "{charge}",
		"Charges of rate limiters that were settled, by result: settled, or an error.", "class", "result")
	SettledUnits = count("settled_units", "{unit}",
		"Units by which charges differed from their estimates, by direction: returned or taken.", "class", "direction")
	PolicyChanges = count("limiter_policy_changes", "{change}",
		"Times that a rate limiter's policy began to answer in place of the server, or ceased to.", "class", "policy",
		"begins")
	BackgroundFailures = count("background_failures", "{failure}",
		"Work in the background that failed for good, or is repeated anyway: units that stay sold or taken.", "kind", "class")
	SharedCalls = count("shared_calls", "{call}",
		"Script calls that several requests of this process could share.", "kind")
	SharedRequests = count("shared_requests", "{request}", "Requests that were made in shared calls.", "kind")
	Confirmations  = count("subscription_confirmations", "{confirmation}",
		"Subscriptions that the server confirmed, by again: after the channel was down.", "again")
	Refusals         = count("subscription_refusals", "{refusal}", "Subscriptions that the server refused.")
	ConnectionLosses = count("subscription_connection_losses", "{connection}",
		"Connections with subscriptions that ended, or could not be made.")
	DroppedMessages = count("messages_dropped", "{message}",
		"Messages that were dropped because a subscriber was slow.")
)

// The instruments of which the value is asked for.
var (
	Held    = asked(Gauge, "held", "{hold}", "Holds of locks and acquisitions of permits that last.", "kind")
	Waiting = asked(Gauge, "waiting", "{call}",
		"Calls that wait for what was refused to them, or to a call before them.", "kind")
	PendingReleases = asked(Gauge, "pending_releases", "{release}",
		"Releases that the server has not confirmed, and that go on in the background.", "kind")
	HandOvers = asked(Total, "handovers", "{handover}", "Waits that ended because a release named the waiter.",
		"kind")
	Subscriptions = asked(Gauge, "subscriptions", "{channel}",
		"Channels that are wanted, by state: confirmed by the server and up, or pending.", "state")
	Connections = asked(Gauge, "subscription_connections", "{connection}",
		"Connections for subscriptions, also those that are being made.")
	Lacks = asked(Gauge, "lacks", "{hub}",
		"Hubs whose server refuses a command that the clients go on without, by command.", "command")
)

// Fed are all instruments that are fed.
var Fed []*Instrument

// Asked are all instruments that are asked.
var Asked []*Instrument

func count(name, unit, help string, labels ...string) *Instrument {
	i := &Instrument{name, help, unit, Counter, labels}
	Fed = append(Fed, i)
	return i
}

func took(name, help string, labels ...string) *Instrument {
	i := &Instrument{name, help, "s", Duration, labels}
	Fed = append(Fed, i)
	return i
}

func asked(t Type, name, unit, help string, labels ...string) *Instrument {
	i := &Instrument{name, help, unit, t, labels}
	Asked = append(Asked, i)
	return i
}

// The usual upper bounds, in seconds, of histograms of waiting (and of calls) and of holding.
var (
	waitBounds = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30, 100}
	holdBounds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60, 300, 1200, 3600}
)

// Bounds returns the bounds of a Duration: those of waiting or of holding that the user has set, or the usual ones.
func (i *Instrument) Bounds(wait, hold []float64) []float64 {
	set, usual := wait, waitBounds
	if i == HoldTime {
		set, usual = hold, holdBounds
	}
	if set == nil {
		return usual
	}
	return set
}
