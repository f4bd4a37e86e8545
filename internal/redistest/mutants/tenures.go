package main

// ofTenures are faults of what the callers of one process share: the rules of rlock/tenancy.go and turn.go.
var ofTenures = []mutant{
	{
		name: "a context of a turn that is over re-enters", file: "internal/session/handle.go", pkg: "rlock",
		old: "o.ended != nil || o.count == 0 || turn != o.turn {", new: "o.ended != nil || o.count == 0 || turn > o.turn {",
		breaks: "a turn is one caller's", tests: "TestAContextOfAnEarlierTurnReentersNothing",
	},
	{
		name: "an owner that is told after its turn, and may be joined", file: "rlock/hold.go", pkg: "rlock",
		old: "\tif x.h.Bar() {\n", new: "\tif x.h.Bar() || true {\n",
		breaks: "a turn is one caller's", tests: "TestAContextOfAnEarlierTurnReentersNothing",
	},
	{
		name: "a turn that is taken without a look at the clock", file: "rlock/turn.go", pkg: "rlock",
		old: "if s.now() >= x.by || !c.engine.Lasting(&own.Lease) {", new: "if false {",
		breaks: "who takes a turn looks at the clock", tests: "TestWhoTakesATurnLooksAtTheClock",
	},
	{
		name: "a turn that is taken by one that has left", file: "rlock/turn.go", pkg: "rlock",
		old: "if err := c.queue.Ended(x.call.Ctx); err != nil {\n\t\town.Decline()", new: "if err := c.queue.Ended(x.call.Ctx); err != nil && own == nil {\n\t\town.Decline()",
		breaks: "a context that has ended lets nobody in", tests: "TestACallerWhoseContextHasEndedTakesNoTurn",
	},
	{
		name: "an owner that is known elsewhere and passed on", file: "internal/session/handle.go", pkg: "rlock",
		old: "if o.count != 1 || o.barred || o.ended != nil {", new: "if o.count != 1 || o.ended != nil {",
		breaks: "an owner that is known elsewhere has one turn", tests: "TestAnOwnerThatIsKnownElsewhereHasOneTurn",
	},
	{
		name: "a turn for one with terms of its own", file: "rlock/turn.go", pkg: "rlock",
		old: "if y == nil || y.first.personal() || y.turns", new: "if y == nil || y.turns",
		breaks: "an owner that is known elsewhere has one turn", tests: "TestAnOwnerThatIsKnownElsewhereHasOneTurn",
	},
	{
		name: "a tenure without an end", file: "rlock/tenancy.go", pkg: "rlock",
		old: "y.has(own, turns, s.now()+q.a.l.tenure())", new: "y.has(own, min(turns, -1), s.now()+time.Hour)",
		breaks: "a process keeps a lock for 20 ms at most", tests: "TestATenureEndsThoughCallersWait",
	},
	{
		name: "callers behind a tenure that was lost", file: "rlock/turn.go", pkg: "rlock",
		old: "\tif y := o.tenancy; y != nil {\n\t\ts.next(y)\n\t}", new: "",
		breaks: "whatever ends a tenure, those that wait have another", tests: "TestTheLossOfATenureEndsOneTurn",
	},
	{
		name: "a forced unlock that its own process hears of later", file: "rlock/force.go", pkg: "rlock",
		old: "l.c.engine.Lost(held, ErrLost)", new: "_ = held",
		breaks: "a forced unlock ends this client's own hold at once", tests: "TestTheLossOfATenureEndsOneTurn",
	},
	{
		name: "a request that nobody waits for", file: "rlock/turn.go", pkg: "rlock",
		old: "case q != nil && (y.first == nil || q.x == x):", new: "case q != nil && q.x == x:",
		breaks: "the last caller that leaves withdraws the request", tests: "TestOnlyTheLastCallerThatLeavesWithdrawsTheRequest",
	},
	{
		name: "a caller that leaves and withdraws for all", file: "rlock/turn.go", pkg: "rlock",
		old: "case q != nil && (y.first == nil || q.x == x):", new: "case q != nil:",
		breaks: "callers come and go without a word to the server", tests: "TestOnlyTheLastCallerThatLeavesWithdrawsTheRequest",
	},
	{
		name: "a writer's turn while somebody reads under the last one", file: "rlock/readwrite.go", pkg: "rlock",
		old: "if !own.Lasts() || !own.Bar(turn) {", new: "if !own.Lasts() {",
		breaks: "nobody writes while somebody reads", tests: "TestNoWriterHasItsTurnWhileAReadUnderTheLastOneLasts",
	},
}
