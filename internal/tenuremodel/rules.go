package tenuremodel

// Rule is one thing that the library does so that tenures are safe, or no caller waits in vain. It can be switched off
// in the model.
type Rule struct {
	Name string
	File string // where the library does it
	Text string // by this
	// Mutant is the fault of internal/redistest/mutants by which the library lacks it; "": there is none.
	Mutant string
}

// rule is the index of one in Rules.
type rule uint8

const (
	oneCallersTurn rule = iota
	takerTime
	takerTrust
	giverTime
	giverTrust
	countTurns
	barBehindOthers
	knownIsBarred
	lossEndsTheTurn
	successorAfterALoss
	droppedIsNotPassed
	forceEndsTheTurn
	confirmedRenewal
	withdrawal
	declining
	releaseAtOnce
	repeat
	wholeMillisecond
	notAfter
	namingCounts
	nameOnce
	notBeside
	kicked
	keptGrant
	ticketOfTheRefusal
	lastWait
)

// Rules are those that the model knows. A test looks each up in the library's code.
var Rules = []Rule{
	oneCallersTurn: {"a context of a turn that is over enters nothing", "internal/session/handle.go",
		"turn != o.turn", "a context of a turn that is over re-enters"},
	takerTime: {"who takes a turn looks whether turns may still begin", "rlock/turn.go",
		"if s.now() >= x.by ||", "a turn that is taken without a look at the clock"},
	takerTrust: {"who takes a turn looks at what is left of the lease", "rlock/turn.go",
		"|| !c.engine.Lasting(&own.Lease) {\n\t\t\town.Decline()", "a turn that is taken without a look at the clock"},
	giverTime: {"who gives a turn looks at the time of the tenure", "rlock/turn.go", "s.now() >= y.until",
		"a tenure without an end"},
	giverTrust: {"who gives a turn looks at what is left of the lease", "rlock/turn.go",
		"|| !c.engine.Lasting(&o.Lease) {\n\t\treturn false", ""},
	countTurns: {"where others may wait as many turns follow as callers waited", "rlock/tenancy.go",
		"turns = min(y.n-1, mostTurns)", ""},
	barBehindOthers: {"where others may wait, who comes when no caller waits here any more has no turn",
		"rlock/tenancy.go", "own.BarNext()", ""},
	knownIsBarred: {"an owner that is known elsewhere has no further turn", "internal/session/handle.go",
		"o.next != open || o.ended != nil", "an owner that is known elsewhere and passed on"},
	lossEndsTheTurn: {"whatever ends a tenure ends the turn that runs", "internal/session/handle.go",
		"for _, h := range handles {\n\t\th.end(why)", ""},
	successorAfterALoss: {"whatever ends a tenure, those that wait have another", "rlock/turn.go",
		"if y.asks == nil {\n\t\t\ts.next(y)", "callers behind a tenure that was lost"},
	droppedIsNotPassed: {"a handle that was dropped is not unlocked: its lease runs out first",
		"internal/session/handle.go", "o.phase = dropped", ""},
	forceEndsTheTurn: {"ForceUnlock ends a hold of its own client at once", "rlock/force.go",
		"l.c.engine.Lost(held, errs.ErrLost)", "a forced unlock that its own process hears of later"},
	confirmedRenewal: {"only a confirmed renewal moves the deadline", "internal/lease/renew.go",
		"case verdicts[i] >= 1:\n\t\t\te.renewedOrSeen(a, verdicts[i], sent, now)", ""},
	withdrawal: {"the last caller that leaves withdraws the request", "rlock/turn.go",
		"q != nil && (y.first == nil || q.x == x)", "a request that no caller waits for"},
	declining: {"a caller that cannot use its turn gives the tenure back", "rlock/turn.go",
		"own.Decline()\n\t\treturn nil, &wait.GaveUp", ""},
	releaseAtOnce: {"what is granted when no caller waits is released at once", "rlock/tenancy.go",
		"q.a.own.Abandon(time.Now(), q.a.entry)", ""},
	repeat: {"a release is repeated until no request can come after it", "internal/session/retrier.go",
		"!sent.Before(p.After)", "a pending release whose early answer is final"},
	wholeMillisecond: {"a request may run for the whole millisecond of its not-after", "internal/session/release.go",
		"p.After = script.LastRun(after)", "a request that is thought to be over in its last millisecond"},
	notAfter: {"the server refuses a request that comes too late", "rlock/lua/acquire.lua",
		"if notafter > 0 and now > notafter then", "a late acquire that is granted"},
	namingCounts: {"the call that names a tenure is a request of that tenure", "rlock/waiter.go",
		"a.ReleaseLater(end)", ""},
	nameOnce: {"only the run that releases the holder names the next", "rlock/lua/release.lua",
		"named and released == 1", ""},
	notBeside: {"a late reply sends no release in addition to an Unlock's", "internal/session/handle.go",
		"if o.phase == releasing {\n\t\to.phase = overtaken", "a grant that comes while the release is under way"},
	kicked: {"a grant that no caller waits for has the pending release sent at once",
		"internal/session/session.go", "s.Waiters.Unclaimed = s.Retrier.Kick",
		"a grant for a waiter that left, and that is not reported"},
	keptGrant: {"a grant that overtakes the reply is kept", "internal/wait/handover.go", "g.Ticket <= w.ticket",
		""},
	ticketOfTheRefusal: {"a grant is used if its ticket is that of the last refusal", "internal/wait/handover.go",
		"g.Ticket == w.ticket", "a grant of any place"},
	lastWait: {"a grant's lease counts from the question that was refused last", "internal/wait/handover.go",
		"g.Sent = w.held", "a grant that counts from its message"},
}
