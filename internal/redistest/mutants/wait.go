package main

// ofWait are faults of waiting: which grants are used, and what wakes a waiter.
var ofWait = []mutant{
	{
		name: "a call that is said to wait whenever it stands in line", file: "internal/wait/waits.go", pkg: "rlock",
		old: "\tif !c.reported {\n", new: "\tif c.Ctx != nil {\n",
		breaks: "one acquisition is said to wait once", tests: "TestWhoTakesATurnLooksAtTheClock",
	},
	{
		name: "a silent server that is taken for others", file: "internal/wait/ended.go", pkg: "internal/wait",
		old: "e.TakesBack && g.Cause != nil && errs.IsCut(g.Failure):", new: "e.TakesBack && g.Cause != nil:",
		breaks: "a server that does not answer is not taken for contention",
		tests:  "TestACallerWhoseContextEndedWhileItWasAskedForHasOnlyWaited",
	},
	{
		name: "callers that give up, and ask as fast as they like", file: "internal/wait/pace.go", pkg: "internal/wait",
		old: "\t\tp.bound = max(p.bound/2, leastPaced)\n", new: "",
		breaks: "callers that give up ask no faster than the server answers",
		tests:  "TestCallersThatGiveUpDoNotAskFasterThanTheServerAnswers",
	},
	{
		name: "a question that counts for no longer than its caller waits", file: "internal/wait/pace.go",
		pkg: "internal/wait",
		old: "rest := p.trip - took; rest > 0", new: "rest := p.trip - took; rest > time.Hour",
		breaks: "callers that give up ask no faster than the server answers",
		tests:  "TestCallersThatGiveUpDoNotAskFasterThanTheServerAnswers",
	},
	{
		name: "a process of impatient callers that never listens", file: "internal/wait/waiter.go", pkg: "internal/wait",
		old: "\tw.leftUnheard()\n", new: "",
		breaks: "a process whose callers are impatient can be handed a lock",
		tests:  "TestCallersTooImpatientForAnAnswerAreHandedTheLock",
	},
	{
		name: "a grant of any place", file: "internal/wait/handover.go", pkg: "internal/wait",
		old: "g.Ticket == w.ticket && w.held.After(q.gap)", new: "g.Ticket <= w.ticket && w.held.After(q.gap)",
		breaks: "only the grant of the ticket that was last named is used", tests: "TestAGrantOfAnEarlierPlaceIsNotTrusted",
	},
	{
		name: "a grant after a gap that is used unconfirmed", file: "internal/wait/handover.go", pkg: "internal/wait",
		old: "g.Ticket == w.ticket && w.held.After(q.gap)", new: "g.Ticket == w.ticket",
		breaks: "after a gap in the messages a grant is confirmed", tests: "TestAGrantAfterAGapIsConfirmed",
	},
	{
		name: "a grant that counts from its message", file: "internal/wait/handover.go", pkg: "rlock",
		old: "\t\t\tg.Sent = w.held\n", new: "\t\t\tg.Sent = time.Now()\n",
		breaks: "a grant counts from the send of the last answer that named its place",
		tests:  "TestAGrantThatComesAfterItsLeaseIsOver TestUntilIsNeverAfterTheServersExpiry",
	},
	{
		name: "a grant for a waiter that left, and that is not reported", file: "internal/wait/grants.go",
		pkg: "internal/wait",
		old: "\t\tq.unclaimed(g.Owner)\n\t\treturn\n", new: "\t\treturn\n",
		breaks: "what a waiter that left is granted is released at once", tests: "TestAGrantThatNobodyAwaitsIsToldOf",
	},
	{
		name: "a grant that is used while its waiter asks", file: "internal/wait/handover.go", pkg: "internal/wait",
		old: "use := g != nil && w.does != inFlight && (", new: "use := g != nil && (",
		breaks: "no grant is used while a request for the waiter is under way",
		tests:  "TestAGrantIsNotUsedWhileItsWaiterIsAskedFor",
	},
	{
		name: "who leaves owes nothing", file: "internal/wait/handover.go", pkg: "internal/wait",
		old: "after, owed = time.Now().Add(w.r.Reach), true", new: "after, owed = time.Time{}, false",
		breaks: "what a waiter that left may yet be granted is released", tests: "TestWhoLeavesWhileItIsAskedForOwesARelease",
	},
	{
		name: "a place in silence", file: "internal/wait/handover.go", pkg: "internal/wait",
		old:    "\tif !w.hears() {\n\t\treturn nil\n\t}\n\tw.q.mu.Lock()\n\tdefer w.q.mu.Unlock()\n\tw.queued = true",
		new:    "\tw.q.mu.Lock()\n\tdefer w.q.mu.Unlock()\n\tw.queued = true",
		breaks: "who hears no grants stands in no queue",
		tests:  "TestWhoMayNotListenStandsInNoQueue TestAReleaseDuringTheFirstSubscribeLeavesNoLockIdle",
	},
	{
		name: "a gap that is not reported", file: "internal/wait/grants.go", pkg: "internal/wait",
		old:    "\t\tif w.localQueue.batchQueue == nil {\n\t\t\tsignal(w.wakeup)\n",
		new:    "\t\tif w.localQueue.batchQueue == nil {\n",
		breaks: "after a gap in the messages every waiter asks", tests: "TestAfterAGapWaitersLook",
	},
	{
		name: "a grant that wakes no waiter", file: "internal/wait/grants.go", pkg: "internal/wait",
		old: "\t\tw.grant = &g\n\t}\n\tsignal(w.wakeup)\n", new: "\t\tw.grant = &g\n\t}\n",
		breaks: "a grant wakes its waiter",
		tests: "TestAGrantThatOvertakesItsPlaceIsUsed TestAGrantAfterAGapIsConfirmed " +
			"TestALockIsNotIdleAfterTheGrantsWereNotListenedForForAWhile",
	},
	{
		name: "a sleep without PollCap", file: "internal/wait/loop.go", pkg: "internal/wait",
		old: "\td := w.q.pollCap\n\tif w.entry", new: "\td := 100 * w.q.pollCap\n\tif w.entry",
		breaks: "a lost message costs a waiter PollCap at most",
		tests:  "TestAMessageWakesAndALostOneCostsAtMostPollCap TestALostGrantIsFoundByAPoll",
	},
	{
		name: "a lease whose end wakes no waiter", file: "internal/wait/loop.go", pkg: "internal/wait",
		old: "\tif left >= 0 {\n\t\td = min(d, AfterLease(left))\n\t}\n\td -= rand.N(d/10 + 1)\n\tif left >= 0 && left < d " +
			"{\n\t\td = script.Expiry(left)\n\t}\n", new: "\td -= rand.N(d/10 + 1) + 0*left\n",
		breaks: "the end of the holder's lease wakes a waiter", tests: "TestTheEndOfTheHoldersLeaseWakes",
	},
	{
		name: "a subscription without a try after it", file: "internal/wait/loop.go", pkg: "internal/wait",
		old: "\t\treturn true // try again at once: see the package comment\n", new: "",
		breaks: "a release between the first try and the subscription is found",
		tests:  "TestAReleaseBetweenTheFirstTryAndTheSubscriptionIsFound",
	},
	{
		name: "a shared answer for those who came later", file: "internal/wait/flight.go", pkg: "internal/wait",
		old: "if d.sent.IsZero() || d.sent.Before(since) {", new: "if d.sent.IsZero() {",
		breaks: "a shared answer is for those who came before its request was sent",
		tests:  "TestASharedResultIsForThoseThatCameBeforeItsRequestWasSent",
	},
}
