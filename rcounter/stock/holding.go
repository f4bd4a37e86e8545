package stock

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// Holding is what the stock knows of a request, a reservation, or a unit of Claim.
type Holding struct {
	// Outcome says what it has come to. Replayed: it has units, held or sold. Expired, Cancelled, Returned: it has none
	// any more. The zero Outcome: the stock knows nothing of it.
	Outcome Outcome
	// Request is the id of the request or reservation, or of ClaimAny's Grant; empty for Claim.
	Request string
	// Claimant is who asked for it. Empty for ClaimAny, and if a reservation was cancelled before it was made.
	Claimant string
	// Ordinal to Ordinal + N - 1 are the units that it has, or had at its end. Ordinal is 0 if they were only held. N is 0
	// if it is Expired for good: confirmed in vain, or cancelled, after its time was over.
	Ordinal, N int64
	// Asked is how many units it asked for; 0 if that is not known.
	Asked int64
	// Until is the instant, on this machine's monotonic clock, at which units that are held go back; zero for all others.
	// It is never later than the server's.
	Until time.Time
	// Epoch is the opening that answered.
	Epoch int64
}

// Won reports whether units are held or sold.
func (h Holding) Won() bool { return h.Outcome == Replayed }

// Holders yields everything that has units now, held or sold: each unit of Claim, each request and reservation, and
// each row of units of ClaimAny that was not returned. With claimants it yields only what those have. It reads all
// records in any case, 1000 in a round trip, so it is for reports and repairs and not for every page view.
//
// It is not a snapshot. What has units from its beginning to its end is yielded at least once, and in rare cases twice;
// what gets or returns units meanwhile may be yielded or not. An error ends it: ErrNotOpen, ErrCorrupt and those of
// Claim.
func (s *Stock) Holders(ctx context.Context, claimants ...string) iter.Seq2[Holding, error] {
	return func(yield func(Holding, error) bool) {
		err := s.usable()
		for _, c := range claimants {
			err = cmp.Or(err, keyname.Required("claimant", c))
		}
		if err == nil {
			err = s.holders(ctx, claimants, func(h Holding) bool { return yield(h, nil) })
		}
		if err != nil && !errors.Is(err, errEnough) {
			yield(Holding{}, edged(err))
		}
	}
}

// errEnough ends a scan.
var errEnough = errors.New("enough")

// holders tells of all that has units, or of what claimants have, until each is false: then the error is errEnough.
func (s *Stock) holders(ctx context.Context, claimants []string, each func(Holding) bool) error {
	f, err := s.find(ctx, "")
	if err != nil {
		return err
	}
	tell := func(h Holding) error {
		if h.N == 0 || claimants != nil && !slices.Contains(claimants, h.Claimant) || each(h) {
			return nil
		}
		return errEnough
	}
	err = s.c.scan(ctx, s.keys[1], func(user, text string) error {
		head, _, _ := strings.Cut(text, ";")
		switch ordinal := number(head); {
		case ordinal < 0:
			return errs.ErrCorrupt
		case ordinal > 0:
			return tell(Holding{Outcome: Replayed, Claimant: user, Ordinal: ordinal, N: 1, Asked: 1, Epoch: f.epoch})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.c.scan(ctx, s.keys[2], func(field, text string) error {
		switch kind, id, _ := strings.Cut(field, ":"); kind {
		case "r":
			h, ok := f.holding(id, text)
			if !ok {
				return errs.ErrCorrupt
			}
			if h.Outcome == Replayed {
				return tell(h)
			}
		case "a":
			return f.eachOfAny(id, text, tell)
		}
		return nil
	})
}

// recordDoubtful stands for the record of an id that may be lost: the stock is suspended.
const recordDoubtful = "-"

// found is what find.lua replies of one id.
type found struct {
	record    string
	epoch, at int64 // at is the server's ms
	sent      time.Time
}

// eachOfAny calls tell with each row of units that a ClaimAny has, until there is an error.
func (f found) eachOfAny(id, text string, tell func(Holding) error) error {
	a, ok := parseAny(text)
	if !ok {
		return errs.ErrCorrupt
	}
	for _, u := range a.units().minus(a.returned) {
		if err := tell(Holding{Outcome: Replayed, Request: id, Ordinal: u.first, N: u.n(), Epoch: f.epoch}); err != nil {
			return err
		}
	}
	return nil
}

var findScript = script.Load("find", files, "find").Reads()

// find is the record with that id, read in a call that it may share with others.
func (s *Stock) find(ctx context.Context, id string) (found, error) {
	return s.processState().looks.Do(ctx, id)
}

// findAll runs find.lua for at most 128 ids.
func (s *Stock) findAll(ctx context.Context, ids []string) ([]found, error) {
	sent := time.Now()
	m, err := s.c.calls.Do(ctx, s.call(findScript, ids...))
	if err != nil {
		return nil, err
	}
	parts, err := m.ToArray()
	if err != nil || len(parts) < 3 {
		return nil, malformed("find", s.keys[0])
	}
	var v [3]int64
	for i := range v {
		if v[i], err = parts[i].AsInt64(); err != nil {
			return nil, malformed("find", s.keys[0])
		}
	}
	if err := s.verdict(v[:]); err != nil {
		return nil, err
	}
	all, records := make([]found, len(ids)), parts[3:]
	if len(records) != len(ids) {
		return nil, malformed("find", s.keys[0])
	}
	for i := range all {
		all[i] = found{epoch: v[1], at: v[2], sent: sent}
		if all[i].record, err = records[i].ToString(); err != nil {
			return nil, malformed("find", s.keys[0])
		}
	}
	return all, nil
}

// holding is what the record of a request or reservation says at that time; false if it is none.
func (f found) holding(id, text string) (Holding, bool) {
	q, ok := parseRecord(text)
	if !ok {
		return Holding{}, false
	}
	h := Holding{Request: id, Claimant: q.claimant, Ordinal: q.ordinal, N: q.n, Asked: q.asked, Epoch: f.epoch}
	switch q.state {
	case "G":
		h.Outcome = Replayed
	case "H":
		if h.Outcome = Expired; f.at <= q.deadline {
			h.Outcome, h.Until = Replayed, f.sent.Add(script.Duration(q.deadline-f.at))
		}
	case "R":
		h.Outcome = Returned
	case "C":
		if h.Outcome = Cancelled; q.n == 0 && q.asked > 0 { // its time was over before
			h.Outcome = Expired
		}
	case "E":
		h.Outcome = Expired
	default:
		return Holding{}, false
	}
	return h, true
}
