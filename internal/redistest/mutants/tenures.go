package main

// ofTenures are faults of what the callers of one process share: the rules of rlock/tenancy.go and turn.go.
var ofTenures = []mutant{
	{
		name: "a context of a turn that is over re-enters", file: "internal/session/handle.go", pkg: "rlock",
		old: "o.ended != nil || o.count == 0 || turn != o.turn {", new: "o.ended != nil || o.count == 0 || turn > o.turn {",
		breaks: "a turn is one caller's", tests: "TestAContextOfAnEarlierTurnReentersNothing",
	},
	{
		name: "an owner that learns of it after its turn, and may be joined", file: "rlock/hold.go", pkg: "rlock",
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
		old:    "if err := c.waiters.Ended(x.call.Ctx); err != nil {\n\t\town.Decline()",
		new:    "if err := c.waiters.Ended(x.call.Ctx); err != nil && own == nil {\n\t\town.Decline()",
		breaks: "a context that has ended lets no caller in", tests: "TestACallerWhoseContextHasEndedTakesNoTurn",
	},
	{
		name: "an owner that is known elsewhere and passed on", file: "internal/session/handle.go", pkg: "rlock",
		old:    "if o.count != 1 || o.next != open || o.ended != nil {",
		new:    "if o.count != 1 || o.next == single || o.ended != nil {",
		breaks: "an owner that is known elsewhere has one turn", tests: "TestAnOwnerThatIsKnownElsewhereHasOneTurn",
	},
	{
		name: "a turn for one with terms of its own", file: "rlock/turn.go", pkg: "rlock",
		old: "if y.first.personal() || y.turns == 0", new: "if y.turns == 0",
		breaks: "an owner that is known elsewhere has one turn", tests: "TestAnOwnerThatIsKnownElsewhereHasOneTurn",
	},
	{
		name: "a tenure without an end", file: "rlock/tenancy.go", pkg: "rlock",
		old: "turns, until := int32(-1), s.now()+q.a.l.tenure()", new: "turns, until := int32(-1), s.now()+time.Hour",
		breaks: "a process keeps a lock for 20 ms at most", tests: "TestATenureEndsThoughCallersWait",
	},
	{
		name: "callers behind a tenure that was lost", file: "rlock/turn.go", pkg: "rlock",
		old: "\t\tif y.asks == nil {\n\t\t\ts.next(y)\n\t\t}\n", new: "",
		breaks: "whatever ends a tenure, those that wait have another", tests: "TestTheLossOfATenureEndsOneTurn",
	},
	{
		name: "a forced unlock that its own process hears of later", file: "rlock/force.go", pkg: "rlock",
		old: "l.c.engine.Lost(held, errs.ErrLost)", new: "_ = errs.ErrLost",
		breaks: "a forced unlock ends this client's own hold at once", tests: "TestTheLossOfATenureEndsOneTurn",
	},
	{
		name: "a request that no caller waits for", file: "rlock/turn.go", pkg: "rlock",
		old: "case q != nil && (y.first == nil || q.x == x):", new: "case q != nil && q.x == x:",
		breaks: "the last caller that leaves withdraws the request",
		tests:  "TestOnlyTheLastCallerThatLeavesWithdrawsTheRequest",
	},
	{
		name: "a caller that leaves and withdraws for all", file: "rlock/turn.go", pkg: "rlock",
		old: "case q != nil && (y.first == nil || q.x == x):", new: "case q != nil:",
		breaks: "callers come and go without a word to the server",
		tests:  "TestOnlyTheLastCallerThatLeavesWithdrawsTheRequest",
	},
	{
		name: "a writer's turn while a caller reads under the last one", file: "rlock/readwrite.go", pkg: "rlock",
		old: "if !own.Lasts() || !own.Bar(turn) {", new: "if !own.Lasts() {",
		breaks: "no caller writes while another reads", tests: "TestNoWriterHasItsTurnWhileAReadUnderTheLastOneLasts",
	},
	{
		name: "readers that join a tenure for as long as they like", file: "rlock/reading.go", pkg: "rlock",
		old: "if y.own == nil || s.now() >= y.until {", new: "if y.own == nil {",
		breaks: "a writer that queues is passed for 10 ms at most", tests: "TestReadersDoNotPassAWriterThatWaits",
	},
	{
		name: "readers that join although a writer of their process asks", file: "rlock/reading.go", pkg: "rlock",
		old: "w != nil && w.asks != nil {", new: "w != nil && w.asks == nil {",
		breaks: "a reader does not pass a writer of its process", tests: "TestAReaderDoesNotPassAWriterOfItsProcess",
	},
	{
		name: "readers in line that ask one after the other", file: "rlock/reading.go", pkg: "rlock",
		old: "for y.first != nil && s.enter(y.own) {", new: "for false {",
		breaks: "readers that wait are let in together", tests: "TestReadersThatWaitAreLetInTogether",
	},
	{
		name: "a reader that joins what is being given back", file: "internal/session/handle.go", pkg: "internal/session",
		old: "o.ended != nil || o.count == 0 || turn != o.turn {", new: "turn != o.turn {",
		breaks: "no caller joins a tenure whose last reader has left", tests: "TestWhatIsBeingReleasedIsNotReentered",
	},
	{
		name: "a re-entry in another caller's turn", file: "internal/session/handle.go", pkg: "internal/session",
		old: "o.count == 0 || turn != o.turn {", new: "o.count == 0 {",
		breaks: "a context of an earlier turn re-enters nothing", tests: "TestWhatIsBeingReleasedIsNotReentered",
	},
	{
		name: "a lock that lingers though others wait for it", file: "rlock/turn.go", pkg: "rlock",
		old: "y.turns >= 0 || x.personal() || y.own.Barred() {", new: "x.personal() || y.own.Barred() {",
		breaks: "where processes contend a lock does not linger", tests: "TestALockThatOthersWaitForDoesNotLinger",
	},
	{
		name: "a lock that lingers forever", file: "rlock/linger.go", pkg: "rlock",
		old: "case s.now() >= min(y.idle+y.linger, y.until):", new: "case s.now() >= y.idle+time.Hour:",
		breaks: "what lingers ends in time", tests: "TestWhatLingersEndsInTime",
	},
	{
		name: "a closed client that leaves what lingers", file: "rlock/client.go", pkg: "rlock",
		old: "\tc.tenancies.closes()\n", new: "",
		breaks: "Close releases what lingers", tests: "TestWhateverEndsWhatLingersIsHeeded",
	},
}
