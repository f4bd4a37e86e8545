package main

// ofWait are faults of waiting: which grants are used, and what wakes a waiter.
var ofWait = []mutant{
	{
		name: "a grant of any place", file: "internal/wait/handover.go", pkg: "internal/wait",
		old: "g.Ticket == w.ticket && w.held.After(q.gap)", new: "g.Ticket <= w.ticket && w.held.After(q.gap)",
		breaks: "only the grant of the ticket that was last named is used", tests: "TestAGrantOfAnEarlierPlaceIsNotTrusted",
	},
	{
		name: "a grant after a gap that is used unconfirmed", file: "internal/wait/handover.go", pkg: "internal/wait",
		old: "g.Ticket == w.ticket && w.held.After(q.gap)", new: "g.Ticket == w.ticket",
		breaks: "after a gap in the messages a grant is confirmed", tests: "TestAGrantAfterAGapIsConfirmed",
	},
}
