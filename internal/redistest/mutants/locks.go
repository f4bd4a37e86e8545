package main

// ofLocks are faults of the scripts of locks that are a hash, of Plain locks, and of what is made of locks.
var ofLocks = []mutant{
	{
		name: "an acquire without a lease", file: "rlock/lua/acquire.lua", pkg: "rlock",
		old:    "  redis.call('HSET', key, owner, '1')\n  redis.call('PEXPIRE', key, ARGV[2]) -- as text",
		new:    "  redis.call('HSET', key, owner, '1') -- as text",
		breaks: "no key is left without an end", tests: "TestAcquireScriptTable",
	},
	{
		name: "an acquire that goes past the queue", file: "rlock/lua/acquire.lua", pkg: "rlock",
		old: "if there == 0 then -- free, and no waiters", new: "if there < 2 then -- free, and no waiters",
		breaks: "a newcomer overtakes no waiter", tests: "TestAcquireScriptWithAQueue",
	},
	{
		name: "a late acquire that is granted", file: "rlock/lua/acquire.lua", pkg: "rlock",
		old: "if notafter > 0 and now > notafter then", new: "if notafter > 0 and now < 0 then",
		breaks: "nothing is granted to a caller that has given up", tests: "TestAcquireScriptTable",
	},
	{
		name: "a second run that counts", file: "rlock/lua/lib/acquire.lua", pkg: "rlock",
		old: "  if left ~= -1 then\n", new: "  redis.call('HINCRBY', key, owner, 1)\n  if left ~= -1 then\n",
		breaks: "a repeated acquire counts once", tests: "TestAcquireScriptTable",
	},
	{
		name: "a second run that shortens the lease", file: "rlock/lua/lib/acquire.lua", pkg: "rlock",
		old: "    left = math.max(left, lease)\n", new: "    left = lease\n",
		breaks: "no repeated acquire shortens a lease", tests: "TestAcquireScriptTable",
	},
	{
		name: "a second owner", file: "rlock/lua/lib/acquire.lua", pkg: "rlock",
		old:    "  return {0, left, now, entry and queue and enter(queue, entry, now, us) or 0, foreign or 0}\nend",
		new:    "  return nil\nend",
		breaks: "a lock has one owner", tests: "TestAcquireScriptTable",
	},
	{
		name: "a reservation for Redisson that is ignored", file: "rlock/lua/lib/handover.lua", pkg: "rlock",
		old: "  if open and not expired(-open, now) and -open - now <= MOST_OPEN then\n", new: "  if false then\n",
		breaks: "an open release is left to Redisson's waiters for 5 ms",
		tests:  "TestAcquireScriptWithAQueue TestSomeReleasesAreOpenWhileRedissonListens",
	},
	{
		name: "a marker from before a step of the clock", file: "rlock/lua/lib/handover.lua", pkg: "rlock",
		old:    "if open and not expired(-open, now) and -open - now <= MOST_OPEN then",
		new:    "if open and not expired(-open, now) then",
		breaks: "a step of the clock back leaves no lock idle", tests: "TestAcquireScriptWithAQueue",
	},
	{
		name: "a ticket that is not increased", file: "rlock/lua/lib/handover.lua", pkg: "rlock",
		old: "    ticket = last + 1\n", new: "    ticket = last\n",
		breaks: "the queue keeps its order when the clock steps back", tests: "TestAcquireScriptWithAQueue",
	},
	{
		name: "a queue without an end", file: "rlock/lua/lib/handover.lua", pkg: "rlock",
		old: "    redis.call('PEXPIRE', queue, QUEUE_TTL)\n  end\n  return ticket", new: "  end\n  return ticket",
		breaks: "no key is left without an end",
		tests:  "TestTheQueueLastsForAsLongAsSomebodyEntersIt TestAcquireScriptWithAQueue",
	},
	{
		name: "a grant to a waiter that does not listen", file: "rlock/lua/lib/handover.lua", pkg: "rlock",
		old:    "if owner and owner ~= over and now - seen <= tonumber(stale) and listeners(publish, channel) ~= 0 then",
		new:    "if owner and owner ~= over and now - seen <= tonumber(stale) then",
		breaks: "the lock is handed to a process that is there", tests: "TestReleaseScriptWithAQueue",
	},
	{
		name: "a grant to a waiter that has not asked for long", file: "rlock/lua/lib/handover.lua", pkg: "rlock",
		old: "if owner and owner ~= over and now - seen <= tonumber(stale) and", new: "if owner ~= over and",
		breaks: "a waiter that has not asked for long is passed over", tests: "TestReleaseScriptWithAQueue",
	},
	{
		name: "a grant that stands though no waiter was notified", file: "rlock/lua/lib/handover.lua", pkg: "rlock",
		old:    "      redis.call('HDEL', lock, owner)\n      redis.call('ZADD', queue, digits(ticket), entry, -now, stamp)",
		new:    "      redis.call('ZADD', queue, digits(ticket), entry, -now, stamp)",
		breaks: "a grant that cannot be published is undone", tests: "TestAGrantThatMayNotBePublishedIsUndone",
	},
	{
		name: "a grant that is published before it is written", file: "rlock/lua/lib/handover.lua", pkg: "rlock",
		old: "      redis.call('PEXPIRE', lock, lease)\n      local sent", new: "      local sent",
		breaks: "a lock that was handed over has a lease", tests: "TestReleaseScriptWithAQueue",
	},
	{
		name: "a release that says released of nothing", file: "rlock/lua/lib/owners.lua", pkg: "rlock",
		old: "  return removed\nend", new: "  return last - first + 1\nend",
		breaks: "a release of what is not held says so", tests: "TestForceScriptTable TestFairScriptTable",
	},
	{
		name: "an end that outlives its owner", file: "rlock/lua/lib/owners.lua", pkg: "rlock",
		old:    "local gone = redis.pcall('HDEL', key, list[i], list[i] .. '!')",
		new:    "local gone = redis.pcall('HDEL', key, list[i])",
		breaks: "nothing of an owner keeps a lock that no owner holds",
		tests:  "TestAHoldOfAnyKindThatWasJoinedLeavesNothing TestForceUnlockFreesWhatUnlockAfterLeft",
	},
	{
		name: "an owner of another program that is taken for ours", file: "rlock/lua/lib/owners.lua", pkg: "rlock",
		old: "%x%x%x%x%-8%x%x%x%-[89ab]", new: "%x%x%x%x%-%x%x%x%x%-[89ab]",
		breaks: "Redisson's holders are not taken for ours",
		tests:  "TestLuaAndGoHaveOneIdeaOfOurs TestWhoIsOursIsToldByTheWholeShape",
	},
	{
		name: "a release that deletes the whole lock", file: "rlock/lua/release.lua", pkg: "rlock",
		old: "not named and redis.pcall('HDEL', key, owner, owner .. '!')", new: "not named and redis.pcall('DEL', key)",
		breaks: "a release takes its own owner out, and no other", tests: "TestReleaseScriptTable",
	},
	{
		name: "a release that wakes no waiter", file: "rlock/lua/release.lua", pkg: "rlock",
		old: "    if publish == 'SPUBLISH' then\n      redis.pcall('SPUBLISH', channel, '0')\n    else\n" +
			"      redis.pcall('PUBLISH', channel, '0')\n    end\n    return 1\n",
		new:    "    return 1\n",
		breaks: "a release wakes Redisson's waiters", tests: "TestReleasePublishesRedissonsMessage",
	},
	{
		name: "a waiter that is named without a lease", file: "rlock/lua/release.lua", pkg: "rlock",
		old:    "    redis.call('HSET', key, named, 1)\n    redis.call('PEXPIRE', key, ARGV[8])\n",
		new:    "    redis.call('HSET', key, named, 1)\n",
		breaks: "no key is left without an end", tests: "TestReleaseScriptWithAQueue",
	},
	{
		name: "a renewal that creates", file: "rlock/lua/renew.lua", pkg: "rlock",
		old:    "  elseif not held[1] then\n    replies[i] = 0\n",
		new:    "  elseif not held[1] then\n    redis.call('HSET', key, owner, 1)\n    replies[i] = 1\n",
		breaks: "no renewal creates a lock", tests: "TestRenewScriptTable",
	},
	{
		name: "a renewal of a joined hold that is over", file: "rlock/lua/renew.lua", pkg: "rlock",
		old: "      elseif expired(till, now) then\n        redis.call('HDEL', key, owner, owner .. '!')\n        " +
			"replies[i] = 0\n", new: "",
		breaks: "an owner that was joined has a lease of its own",
		tests:  "TestRenewScriptTable TestADeadParentKeepsNobodyOutAfterItsJoiner",
	},
	{
		name: "a renewal that shortens", file: "rlock/lua/lib/raise.lua", pkg: "rlock",
		old: "redis.call('PEXPIRE', key, math.max(left, lease))", new: "redis.call('PEXPIRE', key, lease)",
		breaks: "no renewal shortens a lease", tests: "TestRenewScriptTable",
	},
	{
		name: "a renewal that writes nothing", file: "rlock/lua/lib/raise.lua", pkg: "rlock",
		old: "  if left >= 0 and lease > 0 then\n", new: "  if left >= 0 and lease > left then\n",
		breaks: "every renewal that replicas confirm is a write", tests: "TestEveryConfirmationIsAWrite",
	},
	{
		name: "a join of what no owner holds", file: "rlock/lua/join.lua", pkg: "rlock",
		old:    "elseif not held[3] or held[4] and expired(held[4], now) then",
		new:    "elseif held[4] and tonumber(held[4]) <= now then",
		breaks: "an owner that holds nothing is not joined",
		tests: "TestOnlyOurOwnHoldersCanBeJoined TestAJoinedLockIsFreeWhenBothAreDone " +
			"TestADeadJoinerKeepsNobodyOutForLongerThanItsLease",
	},
	{
		name: "a token that stands still", file: "rlock/lua/fenced_acquire.lua", pkg: "rlock",
		old: "before + 1)", new: "before)",
		breaks: "each hold has a greater token than the last", tests: "TestFencedAcquireScriptTable",
	},
	{
		name: "a token that begins anew", file: "rlock/lua/fenced_acquire.lua", pkg: "rlock",
		old: "local token = us\n", new: "local token = 1\n",
		breaks: "tokens grow though their key is gone",
		tests:  "TestFencedAcquireScriptTable TestTokensGrowWhateverBecomesOfTheKeys",
	},
	{
		name: "a plain lock of another owner", file: "rlock/lua/plain_release.lua", pkg: "rlock",
		old: "if held == ARGV[1] then\n", new: "if held then\n",
		breaks: "a release touches no other owner's lock", tests: "TestPlainScriptTable",
	},
	{
		name: "a plain lock that is overwritten", file: "rlock/lua/plain_acquire.lua", pkg: "rlock",
		old:    "redis.call('SET', key, owner, 'NX', 'PX', ARGV[2]) then",
		new:    "redis.call('SET', key, owner, 'PX', ARGV[2]) then",
		breaks: "a plain lock has one owner", tests: "TestPlainScriptTable",
	},
	{
		name: "a try that takes what is left to another", file: "rlock/lua/plain_acquire.lua", pkg: "rlock",
		old: "if line then\n  local head", new: "if entry then\n  local head",
		breaks: "a process that is farther from the server does not starve", tests: "TestPlainScriptsTellTheFirstInLine",
	},
	{
		name: "a string without an end that is taken for a lock", file: "rlock/lua/lib/owners.lua", pkg: "rlock",
		old: "local owner = left >= 0 and", new: "local owner = left >= -1 and",
		breaks: "what is not a lock is ErrWrongType", tests: "TestTheOtherKindScriptTable",
	},
	{
		name: "a hash without an end that is taken for a lock", file: "rlock/lua/lib/owners.lua", pkg: "rlock",
		old: "local some = left >= 0 and", new: "local some = left >= -1 and",
		breaks: "what is not a lock is ErrWrongType", tests: "TestTheOtherKindScriptTable",
	},
	{
		name: "any hash that is taken for a lock", file: "rlock/lua/lib/owners.lua", pkg: "rlock",
		old: "        return nil\n      end\n      kind = 3\n", new: "      end\n      kind = 3\n",
		breaks: "what is not a lock is ErrWrongType", tests: "TestTheOtherKindScriptTable",
	},
	{
		name: "a waiter of another kind that has no place", file: "rlock/lua/plain_acquire.lua", pkg: "rlock",
		old: "if holder > 1 then", new: "if holder > 9 then",
		breaks: "processes of two kinds take turns", tests: "TestTheOtherKindScriptTable TestProcessesOfTwoKindsTakeTurns",
	},
	{
		name: "a Plain release that serves only its own kind", file: "rlock/lua/plain_release.lua", pkg: "rlock",
		old: "redis.pcall('EXISTS', line, queue)", new: "redis.pcall('EXISTS', line)",
		breaks: "processes of two kinds take turns", tests: "TestScriptsOfTwoKindsHandTheLockOver",
	},
	{
		name: "a shared Plain release that serves only its own kind", file: "rlock/lua/free.lua", pkg: "rlock",
		old: "pcall('EXISTS', queue, hashes) == 0", new: "pcall('EXISTS', queue) == 0",
		breaks: "processes of two kinds take turns", tests: "TestSharedScriptTable",
	},
	{
		name: "a Plain release that serves the later first", file: "rlock/lua/lib/plain_queue.lua", pkg: "rlock",
		old:    "tonumber(first[2]) > tonumber(head[2])",
		new:    "tonumber(first[2]) < tonumber(head[2])",
		breaks: "processes of two kinds are served in their order", tests: "TestScriptsOfTwoKindsHandTheLockOver",
	},
	{
		name: "a line that is left behind by a hash", file: "rlock/lua/lib/plain_queue.lua", pkg: "rlock",
		old: "if served and not left then", new: "if false then",
		breaks: "who waits for a Plain lock is served in its turn by those who do not",
		tests:  "TestThoseWhoCameWhileTheLockWasAStringAreServedInTheirTurn",
	},
	{
		name: "a Plain release that stops at a process that is gone", file: "rlock/lua/lib/plain_queue.lua", pkg: "rlock",
		old:    "return tell(line, publish, grants, now) or waiter and hand_over(lock, queue, publish, grants, now)",
		new:    "return tell(line, publish, grants, now)",
		breaks: "a process that has died keeps no process out", tests: "TestScriptsOfTwoKindsHandTheLockOver",
	},
	{
		name: "a hash that is handed to one that waits for a string", file: "rlock/lua/lib/handover.lua", pkg: "rlock",
		old: "      if reservation then\n", new: "      if false then\n",
		breaks: "a lock is held as the kind that its holder asked for", tests: "TestScriptsOfTwoKindsHandTheLockOver",
	},
	{
		name: "a lock left to a waiter of another kind that is given to the next", file: "rlock/lua/lib/handover.lua",
		pkg: "rlock",
		old: "        return entry, reservation\n", new: "        return entry\n",
		breaks: "processes of two kinds are served in their order", tests: "TestScriptsOfTwoKindsHandTheLockOver",
	},
	{
		name: "a mark that outlasts the queue", file: "rlock/lua/lib/handover.lua", pkg: "rlock",
		old: "        if alone then\n", new: "        if false then\n",
		breaks: "nothing is left but the lock", tests: "TestScriptsOfTwoKindsHandTheLockOver",
	},
	{
		name: "a place that outlasts its waiter under a string", file: "rlock/lua/release.lua", pkg: "rlock",
		old:    "    redis.pcall('ZREM', queue, leave, '!' .. owner)\n",
		new:    "",
		breaks: "a waiter that gives up leaves nothing", tests: "TestScriptsOfTwoKindsHandTheLockOver",
	},
	{
		name: "a place that outlasts its waiter under a hash", file: "rlock/lua/plain_release.lua", pkg: "rlock",
		old:    "  redis.pcall('ZREM', queue, (string.gsub(ARGV[5], ' ', ' 0 ')), '!' .. ARGV[1]) -- see stand_behind\n",
		new:    "",
		breaks: "a waiter that gives up leaves nothing", tests: "TestScriptsOfTwoKindsHandTheLockOver",
	},
	{
		name: "a release that takes what it has handed over for a loss", file: "rlock/lua/plain_release.lua", pkg: "rlock",
		old:    "return hash_holder(KEYS[1], left) and status or redis.call('GET', KEYS[1])",
		new:    "return redis.call('GET', KEYS[1])",
		breaks: "a release may run twice",
		tests:  "TestScriptsOfTwoKindsHandTheLockOver TestAReleaseThatMadeWayForTheOtherKindIsNoLoss",
	},
	{
		name: "a release that takes the other kind's lock for a loss", file: "rlock/lua/release.lua", pkg: "rlock",
		old:    "gone = string_holder(key, left) and 0 or redis.call('HDEL', key, owner, owner .. '!')",
		new:    "gone = redis.call('HDEL', key, owner, owner .. '!')",
		breaks: "a release may run twice",
		tests:  "TestScriptsOfTwoKindsHandTheLockOver TestAReleaseThatMadeWayForTheOtherKindIsNoLoss",
	},
	{
		name: "a place in a fair queue that outlasts its waiter under a string", file: "rlock/lua/fair_release.lua",
		pkg: "rlock",
		old: "local hash = redis.pcall('HEXISTS', key, owner)", new: "local hash = redis.call('HEXISTS', key, owner)",
		breaks: "a waiter that gives up leaves nothing", tests: "TestScriptsOfTwoKindsHandTheLockOver",
	},
	{
		name: "a shared call that takes what is left to another", file: "rlock/lua/free.lua", pkg: "rlock",
		old: "local set = redis.pcall('EXISTS', queue) == 0 and", new: "local set =",
		breaks: "a process that is farther from the server does not starve", tests: "TestSharedScriptTable",
	},
	{
		name: "a caller that gives up while its request is under way", file: "rlock/waiter.go", pkg: "internal/simulation",
		old:    "case errors.Is(err, errs.ErrUnknownOutcome):\n\t\t\ta.ReleaseLater(a.runs)",
		new:    "case errors.Is(err, errs.ErrUnknownOutcome):",
		breaks: "what was granted to a caller that has left is taken back",
		tests:  "TestACrowdThatGivesUpLeavesNothingTakenAndNothingIdle",
	},
	{
		name: "a call that has not begun counts for one that runs", file: "rlock/do.go", pkg: "rlock",
		old: "if n == 5 ||", new: "if n == 0 ||",
		breaks: "a call that gives up makes no other say that the job was run",
		tests:  "TestACallThatGivesUpMakesNobodySayThatTheJobWasRun",
	},
	{
		name: "a period that is set when the job is done", file: "rlock/do.go", pkg: "rlock",
		old: "if err := hold.begin(ctx, period); err != nil {", new: "if err := error(nil); err != nil {",
		breaks: "a job whose process is killed is not run again in its period",
		tests:  "TestAJobWhoseProcessIsKilledIsNotRunAgainInItsPeriod",
	},
	{
		name: "a begun job that shortens the lease", file: "rlock/lua/plain_keep.lua", pkg: "rlock",
		old: "ARGV[3] and math.max(", new: "ARGV[3] and math.min(",
		breaks: "no lease is shortened", tests: "TestPlainScriptTable",
	},
	{
		name: "an UnlockAfter that wakes no waiter", file: "rlock/owner.go", pkg: "rlock",
		old:    "err == nil && status == releaseDone {\n\t\t\tl.runLook(ctx)",
		new:    "err != nil && status == releaseDone {\n\t\t\tl.runLook(ctx)",
		breaks: "waiters ask when an UnlockAfter is due", tests: "TestTheEndOfAnUnlockAfterWakesWaitersThatAskedBefore",
	},
	{
		name: "a plain renewal of another owner's lock", file: "rlock/lua/plain_renew.lua", pkg: "rlock",
		old: "elseif held ~= owner then", new: "elseif not held then",
		breaks: "a renewal touches no other owner's lock",
		tests:  "TestPlainScriptTable TestARenewBatchAnswersForEachKeyAlone TestEveryKindIsRenewedAndLost",
	},
	{
		name: "a shared call that takes what is held", file: "rlock/lua/free.lua", pkg: "rlock",
		old:    "redis.pcall('EXISTS', key, queue) == 0 and redis.pcall('HSET'",
		new:    "redis.pcall('EXISTS', queue) == 0 and redis.pcall('HSET'",
		breaks: "a lock has one owner", tests: "TestSharedScriptTable",
	},
	{
		name: "a shared call that is granted late", file: "rlock/lua/free.lua", pkg: "rlock",
		old: "not late(last, now) then -- see fit", new: "last then -- see fit",
		breaks: "nothing is granted to a caller that has given up", tests: "TestSharedScriptTable",
	},
	{
		name: "several locks of which one is held", file: "rlock/lua/several_acquire.lua", pkg: "rlock",
		old: "      if blocking then -- another's", new: "      if blocking and i == 1 then -- another's",
		breaks: "a Multi is acquired all or none", tests: "TestMultiAcquireScriptTable",
	},
	{
		name: "a vote of a server that has just begun", file: "rlock/lua/vote_acquire.lua", pkg: "rlock",
		old: "if young > 0 then", new: "if young > 1e15 then",
		breaks: "a server votes when it has been up for a lease", tests: "TestQuorumAcquireScriptTable",
	},
	{
		name: "a token of an earlier run of the server that counts", file: "rlock/lua/vote_acquire.lua", pkg: "rlock",
		old: "if not kept or last[2] ~= digits(run) then", new: "if false then",
		breaks: "tokens of a Quorum grow through restarts without data",
		tests: "TestTokensOfAQuorumGrowThroughRestartsWithoutData TestAMajorityThatForgotAsksAllForTheLastToken " +
			"TestANewQuorumHasATokenWhenAllItsServersHaveAnswered",
	},
	{
		name: "a token kept for an owner whose vote is over", file: "rlock/lua/vote_token.lua", pkg: "rlock",
		old: "if not held[1] or till", new: "if till",
		breaks: "a member keeps the token of a holder that it voted for", tests: "TestQuorumTokenScriptTable",
	},
	{
		name: "one token for two owners", file: "rlock/lua/vote_token.lua", pkg: "rlock",
		old: "if kept > token or kept == token and last[2] ~= owner then", new: "if kept > token then",
		breaks: "no two holds have one token", tests: "TestQuorumTokenScriptTable",
	},
	{
		name: "a vote that joins and keeps no token", file: "rlock/token.go", pkg: "rlock",
		old: "	if token != 0 {\n		_, _ = a.keepAt", new: "	if token < 0 {\n		_, _ = a.keepAt",
		breaks: "a server that was restarted counts again when it has voted", tests: "TestAVoteThatJoinsAHoldKeepsItsToken",
	},
	{
		name: "a force that takes any holder", file: "rlock/lua/plain_force.lua", pkg: "rlock",
		old: "  if held == ARGV[i] then\n", new: "  if held then\n",
		breaks: "an owner that acquires during ForceUnlock keeps the lock", tests: "TestPlainScriptTable",
	},
	{
		name: "a joined hold that is over when its last millisecond begins", file: "rlock/lua/lib/owners.lua", pkg: "rlock",
		old: "if expired(till, now) then", new: "if begun(till, now) then",
		breaks: "nothing is given away before the instant that its holder was promised",
		tests:  "TestNoLockGoesToAnotherBeforeTheEndThatItsHolderWasTold",
	},
	{
		name: "waiters that are asked for together, though their lock is gone", file: "rlock/lua/recheck.lua", pkg: "rlock",
		old: "(all or redis.pcall('EXISTS', locks[i]) == 1) and ", new: "",
		breaks: "what has changed is found as by a poll of the waiter's own", tests: "TestManyWaitersAskTogether",
	},
	{
		name: "waiters that are asked for together, and not stamped", file: "rlock/lua/recheck.lua", pkg: "rlock",
		old: "type(redis.pcall('ZADD', queue, -now, '!' .. string.match(entry, '^%S+'))) == 'number'", new: "now",
		breaks: "a waiter that was asked for is in the queue as one that has asked", tests: "TestManyWaitersAskTogether",
	},
}
