package redpacket

// Share is the answer to a Grab or a Refund, and what Shares yields.
type Share struct {
	User string // "" of a Refund
	// Ordinal is the place in the order of taking, from 1; 0 if the user has no share, and of a Refund.
	Ordinal int64
	Cents   int64  // the amount
	Why     string // SoldOut or Ended, if the user has no share
	// Again: it had been so before this call, or before a repetition of it.
	Again bool
	// Left and LeftCents are the shares that were left when the server answered, and their sum. After a Refund both are 0.
	// Of a Refund Left is the number of shares that went back. Not set by Shares.
	Left, LeftCents int64
	Epoch           int64 // of the packet, as Send returned it
}

// The values of Share.Why.
const (
	SoldOut = "sold out" // every share is taken
	Ended   = "ended"    // the time of the packet is over
)

// Won reports whether the user has a share.
func (s Share) Won() bool { return s.Ordinal > 0 }
