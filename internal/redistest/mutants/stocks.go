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
		old: "  elseif s.sold + s.held >= s.limit then\n", new: "  elseif s.sold + s.held > s.limit then\n",
		breaks: "a stock is never oversold", tests: "TestClaimTable",
	},
	{
		name: "a quick claim by who has a unit", file: "rcounter/stock/lua/claim.lua", pkg: "rcounter/stock",
		old: "\n          and not redis.call('HGET', KEYS[2], ARGV[3]) then", new: " then",
		breaks: "a claimant has one unit", tests: "TestClaimTable",
	},
	{
		name: "a quick claim of the last unit", file: "rcounter/stock/lua/claim.lua", pkg: "rcounter/stock",
		old: "(tonumber(m[4]) or none) - sold - 1, ", new: "(tonumber(m[4]) or none) - sold, ",
		breaks: "a claim says how many units are left", tests: "TestClaimTable",
	},
	{
		name: "a quick act by who may have no more", file: "rcounter/stock/lua/acts.lua", pkg: "rcounter/stock",
		old: "      if n + 0 <= may then\n", new: "      if n + 0 <= may + 1 then\n",
		breaks: "a claimant has no more than its limit", tests: "TestTheStraightLineDoesWhatTheRestDoes",
	},
	{
		name: "a quick act together with holds that are over", file: "rcounter/stock/lua/acts.lua", pkg: "rcounter/stock",
		old: "(waiting == 0 or redis.call('ZCOUNT', KEYS[4], '-inf', text('(%.0f', now)) == 0)", new: "true",
		breaks: "a reservation ends at its deadline", tests: "TestTheStraightLineDoesWhatTheRestDoes",
	},
	{
		name: "a quick act of a stock that lost records", file: "rcounter/stock/lua/acts.lua", pkg: "rcounter/stock",
		old: " and redis.call('HLEN', KEYS[3]) == requests", new: "",
		breaks: "a stock that lost records sells nothing",
		tests:  "TestNothingIsGrantedOnceRecordsAreMissing TestLosingAnyKeyStopsTheSale",
	},
	{
		name: "quick acts that come late", file: "rcounter/stock/lua/acts.lua", pkg: "rcounter/stock",
		old: "now <= ask[3] + 0 and ", new: "",
		breaks: "a copy of a call that comes late does nothing", tests: "TestTheStraightLineDoesWhatTheRestDoes",
	},
	{
		name: "an act of a shared call that comes late", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old: "if late(ARGV[at + 2], s.now) then", new: "if false then",
		breaks: "an act is not done after its caller gave up, in a shared call either",
		tests:  "TestAnActOfASharedCallIsNotDoneAfterItsCallerGaveUp TestALateActIsNotDoneAndItsCompanionsAre",
	},
	{
		name: "a quick confirmation that leaves its hold", file: "rcounter/stock/lua/acts.lua", pkg: "rcounter/stock",
		old: "  if unholds > 0 then redis.call('ZREM', KEYS[4], unpack(unhold)) end\n", new: "",
		breaks: "what was confirmed does not end", tests: "TestTheStraightLineDoesWhatTheRestDoes",
	},
	{
		name: "a quick cancellation on a stock that is sold out", file: "rcounter/stock/lua/acts.lua", pkg: "rcounter/stock",
		old: "  if back > 0 then redis.call('DEL', KEYS[5]) end", new: "",
		breaks: "the flag of a stock that is sold out goes when units come back",
		tests:  "TestTheStraightLineDoesWhatTheRestDoes",
	},
	{
		name: "units that are free before their quick record says so", file: "rcounter/stock/lua/acts.lua",
		pkg: "rcounter/stock",
		old: "'held', text(f, held + back), ", new: "'held', text(f, held), ",
		breaks: "a run that is broken off sells too little, never too much",
		tests:  "TestARunOfSeveralActsThatIsBrokenOffSellsNothingTwice",
	},
	{
		name: "a stock whose records are gone", file: "rcounter/stock/lua/lib/stock.lua", pkg: "rcounter/stock",
		old: "  if s.claimants ~= s.recorded then\n    off = {-1, s.recorded, s.claimants}\n  elseif", new: "  if",
		breaks: "a stock that lost records sells nothing", tests: "TestClaimTable TestNothingIsGrantedOnceRecordsAreMissing",
	},
	{
		name: "a sale before its time", file: "rcounter/stock/lua/lib/state.lua", pkg: "rcounter/stock",
		old: "  if not begun(s.start, s.now) then return 5 end\n", new: "",
		breaks: "nothing is sold before a sale begins", tests: "TestClaimTable",
	},
	{
		name: "a hold that is reaped one millisecond late", file: "rcounter/stock/lua/lib/rare.lua", pkg: "rcounter/stock",
		old:    "'-inf', elapsed(s.now), 'BYSCORE', 'LIMIT', 0, most)",
		new:    "'-inf', elapsed(s.now - 1), 'BYSCORE', 'LIMIT', 0, most)",
		breaks: "a reservation ends at its deadline",
		tests:  "TestAReservationIsSoldOrGoesBackOnce TestWhatHasEndedIsForgotten",
	},
	{
		name: "a reservation that cannot be confirmed in its last millisecond", file: "rcounter/stock/lua/lib/acts.lua",
		pkg: "rcounter/stock",
		old: "if expired(r.deadline, s.now) then\n", new: "if begun(r.deadline, s.now) then\n",
		breaks: "a holder has its units until the instant that it was promised",
		tests:  "TestNoUnitGoesToAnotherBeforeTheEndThatItsHolderWasTold",
	},
	{
		name: "a unit that goes to another in its holder's last millisecond", file: "rcounter/stock/lua/lib/rare.lua",
		pkg:    "rcounter/stock",
		old:    "'-inf', elapsed(s.now), 'BYSCORE', 'LIMIT', 0, most)",
		new:    "'-inf', digits(s.now), 'BYSCORE', 'LIMIT', 0, most)",
		breaks: "a holder has its units until the instant that it was promised",
		tests:  "TestNoUnitGoesToAnotherBeforeTheEndThatItsHolderWasTold TestTheRestOfAReservationIsNoLongerThanItIs",
	},
	{
		name: "a reservation that is said to be over in its last millisecond", file: "rcounter/stock/holding.go",
		pkg: "rcounter/stock",
		old: "f.at <= q.deadline", new: "f.at < q.deadline",
		breaks: "a holder has its units until the instant that it was promised",
		tests:  "TestNoUnitGoesToAnotherBeforeTheEndThatItsHolderWasTold",
	},
	{
		name: "a unit that is lost with its hold", file: "rcounter/stock/lua/lib/rare.lua", pkg: "rcounter/stock",
		old: "s.held, s.waiting = s.held - n, s.waiting - #due", new: "s.held, s.waiting = s.held - n + 1, s.waiting - #due",
		breaks: "the units of a reservation that ended are free",
		tests: "TestRequestsAndReservationsKeepToTheirModelInAnyOrder " +
			"TestActsThatShareACallKeepToTheModelHoweverOftenTheCallRuns",
	},
	{
		name: "a full server that refuses a winner", file: "rcounter/stock/lua/lib/state.lua", pkg: "rcounter/stock",
		old: "local function free() redis.call('DEL', s.flag) end", new: "local function free() end",
		breaks: "a server whose memory is full answers winners, and takes units back",
		tests:  "TestAFullServerAnswersWinnersAndTakesUnitsBack",
	},
	{
		name: "a flag that stays when units come back", file: "rcounter/stock/lua/lib/rare.lua", pkg: "rcounter/stock",
		old: "    redis.call('DEL', s.flag)\n", new: "",
		breaks: "the flag of a stock that is sold out goes when units come back",
		tests:  "TestRequestsAndReservationsKeepToTheirModelInAnyOrder",
	},
	{
		name: "a record that is not written", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old: "  redis.call('HSET', s.records, unpack(set))\n", new: "",
		breaks: "a repeated request is answered as the first time",
		tests: "TestRequestsAndReservationsKeepToTheirModelInAnyOrder " +
			"TestActsThatShareACallKeepToTheModelHoweverOftenTheCallRuns",
	},
	{
		name: "a unit that is returned twice", file: "rcounter/stock/lua/return.lua", pkg: "rcounter/stock",
		old: "  redis.call('HSET', s.users, user, '0;' .. by .. ';' .. ordinal .. ';' .. call)\n", new: "",
		breaks: "a unit is returned once", tests: "TestReturnTable",
	},
	{
		name: "a repeated return that is refused", file: "rcounter/stock/lua/return.lua", pkg: "rcounter/stock",
		old: "if past == ';' .. ordinal .. ';' .. call then return {0, 1, 0} end\n", new: "",
		breaks: "a repeated call is answered as the first time", tests: "TestReturnTable",
	},
	{
		name: "a late copy of an opening", file: "rcounter/stock/lua/open.lua", pkg: "rcounter/stock",
		old: "if ARGV[10] == '' or expired(ARGV[10], s.now) then", new: "if ARGV[10] == '' then",
		breaks: "a late copy of a call opens nothing", tests: "TestALateCopyOfAnOpenOpensNothing",
	},
	{
		name: "an opening over another", file: "rcounter/stock/lua/open.lua", pkg: "rcounter/stock",
		old: "  if not expired(g, s.now) then\n", new: "  if false then\n",
		breaks: "Open never overwrites", tests: "TestOpenTable TestOpenNeverOverwrites",
	},
	{
		name: "a call of acts that comes late", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old:    "if notafter == 0 or expired(notafter, s.now) then return {-11, s.now, 0} end",
		new:    "if notafter == 0 then return {-11, s.now, 0} end",
		breaks: "a copy of a call that comes after its time does nothing",
		tests:  "TestACallOfActsThatComesTooLateDoesNothing",
	},
	{
		name: "a cancellation of what is not there that forbids nothing", file: "rcounter/stock/lua/lib/acts.lua",
		pkg: "rcounter/stock",
		old: "N = forbids(0), ", new: "N = 0, ",
		breaks: "an id that was cancelled before it was reserved is never reserved",
		tests:  "TestRequestsAndReservationsKeepToTheirModelInAnyOrder",
	},
	{
		name: "an id in two acts of a call", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old: "    if seen[id] then return end\n", new: "",
		breaks: "an id is in one act of a call, so that a second run answers as the first",
		tests:  "TestAnIdIsInOneActOfACall",
	},
	{
		name: "a reservation under the id of another claimant", file: "rcounter/stock/lua/lib/acts.lua",
		pkg:    "rcounter/stock",
		old:    "other = r.asked ~= '0' and (r.deadline == '0' or r.asked ~= y) or r.claimant ~= x",
		new:    "other = r.asked ~= '0' and (r.deadline == '0' or r.asked ~= y)",
		breaks: "an id is that of one claimant's request",
		tests:  "TestActsThatShareACallKeepToTheModelHoweverOftenTheCallRuns",
	},
	{
		name: "a confirm while the stock is suspended", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old: "  if is_suspended() then return 8 end\n  local n, claimant,", new: "  local n, claimant,",
		breaks: "while records are in doubt nothing is confirmed", tests: "TestASuspendedStockConfirmsAndExtendsNothing",
	},
	{
		name: "a confirm of what was cancelled", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old:    "E = confirm, G = answered, R = answered, C = answered,",
		new:    "E = confirm, G = answered, R = answered, C = confirm,",
		breaks: "what was cancelled stays so", tests: "TestActsThatShareACallKeepToTheModelHoweverOftenTheCallRuns",
	},
	{
		name: "a payment that is refunded and then sold", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old: "      finished(i, id, q)\n      return 10,", new: "      return 10,",
		breaks: "what a payment was answered is decided for good",
		tests:  "TestAPaymentIsAnsweredOnceAndForAll TestRequestsAndReservationsKeepToTheirModelInAnyOrder",
	},
	{
		name: "a payment for an unknown order that forbids nothing", file: "rcounter/stock/lua/lib/acts.lua",
		pkg: "rcounter/stock",
		old: "N = forbids(11), ", new: "N = 11, ",
		breaks: "what a payment was answered is decided for good", tests: "TestAPaymentIsAnsweredOnceAndForAll",
	},
	{
		name: "a cart that is refunded and then sold", file: "rcounter/stock/lua/cart.lua", pkg: "rcounter/stock",
		old: " or verb == 'C' and not undecided and out[5] == 11 then", new: " then",
		breaks: "what a cart's payment was answered is decided for good",
		tests:  "TestCartsKeepToTheirModelHoweverOftenACallRuns",
	},
	{
		name: "a restore that gives back what was returned", file: "rcounter/stock/restore.go", pkg: "rcounter/stock",
		old: "s.minusAll(back[holder])", new: "s.minusAll(back[\"\"])",
		breaks: "a unit that was returned stays returned, though the winners do not know it yet",
		tests: "TestRestoreFromADatabaseThatIsBehindLeavesEveryUnitWhereItIs " +
			"TestRestoreFromADatabaseThatIsBehindChangesNoAnswer TestRestoreGivesNothingBackThatWasReturnedAndForgotten",
	},
	{
		name: "a restore that forgets the last return", file: "rcounter/stock/restore.go", pkg: "rcounter/stock",
		old:    "parts[0] == ordinal || len(parts) == 4 && parts[2] == ordinal {",
		new:    "parts[0] == ordinal || parts[0] == \"0\" && len(parts) == 4 && parts[2] == ordinal {",
		breaks: "a unit that was returned stays returned without a ledger, too",
		tests:  "TestRestoreFromADatabaseThatIsBehindLeavesEveryUnitWhereItIs",
	},
	{
		name: "a restore that cannot be broken off", file: "rcounter/stock/restore.go", pkg: "rcounter/stock",
		old: "r.freed[holder].text != record {", new: "r.freed[holder].text == holder {",
		breaks: "a Restore after one that was broken off knows what was returned",
		tests:  "TestRestoreGivesNothingBackThatWasReturnedAndForgotten",
	},
	{
		name: "an extension that ends sooner", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old: "if q.by == ARGV[1] or deadline <= q.deadline + 0 then", new: "if q.by == ARGV[1] then",
		breaks: "Extend moves the end of a reservation to no earlier time",
		tests:  "TestActsThatShareACallKeepToTheModelHoweverOftenTheCallRuns",
	},
	{
		name: "an extension while the stock is suspended", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old: "  if is_suspended() then return 8 end -- Restore writes the deadlines that it has read\n", new: "",
		breaks: "while records are in doubt no deadline moves", tests: "TestASuspendedStockConfirmsAndExtendsNothing",
	},
	{
		name: "an extension that is made twice", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old: "if q.by == ARGV[1] or deadline <= q.deadline + 0 then", new: "if deadline <= q.deadline + 0 then",
		breaks: "a repeated Extend moves the end once", tests: "TestAnExtendThatRunsTwiceMovesTheEndOnce",
	},
	{
		name: "a part of a return that is counted anew", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old: "by == ARGV[1] and n == keep and back + 0 or 0 end", new: "0 end",
		breaks: "a repeated return says what it gave back",
		tests:  "TestActsThatShareACallKeepToTheModelHoweverOftenTheCallRuns",
	},
	{
		name: "units that are free before their record says so", file: "rcounter/stock/lua/lib/acts.lua",
		pkg: "rcounter/stock",
		old: "    s.sold, s.held = s.sold + todo.unsold, s.held + todo.unheld\n    count()\n    s.sold, s.held = s.sold - " +
			"todo.unsold, s.held - todo.unheld\n", new: "    count()\n",
		breaks: "a run that is broken off sells too little, and never too much",
		tests:  "TestARunOfSeveralActsThatIsBrokenOffSellsNothingTwice",
	},
	{
		name: "claimants without an end", file: "rcounter/stock/lua/lib/stock.lua", pkg: "rcounter/stock",
		old: "  if s.claimants == 0 and s.recorded > 0 then rare().ends() end\n", new: "",
		breaks: "no key is left without an end", tests: "TestEveryKeyOfAStockHasAnEndAfterEveryVerb",
	},
	{
		name: "a Restore that only those hear of that find records missing", file: "rcounter/stock/lua/lib/stock.lua",
		pkg: "rcounter/stock",
		old: "  if off or s.state ~= 1 then --", new: "  if off then --",
		breaks: "Restore reads the records twice at most", tests: "TestRestoreEndsWhileReturnsGoOn",
	},
	{
		name: "holds without an end", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old: "  if #todo.hold > 0 then redis.call('ZADD', s.holds, unpack(todo.hold)) end -- before ZREM: a zset that is " +
			"emptied and filled again has no end\n  if #todo.unhold > 0 then redis.call('ZREM', s.holds, " +
			"unpack(todo.unhold)) end\n",
		new: "  if #todo.unhold > 0 then redis.call('ZREM', s.holds, unpack(todo.unhold)) end\n  if #todo.hold > 0 then " +
			"redis.call('ZADD', s.holds, unpack(todo.hold)) end\n",
		breaks: "no key is left without an end", tests: "TestActsThatShareACallKeepToTheModelHoweverOftenTheCallRuns",
	},
	{
		name: "records that are never forgotten", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old: "  append_ledger()\n  note_endings(todo.over)\n", new: "  append_ledger()\n",
		breaks: "what has ended is forgotten after Spec.Remember", tests: "TestWhatHasEndedIsForgotten",
	},
	{
		name: "a claimed unit that does not count", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old:    "(todo.totals[claimant] or todo.counts[claimant] or 0) - (todo.single[claimant] or 0)",
		new:    "(todo.totals[claimant] or todo.counts[claimant] or 0)",
		breaks: "a claimant has no more units than it may have",
		tests:  "TestRequestsAndReservationsKeepToTheirModelInAnyOrder",
	},
	{
		name: "a replay that replicas need not have", file: "rcounter/stock/lua/lib/acts.lua", pkg: "rcounter/stock",
		old: "    rare().touch(ARGV[2])\n", new: "",
		breaks: "every answer that replicas confirm comes with a write",
		tests:  "TestEveryAnswerThatIsConfirmedComesWithAWrite",
	},
	{
		name: "a cart with the id of a reservation", file: "rcounter/stock/lua/cart.lua", pkg: "rcounter/stock",
		old: "if verb == 'R' and fresh and alone and not refused then return {-3, 0, 0} end\n", new: "",
		breaks: "an id is that of one cart, or of one reservation",
		tests:  "TestALineOfACartIsAReservationOfItsStock TestCartsKeepToTheirModelHoweverOftenACallRuns",
	},
	{
		name: "a cart of other stocks", file: "rcounter/stock/lua/cart.lua", pkg: "rcounter/stock",
		old: "if digest and digest ~= mine then return {-3, 0, 0} end", new: "",
		breaks: "an id is that of one cart",
		tests:  "TestACartsIdIsThatOfOneCart TestCartsKeepToTheirModelHoweverOftenACallRuns",
	},
	{
		name: "a cart that is held in part", file: "rcounter/stock/lua/cart.lua", pkg: "rcounter/stock",
		old: "  if outcome < 0 or outcome > 2 and not (verb == 'C' and outcome == 10) then\n    refused, undecided = true,",
		new: "  if outcome < 0 or outcome > 2 and not (verb == 'C' and outcome == 10) then\n    undecided, undecided " +
			"= true,",
		breaks: "a cart is reserved all or none",
		tests:  "TestACartNamesTheLineThatIsInTheWay TestACartIsReservedConfirmedAndCancelledAsOne",
	},
	{
		name: "a change over another", file: "rcounter/stock/lua/change.lua", pkg: "rcounter/stock",
		old: "if revision ~= m[1] or notafter == 0 then", new: "if notafter == 0 then",
		breaks: "a copy that comes after another change changes nothing",
		tests:  "TestLateCopiesOfOneOpeningChangeNothingInTheNext",
	},
	{
		name: "a pause that lets sell", file: "rcounter/stock/lua/lib/state.lua", pkg: "rcounter/stock",
		old: "  if s.state == 6 then return 12 end\n", new: "",
		breaks: "a paused stock grants nothing", tests: "TestAPausedStockGrantsNothingAndConfirmsWhatItHolds",
	},
	{
		name: "a stock that is being restored, and said to be corrupt", file: "rcounter/stock/lua/lib/stock.lua",
		pkg: "rcounter/stock",
		old: "if off then return restoring and {-10, 0, 0} or off end", new: "if off then return off end",
		breaks: "a caller that asks while a stock is restored hears so", tests: "TestWhileAStockIsRestoredOthersHearSo",
	},
	{
		name: "a late copy that deletes the next opening", file: "rcounter/stock/lua/close.lua", pkg: "rcounter/stock",
		old: "if digits(s.epoch) ~= ARGV[1] then return {0, s.epoch, 0} end\nif ARGV[2]", new: "if ARGV[2]",
		breaks: "a late Delete removes no other opening", tests: "TestALateDeleteRemovesNoOtherOpening",
	},
	{
		name: "a Restore during which others change the stock forever", file: "rcounter/stock/lua/restore.lua",
		pkg: "rcounter/stock",
		old: ", 'restorer', call, 'alone', 1)", new: ", 'restorer', call)",
		breaks: "Restore reads the records twice at most", tests: "TestRestoreEndsWhileReturnsGoOn",
	},
}
