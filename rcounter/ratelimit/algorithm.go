package ratelimit

import (
	"cmp"
	"fmt"
	"math/bits"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
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
	// Minute of the clock. One that comes twice, because clocks are put back, is two.
	Minute Unit = "Minute"
	// Hour of the clock on the wall, as are the others. One that comes twice, because clocks are put back, is one.
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
	whole     int64 // of a share: the burst of which it is a part; 0: of none
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

// window is the time in which all of the burst is there again after it was used up; of a FixedWindow the nominal length
// of its unit.
func (t *terms) window() time.Duration {
	switch t.algorithm {
	case GCRA:
		return script.Micros(ceilDiv(t.burst*t.per, t.rate))
	case SlidingWindow:
		return script.Micros(t.per)
	}
	day := 24 * time.Hour
	return map[Unit]time.Duration{Minute: time.Minute, Hour: time.Hour, Day: day, Week: 7 * day,
		Month: 30 * day, Year: 365 * day}[t.unit]
}

// same reports whether two are the same terms.
func (t *terms) same(o *terms) bool {
	return t == o || t.algorithm == o.algorithm && t.rate == o.rate && t.per == o.per && t.burst == o.burst &&
		t.unit == o.unit && (t.zone == o.zone || t.zone.String() == o.zone.String())
}

// share is t at a part of its rate, for one process of several.
func (t *terms) share(part float64) *terms {
	s := &terms{algorithm: t.algorithm, rate: t.rate, per: t.per, unit: t.unit, zone: t.zone, whole: t.burst,
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

// zoneTable returns the last change of the zone's offset, the next change, and all changes before the unit's end, with
// the offsets between them. This process's clock selects the part of the table that is sent. The server's clock finds
// the present in it. So clocks that differ by less than the time between two changes agree.
func (t *terms) zoneTable() string {
	now := time.Now()
	if known := t.table.Load(); known != nil && now.Before(known.until) {
		return known.text
	}
	table := t.zoneTableAt(now)
	t.table.Store(table)
	return table.text
}

func (t *terms) zoneTableAt(now time.Time) *zoneTable {
	number := func(to []byte, n int64) []byte { return append(strconv.AppendInt(to, n, 10), ',') }
	var text []byte
	until, ahead := now.Add(24*time.Hour), now.AddDate(0, 0, 40)
	if t.unit == Year {
		ahead = now.AddDate(0, 0, 400)
	}
	now = now.In(t.calendar())
	start, _ := now.ZoneBounds()
	end := nextChange(now)
	if !start.IsZero() {
		text = number(number(text, offsetAt(start.Add(-time.Second))), start.Unix())
	}
	text = number(text, offsetAt(now))
	if !end.IsZero() && end.Before(until) {
		until = end
	}
	for next := true; !end.IsZero() && (next || end.Before(ahead)); next = false {
		text = number(number(text, end.Unix()), offsetAt(end))
		end = nextChange(end)
	}
	return &zoneTable{string(text[:len(text)-1]), until}
}

// calendar is the zone whose calendar counts. Minutes count in UTC, because zones differ by whole minutes: a minute
// that comes twice is two units. If it were one unit, as an hour that comes twice is, it would last for an hour.
func (t *terms) calendar() *time.Location {
	if t.unit == Minute {
		return time.UTC
	}
	return t.zone
}

// nextChange is when the offset of a time's zone may change next; zero: it does not. Where package time computes
// changes by a rule, each year has 365 days, and those bounds of the last day of a leap year do not lie ahead.
func nextChange(at time.Time) time.Time {
	_, end := at.ZoneBounds()
	if !end.IsZero() && !end.After(at) {
		return at.Add(24 * time.Hour)
	}
	return end
}

// offsetAt is the offset from UTC at an instant in its zone, s.
func offsetAt(at time.Time) int64 {
	_, offset := at.Zone()
	return int64(offset)
}

// ends is when the unit of the calendar ends that lasts at now, and its number: window of limit.lua.
func (t *terms) ends(now time.Time) (number int64, end time.Time) {
	now = now.In(t.calendar())
	number = t.unit.of(now.Unix() + offsetAt(now))
	start, _ := now.ZoneBounds()
	if !start.IsZero() {
		before := start.Add(-time.Second)
		number = max(number, t.unit.of(before.Unix()+offsetAt(before)))
	}
	ends := t.unit.start(number + 1)
	last := ends - offsetAt(now)
	for change := nextChange(now); !change.IsZero() && change.Unix() <= last; change = nextChange(change) {
		last = max(change.Unix(), ends-offsetAt(change)) // the clocks change first
	}
	return number, time.Unix(last, 0)
}

// of is the number of the unit in which a local time lies, s since 1970.
func (u Unit) of(here int64) int64 {
	switch u {
	case Minute:
		return floorDiv(here, 60)
	case Hour:
		return floorDiv(here, 3600)
	case Day:
		return floorDiv(here, 86400)
	case Week:
		return floorDiv(floorDiv(here, 86400)+3, 7) // 1970 began on a Thursday
	}
	y, m, _ := time.Unix(here, 0).UTC().Date()
	if u == Month {
		return int64(y)*12 + int64(m) - 1
	}
	return int64(y)
}

// start is the local time at which a unit begins.
func (u Unit) start(number int64) int64 {
	switch u {
	case Minute:
		return number * 60
	case Hour:
		return number * 3600
	case Day:
		return number * 86400
	case Week:
		return (number*7 - 3) * 86400
	case Month:
		return time.Date(0, 1+time.Month(number), 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return time.Date(int(number), 1, 1, 0, 0, 0, 0, time.UTC).Unix()
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
