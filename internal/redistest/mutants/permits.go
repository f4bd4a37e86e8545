package main

// ofPermits are faults of semaphores.
var ofPermits = []mutant{
	{
		name: "a permit too many", file: "rsemaphore/lua/acquire.lua", pkg: "rsemaphore",
		old: "  elseif not blocked and n <= spare then\n", new: "  elseif not blocked and n <= spare + 1 then\n",
		breaks: "there are never more permits out than there are", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "a permit that is granted late", file: "rsemaphore/lua/acquire.lua", pkg: "rsemaphore",
		old: "if notafter > 0 and now > notafter then", new: "if notafter > 0 and now < 0 then",
		breaks: "nothing is granted to a caller that has given up", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "a permit that is taken twice", file: "rsemaphore/lua/acquire.lua", pkg: "rsemaphore",
		old: "  if there == n then\n", new: "  if there == n and n > 1000 then\n",
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
		old: "  if till and tonumber(till) > now then\n", new: "  if till then\n",
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
		old: "    if not till or tonumber(till) <= now then\n      return 0, 0\n    end\n", new: "    till = till or '0'\n",
		breaks: "a lost permit stays lost: no renewal brings it back", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "an extension of what is over", file: "rsemaphore/lua/extend.lua", pkg: "rsemaphore",
		old: "  if not till or tonumber(till) <= now then\n", new: "  if not till then\n",
		breaks: "what is over is not extended", tests: "TestTheScriptsDoWhatTheirTablesSay",
	},
	{
		name: "a waiter that is overtaken for ever", file: "rsemaphore/lua/lib/queue.lua", pkg: "rsemaphore",
		old: "elseif head and passed + n > PASS * head.n then", new: "elseif false then",
		breaks: "a request is overtaken by four times as many permits as it asks for, and no more", tests: "TestNobodyIsOvertakenByMoreThanFourTimesWhatItWants",
	},
	{
		name: "a grant of permits to the gone", file: "rsemaphore/lua/lib/queue.lua", pkg: "rsemaphore",
		old: "> stale or listeners(q, channel) == 0) then", new: "> stale) then",
		breaks: "permits are handed to a process that is there", tests: "TestAQueueOfPermitsDoesWhatItsTableSays",
	},
	{
		name: "a grant of permits that stands though nobody was told", file: "rsemaphore/lua/lib/queue.lua", pkg: "rsemaphore",
		old: "        take(g[1], g[2])\n", new: "",
		breaks: "a grant that cannot be published is undone", tests: "TestAGrantThatMayNotBePublishedIsUndone",
	},
	{
		name: "a shared call of permits that takes one too many", file: "rsemaphore/lua/free.lua", pkg: "rsemaphore",
		old: "not (notafter > 0 and now > notafter) and s.available > 0 and", new: "not (notafter > 0 and now > notafter) and s.available >= 0 and",
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
		old: "if not till or tonumber(till) <= now then", new: "if not till then",
		breaks: "what is over is not renewed", tests: "TestTheScriptsOfWeightsDoWhatTheirTablesSay",
	},
	{
		name: "the weights of the dead that stay", file: "rsemaphore/lua/lib/weights.lua", pkg: "rsemaphore",
		old: "return capacity, used - freed, noted", new: "return capacity, used, noted",
		breaks: "the weights of a crashed process come back", tests: "TestTheScriptsOfWeightsDoWhatTheirTablesSay",
	},
	{
		name: "a claim of what was handed to nobody", file: "rsemaphore/lua/lib/given.lua", pkg: "rsemaphore",
		old: "  if redis.call('ZREM', given, base .. ' ' .. digits(n)) == 0 and not redis.call('ZSCORE', claimed, base) then\n    return false\n  end\n", new: "  redis.call('ZREM', given, base .. ' ' .. digits(n))\n",
		breaks: "a waiter holds what it was handed, and nothing else", tests: "TestCountingAcquireScriptTable",
	},
	{
		name: "what nobody claims is lost", file: "rsemaphore/lua/lib/given.lua", pkg: "rsemaphore",
		old: "    back = back + tonumber(string.sub(member, 15))\n", new: "",
		breaks: "what a dead waiter was handed comes back", tests: "TestCountingAcquireScriptTable",
	},
}
