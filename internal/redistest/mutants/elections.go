package main

// ofElections are faults of what leaders are asked, and of what they say of themselves.
var ofElections = []mutant{
	{
		name: "those with one more that had least", file: "rlock/election/plan.go", pkg: "rlock/election",
		old:    "return cmp.Or(-compare(len(has[a.id]) > base, len(has[b.id]) > base), cmp.Compare(a.id, b.id))",
		new:    "return cmp.Compare(a.id, b.id)",
		breaks: "no shard moves that need not", tests: "TestThePlanMovesAsLittleAsCanBeInAnyOrder",
	},
	{
		name: "those with one more by how many they have", file: "rlock/election/plan.go", pkg: "rlock/election",
		old:    "return cmp.Or(-compare(len(has[a.id]) > base, len(has[b.id]) > base), cmp.Compare(a.id, b.id))",
		new:    "return cmp.Or(cmp.Compare(len(has[b.id]), len(has[a.id])), cmp.Compare(a.id, b.id))",
		breaks: "a plan stays the same while it is carried out", tests: "TestThePlanMovesAsLittleAsCanBeInAnyOrder",
	},
	{
		name: "a shard of two that is the first one's", file: "rlock/election/plan.go", pkg: "rlock/election",
		old: "cmp.Or(-compare(a.id == id, b.id == id), cmp.Compare(a.id, b.id))", new: "cmp.Compare(a.id, b.id)",
		breaks: "a member believes itself", tests: "TestAMemberBelievesItselfAboutAShardOfTwo",
	},
	{
		name: "a plan that is carried out at once", file: "rlock/election/worker.go", pkg: "rlock/election",
		old: "if time.Since(w.since) < w.s.c.trust/2 {", new: "if false {",
		breaks: "workers that come together divide the shards once",
		tests:  "TestShardsAreDividedWhateverBecomesOfTheWorkers",
	},
	{
		name: "a worker that is gone and believed", file: "rlock/election/lua/workers.lua", pkg: "rlock/election",
		old: "elseif expired(ends, now) then", new: "elseif false then",
		breaks: "the shards of a worker that crashed go to the others",
		tests:  "TestTheScriptTableOfWorkers TestShardsAreDividedWhateverBecomesOfTheWorkers",
	},
	{
		name: "a drain that ends what it is kept with", file: "rlock/election/lua/workers.lua", pkg: "rlock/election",
		old: "if redis.call('PTTL', key) < last then", new: "if true then",
		breaks: "a request with a short life ends no other's", tests: "TestTheScriptTableOfWorkers",
	},
	{
		name: "an earlier value that comes late", file: "rlock/election/lua/announce.lua", pkg: "rlock/election",
		old:    "elseif last == token and (tonumber(changed) or 0) > change then",
		new:    "elseif last == token and (tonumber(changed) or 0) > change + 100 then",
		breaks: "no value is shown after a later one", tests: "TestTheScriptTable",
	},
	{
		name: "an announcement with a value that stays", file: "rlock/election/lua/retract.lua", pkg: "rlock/election",
		old: "if now and string.sub(now .. ' ', 1, #mine) ~= mine then", new: "if now and now .. ' ' ~= mine then",
		breaks: "a leader that resigned is not shown",
		tests:  "TestTheScriptTable TestALeaderChangesItsValueAndKeepsItsToken",
	},
	{
		name: "a value that is forgotten at the next announcement", file: "rlock/election/term.go", pkg: "rlock/election",
		old: "\tt.changes++\n", new: "",
		breaks: "a leader's value is the one that it proclaimed last",
		tests:  "TestAValueIsKeptWhenTheAnnouncementIsMadeAgain",
	},
	{
		name: "a leader that heeds what its predecessor is asked", file: "rlock/election/lua/requests.lua",
		pkg: "rlock/election",
		old: "if first == token then", new: "if first then",
		breaks: "a drain is for one leader", tests: "TestTheScriptTableOfRequests TestADrainedLeaderRestsWhileAnotherLeads",
	},
	{
		name: "a candidate that is gone and preferred", file: "rlock/election/lua/requests.lua", pkg: "rlock/election",
		old: "elseif expired(ends, now) then", new: "elseif false then",
		breaks: "a candidate that crashed is preferred for three heartbeats at most",
		tests:  "TestTheScriptTableOfRequests TestACrashedPreferredCandidateHoldsElectionsUpBriefly",
	},
	{
		name: "a candidate that is preferred at once", file: "rlock/election/term.go", pkg: "rlock/election",
		old: "t.e.readRequests(ctx, t.token, t.e.c.trust)", new: "t.e.readRequests(ctx, t.token, 0)",
		breaks: "a leader hands over to a candidate that has stood for three heartbeats",
		tests:  "TestPreferredCandidatesThatComeAndGoMoveLittle",
	},
	{
		name: "a candidate that does not stand aside", file: "rlock/election/election.go", pkg: "rlock/election",
		old: "if e.standsAside(ctx, l.token) {", new: "if false {",
		breaks: "no other is elected while a preferred candidate waits",
		tests:  "TestACrashedPreferredCandidateHoldsElectionsUpBriefly TestAPreferredCandidateIsHandedTheLeadership",
	},
	{
		name: "a drained leader that does not rest", file: "rlock/election/election.go", pkg: "rlock/election",
		old: "\te.c.resting.wait(ctx, e)\n", new: "",
		breaks: "a drained leader does not campaign while it rests",
		tests:  "TestADrainedLeaderRestsWhileAnotherLeads TestDrainReportsALeaderThatDoesNotStop",
	},
}
