package judges

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Passed is units that passed at some instant between two.
type Passed struct {
	From, To time.Duration
	N        int64
}

// Rate is a limit: Burst units at once, and from then on N in each Per.
type Rate struct {
	N     int64
	Per   time.Duration
	Burst int64
}

// Exceeded returns a sentence about a stretch of time in which more units passed than the rate lets, or "". A unit
// counts where it passed within the stretch for sure. The limiter's clock may run faster than the tests', by that part.
func (r Rate) Exceeded(passed []Passed, faster float64) string {
	passed = slices.SortedStableFunc(slices.Values(passed), func(a, b Passed) int { return cmp.Compare(a.To, b.To) })
	for _, first := range passed {
		units := int64(0)
		for _, p := range passed {
			if p.From < first.From {
				continue
			}
			units += p.N
			span := p.To - first.From
			most := r.Burst + int64(float64(span)*(1+faster)*float64(r.N)/float64(r.Per)) + 1
			if units > most {
				return fmt.Sprintf("%d passed within %v from %v on, at most %d may", units, span, first.From, most)
			}
		}
	}
	return ""
}
