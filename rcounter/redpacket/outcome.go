package redpacket

import "github.com/redlatch/redlatch/internal/session"

// Outcome says how the server answered a Grab or a Refund. The zero Outcome is not an answer.
type Outcome string

// outcomes are in the order of their numbers in scripts.
var outcomes = []Outcome{"", Granted, Replayed, SoldOut, NotOpen, "", Ended}

func outcome(number int64) Outcome { return session.Numbered(number, outcomes) }

// The outcomes. SoldOut, NotOpen and Ended are answers, not errors.
const (
	// Granted: the user got a share by this Grab, or the sender the rest by this Refund.
	Granted Outcome = "granted"
	// Replayed: an earlier call got it, and the answer is the same again.
	Replayed Outcome = "replayed"
	// SoldOut: every share is taken.
	SoldOut Outcome = "sold out"
	// NotOpen: there is no packet of that name: it was never sent, its retention is over, or it was lost.
	NotOpen Outcome = "not open"
	// Ended: the time of the packet is over.
	Ended Outcome = "ended"
)
