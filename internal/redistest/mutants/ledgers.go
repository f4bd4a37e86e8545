package main

// ofLedgers are faults of ledgers and their movers.
var ofLedgers = []mutant{
	{
		name: "a stock that is opened though its owner knows it", file: "rcounter/stock/open.go", pkg: "rcounter/stock",
		old: "} else if before {", new: "} else if before && err != nil {",
		breaks: "a stock that was lost is not opened a second time",
		tests:  "TestAStockThatItsOwnerKnowsIsNotOpenedASecondTime",
	},
	{
		name: "a mover that ends when replicas are slow", file: "internal/ledger/ledger.go", pkg: "rcounter/stock",
		old:    "case err != nil && !script.NotAnswered(err) && !errors.Is(err, errs.ErrNotReplicated):",
		new:    "case err != nil && !script.NotAnswered(err):",
		breaks: "a mover goes on when replicas do not confirm in time",
		tests:  "TestALedgerThatReplicasDoNotConfirmIsMovedWhenTheyDo",
	},
	{
		name: "a read of a ledger that replicas need not have", file: "rcounter/stock/lua/ledger.lua", pkg: "rcounter/stock",
		old: "if ARGV[2] == '1' and m[1] and #entries > 0 then", new: "if ARGV[2] == '1' and not m[1] then",
		breaks: "every answer that replicas confirm comes with a write",
		tests:  "TestEveryAnswerThatIsConfirmedComesWithAWrite",
	},
	{
		name: "a removal that does not compare", file: "internal/script/lua/ledger.lua", pkg: "rcounter/stock",
		old: "    if last[2][2 * i - 2] ~= ARGV[i] then return false end\n", new: "",
		breaks: "an entry is removed only if it is the one that was read",
		tests:  "TestAMoverRemovesNothingThatAFailoverReplaced",
	},
	{
		name: "a removal that does not compare, of a red packet", file: "internal/script/lua/ledger.lua",
		pkg:    "rcounter/redpacket",
		old:    "    if last[2][2 * i - 2] ~= ARGV[i] then return false end\n",
		new:    "    if i == 2 and last[2][2] ~= ARGV[2] then return false end\n",
		breaks: "an entry is removed only if it is the one that was read",
		tests:  "TestAMoverKeepsAnEntryThatAFailoverReplaced",
	},
	{
		name: "a removal beyond what was read", file: "internal/script/lua/ledger.lua", pkg: "rcounter/stock",
		old: "digits(ARGV[1]:match('^%d+') + 1))", new: "digits(ARGV[1]:match('^%d+') + 2))",
		breaks: "no entry is removed that was not read", tests: "TestMoversSideBySideRemoveEachEntryOnce",
	},
	{
		name: "a removal that is not counted", file: "internal/script/lua/ledger.lua", pkg: "rcounter/stock",
		old: "  if keeps == '1' then redis.call('HINCRBY', hash, 'moved', digits(n)) end\n", new: "",
		breaks: "a stock counts the entries that were moved", tests: "TestMoversSideBySideRemoveEachEntryOnce",
	},
	{
		name: "a ledger that has lost entries", file: "internal/script/lua/ledger.lua", pkg: "rcounter/stock",
		old: "  if found ~= serial - moved then return", new: "  if found > serial - moved then return",
		breaks: "a stock whose ledger lost entries sells nothing",
		tests:  "TestALedgerThatIsNotWholeStopsTheSaleUntilItIsRestored",
	},
	{
		name: "a ledger with an entry of nothing", file: "internal/script/lua/ledger.lua", pkg: "rcounter/stock",
		old: "  if found ~= serial - moved then return", new: "  if found < serial - moved then return",
		breaks: "an entry of what did not happen is noticed",
		tests:  "TestALedgerThatIsNotWholeStopsTheSaleUntilItIsRestored TestARunThatIsBrokenOffNeverHidesALineOfTheLedger",
	},
	{
		name: "a packet whose ledger is not whole", file: "rcounter/redpacket/lua/grab.lua", pkg: "rcounter/redpacket",
		old: "local wrong = untold(m[9], taken, state, m[10])\nif wrong then return wrong end\n", new: "",
		breaks: "a packet whose ledger lost entries pays nothing", tests: "TestALedgerOfAPacketThatIsNotWholeEndsIt",
	},
	{
		name: "a refund of which no entry tells", file: "rcounter/redpacket/lua/refund.lua", pkg: "rcounter/redpacket",
		old: "if m[11] == '1' then\n  append(", new: "if m[11] == '2' then\n  append(",
		breaks: "a ledger has every share and the refund", tests: "TestLedgerTable TestTheLedgerOfAPacketHasEveryShareOnce",
	},
}
