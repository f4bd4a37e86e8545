package ratelimit

import (
	"cmp"
	"fmt"
	"math/bits"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// Algorithm is how a limiter counts.
type Algorithm string

const (
	// GCRA, the generic cell rate algorithm, lets Rate units pass in every Per, evenly, and up to Burst at once after a
	// pause. It is the only one with Wait and Reserve, because it alone knows turns.
	GCRA Algorithm = "GCRA"
	// SlidingWindow lets at most Rate units pass in any Per, however they are spread. Units are counted in slices of a
	// 32nd of Per, so each may count for up to a 32nd longer.
	SlidingWindow Algorithm = "SlidingWindow"
	// FixedWindow lets at most Rate units pass in each Unit of the calendar, and starts again with the next. So up to
	// twice as many may pass around its end.
	FixedWindow Algorithm = "FixedWindow"
)

// Unit is a unit of the calendar, with which a FixedWindow ends.
type Unit string

const (
	// Minute is a minute of the clock on the wall, as are the others.
	Minute Unit = "Minute"
	// Hour that comes twice, because clocks are put back, is one.
	Hour Unit = "Hour"
	// Day has 23 hours where clocks are put forward, and 25 where they are put back.
	Day Unit = "Day"
	// Week begins on Monday.
	Week Unit = "Week"
	// Month of the calendar.
	Month Unit = "Month"
	// Year of the calendar.
	Year Unit = "Year"
)

// letter is how scripts name the unit; "" if it is none.
func (u Unit) letter() string {
	switch u {
	case Minute:
		return "m"
	case Hour:
		return "h"
	case Day:
		return "d"
	case Week:
		return "w"
	case Month:
		return "M"
	case Year:
		return "Y"
	}
	return ""
}

// unitOf is the unit that scripts name by a letter; "" if there is none.
func unitOf(letter string) Unit {
	for _, u := range []Unit{Minute, Hour, Day, Week, Month, Year} {
		if u.letter() == letter {
			return u
		}
	}
	return ""
}

// maxPer is the longest period of a rate limiter.
const maxPer = 366 * 24 * time.Hour

// terms are what a limit lets pass, checked, with the defaults filled in. They do not change.
type terms struct {
	algorithm Algorithm
	rate      int64 // units: of a window its limit
	per       int64 // us
	burst     int64 // the most units that can pass at once
	unit      Unit
	zone      *time.Location
	numbers   [3]string // of the script
	table     atomic.Pointer[zoneTable]
}

// checkAlgorithm refuses a Rate that is out of bounds, and what does not go with the algorithm.
func (o *LimiterOptions) checkAlgorithm() error {
	switch {
	case o.Algorithm != GCRA && o.Algorithm != SlidingWindow && o.Algorithm != FixedWindow:
		return errs.InvalidWord("Algorithm", o.Algorithm, "GCRA, SlidingWindow or FixedWindow")
	case o.Rate < 1 || o.Rate > 1_000_000_000:
		return errs.InvalidOption("Rate", o.Rate, "between 1 and 1000000000")
	case o.Algorithm != GCRA && o.Burst != 0:
		return errs.InvalidOption("Burst", o.Burst,
			fmt.Sprintf("0 with %v, where all of Rate may pass at once", o.Algorithm))
	case o.Algorithm == FixedWindow && o.Unit.letter() == "":
		return errs.InvalidWord("Unit", o.Unit, "Minute, Hour, Day, Week, Month or Year with FixedWindow")
	case o.Algorithm == FixedWindow && o.Per != 0:
		return errs.InvalidOption("Per", o.Per, "0 with FixedWindow, which has a Unit")
	case o.Algorithm != FixedWindow && o.Unit != "":
		return errs.InvalidWord("Unit", o.Unit, fmt.Sprintf("left out with %v, which has a Per", o.Algorithm))
	case o.Algorithm != FixedWindow && o.Zone != nil:
		return errs.InvalidOption("Zone", o.Zone, fmt.Sprintf("nil with %v", o.Algorithm))
	}
	return nil
}

// newTerms checks what o lets pass.
func newTerms(o *LimiterOptions) (*terms, error) {
	o.Algorithm = cmp.Or(o.Algorithm, GCRA)
	if err := o.checkAlgorithm(); err != nil {
		return nil, err
	}
	t := &terms{algorithm: o.Algorithm, rate: o.Rate, unit: o.Unit, zone: o.Zone, burst: o.Burst}
	if o.Algorithm == FixedWindow {
		if t.burst = t.rate; t.zone == nil {
			t.zone = time.UTC
		}
		t.numbers = [3]string{strconv.FormatInt(t.rate, 10), t.unit.letter()}
		return t, nil
	}
	per := o.Per
	if per == 0 {
		per = time.Second
	}
	t.per = per.Microseconds()
	if per < time.Microsecond || per > maxPer || per%time.Microsecond != 0 {
		return nil, errs.InvalidOption("Per", o.Per,
			fmt.Sprintf("whole microseconds between 1µs and %v, or 0 for a second", maxPer))
	}
	if t.burst == 0 {
		t.burst = t.rate
	}
	if t.burst < 1 {
		return nil, errs.InvalidOption("Burst", o.Burst, "at least 1, or 0 for Rate")
	}
	if high, low := bits.Mul64(uint64(t.burst), uint64(t.per)); o.Algorithm == GCRA && (high > 0 || low > 1<<52) {
		if o.Burst == 0 {
			return nil, errs.InvalidOption("Rate", o.Rate,
				fmt.Sprintf("at most %d with Per %v and no Burst", int64(1<<52)/t.per, per))
		}
		return nil, errs.InvalidOption("Burst", o.Burst, fmt.Sprintf("at most %d with Per %v", int64(1<<52)/t.per, per))
	}
	t.numbers = [3]string{strconv.FormatInt(t.rate, 10), strconv.FormatInt(t.per, 10), ""}
	if t.algorithm == GCRA {
		t.numbers[2] = strconv.FormatInt(t.burst, 10)
	}
	return t, nil
}

// same reports whether two are the same terms.
func (t *terms) same(o *terms) bool {
	return t == o || t.algorithm == o.algorithm && t.rate == o.rate && t.per == o.per && t.burst == o.burst &&
		t.unit == o.unit && (t.zone == o.zone || t.zone.String() == o.zone.String())
}

// share is t at a part of its rate, for one process of several.
func (t *terms) share(part float64) *terms {
	s := &terms{algorithm: t.algorithm, rate: t.rate, per: t.per, unit: t.unit, zone: t.zone,
		burst: max(1, int64(float64(t.burst)*part))}
	switch t.algorithm {
	case GCRA: // a longer period, because a part of a low rate may be less than a unit
		s.per = min(int64(float64(t.per)/part), 1<<52/s.burst)
	default:
		s.rate = s.burst
	}
	return s
}

// args appends the arguments of a limit: see limit.lua.
func (t *terms) args(to []string) []string {
	switch t.algorithm {
	case GCRA:
		return append(to, "g", t.numbers[0], t.numbers[1], t.numbers[2])
	case SlidingWindow:
		return append(to, "s", t.numbers[0], t.numbers[1], "")
	}
	return append(to, "f", t.numbers[0], t.numbers[1], t.zoneTable())
}

// zoneTable is the part of a time zone's table that matters: see limit.lua.
type zoneTable struct {
	text  string
	until time.Time // of this process: then it is made anew
}

// zoneTable returns the last change of the zone's offset and the next, with the offsets before, between and after.
// Which part of the table is sent depends on this process's clock; where in it the present is, the server's clock says.
// So clocks that differ by less than the time between two changes agree.
func (t *terms) zoneTable() string {
	now := time.Now()
	if known := t.table.Load(); known != nil && now.Before(known.until) {
		return known.text
	}
	start, end := now.In(t.zone).ZoneBounds()
	_, offset := now.In(t.zone).Zone()
	before, after := offset, offset
	var last, next int64 = 0, 1 << 40 // s: none
	until := now.Add(24 * time.Hour)
	if !start.IsZero() && start.Unix() > 0 {
		last = start.Unix()
		_, before = start.Add(-time.Second).Zone()
	}
	if !end.IsZero() {
		next = end.Unix()
		_, after = end.In(t.zone).Zone()
		if end.Before(until) {
			until = end
		}
	}
	text := fmt.Sprintf("%d,%d,%d,%d,%d", before, last, offset, next, after)
	t.table.Store(&zoneTable{text, until})
	return text
}

// ends is when the unit of the calendar ends that lasts at now, and its number, as limit.lua has them.
func (t *terms) ends(now time.Time) (number int64, end time.Time) {
	now = now.In(t.zone)
	y, m, d := now.Date()
	_, offset := now.Zone()
	here := now.Unix() + int64(offset)
	day := floorDiv(here, 86400)
	local := func(y int, m time.Month, d int) time.Time { return firstOf(y, m, d, t.zone) }
	switch t.unit {
	case Minute:
		return floorDiv(here, 60),
			now.Truncate(0).Add(time.Duration(60-((here%60)+60)%60)*time.Second - time.Duration(now.Nanosecond()))
	case Hour:
		end := now.Add(time.Duration(3600-((here%3600)+3600)%3600)*time.Second - time.Duration(now.Nanosecond()))
		return floorDiv(here, 3600), end
	case Day:
		return day, local(y, m, d+1)
	case Week:
		week := floorDiv(day+3, 7)
		return week, local(1970, 1, 1+int(week*7+4))
	case Month:
		return int64(y)*12 + int64(m) - 1, local(y, m+1, 1)
	}
	return int64(y), local(y+1, 1, 1)
}

// firstOf is the first instant of a day in a zone. Where clocks are put forward at midnight that is the instant of the
// change.
func firstOf(y int, m time.Month, d int, zone *time.Location) time.Time {
	t := time.Date(y, m, d, 0, 0, 0, 0, zone)
	switch start, end := t.ZoneBounds(); {
	case t.Hour() == 0 && t.Minute() == 0:
		return t
	case t.Hour() >= 12: // of the day before
		return end
	default:
		return start
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// ceilDiv is a/b rounded up, for b > 0.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a > q*b {
		q++
	}
	return q
}
