package main

// ofStocks are faults of stocks.
var ofStocks = []mutant{
	{
		name: "a claimant with two units", file: "rcounter/stock/lua/claim.lua", pkg: "rcounter/stock",
		old: "  elseif record and has ~= '0' then\n", new: "  elseif record and has == '' then\n",
		breaks: "a claimant has one unit", tests: "TestClaimTable",
	},
	{
		name: "two units in one call", file: "rcounter/stock/lua/claim.lua", pkg: "rcounter/stock",
		old: "  if mine[user] then -- a second time", new: "  if mine[user] and closed then -- a second time",
		breaks: "a claimant has one unit", tests: "TestClaimTable",
	},
	{
		name: "a unit too many", file: "rcounter/stock/lua/claim.lua", pkg: "rcounter/stock",
		old: "  elseif sold + held >= limit then\n", new: "  elseif sold + held > limit then\n",
		breaks: "a stock is never oversold", tests: "TestClaimTable",
	},
	{
		name: "a quick claim by who has a unit", file: "rcounter/stock/lua/claim.lua", pkg: "rcounter/stock",
		old: "\n        and not redis.call('HGET', KEYS[2], ARGV[3]) then", new: " then",
		breaks: "a claimant has one unit", tests: "TestClaimTable",
	},
	{
		name: "a quick claim of the last unit", file: "rcounter/stock/lua/claim.lua", pkg: "rcounter/stock",
		old: "m[5] - m[6] - m[7] - 1, m[8] + 1", new: "m[5] - m[6] - m[7], m[8] + 1",
		breaks: "a claim says how many units are left", tests: "TestClaimTable",
	},
	{
		name: "a stock whose records are gone", file: "rcounter/stock/lua/lib/stock.lua", pkg: "rcounter/stock",
		old: "  if found ~= recorded then return {-1, recorded, found} end\n", new: "",
		breaks: "a stock that lost records sells nothing", tests: "TestClaimTable TestNothingIsGrantedOnceRecordsAreMissing",
	},
	{
		name: "a sale before its time", file: "rcounter/stock/lua/lib/stock.lua", pkg: "rcounter/stock",
		old: "  if now < start then return 5 end\n", new: "",
		breaks: "nothing is sold before a sale begins", tests: "TestClaimTable",
	},
	{
		name: "a hold that is reaped one millisecond late", file: "rcounter/stock/lua/lib/stock.lua", pkg: "rcounter/stock",
		old: "'-inf', digits(now), 'LIMIT', 0, most)", new: "'-inf', digits(now - 1), 'LIMIT', 0, most)",
		breaks: "a reservation ends at its deadline", tests: "TestAReservationIsSoldOrGoesBackOnce TestWhatHasEndedIsForgotten",
	},
	{
		name: "a unit that is lost with its hold", file: "rcounter/stock/lua/lib/stock.lua", pkg: "rcounter/stock",
		old: "held, waiting = held - n, waiting - #due", new: "held, waiting = held - n + 1, waiting - #due",
		breaks: "the units of a reservation that ended are free", tests: "TestRequestsAndReservationsKeepToTheirModelInAnyOrder TestActsThatShareACallKeepToTheModelHoweverOftenTheCallRuns",
	},
	{
		name: "a flag that stays when units come back", file: "rcounter/stock/lua/lib/stock.lua", pkg: "rcounter/stock",
		old: "    redis.call('DEL', flag)\n", new: "",
		breaks: "the flag of a stock that is sold out goes when units come back", tests: "TestTheRestOfABlockReopensASoldOutStock",
	},
	{
		name: "a record that is not written", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old: "  redis.call('HSET', records, unpack(set))\n", new: "",
		breaks: "a repeated request is answered as the first time", tests: "TestRequestsAndReservationsKeepToTheirModelInAnyOrder TestActsThatShareACallKeepToTheModelHoweverOftenTheCallRuns",
	},
	{
		name: "a unit that is returned twice", file: "rcounter/stock/lua/return.lua", pkg: "rcounter/stock",
		old: "  redis.call('HSET', users, user, '0;' .. by .. ';' .. ordinal .. ';' .. call)\n", new: "",
		breaks: "a unit is returned once", tests: "TestReturnTable",
	},
	{
		name: "a repeated return that is refused", file: "rcounter/stock/lua/return.lua", pkg: "rcounter/stock",
		old: "if past == ';' .. ordinal .. ';' .. call then return {0, 1, 0} end\n", new: "",
		breaks: "a repeated call is answered as the first time", tests: "TestReturnTable",
	},
	{
		name: "a late copy of an opening", file: "rcounter/stock/lua/open.lua", pkg: "rcounter/stock",
		old: "if ARGV[10] == '' or now > tonumber(ARGV[10]) then", new: "if ARGV[10] == '' then",
		breaks: "a late copy of a call opens nothing", tests: "TestALateCopyOfAnOpenOpensNothing",
	},
	{
		name: "an opening over another", file: "rcounter/stock/lua/open.lua", pkg: "rcounter/stock",
		old: "  if now < g then\n", new: "  if false then\n",
		breaks: "Open never overwrites", tests: "TestOpenTable TestOpenNeverOverwrites",
	},
	{
		name: "a block that is settled before its time", file: "rcounter/stock/lua/block_end.lua", pkg: "rcounter/stock",
		old: "if act == 'settle' and now < deadline then return {2, deadline - now, 0} end\n", new: "",
		breaks: "a block is its holder's until its time is over", tests: "TestABlockOfADeadProcessIsAccountedFor",
	},
	{
		name: "a block of which more is taken than it has", file: "rcounter/stock/lua/block_end.lua", pkg: "rcounter/stock",
		old: "if taken > n or act == 'settle' and taken < said then return {3, said, 0} end\n", new: "",
		breaks: "a block sells its units, and no more", tests: "TestBlocksKeepToTheirModel TestABlockOfADeadProcessIsAccountedFor",
	},
}
