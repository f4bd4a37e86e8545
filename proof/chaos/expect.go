package main

import "slices"

// What the library promises of a primitive in a cell, in the words of docs/design/failures.md.
const (
	survives = "survives" // nothing wrong, and it works again
	refuses  = "refuses"  // nothing wrong; the primitive may return errors for good, because its keys are gone
	// more may act than promised, for a lease at most; a resource that checks tokens refuses the late one
	token   = "token"
	wrongly = "open" // a count or a record may be wrong, and nothing refuses
)

// What lost keys, keys that are older than they were, and a clock that was set forward mean. Whatever is not named
// survives.
var (
	tokens = []string{"reentrant", "nonreentrant", "spin", "fair", "plain", "fenced", "election", "multi", "quorum",
		"readwrite", "semaphore", "weighted"}

	afterLoss = map[string]string{"counting": wrongly, "latch": wrongly, "barrier": refuses, "stock": refuses,
		"ledger": refuses, "redpacket": refuses, "counter": wrongly, "addonce": wrongly, "limiter": wrongly}
	afterOlder = map[string]string{"counting": wrongly, "latch": wrongly, "barrier": wrongly, "stock": wrongly,
		"ledger": wrongly, "redpacket": wrongly, "counter": wrongly, "addonce": wrongly, "limiter": wrongly}
	afterShift = map[string]string{"latch": refuses, "barrier": refuses, "counting": wrongly, "limiter": wrongly}

	// confirmed are those whose grants replicas confirm, with MinReplicas.
	confirmed = []string{"reentrant", "nonreentrant", "spin", "fair", "plain", "fenced", "election", "multi", "readwrite",
		"semaphore", "weighted", "stock", "ledger", "redpacket"}
)

// promised is what is promised of a primitive under a fault on a deployment.
func promised(f fault, deployment, primitive string) string {
	after := map[string]string(nil)
	switch f.keys {
	case kept:
		return survives
	case repeated:
		if primitive == "counter" || primitive == "counting" { // sent once: what runs it twice counts twice
			return wrongly
		}
		return survives
	case lost:
		after = afterLoss
		if deployment == five && f.name == "restart empty" { // who starts anew does not vote for a lease
			return survives
		}
	case older:
		if len(f.on) == 0 && (deployment == one || deployment == five) {
			return survives // there is no replica
		}
		if f.wait && slices.Contains(confirmed, primitive) {
			return survives
		}
		after = afterOlder
	case shifted:
		after = afterShift
	}
	if p, ok := after[primitive]; ok {
		return p
	}
	if slices.Contains(tokens, primitive) {
		return token
	}
	return survives
}
