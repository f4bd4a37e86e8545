// Package stockmodel is a model of stocks and their ledgers: of what the scripts of rcounter/stock do with reservations
// and requests, and of the movers of contrib/ledger, which bring the ledger into a database. It is for tests.
//
// Two ids are reserved, claimed, confirmed, cancelled and returned in any order, and each request may be as late as its
// not-after allows, and be doubled. Holds end, and records that have ended are forgotten. Two movers read the ledger,
// write what they have read into a database, and remove it from the server; each may crash at any moment. The server
// is set back to what its replica has, or loses the stock, which is opened again.
//
// What must hold in every state:
//
//   - What is sold, held and free is the limit together, and each is the sum of the records.
//   - No unit has two owners, an answer about an id is final, and what is cancelled or returned has nothing.
//   - The ledger says of each id what its record says.
//   - Each entry that is on the server no more is in the database; none is there twice.
//
// Each [Rule] is one thing that the library does for this, and can be left out.
package stockmodel

// Rule is one thing that the library does.
type Rule uint8

// The rules.
const (
	Whole       Rule = iota // Whole: nothing is left out
	RecordFirst             // a request whose id has a record is answered by that
	HeldCounts              // what is held is not left
	LateTakes               // a confirmation after the end of its hold takes what is left, and no more
	Final                   // one that got nothing is final
	Forbids                 // a cancellation forbids an id of which nothing is known
	SeqGrows                // an ordinal is used once
	Keeps                   // a return names how many units are kept; without it, how many come back
	NotAfter                // the server refuses a request that comes after its caller has given up
	Enters                  // the end of a hold is an entry of the ledger
	Once                    // the database has each number once
	CommitFirst             // an entry is removed when the database has it
	ReadOnly                // what was read is removed, and no more
	Unchanged               // and only if it is still there as it was read
	Compares                // a number that the database has must have the same entry
	Openings                // the numbers of each opening are its own
	Rules                   // Rules is how many there are.
)

func (r Rule) String() string {
	return [Rules]string{"whole", "looks for a record first", "counts what is held", "sells late what is left",
		"answers a payment for good", "forbids what it cancels", "uses an ordinal once", "returns down to a number",
		"refuses what is late", "enters the end of a hold", "writes a number once", "writes, and then removes",
		"removes what it has read", "removes what has not changed", "compares what it has", "tells openings apart"}[r]
}

// State is what has become of a reservation or request.
type State uint8

// The states, as records have them.
const (
	None      State = iota // None: there is no record.
	Held                   // Held: units are held.
	Sold                   // Sold: units are sold.
	Returned               // Returned: they were sold, and came back.
	Cancelled              // Cancelled: they were held, and came back.
	Expired                // Expired: the hold ended by itself.
	Void                   // Void: it was confirmed in vain, or cancelled, after that.
	Forbidden              // Forbidden: it was cancelled, or confirmed, before there was anything.
)

// Verb is what a request asks for.
type Verb uint8

// The verbs.
const (
	Reserve Verb = iota // Reserve: to hold units.
	Claim               // Claim: to sell units at once.
	Confirm             // Confirm: to sell what is held, or some of it.
	Cancel              // Cancel: to give back what is held.
	Return              // Return: to give back what was sold, but some of it.
	Extend              // Extend: to hold what is held for longer.
)

// Outcomes of a request, as the scripts have them.
const (
	Granted   = 1 // and 2, if it was before
	SoldOut   = 3
	Ended     = 6
	UserLimit = 7
	IsPaused  = 12
	NoUnits   = 10 // its time is over
	WasReturn = 9
	WasCancel = 11
	Unknown   = -7
	Other     = -3 // the id is that of something else
)

// Record is what a stock has of one id.
type Record struct {
	Is      State
	Claims  bool // it was claimed, not reserved
	N       int32
	Ordinal int32
	Before  int32 // units that it had when it was held, or sold
}

// Kind is what an entry of the ledger tells.
type Kind uint8

