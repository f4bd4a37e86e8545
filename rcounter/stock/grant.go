package stock

import (
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// Outcome is how a claim was answered. The zero Outcome is not an answer.
type Outcome string

// outcomes are in the order of their numbers in scripts.
var outcomes = []Outcome{"", Granted, Replayed, SoldOut, NotOpen, NotStarted, Ended, UserLimit, Suspended, Returned,
	Expired, Cancelled, Paused}

// replayed is the number of Replayed.
const replayed = 2

func outcome(number int64) Outcome { return session.Numbered(number, outcomes) }

// The outcomes of a claim. Sold out, not open and over are answers, not errors.
const (
	// Granted: the claimant has a unit, by this claim.
	Granted Outcome = "granted"
	// Replayed: the claimant has a unit, by an earlier claim, whose ordinal this is.
	Replayed Outcome = "replayed"
	// SoldOut: every unit is taken. One that is returned makes the stock sell again.
	SoldOut Outcome = "sold out"
	// NotOpen: there is no stock of that name: it was never opened, its retention is over, or it was lost.
	NotOpen Outcome = "not open"
	// NotStarted: the stock is there and its start is ahead.
	NotStarted Outcome = "not started"
	// Ended: its time is over, or it was closed.
	Ended Outcome = "ended"
	// UserLimit: the claimant has as many units as Spec.PerUser allows, by requests or reservations.
	UserLimit Outcome = "user limit"
	// Suspended: the stock's records are in doubt, and it grants nothing until Restore has run.
	Suspended Outcome = "suspended"
	// Returned: this request or reservation was sold units and they were returned. Another id may claim.
	Returned Outcome = "returned"
	// Expired: the reservation's time was over, by the server's clock, before it was confirmed. Its units have gone back
	// to the stock. Confirm takes them again, as far as they are left; of Confirm it says that none was.
	Expired Outcome = "expired"
	// Cancelled: the reservation was cancelled, perhaps before it was made. Another id may reserve.
	Cancelled Outcome = "cancelled"
	// Paused: the seller has paused the sale. It grants again after a Change with Resume.
	Paused Outcome = "paused"
)

// Final reports whether o is what has become of a request or reservation, and not only the answer of this moment:
// Granted, Replayed, Returned, Expired or Cancelled. A call that was answered so does not get more units when it is
// made again.
func (o Outcome) Final() bool {
	switch o {
	case Granted, Replayed, Returned, Expired, Cancelled:
		return true
	}
	return false
}

// Grant is the answer to a claim or a reservation. The zero Grant is not an answer.
type Grant struct {
	Outcome Outcome
	// Ordinal is the number of the first unit, from 1 in the order of granting, if Won. An opening gives out an ordinal
	// once: that of a returned unit is not used again, so after returns ordinals can be above the limit. It is 0 while the
	// units are only reserved; they get their numbers when they are sold.
	Ordinal int64
	// N is the number of units, if Won: Ordinal to Ordinal + N - 1.
	N int64
	// Missing is how many units fewer that is than the request or reservation asked for: what Request.UpTo did not
	// get, and what a Return with Units.Keep gave back. Of Confirm it is how many of the units that were paid for are to
	// be refunded.
	Missing int64
	// Request is the id of the record of the units, if Won: that of the request, or one that ClaimAny made. Empty for
	// Claim.
	Request string
	// Until is the instant, on this machine's monotonic clock, at which reserved units go back unless they are confirmed.
	// The server's clock decides; Until is counted from before the request, so it is never later than the server's. It is
	// zero for all other units, and if not Won.
	Until time.Time
	// Remaining is the number of units left, neither sold nor held, when the server answered.
	Remaining int64
	// Epoch is the opening that answered, as Open returned it; 0 if NotOpen.
	Epoch int64
}

// Won reports whether the claimant has units: Granted or Replayed.
func (g Grant) Won() bool { return g.Outcome == Granted || g.Outcome == Replayed }
