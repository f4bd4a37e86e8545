package main

// ofCalls are faults of calls, of handles and their releases.
var ofCalls = []mutant{
	{
		name: "a refusal that may have run", file: "internal/script/classify.go", pkg: "internal/script",
		old: "\t\tif passing(err) {\n\t\t\treturn notRun\n", new: "\t\tif passing(err) {\n\t\t\treturn unknown\n",
		breaks: "a refusal proves that nothing ran", tests: "TestARefusalIsRetriedForAsLongAsTheCallLasts TestRefusalsOfARealServerAreRetriedAndDoNotRun TestABusyServerIsAskedAgain",
	},
	{
		name: "a lost reply that proves that nothing ran", file: "internal/script/classify.go", pkg: "internal/script",
		old: "\treturn unknown\n}", new: "\treturn notRun\n}",
		breaks: "without a reply the outcome is unknown", tests: "TestOnceIsNotSentAgainAfterAnUnknownOutcome TestAnUnknownTryMakesTheWholeCallUnknown",
	},
	{
		name: "what may not run twice is sent twice", file: "internal/script/run.go", pkg: "internal/script",
		old: "if unknown && once || ctx.Err() != nil", new: "if ctx.Err() != nil",
		breaks: "a verb that must not run twice is sent once", tests: "TestOnceIsNotSentAgainAfterAnUnknownOutcome",
	},
	{
		name: "a pending release whose early answer is final", file: "internal/session/retrier.go", pkg: "internal/session",
		old: "done := err == nil && !now.Before(p.After)", new: "done := err == nil",
		breaks: "a release is repeated until nothing can be granted any more", tests: "TestAnAnswerBeforeAfterIsNotFinal",
	},
	{
		name: "a pending release that is tried once", file: "internal/session/retrier.go", pkg: "internal/session",
		old: "\t\tif !done {\n\t\t\tr.push(p)\n\t\t}\n", new: "\t\t_ = done\n",
		breaks: "a release goes on until it is answered", tests: "TestAPendingReleaseIsTriedUntilItIsAnswered",
	},
	{
		name: "a pending release beyond its lease", file: "internal/session/retrier.go", pkg: "internal/session",
		old: "\t\tif !now.Before(p.Until) {\n\t\t\tcontinue\n\t\t}\n", new: "",
		breaks: "a release ends with the lease", tests: "TestAPendingReleaseIsGivenUpWhenItsLeaseIsOver",
	},
	{
		name: "a release of unknown outcome that is a loss", file: "internal/session/release.go", pkg: "internal/session",
		old: "case !gone, r.unsure, r.remaining > 0", new: "case !gone, r.remaining > 0",
		breaks: "an Unlock whose reply is lost is an Unlock", tests: "TestHoldsAndPermitsAreReleasedAlike",
	},
	{
		name: "a loss that an Unlock does not tell", file: "internal/session/release.go", pkg: "internal/session",
		old: "\tr.tell(errs.ErrLost)\n\treturn r.of.failed(r.Lease.Name, errs.ErrLost)\n", new: "\treturn nil\n",
		breaks: "an Unlock of what was lost says so", tests: "TestHoldsAndPermitsAreReleasedAlike",
	},
	{
		name: "a release twice", file: "internal/session/release.go", pkg: "internal/session",
		old: "first, settled := !o.begun, o.settled", new: "first, settled := true, false",
		breaks: "a handle is released once, and has one result", tests: "TestReleasesAtTheSameTimeHaveOneResult TestHoldsAndPermitsAreReleasedAlike",
	},
}
