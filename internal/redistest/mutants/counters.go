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
		breaks: "no key is left without an end",
		tests:  "TestTheIDsOfAddOnceEndInPartsOneAfterTheOther TestAddOnceForgetsAnIdAfterItsTime",
	},
	{
		name: "a compare-and-set that does not compare", file: "rcounter/lua/cas.lua", pkg: "rcounter",
		old: "if value ~= old then return {0, value} end\n", new: "",
		breaks: "CompareAndSet sets what it was given to expect", tests: "TestSetAndCompareAndSetTable",
	},
	{
		name: "a set that takes the TTL away", file: "rcounter/lua/set.lua", pkg: "rcounter",
		old: "redis.call('SET', key, value, 'KEEPTTL')", new: "redis.call('SET', key, value)",
		breaks: "a counter keeps its TTL", tests: "TestSetAndCompareAndSetTable TestTTLIsSetOnceAndRepaired",
	},
	{
		name: "callers of one INCRBY with one value", file: "rcounter/share.go", pkg: "rcounter",
		old: "			v -= r.Ask.d\n", new: "",
		breaks: "each caller of Incr has a value of its own",
		tests:  "TestAddsInOneCallAreAnsweredAsOneAfterTheOther TestSharedIncrsCountEachCallerOnce",
	},
	{
		name: "one refusal for all of a call", file: "rcounter/share.go", pkg: "rcounter",
		old: "		if k.passes(stands, d) {\n", new: "		if k.passes(stands, d) && d < 0 {\n",
		breaks: "an Add is refused only if it would pass a bound itself",
		tests:  "TestAddsInOneCallAreAnsweredAsOneAfterTheOther TestSharedIncrsCountEachCallerOnce",
	},
	{
		name: "a key of another type that ends the call of others", file: "rcounter/lua/addmany.lua", pkg: "rcounter",
		old: "redis.pcall('GET', KEYS[i])", new: "redis.call('GET', KEYS[i])",
		breaks: "one counter's key of another type is nothing to others",
		tests:  "TestAddsInOneCallAreAnsweredAsOneAfterTheOther",
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
		breaks: "a packet that lost records pays nothing", tests: "TestGrabTable",
	},
	{
		name: "a share after the end", file: "rcounter/redpacket/lua/grab.lua", pkg: "rcounter/redpacket",
		old: "local over = state ~= 1 or begun(m[6], now)\n", new: "local over = state ~= 1\n",
		breaks: "no user has a share of a packet that is over", tests: "TestGrabTable",
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
		old: "level, room, taken = level + units * per, room - units", new: "level, room, taken = level, room - units",
		breaks: "no more pass than the rate", tests: "TestARateLimiterIsGCRAToTheMicrosecond",
	},
	{
		name: "a wait without a bound", file: "rcounter/ratelimit/reserve.go", pkg: "rcounter/ratelimit",
		old: "	most := l.o.MaxWait\n", new: "	most := maxWait\n",
		breaks: "no caller waits for longer than MaxWait", tests: "TestWaitersThatLeaveCloseNoLimiter",
	},
	{
		name: "a take that counts twice", file: "rcounter/ratelimit/lua/take.lua", pkg: "rcounter/ratelimit",
		old: "if l.by and l.by:sub(1, #id + 1) == id .. '+' then", new: "if l.by == '?' then",
		breaks: "a repeated call takes once",
		tests: "TestARateLimiterIsGCRAToTheMicrosecond " +
			"TestRequestsInOneCallAreAnsweredAsOneAfterTheOther",
	},
	{
		name: "a shared take that counts twice", file: "rcounter/ratelimit/lua/take.lua", pkg: "rcounter/ratelimit",
		old: "      if last then again = number(value:sub(last + 1)) end\n", new: "",
		breaks: "a repeated call takes once",
		tests: "TestARateLimiterIsGCRAToTheMicrosecond " +
			"TestRequestsInOneCallAreAnsweredAsOneAfterTheOther",
	},
	{
		name: "a run that takes more than there is", file: "rcounter/ratelimit/lua/take.lua", pkg: "rcounter/ratelimit",
		old: "    if short then units = k < 0 and left or left - left % n end\n", new: "",
		breaks: "no more pass than the rate",
		tests: "TestRequestsInOneCallAreAnsweredAsOneAfterTheOther " +
			"TestARateLimiterIsGCRAToTheMicrosecond",
	},
	{
		name: "a late copy of a reservation that was given back", file: "rcounter/ratelimit/lua/reserve.lua",
		pkg: "rcounter/ratelimit",
		old: "if l.by == '!' .. id then return answer(0, 0, 0) end\n", new: "",
		breaks: "a late copy of a call that was given back takes nothing",
		tests:  "TestALateCopyOfACallThatWasGivenBackTakesNothing",
	},
	{
		name: "a limiter that a step of the clock closes", file: "rcounter/ratelimit/lua/lib/limit.lua",
		pkg: "rcounter/ratelimit",
		old: "* l.rate), by, past < 0\n", new: "* l.rate), by, false\n",
		breaks: "a step of the clock back does not close a limiter", tests: "TestAClockSetBackDoesNotCloseTheLimiter",
	},
	{
		name: "a level that is lowered for who leaves", file: "rcounter/ratelimit/lua/cancel.lua", pkg: "rcounter/ratelimit",
		old: "      l.level = l.full + position_of(l, last[1], last[2])\n", new: "      l.level = l.level - n * l.per\n",
		breaks: "no more pass than the rate, though callers leave",
		tests:  "TestReservationsOfCallersThatLeaveKeepThePromise TestATurnThatWasGivenBackGoesToTheNextThatReserves",
	},
	{
		name: "more credit than the bucket was empty", file: "rcounter/ratelimit/lua/lib/limit.lua",
		pkg: "rcounter/ratelimit",
		old: "  if #passed > 0 then l.credit = math.min(l.credit, math.max(0, l.full - l.most)) end\n", new: "",
		breaks: "no more pass than the rate, though callers leave", tests: "TestReservationsOfCallersThatLeaveKeepThePromise",
	},
	{
		name: "a turn that is given to two", file: "rcounter/ratelimit/lua/lib/limit.lua", pkg: "rcounter/ratelimit",
		old: "if before + need - credit <= at - amount then", new: "if before + need - credit <= at then",
		breaks: "no more pass than the rate, though callers leave",
		tests:  "TestReservationsOfCallersThatLeaveKeepThePromise TestATurnThatWasGivenBackGoesToTheNextThatReserves",
	},
	{
		name: "some of all or none", file: "rcounter/ratelimit/lua/take.lua", pkg: "rcounter/ratelimit",
		old:    "local took = passes and math.min(n, math.max(0, l.room)) or 0",
		new:    "local took = (passes or n <= l.room) and math.min(n, math.max(0, l.room)) or 0",
		breaks: "AllowAll takes all or none",
		tests:  "TestAllowAllTakesAllOrNoneAndSaysWhichLimitRefused TestRequestsInOneCallAreAnsweredAsOneAfterTheOther",
	},
	{
		name: "a slice that ends too soon", file: "rcounter/ratelimit/lua/lib/limit.lua", pkg: "rcounter/ratelimit",
		old: "l.at + math.max(1, math.ceil(l.per / 32)), 0", new: "l.at - math.ceil(l.per / 32), 0",
		breaks: "at most the rate passes in any period", tests: "TestASlidingWindowLetsAtMostItsRatePassInAnyPeriod",
	},
	{
		name: "a window without the clocks' change", file: "rcounter/ratelimit/lua/lib/limit.lua", pkg: "rcounter/ratelimit",
		old: "  if later ~= offset then", new: "  if false then",
		breaks: "a window ends with its unit of the calendar", tests: "TestAFixedWindowEndsWithTheUnitOfTheCalendar",
	},
	{
		name: "a limit of the server that no client learns", file: "rcounter/ratelimit/stored.go", pkg: "rcounter/ratelimit",
		old: "	s.text = text\n	s.terms.Store(t)\n", new: "	s.text = text\n	_ = t\n",
		breaks: "a limit that is Set counts in all processes",
		tests:  "TestALimitSetOnTheServerCountsInAllProcesses",
	},
	{
		name: "a refusal that outlives a reset", file: "rcounter/ratelimit/refusals.go", pkg: "rcounter/ratelimit",
		old: "	delete(f.keys, key)\n	f.mu.Unlock()\n", new: "	f.mu.Unlock()\n",
		breaks: "units that this process gave back pass at once", tests: "TestAKeyThatWasRefusedIsRefusedInTheProcess",
	},
}
