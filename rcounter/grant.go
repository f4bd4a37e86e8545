package rcounter

import "strconv"

// Outcome is how a claim was answered. The zero Outcome is no answer.
type Outcome uint8

// The outcomes of a claim. Sold out, not open and over are answers, not errors.
const (
	// Granted: the claimant has a unit, by this claim.
	Granted Outcome = iota + 1
	// Replayed: the claimant has a unit, by an earlier claim, whose ordinal this is.
	Replayed
	// SoldOut: every unit is taken. One that is returned makes the stock sell again.
	SoldOut
	// NotOpen: there is no stock of that name: never opened, retained no longer, or lost.
	NotOpen
	// NotStarted: the stock is there and its start is ahead.
	NotStarted
	// Ended: its time is over, or it was closed.
	Ended
)

var outcomeNames = [...]string{"none", "granted", "replayed", "sold out", "not open", "not started", "ended"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "outcome " + strconv.Itoa(int(o))
}

// Grant is the answer to a claim.
type Grant struct {
	Outcome Outcome
	// Ordinal numbers the unit, from 1 in the order of granting, if Won. An ordinal is given out once in an opening:
	// that of a returned unit is not used again, so that after returns ordinals may be above the limit.
	Ordinal int64
	// Remaining is how many units were left when the server answered.
	Remaining int64
	// Epoch is the opening that answered, as Open returned it; 0 if NotOpen.
	Epoch int64
}

// Won reports whether the claimant has a unit: Granted or Replayed.
func (g Grant) Won() bool { return g.Outcome == Granted || g.Outcome == Replayed }
