package main

// ofFair are faults of fair locks.
var ofFair = []mutant{
	{
		name: "a fair lock that is taken out of turn", file: "rlock/lua/fair_acquire.lua", pkg: "rlock",
		old: "if not served and (not head or head == owner) then", new: "if not served then",
		breaks: "a fair lock is acquired in the order of asking", tests: "TestFairScriptTable",
	},
	{
		name: "a dead waiter that keeps its place", file: "rlock/lua/lib/fair.lua", pkg: "rlock",
		old:    "    drops = drops - 1\n    drop(queue, timeouts, places, head)\n  end\nend\n\n-- Enter",
		new:    "    return head, now, 0\n  end\nend\n\n-- Enter",
		breaks: "the dead in a fair queue are dropped", tests: "TestFairScriptTable",
	},
	{
		name: "a fair waiter that is handed the lock as it leaves", file: "rlock/lua/lib/fair.lua", pkg: "rlock",
		old: "    if leaving and drops > 0 then\n", new: "    if leaving and drops < 0 then\n",
		breaks: "a lock does not pass from one that has left to the next",
		tests:  "TestFairScriptsPassOverThoseThatAreAboutToLeave",
	},
	{
		name: "one of those that leave a fair line together stays", file: "rlock/lua/fair_release.lua", pkg: "rlock",
		old: "for i = 6, #ARGV do\n", new: "for i = 7, #ARGV do\n",
		breaks: "who has left does not stand in line", tests: "TestFairScriptsHandTheLockOver",
	},
	{
		name: "a fair grant without a lease", file: "rlock/lua/lib/fair.lua", pkg: "rlock",
		old:    "      redis.call('HSET', key, head, 1)\n      redis.call('PEXPIRE', key, lease)\n",
		new:    "      redis.call('HSET', key, head, 1)\n",
		breaks: "no key is left without an end", tests: "TestFairScriptsHandTheLockOver",
	},
	{
		name: "a fair grant that stands though no waiter was notified", file: "rlock/lua/lib/fair.lua", pkg: "rlock",
		old: "      redis.call('HDEL', key, head)\n", new: "",
		breaks: "a grant that cannot be published is undone", tests: "TestAFairGrantThatMayNotBePublishedIsUndone",
	},
	{
		name: "a fair waiter without a place of its own", file: "rlock/lua/lib/fair.lua", pkg: "rlock",
		old: "till = math.max(till, behind and before + patience or before)", new: "till = till",
		breaks: "a fair waiter behind Redisson's keeps its place", tests: "TestFairScoresOutlastRedissonsSubtractions",
	},
}
