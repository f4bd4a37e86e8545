package redpacket

import "github.com/redlatch/redlatch/internal/session"

// Outcome says how the server answered a Grab or a Refund. The zero Outcome is not an answer.
type Outcome uint8

func (o Outcome) String() string {
	return session.Word(o, "outcome", "none", "granted", "replayed", "sold out", "not open", "", "ended")
}

// The outcomes. SoldOut, NotOpen and Ended are answers, not errors.
const (
	// Granted: the user got a share by this Grab, or the sender the rest by this Refund.
	Granted Outcome = iota + 1
	// Replayed: an earlier call got it, and the answer is the same again.
	Replayed
	// SoldOut: every share is taken.
	SoldOut
	// NotOpen: there is no packet of that name: it was never sent, its retention is over, or it was lost.
	NotOpen
	_
	// Ended: the time of the packet is over.
	Ended
)
