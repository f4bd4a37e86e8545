package main

// ofLatches are faults of latches and barriers.
var ofLatches = []mutant{
	{
		name: "a participant that counts twice", file: "rsemaphore/lua/latch_down.lua", pkg: "rsemaphore",
		old: "if before then\n  return {2, tonumber(value)}\nend\n", new: "",
		breaks: "a participant counts once", tests: "TestLatchDownScriptTable",
	},
	{
		name: "a count that reaches into the next latch", file: "rsemaphore/lua/latch_down.lua", pkg: "rsemaphore",
		old: "    return {1, 0} -- counted by an earlier run", new: "    before = before -- counted by an earlier run",
		breaks: "a repeated CountDown does not reach into the next count", tests: "TestLatchDownScriptTable",
	},
	{
		name: "an expired latch that is open", file: "rsemaphore/lua/latch_down.lua", pkg: "rsemaphore",
		old: "  if ran_out(till) then\n    return {4, 0}\n  end\n", new: "",
		breaks: "a latch that expired is not a success", tests: "TestLatchDownScriptTable",
	},
	{
		name: "an opening that wakes no waiter", file: "rsemaphore/lua/latch_down.lua", pkg: "rsemaphore",
		old: "wake(publish, channel, opens or '0')\n", new: "",
		breaks: "all waiters are woken when the latch opens", tests: "TestLatchDownScriptTable",
	},
	{
		name: "a latch that is set over another", file: "rsemaphore/lua/latch_set.lua", pkg: "rsemaphore",
		old: "if there then\n  return 0\nend\n", new: "",
		breaks: "a latch that is there is not changed", tests: "TestLatchSetScriptTable",
	},
	{
		name: "a latch without its TTL", file: "rsemaphore/lua/latch_set.lua", pkg: "rsemaphore",
		old: "redis.call('SET', key, count, 'PXAT', till)", new: "redis.call('SET', key, count)",
		breaks: "a latch with a TTL expires", tests: "TestLatchSetScriptTable",
	},
	{
		name: "a barrier that trips one short", file: "rsemaphore/lua/barrier.lua", pkg: "rsemaphore",
		old: "  if n == parties then\n", new: "  if n >= parties - 1 then\n",
		breaks: "no party goes on before all have arrived", tests: "TestBarrierScriptTable",
	},
	{
		name: "a party that arrives twice", file: "rsemaphore/lua/barrier.lua", pkg: "rsemaphore",
		old:    "  if redis.call('HEXISTS', key, 'm:' .. party) == 1 then\n    return reply(act == party and 1 or 0)\n  end\n",
		new:    "",
		breaks: "a repeated arrival counts once", tests: "TestBarrierScriptTable",
	},
	{
		name: "an arrival that is counted in the next generation", file: "rsemaphore/lua/barrier.lua", pkg: "rsemaphore",
		old: "  if past then\n", new: "  if past and false then\n",
		breaks: "a repeated arrival is not counted in the next generation", tests: "TestBarrierScriptTable",
	},
	{
		name: "a first request to arrive without an instant", file: "rsemaphore/party.go", pkg: "rsemaphore",
		old: "if c.runner.Clock.At(key, time.Now()) != 0 {", new: "if true {",
		breaks: "a request to arrive that comes when its party is gone does nothing",
		tests:  "TestAClientsFirstArrivalIsRefusedWhenItComesTooLate",
	},
	{
		name: "a dead party that breaks nothing", file: "rsemaphore/lua/barrier.lua", pkg: "rsemaphore",
		old:    "  if expired(first, now) then\n    end_generation(true)\n",
		new:    "  if first < 0 then\n    end_generation(true)\n",
		breaks: "a party that dies breaks its generation", tests: "TestBarrierScriptTable",
	},
	{
		name: "a break without its mark", file: "rsemaphore/lua/barrier.lua", pkg: "rsemaphore",
		old: "    redis.call('HSET', key, 'b:' .. digits(hgen), till)\n", new: "",
		breaks: "all of a broken generation learn that it broke", tests: "TestBarrierScriptTable",
	},
	{
		name: "a renewal of a party that is over", file: "rsemaphore/lua/barrier_renew.lua", pkg: "rsemaphore",
		old: "    if expired(ends, now) then\n", new: "    if ends < 0 then\n",
		breaks: "what is over is not renewed", tests: "TestBarrierRenewScriptTable",
	},
	{
		name: "a party whose lease ends a millisecond early", file: "rsemaphore/lua/barrier.lua", pkg: "rsemaphore",
		old: "local till = now + lease\n", new: "local till = now + lease - 1\n",
		breaks: "nothing is given away before the instant that its holder was promised",
		tests:  "TestNoGenerationBreaksBeforeTheEndOfAPartysLease",
	},
}
