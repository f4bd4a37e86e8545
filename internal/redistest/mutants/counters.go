package main

// ofCounters are faults of counters, red packets and rate limits.
var ofCounters = []mutant{
	{
		name: "an id that is added twice", file: "rcounter/lua/addonce.lua", pkg: "rcounter",
		old: "if record then\n", new: "if record and false then\n",
		breaks: "AddOnce counts once for each id", tests: "TestAddOnceTable",
	},
	{
		name: "an id that is not written", file: "rcounter/lua/addonce.lua", pkg: "rcounter",
		old: "redis.call('HSET', young, id, call .. ';' .. ARGV[1] .. ';' .. r[2])\n", new: "",
		breaks: "AddOnce counts once for each id", tests: "TestAddOnceTable",
	},
	{
		name: "ids without an end", file: "rcounter/lua/addonce.lua", pkg: "rcounter",
		old: "if redis.call('PTTL', young) < keep then", new: "if false then",
		breaks: "no key is left without an end", tests: "TestTheIDsOfAddOnceEndInPartsOneAfterTheOther TestAddOnceForgetsAnIdAfterItsTime",
	},
	{
		name: "a compare-and-set that does not compare", file: "rcounter/lua/cas.lua", pkg: "rcounter",
		old: "if value ~= old then return {0, value} end\n", new: "",
		breaks: "CompareAndSet sets what it was told to expect", tests: "TestSetAndCompareAndSetTable",
	},
	{
		name: "a set that takes the TTL away", file: "rcounter/lua/set.lua", pkg: "rcounter",
		old: "redis.call('SET', key, value, 'KEEPTTL')", new: "redis.call('SET', key, value)",
		breaks: "a counter keeps its TTL", tests: "TestSetAndCompareAndSetTable TestTTLIsSetOnceAndRepaired",
	},
	{
		name: "a user with two shares", file: "rcounter/redpacket/lua/grab.lua", pkg: "rcounter/redpacket",
		old: "  elseif old[i] then\n", new: "  elseif old[i] and over then\n",
		breaks: "a user has one share of a packet", tests: "TestGrabTable",
	},
	{
		name: "two shares in one call", file: "rcounter/redpacket/lua/grab.lua", pkg: "rcounter/redpacket",
		old: "  if mine[user] then -- a second time", new: "  if mine[user] and over then -- a second time",
		breaks: "a user has one share of a packet", tests: "TestGrabTable",
	},
	{
		name: "a packet whose records are gone", file: "rcounter/redpacket/lua/grab.lua", pkg: "rcounter/redpacket",
		old: "if found ~= taken then return {-1, taken, found} end\n", new: "",
		breaks: "a packet that lost records pays nobody", tests: "TestGrabTable",
	},
	{
		name: "a share after the end", file: "rcounter/redpacket/lua/grab.lua", pkg: "rcounter/redpacket",
		old: "local over = state ~= 1 or begun(m[6], now)\n", new: "local over = state ~= 1\n",
		breaks: "nobody has a share of a packet that is over", tests: "TestGrabTable",
	},
	{
		name: "a refund before the end", file: "rcounter/redpacket/lua/refund.lua", pkg: "rcounter/redpacket",
		old: "if not begun(m[6], now) then return {1, m[8], m[6] - now, 0, 0} end\n", new: "",
		breaks: "what is left is refunded after the end", tests: "TestRefundTable",
	},
	{
		name: "a refund that is made twice", file: "rcounter/redpacket/lua/refund.lua", pkg: "rcounter/redpacket",
		old: "m[10] == call and 1 or 0}", new: "1}",
		breaks: "a packet is refunded once", tests: "TestRefundTable",
	},
	{
		name: "a late copy of a sending", file: "rcounter/redpacket/lua/send.lua", pkg: "rcounter/redpacket",
		old: "  if expired(ARGV[8], now) then return {4, now} end\n", new: "",
		breaks: "a late copy of a call opens nothing", tests: "TestSendTable TestALateCopyOfASendOpensNothing",
	},
	{
		name: "a rate that is not counted", file: "rcounter/ratelimit/lua/take.lua", pkg: "rcounter/ratelimit",
		old: "  level = level + n * per\nend", new: "end",
		breaks: "no more pass than the rate", tests: "TestARateLimiterIsTheGenericCellRateAlgorithmToTheMicrosecond",
	},
	{
		name: "a wait without a bound", file: "rcounter/ratelimit/limiter.go", pkg: "rcounter/ratelimit",
		old: "	most := l.o.MaxWait\n", new: "	most := maxWait\n",
		breaks: "callers that leave close a limiter for MaxWait at most", tests: "TestWaitersThatLeaveCloseALimiterForMaxWaitAtMost",
	},
	{
		name: "a take that counts twice", file: "rcounter/ratelimit/lua/take.lua", pkg: "rcounter/ratelimit",
		old: "local mine = last == id\n", new: "local mine = n < 0 and last == id\n",
		breaks: "a repeated call takes once", tests: "TestARateLimiterIsTheGenericCellRateAlgorithmToTheMicrosecond",
	},
	{
		name: "a late copy of a take that was given back", file: "rcounter/ratelimit/lua/take.lua", pkg: "rcounter/ratelimit",
		old: "elseif last == '!' .. id then\n", new: "elseif last == '?' then\n",
		breaks: "a late copy of a call that was given back takes nothing", tests: "TestALateCopyOfACallThatWasGivenBackTakesNothing",
	},
	{
		name: "a limiter that a step of the clock closes", file: "rcounter/ratelimit/lua/take.lua", pkg: "rcounter/ratelimit",
		old: "if back then store(last) end\n", new: "",
		breaks: "a step of the clock back does not close a limiter", tests: "TestAClockSetBackDoesNotCloseTheLimiter",
	},
}
