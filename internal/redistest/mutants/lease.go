package main

// ofLease are faults of the watchdog: what a hold is trusted for, and what keeps it.
var ofLease = []mutant{
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
		name: "a late reply that counts from when it came, after another", file: "internal/lease/renew.go", pkg: "internal/lease",
		old: "\t\t\te.trust(l, sent, a.length)\n\t\t}\n\t\tl.schedule()\n", new: "\t\t\te.trust(l, time.Now(), a.length)\n\t\t}\n\t\tl.schedule()\n",
		breaks: "a reply of a call that was given up counts from that call's send", tests: "TestALateReplyCountsFromItsOwnSend",
	},
	{
		name: "a lease that was over is registered", file: "internal/lease/register.go", pkg: "internal/lease",
		old: "\tif e.over(l, now) {\n\t\treturn false\n\t}\n", new: "",
		breaks: "a grant that comes too late is no hold", tests: "TestALeaseThatIsOverBeforeItsGrantIsSeenIsNotRegistered",
	},
	{
		name: "a renewal that counts from its answer", file: "internal/lease/renew.go", pkg: "internal/lease",
		old: "\t\tl.plan(now)\n\t\te.trust(l, sent, a.length)\n", new: "\t\tl.plan(now)\n\t\te.trust(l, time.Now(), a.length)\n",
		breaks: "a renewal moves the deadline to its send and a lease", tests: "TestRenewalsKeepToTheirScheduleHoweverSlowTheyAre",
	},
	{
		name: "a late reply that counts from when it came", file: "internal/lease/renew.go", pkg: "internal/lease",
		old: "\t\t\te.renewedOrSeen(a, v, sent, now)\n\t\tcase a.length > 0: //", new: "\t\t\te.renewedOrSeen(a, v, time.Now(), now)\n\t\tcase a.length > 0: //",
		breaks: "a reply of a call that was given up counts from that call's send", tests: "TestALateReplyCountsFromItsOwnSendThoughNothingWasSentSince",
	},
	{
		name: "a late reply that ends nothing", file: "internal/lease/renew.go", pkg: "internal/lease",
		old: "\t\tcase v < 1:\n\t\t\te.remove(l)\n", new: "\t\tcase v < 1:\n\t\t\tcontinue\n",
		breaks: "what the server does not have is lost, however late that is known", tests: "TestALateReplyThatFindsNothingEndsTheLease",
	},
	{
		name: "a renewal without replicas that counts", file: "internal/lease/renew.go", pkg: "rlock",
		old: "\t\t\t\tif v >= 1 {\n\t\t\t\t\tverdicts[i] = -1\n", new: "\t\t\t\tif v >= 1 {\n\t\t\t\t\tverdicts[i] = 1\n",
		breaks: "with MinReplicas only what replicas have is a renewal", tests: "TestAGrantThatIsNotReplicatedIsTakenBack",
	},
	{
		name: "an answer after the end that is taken in", file: "internal/lease/renew.go", pkg: "internal/lease",
		old: "\t\tif l.state != registered {\n\t\t\tcontinue // released", new: "\t\tif l.state == exceeded {\n\t\t\tcontinue // released",
		breaks: "an answer for a lease that was released changes nothing", tests: "TestAReplyThatComesAfterRemoveChangesNothing",
	},
	{
		name: "a loss that is a failure to be tried again", file: "internal/lease/renew.go", pkg: "internal/lease",
		old: "\t\tdefault:\n\t\t\te.remove(l)\n\t\t\twhy = lossOf(verdicts[i])\n", new: "\t\tdefault:\n\t\t\twhy = lossOf(verdicts[i])\n\t\t\tcontinue\n",
		breaks: "a holder is told when the server says that it holds nothing", tests: "TestNotHeldEndsThatLeaseAtOnceAndNoOther",
	},
	{
		name: "a deadline that nobody watches", file: "internal/lease/lease.go", pkg: "internal/lease",
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
		old: "l.renewAt = l.start.Add((after.Sub(l.start)/period + 1) * period)", new: "l.renewAt = now.Add(period + period/4)",
		breaks: "renewals keep to an absolute schedule", tests: "TestRenewalsKeepToTheirScheduleHoweverSlowTheyAre",
	},
	{
		name: "a sleep of the machine that is not noticed", file: "internal/lease/engine.go", pkg: "internal/lease",
		old: "\t\tl.sure = l.sure.Add(-slept)\n", new: "",
		breaks: "after a suspension a hold is trusted for as long as the server gives, and no longer", tests: "TestAfterASleepAHoldIsTrustedForAsLongAsTheServerGivesAndNoLonger",
	},
	{
		name: "an answer from before a sleep that is taken for one after it", file: "internal/lease/renew.go", pkg: "internal/lease",
		old: "\tif e.at(sent).Before(e.woke) {\n\t\tl.renewAt", new: "\tif false {\n\t\tl.renewAt",
		breaks: "what was asked before a suspension says nothing of after it", tests: "TestAnAnswerFromBeforeASleepIsNoAnswerAfterIt",
	},
}
