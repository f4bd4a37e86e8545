package main

// ofPermits are faults of semaphores.
var ofPermits = []mutant{
	{
		name: "a waiter for permits that is served as it leaves", file: "rsemaphore/lua/lib/queue.lua", pkg: "rsemaphore",
		old: "      if not n or leaving(leaves, q.now) then\n", new: "      if not n then\n",
		breaks: "a permit does not pass from one that has left to the next", tests: "TestAQueueOfPermitsDoesWhatItsTableSays",
	},
	{
		name: "one of those that leave the queue for permits together keeps what it has", file: "rsemaphore/lua/release.lua", pkg: "rsemaphore",
		old: "for i = 8, #ARGV, 2 do\n", new: "for i = 10, #ARGV, 2 do\n",
		breaks: "who has left holds nothing", tests: "TestAQueueOfPermitsDoesWhatItsTableSays",
	},
	{
		name: "a release that breaks off beside notes of another type", file: "rsemaphore/lua/lib/permits.lua", pkg: "rsemaphore",
		old: "redis.pcall('HDEL', notes, unpack(ids))", new: "redis.call('HDEL', notes, unpack(ids))",
		breaks: "no permit is lost where a key beside the semaphore has another type", tests: "TestAPermitBesideAKeyOfAnotherTypeIsNotLost",
	},
	{
		name: "a release of permits that serves nobody", file: "rsemaphore/lua/release.lua", pkg: "rsemaphore",
		old:    "local left, own, look, head, longest = serve(q, available, available + redis.call('ZCARD', permits), dealing(permits, notes, now))",
		new:    "local left, own, look, head, longest = available, {}, -1, nil, 0",
		breaks: "a release serves those that wait", tests: "TestAQueueOfPermitsDoesWhatItsTableSays",
	},
	{
		name: "a part of a weight that is kept in place of given back", file: "rsemaphore/lua/weighted_release.lua", pkg: "rsemaphore",
		old: "digits(kept) .. ' ' .. label)", new: "digits(held - kept) .. ' ' .. label)",
		breaks: "a release of a part says what is kept, so a repeated one gives back once", tests: "TestARepeatedReleaseOfAPartGivesBackOnce",
	},
	{
		name: "a permit too many", file: "rsemaphore/lua/acquire.lua", pkg: "rsemaphore",
		old: "  elseif not blocked and n <= spare and (touched", new: "  elseif not blocked and n <= spare + 1 and (touched",
		breaks: "there are never more permits out than there are", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "a permit that is granted late", file: "rsemaphore/lua/acquire.lua", pkg: "rsemaphore",
		old: "if notafter > 0 and now > notafter then", new: "if notafter > 0 and now < 0 then",
		breaks: "nothing is granted to a caller that has given up", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "a permit that is taken twice", file: "rsemaphore/lua/acquire.lua", pkg: "rsemaphore",
		old: "  elseif there == n then\n", new: "  elseif there == n and n > 1000 then\n",
		breaks: "a repeated acquisition takes its permits once", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "an acquire past those who wait", file: "rsemaphore/lua/acquire.lua", pkg: "rsemaphore",
		old: "local blocked = lined and lined_up(q)\n", new: "local blocked = false\n",
		breaks: "who comes goes past nobody that queues", tests: "TestAQueueOfPermitsDoesWhatItsTableSays",
	},
	{
		name: "a capacity that is not compared", file: "rsemaphore/lua/acquire.lua", pkg: "rsemaphore",
		old: "if total ~= capacity and not resized and not shared then", new: "if total > capacity + 1000000 then",
		breaks: "another capacity is refused", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "a lease of one's own that is handed over short", file: "rsemaphore/acquire.go", pkg: "rsemaphore",
		old: "\tcase !a.auto:\n\t\treturn false\n", new: "\tcase !a.auto && g.Lease >= a.lease:\n\t\treturn false\n",
		breaks: "a leaseTime is there in full after waiting", tests: "TestALeaseTimeIsThereInFullAfterWaiting",
	},
	{
		name: "a permit that is used before its process was heard of", file: "rsemaphore/acquire.go", pkg: "rsemaphore",
		old: "\tif landed != nil {\n", new: "\tif false {\n",
		breaks: "who is killed at any instant was heard of", tests: "TestTheFirstPermitIsHeldWhenAHeartbeatWasAnswered",
	},
	{
		name: "a waiter for permits that keeps its ids when it was cut off for long", file: "rsemaphore/acquire.go", pkg: "rsemaphore",
		old: "\tcase !a.trusted(a.since):\n", new: "\tcase false:\n",
		breaks: "whoever saw ids without heartbeats does not see them again", tests: "TestAWaiterForPermitsThatWasCutOffForLongHasOtherIDs",
	},
	{
		name: "a permit with a lease of its own that is taken over", file: "rsemaphore/lua/holders.lua", pkg: "rsemaphore",
		old: " and c < 128 then", new: " then",
		breaks: "a permit with a leaseTime lasts for that", tests: "TestTheHoldersOfASemaphoreAreToldInParts",
	},
	{
		name: "a part of the holders that is told of twice and the next never", file: "rsemaphore/lua/holders.lua", pkg: "rsemaphore",
		old: "    reply[2] = reply[2] + skip\n", new: "",
		breaks: "all are looked at, however many there are", tests: "TestTheHoldersOfASemaphoreAreToldInParts",
	},
	{
		name: "a party with the lease of a permit", file: "rsemaphore/party.go", pkg: "rsemaphore",
		old: "term: b.c.live.party}", new: "term: b.c.opts.WatchdogTimeout}",
		breaks: "a party that dies leaves after three heartbeats", tests: "TestAPartyThatDiesLeavesAfterThreeHeartbeats",
	},
	{
		name: "a semaphore that is looked at only while somebody waits", file: "internal/lease/monitor.go", pkg: "rsemaphore",
		old: "if x.waiters == 0 && time.Since(x.left) > lingers*m.interval {", new: "if x.waiters == 0 {",
		breaks: "callers of little patience follow a crashed holder", tests: "TestCallersOfLittlePatienceFollowACrashedHolder",
	},
	{
		name: "a permit that is raised late", file: "internal/lease/register.go", pkg: "rsemaphore",
		old: "\t\tif l.Soon {\n", new: "\t\tif false {\n",
		breaks: "a permit that was handed over survives what another survives", tests: "TestAPermitThatWasHandedOverSurvivesWhateverAnotherDoes",
	},
	{
		name: "a permit that is released twice", file: "rsemaphore/lua/release.lua", pkg: "rsemaphore",
		old: "if back > 0 then\n  available = redis.call('INCRBY', count, back)\n", new: "if back >= 0 then\n  available = redis.call('INCRBY', count, #ids)\n",
		breaks: "what is not held is not given back", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "a short release of what nobody holds", file: "rsemaphore/lua/release.lua", pkg: "rsemaphore",
		old: "    redis.call('ZREM', permits, string.sub(ARGV[1], 1, 13) .. '\\0\\0\\0') == 1 then", new: "    redis.call('ZREM', permits, string.sub(ARGV[1], 1, 13) .. '\\0\\0\\0') >= 0 then",
		breaks: "what is not held is not given back", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "a permit whose end is not looked at", file: "rsemaphore/lua/release.lua", pkg: "rsemaphore",
		old: "  if till and not expired(till, now) then\n", new: "  if till then\n",
		breaks: "a permit that is over is lost, though nobody has pruned it", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "the dead are not given back", file: "rsemaphore/lua/lib/permits.lua", pkg: "rsemaphore",
		old: "  if #dead > 0 and redis.call('EXISTS', count) == 1 then\n    redis.call('INCRBY', count, #dead)\n  end\n", new: "",
		breaks: "the permits of a crashed process come back", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "the dead are given back one short", file: "rsemaphore/lua/lib/permits.lua", pkg: "rsemaphore",
		old: "    redis.call('INCRBY', count, #dead)\n", new: "    redis.call('INCRBY', count, #dead - 1)\n",
		breaks: "the permits of a crashed process come back", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "a permit whose lease is lowered", file: "rsemaphore/lua/lib/permits.lua", pkg: "rsemaphore",
		old: "redis.call('ZADD', permits, 'GT', unpack(add))", new: "redis.call('ZADD', permits, unpack(add))",
		breaks: "no renewal shortens a lease", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "a set of permits that ends before they do", file: "rsemaphore/lua/lib/permits.lua", pkg: "rsemaphore",
		old: "  if ours >= 0 and ours < need then\n    redis.call('PEXPIRE', permits, need)\n  elseif", new: "  if false then\n    redis.call('PEXPIRE', permits, need)\n  elseif",
		breaks: "no key expires before the last lease in it", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "a renewal of permits that creates", file: "rsemaphore/lua/renew.lua", pkg: "rsemaphore",
		old: "    if not till or expired(till, now) then\n      return 0, 0\n    end\n", new: "    till = till or '0'\n",
		breaks: "a lost permit stays lost: no renewal brings it back", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "an extension of what is over", file: "rsemaphore/lua/extend.lua", pkg: "rsemaphore",
		old: "  if not till or expired(till, now) then\n", new: "  if not till then\n",
		breaks: "what is over is not extended", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "a waiter that is overtaken for ever", file: "rsemaphore/lua/lib/queue.lua", pkg: "rsemaphore",
		old: "elseif head and passed + n > PASS * head.n then", new: "elseif false then",
		breaks: "a request is overtaken by four times as many permits as it asks for, and no more", tests: "TestNobodyIsOvertakenByMoreThanFourTimesWhatItWants",
	},
	{
		name: "a grant of permits to the gone", file: "rsemaphore/lua/lib/queue.lua", pkg: "rsemaphore",
		old: "> stale or not hears(q, q.grants .. who)\n", new: "> stale\n",
		breaks: "permits are handed to a process that is there", tests: "TestAQueueOfPermitsDoesWhatItsTableSays",
	},
	{
		name: "a grant of permits that stands though nobody was told", file: "rsemaphore/lua/lib/queue.lua", pkg: "rsemaphore",
		old: "        free = free + take(g[1], g[2])\n", new: "",
		breaks: "a grant that cannot be published is undone", tests: "TestAGrantThatMayNotBePublishedIsUndone",
	},
	{
		name: "a shared call of permits that takes one too many", file: "rsemaphore/lua/free.lua", pkg: "rsemaphore",
		old: "not late(last, now) and s.available > 0 and", new: "not late(last, now) and s.available >= 0 and",
		breaks: "there are never more permits out than there are", tests: "TestSharedScriptTable",
	},
	{
		name: "a resize that counts twice", file: "rsemaphore/lua/resize.lua", pkg: "rsemaphore",
		old: "if done == call then\n", new: "if done == '' then\n",
		breaks: "a repeated Resize says what the capacity was", tests: "TestTheScriptsDoWhatTheirTablesSay TestARepeatedResizeSaysWhatTheCapacityWas",
	},
	{
		name: "a weight that is acquired twice", file: "rsemaphore/lua/weighted_acquire.lua", pkg: "rsemaphore",
		old: "  if out then\n", new: "  if out and out > 1000000 then\n",
		breaks: "a repeated acquisition takes its weight once", tests: "TestTheScriptsOfWeightsDoWhatTheirTablesSay",
	},
	{
		name: "a weight too much", file: "rsemaphore/lua/weighted_acquire.lua", pkg: "rsemaphore",
		old: "elseif not blocked and n <= spare then", new: "elseif not blocked and n <= spare + 1 then",
		breaks: "no more is out than the capacity", tests: "TestTheScriptsOfWeightsDoWhatTheirTablesSay",
	},
	{
		name: "a weight whose lease is lowered", file: "rsemaphore/lua/weighted_renew.lua", pkg: "rsemaphore",
		old: "redis.call('ZADD', leases, 'XX', 'GT', digits", new: "redis.call('ZADD', leases, 'XX', digits",
		breaks: "no renewal shortens a lease", tests: "TestTheScriptsOfWeightsDoWhatTheirTablesSay",
	},
	{
		name: "a renewal of a weight that is over", file: "rsemaphore/lua/weighted_renew.lua", pkg: "rsemaphore",
		old: "if not till or expired(till, now) then", new: "if not till then",
		breaks: "what is over is not renewed", tests: "TestTheScriptsOfWeightsDoWhatTheirTablesSay",
	},
	{
		name: "the weights of the dead that stay", file: "rsemaphore/lua/lib/weights.lua", pkg: "rsemaphore",
		old: "return capacity, used - freed, noted", new: "return capacity, used, noted",
		breaks: "the weights of a crashed process come back", tests: "TestTheScriptsOfWeightsDoWhatTheirTablesSay",
	},
	{
		name: "a counting permit too many", file: "rsemaphore/lua/counting_acquire.lua", pkg: "rsemaphore",
		old: "tonumber(value) < tonumber(n) then", new: "tonumber(value) + 1 < tonumber(n) then",
		breaks: "a counting semaphore grants what is free, and no more", tests: "TestCountingAcquireScriptTable",
	},
	{
		name: "what was taken for a caller that had given up is kept", file: "rsemaphore/counting_wait.go", pkg: "rsemaphore",
		old: "x = x.late(func(r R) { s.giveBack(took(r)) })", new: "x = x.late(func(r R) { took(r) })",
		breaks: "what a late reply says was taken is given back", tests: "TestPermitsWhoseReplyCameTooLateAreGivenBack",
	},
	{
		name: "a Close that does not wait for the reply to what takes permits", file: "rsemaphore/counting_wait.go", pkg: "rsemaphore",
		old: "\tif !errors.Is(err, ErrUnknownOutcome) {\n", new: "\tif err != nil || true {\n",
		breaks: "an orderly shutdown loses no permits", tests: "TestCloseWaitsForTheReplyToARequestThatTakesPermits",
	},
	{
		name: "a permit that goes to another in its holder's last millisecond", file: "rsemaphore/lua/lib/permits.lua", pkg: "rsemaphore",
		old: "redis.call('ZRANGE', permits, '-inf', elapsed(now), 'BYSCORE', ", new: "redis.call('ZRANGE', permits, '-inf', digits(now), 'BYSCORE', ",
		breaks: "nothing is given away before the instant that its holder was told", tests: "TestNoPermitGoesToAnotherBeforeTheEndThatItsHolderWasTold",
	},
	{
		name: "a weight that goes to another in its holder's last millisecond", file: "rsemaphore/lua/lib/weights.lua", pkg: "rsemaphore",
		old: "'-inf', elapsed(now), 'BYSCORE'", new: "'-inf', digits(now), 'BYSCORE'",
		breaks: "nothing is given away before the instant that its holder was told", tests: "TestNoPermitGoesToAnotherBeforeTheEndThatItsHolderWasTold",
	},
	{
		name: "a release that finds its permit over in the last millisecond", file: "rsemaphore/lua/release.lua", pkg: "rsemaphore",
		old: "if till and not expired(till, now) then", new: "if till and not begun(till, now) then",
		breaks: "nothing is given away before the instant that its holder was told", tests: "TestNoPermitGoesToAnotherBeforeTheEndThatItsHolderWasTold",
	},
	{
		name: "a resized semaphore that grants by its count alone", file: "rsemaphore/lua/acquire.lua", pkg: "rsemaphore",
		old: "fits = left == -1 or available + out == tonumber(noted[2])", new: "fits = true",
		breaks: "there are never more permits out than there are, also in the short way of a resized semaphore", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "a shared call for a resized semaphore that grants by its count alone", file: "rsemaphore/lua/free.lua", pkg: "rsemaphore",
		old: "    return s.left == -1 or s.available + s.out == s.resized\n", new: "    return true\n",
		breaks: "there are never more permits out than there are, also in shared calls for a resized semaphore", tests: "TestSharedScriptTable",
	},
	{
		name: "a newer revision that a shared call passes over", file: "rsemaphore/lua/free.lua", pkg: "rsemaphore",
		old: "or tonumber(d.revision) < tonumber(known))) then", new: "or true)) then",
		breaks: "the capacity of the newest revision counts", tests: "TestSharedScriptTable",
	},
	{
		name: "a permit that is counted though it was out", file: "rsemaphore/lua/lib/queue.lua", pkg: "rsemaphore",
		old: "= free - took, spare - took,", new: "= free - n, spare - n,",
		breaks: "no permit is lost where part of an acquisition is out already", tests: "TestWhoTakesPartOfItsIDsAnewLosesNoPermit",
	},
	{
		name: "those behind many that are gone are forgotten", file: "rsemaphore/lua/lib/queue.lua", pkg: "rsemaphore",
		old: "      head, enough = head or late_comer(q, stamp), true\n", new: "      enough = true\n",
		breaks: "who waits behind many that are gone is served", tests: "TestWhoIsBehindManyThatAreGoneIsServed",
	},
	{
		name: "a count that is a number to Lua alone", file: "internal/script/lua/integer.lua", pkg: "rsemaphore",
		old: "integer(text) and tonumber(text)\n", new: "tonumber(text)\n",
		breaks: "what is no integer to the server is refused before anything is written", tests: "TestANumberThatIsNoneIsWrongTypeAndChangesNothing",
	},
	{
		name: "weights of which one is gone are released by their ids", file: "rsemaphore/lua/weighted_release.lua", pkg: "rsemaphore",
		old: "if kept < 0 and not all then", new: "if kept < 0 and not held then",
		breaks: "acquisitions are released by their ids all or none", tests: "TestTheScriptsOfWeightsDoWhatTheirTablesSay",
	},
	{
		name: "semaphores that are asked for together, and not stamped", file: "rsemaphore/lua/recheck.lua", pkg: "rsemaphore",
		old: " and type(redis.pcall('ZADD', queue, -now, '!' .. who)) == 'number' then", new: " then",
		breaks: "a waiter that was asked for is in the queue as one that has asked", tests: "TestManySemaphoresAreAskedForTogether",
	},
	{
		name: "semaphores that are asked for together, though a lease is over", file: "rsemaphore/lua/recheck.lua", pkg: "rsemaphore",
		old: "if till and not expired(till, now) and", new: "if till and",
		breaks: "what has changed is found as by a poll of the waiter's own", tests: "TestAQuestionForManySemaphoresSaysWhatHasChanged",
	},
}
