package main

// ofLease are faults of the watchdog: what a hold is trusted for, and what keeps it.
var ofLease = []mutant{
	{
		name: "a lock-delay that no renewal asks for", file: "internal/lease/lease.go", pkg: "rlock",
		old: "\t\tlength += e.Delay(l)\n", new: "",
		breaks: "no caller enters for the lock-delay after a loss", tests: "TestNobodyEntersForTheLockDelayAfterALoss",
	},
	{
		name: "a lock-delay that counts as what may be used", file: "internal/lease/trust.go", pkg: "internal/lease",
		old: "\t\tleft = max(0, left-e.Delay(l))", new: "\t\t_ = e.Delay",
		breaks: "what a look finds is good for that, less the delay",
		tests:  "TestAfterASleepAHoldIsTrustedOnlyAsLongAsTheServerGives",
	},
	{
		name: "an unlock that ends the lock-delay", file: "internal/session/release.go", pkg: "rlock",
		old: "if d := o.delayed(); d > 0 {", new: "if d := o.delayed(); d < 0 {",
		breaks: "what was lost is not released before the delay is over",
		tests:  "TestNobodyEntersForTheLockDelayAfterALoss",
	},
	{
		name: "a lost lock that is not given back after its delay", file: "internal/session/release.go", pkg: "rlock",
		old: "\t\t\tif !o.of.Closed() {\n", new: "\t\t\tif o.of.Closed() {\n",
		breaks: "a process that lives on gives back what it lost when the delay is over",
		tests:  "TestAHolderThatLivesOnGivesALostLockBackAfterTheLockDelay",
	},
	{
		name: "a takeover that does not wait for the lock-delay", file: "internal/session/session.go", pkg: "rlock",
		old: "\t\tuntouched += o.Delay\n", new: "",
		breaks: "a connection id says for how long nothing is taken over", tests: "TestATakeoverWaitsForTheLockDelay",
	},
	{
		name: "a handed-over lease that is trusted with its lock-delay", file: "rlock/waiter.go", pkg: "rlock",
		old: "\tg.Lease -= a.l.c.delay", new: "\t_ = a.l.c.delay",
		breaks: "what a hand-over writes has the delay, too", tests: "TestAHandedOverLockHasTheLockDelay",
	},
	{
		name: "a hand-over without the lock-delay", file: "rlock/waiter.go", pkg: "rlock",
		old: "4*c.opts.CallTimeout, time.Second)) + c.delay", new: "4*c.opts.CallTimeout, time.Second))",
		breaks: "what a hand-over writes has the delay, too", tests: "TestAHandedOverLockHasTheLockDelay",
	},
	{
		name: "a deadline that counts from the answer", file: "internal/lease/register.go", pkg: "internal/lease",
		old: "\te.trust(l, sent, written)\n", new: "\te.trust(l, time.Now(), written)\n",
		breaks: "a hold is trusted from before its request was sent", tests: "TestTheDeadlineCountsFromBeforeTheSend",
	},
	{
		name: "a margin of nothing", file: "internal/lease/lease.go", pkg: "internal/lease",
		old: "return length/200 + min(length/10, 10*time.Millisecond)", new: "return length / 10000",
		breaks: "a hold is over before its lease is", tests: "TestTheMarginIsSmallAndGrowsWithTheLease",
	},
	{
		name: "a Quorum's drift that is not allowed for", file: "internal/lease/lease.go", pkg: "internal/lease",
		old: "m = max(m, length/100+2*time.Millisecond)", new: "m = max(m, length/1000)",
		breaks: "the deadline of a vote allows lease/100 + 2 ms", tests: "TestALeaseThatAllowsForDriftIsTrustedForLess",
	},
	{
		name: "votes that do not allow for drift", file: "rlock/owner.go", pkg: "rlock",
		old: "own.Lease.Drift = l.kind.drift", new: "own.Lease.Drift = false",
		breaks: "the deadline of a vote allows lease/100 + 2 ms", tests: "TestAVoteAllowsForClocksThatDrift",
	},
	{
		name: "a late reply that counts from when it came, after another", file: "internal/lease/renew.go",
		pkg:    "internal/lease",
		old:    "\t\t\te.trust(l, sent, a.length)\n\t\t}\n\t\tl.schedule()\n",
		new:    "\t\t\te.trust(l, time.Now(), a.length)\n\t\t}\n\t\tl.schedule()\n",
		breaks: "a reply of a call that was given up counts from that call's send",
		tests:  "TestALateReplyCountsFromItsOwnSend",
	},
	{
		name: "a lease that was over is registered", file: "internal/lease/register.go", pkg: "internal/lease",
		old: "\tif e.over(l, now) {\n\t\treturn false\n\t}\n", new: "",
		breaks: "a grant that comes too late is not a hold", tests: "TestALeaseThatIsOverBeforeItsGrantIsSeenIsNotRegistered",
	},
	{
		name: "a renewal that counts from its answer", file: "internal/lease/renew.go", pkg: "internal/lease",
		old:    "\t\tl.plan(now)\n\t\te.trust(l, sent, a.length)\n",
		new:    "\t\tl.plan(now)\n\t\te.trust(l, time.Now(), a.length)\n",
		breaks: "a renewal moves the deadline to its send and a lease",
		tests:  "TestRenewalsKeepToTheirScheduleHoweverSlowTheyAre",
	},
	{
		name: "a late reply that counts from when it came", file: "internal/lease/renew.go", pkg: "internal/lease",
		old:    "\t\t\te.renewedOrSeen(a, v, sent, now)\n\t\tcase a.length > 0: //",
		new:    "\t\t\te.renewedOrSeen(a, v, time.Now(), now)\n\t\tcase a.length > 0: //",
		breaks: "a reply of a call that was given up counts from that call's send",
		tests:  "TestALateReplyCountsFromItsOwnSendThoughNothingWasSentSince",
	},
	{
		name: "a late reply that ends nothing", file: "internal/lease/renew.go", pkg: "internal/lease",
		old: "\t\tcase v < 1:\n\t\t\te.remove(l)\n", new: "\t\tcase v < 1:\n\t\t\tcontinue\n",
		breaks: "what the server does not have is lost, however late that is known",
		tests:  "TestALateReplyThatFindsNothingEndsTheLease",
	},
	{
		name: "a renewal without replicas that counts", file: "internal/lease/renew.go", pkg: "rlock",
		old: "\t\t\t\tif v >= 1 {\n\t\t\t\t\tverdicts[i] = -1\n", new: "\t\t\t\tif v >= 1 {\n\t\t\t\t\tverdicts[i] = 1\n",
		breaks: "with MinReplicas only what replicas have is a renewal", tests: "TestAGrantThatIsNotReplicatedIsTakenBack",
	},
	{
		name: "an answer after the end that is taken in", file: "internal/lease/renew.go", pkg: "internal/lease",
		old:    "\t\tif l.state != registered {\n\t\t\tcontinue // released",
		new:    "\t\tif l.state == exceeded {\n\t\t\tcontinue // released",
		breaks: "an answer for a lease that was released changes nothing",
		tests:  "TestAReplyThatComesAfterRemoveChangesNothing",
	},
	{
		name: "a loss that is a failure to be tried again", file: "internal/lease/renew.go", pkg: "internal/lease",
		old:    "\t\tdefault:\n\t\t\te.remove(l)\n\t\t\twhy = lossOf(verdicts[i])\n",
		new:    "\t\tdefault:\n\t\t\twhy = lossOf(verdicts[i])\n\t\t\tcontinue\n",
		breaks: "a holder learns it when the server says that it holds nothing",
		tests:  "TestNotHeldEndsThatLeaseAtOnceAndNoOther",
	},
	{
		name: "a deadline that is not watched", file: "internal/lease/lease.go", pkg: "internal/lease",
		old: "\tl.next = l.deadline\n", new: "\tl.next = l.deadline.Add(time.Hour)\n",
		breaks: "a holder learns of its loss by its own clock", tests: "TestTheDeadlineCountsFromBeforeTheSend",
	},
	{
		name: "a MaxHold that ends nothing", file: "internal/lease/lease.go", pkg: "internal/lease",
		old: "\tif !l.maxAt.IsZero() && l.maxAt.Before(l.next) {\n\t\tl.next = l.maxAt\n\t}\n", new: "",
		breaks: "a hold ends at MaxHold", tests: "TestMaxHoldEndsAHoldThatIsRenewed",
	},
	{
		name: "a schedule that is pushed back", file: "internal/lease/lease.go", pkg: "internal/lease",
		old:    "l.renewAt = l.start.Add((after.Sub(l.start)/period + 1) * period)",
		new:    "l.renewAt = now.Add(period + period/4)",
		breaks: "renewals keep to an absolute schedule", tests: "TestRenewalsKeepToTheirScheduleHoweverSlowTheyAre",
	},
	{
		name: "a sleep of the machine that is not noticed", file: "internal/lease/engine.go", pkg: "internal/lease",
		old: "\t\tl.sure = l.sure.Add(-slept)\n", new: "",
		breaks: "after a suspension a hold is trusted for as long as the server gives, and no longer",
		tests:  "TestAfterASleepAHoldIsTrustedOnlyAsLongAsTheServerGives",
	},
	{
		name: "an answer from before a sleep that is taken for one after it", file: "internal/lease/renew.go",
		pkg: "internal/lease",
		old: "\tif e.at(sent).Before(e.woke) {\n\t\tl.renewAt", new: "\tif false {\n\t\tl.renewAt",
		breaks: "what was asked before a suspension says nothing of after it",
		tests:  "TestAnAnswerFromBeforeASleepIsNoAnswerAfterIt",
	},
	{
		name: "a hint that is proof", file: "internal/lease/track.go", pkg: "internal/lease",
		old: "\t\tl.checkAt = now\n\t\tl.schedule()\n\t\theap.Fix(&e.due, " +
			"int(l.index))\n\t\te.wakeBy(l.next)\n\t}\n}\n\n// CheckAll",
		new: "\t\tl.deadline = now\n\t\tl.schedule()\n\t\theap.Fix(&e.due, " +
			"int(l.index))\n\t\te.wakeBy(l.next)\n\t}\n}\n\n// CheckAll",
		breaks: "an invalidation has the lease looked at, and proves nothing",
		tests:  "TestAHintIsFollowedAtOnceButProvesNothing",
	},
	{
		name: "a heartbeat that is trusted for as long as others wait", file: "internal/lease/heartbeat.go",
		pkg: "internal/lease",
		old: "return h.Trust - Margin(h.Trust) }", new: "return 2 * h.Trust }",
		breaks: "a hold ends for want of beats before anybody may take it over",
		tests:  "TestAHoldLastsForAsLongAsHeartbeatsAreConfirmed",
	},
	{
		name: "a beat that brings a hold back", file: "internal/lease/heartbeat.go", pkg: "internal/lease",
		old: "if !l.asked.Before(p.since) || p.began.Before(end) {", new: "if true {",
		breaks: "a beat after a gap does not bring back what was over", tests: "TestAHeartbeatAfterAGapBringsNothingBack",
	},
	{
		name: "a beat that counts from its answer", file: "internal/lease/heartbeat.go", pkg: "internal/lease",
		old:    "\t\t\tp.confirmed(sent, now, h.trust())\n\t\t\tp.next = sent.Add(h.Interval)\n",
		new:    "\t\t\tp.confirmed(now, now, h.trust())\n\t\t\tp.next = sent.Add(h.Interval)\n",
		breaks: "a beat counts from before it was sent", tests: "TestAServerThatIsSlowerThanTheBeatsEndsNoHold",
	},
	{
		name: "a missing beat that is a new one", file: "internal/lease/heartbeat.go", pkg: "internal/lease",
		old: "return a.expiry == 0 || b.expiry != 0 &&", new: "return a.expiry != 0 && b.expiry != 0 &&",
		breaks: "a process without a heartbeat is taken for dead", tests: "TestABeatIsAChangeOfTheExpiry",
	},
	{
		name: "a first heartbeat that comes an interval later", file: "internal/lease/heartbeat.go", pkg: "internal/lease",
		old: "return h.Renewed > 0 && !p.flying && (", new: "return false && (",
		breaks: "who is killed in its first second was heard of", tests: "TestTheFirstBeatIsSentBesideTheFirstHold",
	},
	{
		name: "a lease that is not renewed and ends without heartbeats", file: "internal/lease/heartbeat.go",
		pkg: "internal/lease",
		old: "return h.Renewed == 0 || auto && length >= h.Renewed", new: "return true",
		breaks: "a lease that a caller asked for lasts for that", tests: "TestALeaseThatIsNotRenewedHasNoPartInTheBeats",
	},
	{
		name: "a hold that is taken over from a process that was never heard of", file: "internal/lease/monitor.go",
		pkg: "internal/lease",
		old: "|| h.Proven && !b.found {", new: "{",
		breaks: "nothing is taken from a process that may have no heartbeats",
		tests:  "TestAHoldIsTakenOverWhenItsBeatHasNotChangedForTheTrust",
	},
	{
		name: "a hold that is taken over as soon as it is seen", file: "internal/lease/monitor.go", pkg: "internal/lease",
		old: "\t\tif h.first.After(since) {\n", new: "\t\tif false {\n",
		breaks: "a hold that is young is left alone, because a process that holds nothing does not beat",
		tests:  "TestAHoldIsTakenOverWhenItsBeatHasNotChangedForTheTrust",
	},
	{
		name: "a hold that is taken over from a process that beats", file: "internal/lease/monitor.go", pkg: "internal/lease",
		old: "\tif b.asked.IsZero() || !seen.Same(b.Beat) {\n", new: "\tif b.asked.IsZero() {\n",
		breaks: "a beat is waited for anew after each", tests: "TestAHoldIsTakenOverWhenItsBeatHasNotChangedForTheTrust",
	},
	{
		name: "a heartbeat without an end", file: "internal/lease/lua/heartbeat_beat.lua", pkg: "internal/lease",
		old: "redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1])", new: "redis.call('SET', KEYS[1], ARGV[2])",
		breaks: "no key is left without an end", tests: "TestAHeartbeatHasAnEndFromTheFirstOn",
	},
	{
		name: "keys that are apart and renewed once", file: "internal/lease/keys.go", pkg: "internal/lease",
		old: "for i := range 2 * len(keys) {", new: "for i := range len(keys) {",
		breaks: "a lease whose keys are on two nodes is asked about twice",
		tests:  "TestALeaseThatIsTakenWhileItIsRenewedKeyByKeyIsLostAtOnce",
	},
	{
		name: "a handed lease that counts from its news", file: "internal/lease/register.go", pkg: "rlock",
		old:    "\treturn e.add(l, sent, written, length, auto, maxHold)\n",
		new:    "\treturn e.add(l, time.Now(), written, length, auto, maxHold)\n",
		breaks: "a hold that was handed over counts from before it can have been written",
		tests:  "TestUntilIsNeverAfterTheServersExpiry",
	},
	{
		name: "a short lease that is not raised", file: "internal/lease/register.go", pkg: "rlock",
		old: "\tif written < length {\n", new: "\tif written < 0 {\n",
		breaks: "a lease that was handed over is raised to the full one", tests: "TestLeasesOfHandedOverHolds",
	},
	{
		name: "an Extend that counts from its answer", file: "internal/lease/extend.go", pkg: "internal/lease",
		old: "return e.Confirmed(l, sent, d), nil", new: "sent = time.Now()\n\treturn e.Confirmed(l, sent, d), nil",
		breaks: "an Extend moves the deadline to its send and d", tests: "TestAnExtendCountsFromBeforeItsSend",
	},
}