// The kinds, as ledgers have them.
const (
	KindHeld Kind = iota + 1
	KindExtended
	KindExpired
	KindCancelled
	KindGrant
	KindLate
	KindReturn
	KindNothing
)

func (k Kind) String() string {
	return [...]string{"", "held", "extended", "expired", "cancelled", "grant", "late", "return", "nothing"}[k]
}

// Entry is one of the ledger.
type Entry struct {
	Kind    Kind
	Ordinal int32
	N       int32
}

// Answer is a reply. For Cancel and Return, N is how many units came back, if the request was the first to do it.
type Answer struct {
	Outcome, N, Ordinal int32
	Again               bool // it was so before
}

// Stock is the numbers of a stock.
type Stock struct {
	Limit, Sold, Held, Seq int32
	Closed                 int32 // why it sells nothing now; 0: it sells
	Room                   int32 // the most units that its claimant may get now; 0: any number
}

// NoRoom says that the claimant has as many units as it may have.
const NoRoom = -1

// Ask is a request about one id.
type Ask struct {
	Verb Verb
	N    int32 // Reserve, Claim: units; Confirm: at most so many, 0: all; Return: so many are kept
	Part bool  // fewer will do
}

func (s *Stock) left(without Rule) int32 {
	if without == HeldCounts {
		return s.Limit - s.Sold
	}
	return s.Limit - s.Sold - s.Held
}

// Expire ends a hold whose time is over.
func (s *Stock) Expire(r *Record, without Rule) (lines []Entry) {
	s.Held -= r.N
	if r.Is = Expired; without == Enters {
		return nil
	}
	return []Entry{{KindExpired, 0, r.N}}
}

// sell sells units that are neither held nor sold.
func (s *Stock) sell(r *Record, n int32, kind Kind, without Rule) []Entry {
	s.Sold += n
	if s.Seq += n; without == SeqGrows {
		s.Seq = s.Sold
	}
	r.Is, r.N, r.Ordinal = Sold, n, s.Seq-n+1
	return []Entry{{kind, r.Ordinal, n}}
}

// grants is how many units a request gets, or why it gets none.
func (s *Stock) grants(n int32, part bool, without Rule) (gets, refusal int32) {
	left := s.left(without)
	switch {
	case s.Closed != 0:
		return 0, s.Closed
	case left < n && (!part || left <= 0):
		return 0, SoldOut
	case s.Room == NoRoom, s.Room > 0 && s.Room < n && !part:
		return 0, UserLimit
	case s.Room > 0:
		n = min(n, s.Room)
	}
	return min(n, left), 0
}

// Act does what is asked for with the record of its id, if the holds whose time is over have ended.
func (s *Stock) Act(r *Record, ask Ask, without Rule) (a Answer, lines []Entry) {
	switch ask.Verb {
	case Reserve, Claim:
		if r.Is == None || without == RecordFirst && (r.Is == Held || r.Is == Sold) {
			return s.take(r, ask, without)
		}
		return again(r, ask.Verb == Claim), nil
	case Confirm:
		return s.confirm(r, ask, without)
	case Cancel:
		switch r.Is {
		case None:
			if without != Forbids {
				*r = Record{Is: Forbidden}
				return Answer{}, []Entry{{KindNothing, 0, 0}}
			}
		case Held:
			s.Held -= r.N
			r.Is = Cancelled
			return Answer{N: r.N}, []Entry{{KindCancelled, 0, r.N}}
		case Expired:
			lines = []Entry{{KindNothing, 0, r.N}}
			r.Is, r.N = Void, 0
			return Answer{}, lines
		case Cancelled:
			return Answer{N: r.N, Again: true}, nil
		case Sold, Returned:
			if r.Claims {
				return Answer{Outcome: Other}, nil
			}
		}
	case Return:
		return s.giveBack(r, ask, without)
	case Extend:
		if r.Is == Held {
			return Answer{Outcome: Granted, N: r.N}, []Entry{{KindExtended, 0, r.N}}
		}
		if r.Is == None {
			return Answer{Outcome: Unknown}, nil
		}
		return settled(r), nil
	}
	return Answer{}, nil
}

