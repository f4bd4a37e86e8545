package redpacket

import (
	"strconv"
)

// Outcome is how a Grab was answered. The zero Outcome is no answer.
type Outcome uint8

// The outcomes of a Grab. Sold out, not open and over are answers, not errors.
const (
	// Granted: the user has a share, by this Grab.
	Granted Outcome = iota + 1
	// Replayed: the user has a share, by an earlier Grab, and this is it.
	Replayed
	// SoldOut: every share is taken.
	SoldOut
	// NotOpen: there is no packet of that name: never sent, retained no longer, or lost.
	NotOpen
	_
	// Ended: its time is over.
	Ended
)

var outcomeNames = [...]string{"none", "granted", "replayed", "sold out", "not open", "", "ended"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "outcome " + strconv.Itoa(int(o))
}
