package main

// ofCalls are faults of calls, of handles and their releases.
var ofCalls = []mutant{
	{
		name: "a name that is another object's key", file: "internal/keyname/keyname.go", pkg: "internal/keyname",
		old: "if why := derived(key); why != \"\" {", new: "if why := derived(key); why == \"?\" {",
		breaks: "no object's name is another's key", tests: "TestAKeyThatAnotherObjectHasBesideItsOwnIsRefused",
	},
	{
		name: "an unsubscribe that does not ask whether the server is busy", file: "pubsub/link.go", pkg: "pubsub",
		old: "\tif no != nil && !strings.HasPrefix(no.Error(), \"NOPERM \") {\n", new: "\tif no != nil && no.Error() == \"\" {\n",
		breaks: "no script of anybody ends a process", tests: "TestAChannelThatIsDroppedWhileTheServerIsBusyGoesAfterwards",
	},
	{
		name: "a connection to a busy node that is taken back", file: "internal/script/run.go", pkg: "internal/script",
		old: "busy = saysBusy(res.Error()) || saysBusy(unmet)", new: "busy = saysBusy(unmet) && res.Error() == nil",
		breaks: "no script of anybody ends a process", tests: "TestACallThatReplicasConfirmIsRefusedByABusyNodeAndNoMore",
	},
	{
		name: "an error of Lua that is of no class", file: "internal/script/classify.go", pkg: "internal/script",
		old: "(r.lua || slices", new: "(slices",
		breaks: "a value that nobody of ours writes is ErrWrongType", tests: "TestAScriptThatCannotReadAValueIsErrWrongTypeAndSaysNothingOfLua",
	},
	{
		name: "a refusal that may have run", file: "internal/script/classify.go", pkg: "internal/script",
		old: "\t\tif passing(err) {\n\t\t\treturn notRun\n", new: "\t\tif passing(err) {\n\t\t\treturn unknown\n",
		breaks: "a refusal proves that nothing ran", tests: "TestARefusalIsRetriedForAsLongAsTheCallLasts TestRefusalsOfARealServerAreRetriedAndDoNotRun TestABusyServerIsAskedAgain",
	},
	{
		name: "a lost reply that proves that nothing ran", file: "internal/script/classify.go", pkg: "internal/script",
		old: "\treturn unknown\n}", new: "\treturn notRun\n}",
		breaks: "without a reply the outcome is unknown", tests: "TestOnceIsNotSentAgainAfterAnUnknownOutcome TestAnUnknownTryMakesTheWholeCallUnknown",
	},
	{
		name: "what may not run twice is sent twice", file: "internal/script/run.go", pkg: "internal/script",
		old: "if unknown && once || ctx.Err() != nil", new: "if ctx.Err() != nil",
		breaks: "a verb that must not run twice is sent once", tests: "TestOnceIsNotSentAgainAfterAnUnknownOutcome",
	},
	{
		name: "an unknown try that is forgotten", file: "internal/script/run.go", pkg: "internal/script",
		old: "unsure = unsure || unknown", new: "unsure = unknown",
		breaks: "a call of which any try may have run is of unknown outcome", tests: "TestAnUnknownTryMakesTheWholeCallUnknown",
	},
	{
		name: "a context that gives patience", file: "internal/script/run.go", pkg: ".",
		old: "\tif bound > 0 {\n", new: "\tif _, ok := ctx.Deadline(); !ok && bound > 0 {\n",
		breaks: "a call that does not wait ends in time whatever its context allows", tests: "TestACallThatDoesNotWaitEndsInOneCallTimeoutWhateverHasBecomeOfTheServer",
	},
	{
		name: "five call timeouts for a call that does not wait", file: "internal/session/session.go", pkg: ".",
		old: "func (s *Session) Bound() time.Duration { return s.RetryTimeout }", new: "func (s *Session) Bound() time.Duration { return s.GiveBackBound() }",
		breaks: "a call that does not wait ends in one call timeout", tests: "TestACallThatDoesNotWaitEndsInOneCallTimeoutWhateverHasBecomeOfTheServer",
	},
	{
		name: "two call timeouts for a shared acquire", file: "internal/batch/lane.go", pkg: ".",
		old: "Bound: with.Timeout,", new: "Bound: 2 * with.Timeout,",
		breaks: "a call that does not wait ends in one call timeout", tests: "TestACrowdThatDoesNotWaitEndsInOneCallTimeoutToo",
	},
	{
		name: "a batch that is awaited for as long as a context lasts", file: "internal/batch/batch.go", pkg: "internal/batch",
		old: "\tok = ok && time.Until(until) < l.Bound\n", new: "",
		breaks: "a call that does not wait ends in time whatever its context allows", tests: "TestEachCallerLeavesABatchInItsOwnTime",
	},
	{
		name: "a call in place while another connects", file: "internal/script/run.go", pkg: "internal/script",
		old: " && dials == l.dials.Load()", new: " && dials >= 0",
		breaks: "a call that does not wait ends in one call timeout", tests: "TestNoCallInPlaceWaitsForAConnectionThatAnotherMakes",
	},
	{
		name: "a line of the log for everyone who waits", file: "internal/wait/silence.go", pkg: "internal/wait",
		old: "tell := s.told.IsZero() && now", new: "tell := now",
		breaks: "an outage is logged once", tests: "TestASilenceOfThreeCallTimeoutsIsLoggedAndItsEnd",
	},
	{
		name: "an outage that others end", file: "internal/wait/silence.go", pkg: "internal/wait",
		old: "\tif len(s.silent) == 0 {\n", new: "\tif true {\n",
		breaks: "the end of an outage is logged when it has come", tests: "TestOneSilentNodeOfAClusterIsLoggedOnceThoughOthersAnswer",
	},
	{
		name: "a request under an ended context", file: "internal/script/run.go", pkg: "internal/script",
		old: "\tif ctx.Err() != nil {\n\t\treturn rueidis.RedisMessage{}, errNotSent{errs.Cut(errs.Ended(ctx))}\n\t}\n", new: "",
		breaks: "nothing is sent under a context that has ended", tests: "TestNothingIsSentUnderAContextThatHasEnded",
	},
	{
		name: "too few replicas", file: "internal/script/run.go", pkg: "rlock",
		old: "} else if n < int64(c.Replicas) {", new: "} else if n < int64(c.Replicas)-1 {",
		breaks: "with MinReplicas a grant is confirmed by so many replicas", tests: "TestAMultiWhoseGrantIsNotReplicatedIsTakenBack TestAGrantThatIsNotReplicatedIsTakenBack",
	},
	{
		name: "a server's clock that is guessed late", file: "internal/script/clock.go", pkg: "internal/script",
		old: "return s.Server + d.Milliseconds()", new: "return s.Server + (d + s.Spread).Milliseconds() + 1",
		breaks: "the estimate of the server's clock errs to the early side", tests: "TestTheClockErrsToTheEarlySideOnly",
	},
	{
		name: "a request that is thought to be over in its last millisecond", file: "internal/script/clock.go", pkg: "internal/session",
		old: "return notAfter.Add(tick)", new: "return notAfter",
		breaks: "a lock that a caller has given up is not left taken", tests: "TestAReleaseIsFinalOnceTheLastMillisecondOfWhatItIsForIsOver",
	},
	{
		name: "an instant that is over when its millisecond begins", file: "internal/script/lua/clock.lua", pkg: "internal/script",
		old: "return now > instant + 0", new: "return now >= instant + 0",
		breaks: "nothing is given away before the instant that its holder was told", tests: "TestAnInstantHasItsMillisecondWholly",
	},
	{
		name: "a set of instants that are over when their millisecond begins", file: "internal/script/lua/clock.lua", pkg: "internal/script",
		old: "string.format('(%.0f', now)", new: "string.format('%.0f', now)",
		breaks: "nothing is given away before the instant that its holder was told", tests: "TestAnInstantHasItsMillisecondWholly",
	},
	{
		name: "a key that is removed in the millisecond in which it ends", file: "internal/script/lua/clock.lua", pkg: "internal/script",
		old: "math.max(1, instant - now)", new: "math.max(0, instant - now)",
		breaks: "nothing is given away before the instant that its holder was told", tests: "TestAnInstantHasItsMillisecondWholly",
	},
	{
		name: "a hold that is said to last a millisecond longer", file: "internal/script/lua/renewal.lua", pkg: "internal/script",
		old: "return ms < 1 and 0 or 1 + ms", new: "return 1 + math.max(1, ms)",
		breaks: "a holder stops before the server gives its lock away", tests: "TestAHoldIsNotSaidToLastLongerThanItDoes",
	},
	{
		name: "a hold that nobody sees in its last millisecond", file: "internal/script/clock.go", pkg: "internal/script",
		old: "\tif now > end {\n", new: "\tif now >= end {\n",
		breaks: "who looks sees what is held", tests: "TestAnInstantHasItsMillisecondWholly",
	},
	{
		name: "a waiter that asks too soon", file: "internal/script/clock.go", pkg: "internal/script",
		old: "return left + tick", new: "return left",
		breaks: "who waits for the end of a lease asks when it is over", tests: "TestAWaiterThatAsksAtTheExpiryFindsItExpired",
	},
	{
		name: "a not-after beyond the caller's deadline", file: "internal/script/timed.go", pkg: "internal/script",
		old: "\tif d, ok := ctx.Deadline(); ok && d.Add(t.Beyond).Before(end) {\n\t\treturn d.Add(t.Beyond)\n\t}\n", new: "",
		breaks: "nothing is granted after its caller's deadline", tests: "TestATimedCallIsNotGrantedAfterItsCallersDeadline",
	},
	{
		name: "a LATE that is repeated for ever", file: "internal/script/timed.go", pkg: "internal/script",
		old: "\t\tif again {\n", new: "\t\tif again && late && server == 0 {\n",
		breaks: "a call that is late twice did nothing, and says so", tests: "TestATimedCallThatIsLateTwiceDidNothing",
	},
	{
		name: "a pending release whose early answer is final", file: "internal/session/retrier.go", pkg: "internal/session",
		old: "done := err == nil && !sent.Before(p.After)", new: "done := err == nil && !sent.IsZero()",
		breaks: "a release is repeated until nothing can be granted any more", tests: "TestAnAnswerBeforeAfterIsNotFinal",
	},
	{
		name: "a pending release whose late answer is final", file: "internal/session/retrier.go", pkg: "internal/session",
		old: "done := err == nil && !sent.Before(p.After)", new: "done := err == nil && !sent.IsZero() && !now.Before(p.After)",
		breaks: "what runs after a release was sent is released too", tests: "TestAnAnswerToAReleaseThatWasSentBeforeAfterIsNotFinal",
	},
	{
		name: "a release that is not sent again soon", file: "internal/session/retrier.go", pkg: "internal/session",
		old: "); soon.Before(p.After) {", new: "); p.answers < 0 && soon.Before(p.After) {",
		breaks: "a cancelled call leaves what is free taken for a moment at most", tests: "TestAnAnswerBeforeAfterIsNotFinal",
	},
	{
		name: "a grant that comes while the release is under way", file: "internal/session/retrier.go", pkg: "internal/session",
		old: "\t\tp.again = true\n", new: "",
		breaks: "what a caller that left is granted is released at once", tests: "TestWhatIsGrantedDuringTheLastReleaseIsReleasedToo",
	},
	{
		name: "a read that is recycled while it is being written", file: "internal/script/run.go", pkg: "internal/script",
		old: "return r.client.Do(ctx, c.Command(r.client.B()).Pin()), nil", new: "return r.client.Do(ctx, c.Command(r.client.B())), nil",
		breaks: "what rueidis may send again is never recycled", tests: "TestAReadThatRueidisRepeatsIsNotRecycledUnderItsFirstWriter",
	},
	{
		name: "releases that could be made together and are not", file: "internal/session/retrier.go", pkg: "internal/session",
		old: "\tp.parked = true\n\tcalls.parked = append(calls.parked, p)\n\treturn true\n", new: "\treturn false\n",
		breaks: "what callers leave behind is released as fast as they leave", tests: "TestReleasesThatCanBeMadeTogetherKeepUpWithThoseThatLeave",
	},
	{
		name: "a release of what nobody has that waits behind others", file: "internal/session/retrier.go", pkg: "internal/session",
		old: "\tif h[i].kicked != h[j].kicked {\n\t\treturn h[i].kicked\n\t}\n", new: "",
		breaks: "what a caller that left is granted is released at once", tests: "TestWhatIsKickedGoesBeforeAllOthers",
	},
	{
		name: "a release of what nobody has that waits for a call under way", file: "internal/session/retrier.go", pkg: "internal/session",
		old: "if p.Beside == nil || p.kicked {", new: "if p.Beside == nil {",
		breaks: "what a caller that left is granted is released at once", tests: "TestWhatIsKickedWaitsForNoOther",
	},
	{
		name: "a caller that gives up and leaves the rest for later", file: "internal/session/release.go", pkg: "rlock",
		old: "\t\to.of.Retrier.Await(cmp.Or(o.Granted, o.Lease.Owner), departure)\n", new: "",
		breaks: "who gives up has left when its call returns", tests: "TestWhoGivesUpOnAFairLockHasLeftTheLineWhenItReturns",
	},
	{
		name: "a call that is sent when its caller has left", file: "internal/script/run.go", pkg: "internal/script",
		old: "\tif !f.state.CompareAndSwap(boarding, flying) {\n\t\treturn\n\t}\n", new: "\tf.state.CompareAndSwap(boarding, flying)\n",
		breaks: "a call that says that it was not sent is never sent", tests: "TestACallThatSaysThatItWasNotSentIsNeverSent",
	},
	{
		name: "a pending release that is tried once", file: "internal/session/retrier.go", pkg: "internal/session",
		old: "\tdefault:\n\t\tr.push(p)\n", new: "\tdefault:\n",
		breaks: "a release goes on until it is answered", tests: "TestAPendingReleaseIsTriedUntilItIsAnswered",
	},
	{
		name: "a pending release beyond its lease", file: "internal/session/retrier.go", pkg: "internal/session",
		old: "\t\tif !now.Before(p.Until) {\n\t\t\tr.forget(p)\n\t\t\tcontinue\n\t\t}\n", new: "",
		breaks: "a release ends with the lease", tests: "TestAPendingReleaseIsGivenUpWhenItsLeaseIsOver",
	},
	{
		name: "a release of unknown outcome that is a loss", file: "internal/session/release.go", pkg: "internal/session",
		old: "case !gone, r.unsure:", new: "case !gone:",
		breaks: "an Unlock whose reply is lost is an Unlock", tests: "TestHoldsAndPermitsAreReleasedAlike",
	},
	{
		name: "a release that is not confirmed and forgotten", file: "internal/session/release.go", pkg: "internal/session",
		old: "if o.finish() || !confirmed || !final {", new: "if o.finish() || confirmed && !final {",
		breaks: "a release that is not confirmed goes on in the background", tests: "TestHoldsAndPermitsAreReleasedAlike",
	},
	{
		name: "a release that outruns a request of its own", file: "internal/session/release.go", pkg: "rsemaphore",
		old: "if o.finish() || !confirmed || !final {", new: "if o.finish() || !confirmed || !final && after.IsZero() {",
		breaks: "a request that runs after its release is taken back", tests: "TestARequestThatRunsAfterItsReleaseBeforeTheServersTimeIsKnownIsTakenBack",
	},
	{
		name: "a loss that an Unlock does not tell", file: "internal/session/release.go", pkg: "internal/session",
		old: "\t}\n\treturn r.of.failed(r.Lease.Name, errs.ErrLost)\n", new: "\t}\n\treturn nil\n",
		breaks: "an Unlock of what was lost says so", tests: "TestHoldsAndPermitsAreReleasedAlike",
	},
	{
		name: "a release twice", file: "internal/session/release.go", pkg: "internal/session",
		old: "first, settled := !o.begun, o.settled", new: "first, settled := true, false",
		breaks: "a handle is released once, and has one result", tests: "TestReleasesAtTheSameTimeHaveOneResult TestHoldsAndPermitsAreReleasedAlike",
	},
	{
		name: "work under a hold that is being released", file: "internal/session/release.go", pkg: "internal/session",
		old: "\th.end(errs.ErrReleased) // before", new: "\tdefer h.end(errs.ErrReleased) // before",
		breaks: "the contexts of a hold end before its release is sent", tests: "TestHoldsAndPermitsAreReleasedAlike",
	},
	{
		name: "a late grant that nobody gives back", file: "internal/session/handle.go", pkg: "rlock",
		old: "\tif unwanted {\n\t\to.releaseLater(time.Time{})\n\t}\n", new: "\t_ = unwanted\n",
		breaks: "a grant that arrives after its caller left is released", tests: "TestALateGrantIsGivenBackOnceTheHoldIsReleased",
	},
	{
		name: "a failed acquisition that leaves what it took", file: "internal/session/handle.go", pkg: "rlock",
		old: "\tif !until.IsZero() {\n\t\to.releaseLater(until)\n\t}\n", new: "",
		breaks: "what a failed call may have taken is released in the background", tests: "TestWhatATryOfUnknownOutcomeTookIsGivenBack",
	},
}