// take holds or sells units under an id of which nothing is known.
func (s *Stock) take(r *Record, ask Ask, without Rule) (Answer, []Entry) {
	n, refusal := s.grants(ask.N, ask.Part, without)
	if refusal != 0 {
		return Answer{Outcome: refusal}, nil
	}
	*r = Record{Is: Held, N: n, Before: n, Claims: ask.Verb == Claim}
	if ask.Verb == Claim {
		lines := s.sell(r, n, KindGrant, without)
		return Answer{Granted, n, r.Ordinal, false}, lines
	}
	s.Held += n
	return Answer{Granted, n, 0, false}, []Entry{{KindHeld, 0, n}}
}

// again is the answer to a request whose id has a record.
func again(r *Record, claims bool) Answer {
	switch {
	case r.Is == Forbidden:
		return Answer{Outcome: WasCancel}
	case claims != r.Claims:
		return Answer{Outcome: Other}
	case r.Is == Held || r.Is == Sold:
		return Answer{Granted, r.N, r.Ordinal, true}
	case r.Is == Returned && claims:
		return Answer{WasReturn, r.N, r.Ordinal, true} // its own second run hears what it got
	}
	return settled(r)
}

// settled is the answer to an act on what is not held any more.
func settled(r *Record) Answer {
	switch {
	case r.Is == Cancelled || r.Is == Forbidden:
		return Answer{Outcome: WasCancel}
	case r.Claims:
		return Answer{Outcome: Other}
	case r.Is == Sold:
		return Answer{Granted, r.N, r.Ordinal, true}
	case r.Is == Returned:
		return Answer{Outcome: WasReturn}
	}
	return Answer{Outcome: NoUnits}
}

// confirm sells what is held, or what is left of it after its time.
func (s *Stock) confirm(r *Record, ask Ask, without Rule) (Answer, []Entry) {
	n := r.N
	if ask.N > 0 {
		n = min(n, ask.N)
	}
	switch {
	case r.Is == None:
		*r = Record{Is: Forbidden}
		return Answer{Outcome: WasCancel}, []Entry{{KindNothing, 0, 0}}
	case r.Is == Held:
		var lines []Entry
		if s.Held -= r.N; n < r.N {
			lines = []Entry{{KindCancelled, 0, r.N - n}}
		}
		lines = append(lines, s.sell(r, n, KindGrant, without)...)
		return Answer{Granted, n, r.Ordinal, false}, lines
	case r.Is == Expired, r.Is == Void && without == Final:
		if r.Is == Void {
			n = r.Before
		}
		gets, refusal := s.grants(n, true, without)
		if without == LateTakes {
			gets, refusal = n, 0
		}
		switch {
		case refusal == 0:
			lines := s.sell(r, gets, KindLate, without)
			return Answer{Granted, gets, r.Ordinal, false}, lines
		case refusal == SoldOut || refusal == UserLimit || refusal == Ended:
			lines := []Entry{{KindNothing, 0, r.N}}
			r.Is, r.N = Void, 0
			return Answer{Outcome: NoUnits}, lines
		}
		return Answer{Outcome: refusal}, nil
	}
	return settled(r), nil
}

// giveBack returns what was sold, but for what is kept.
func (s *Stock) giveBack(r *Record, ask Ask, without Rule) (Answer, []Entry) {
	if r.Is != Sold {
		return Answer{N: r.N, Again: true}, nil
	}
	keep := ask.N
	if without == Keeps {
		keep = max(r.N-(r.Before-ask.N), 0)
	}
	if r.N <= keep {
		return Answer{N: r.Before - keep, Again: true}, nil
	}
	back := r.N - keep
	s.Sold -= back
	if r.N = keep; keep == 0 {
		r.Is, r.N = Returned, back
	}
	return Answer{N: back}, []Entry{{KindReturn, r.Ordinal + keep, back}}
}
