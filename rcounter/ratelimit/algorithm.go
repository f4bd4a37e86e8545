package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
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

// units are the units of the calendar: as scripts name them, and how long they are as a rule.
var units = map[Unit]struct {
	letter  string
	nominal time.Duration
}{
	Minute: {"m", time.Minute}, Hour: {"h", time.Hour}, Day: {"d", 24 * time.Hour}, Week: {"w", 7 * 24 * time.Hour},
	Month: {"M", 30 * 24 * time.Hour}, Year: {"Y", 365 * 24 * time.Hour},
}

// maxPer is the longest period of a rate limiter.
const maxPer = 366 * 24 * time.Hour

// terms are what a limit lets pass, checked, with the defaults filled in. They do not change.
type terms struct {
	algorithm Algorithm
	rate      int64 // units: of a window its limit
	per       int64 // us; of a FixedWindow the nominal length of its unit
	burst     int64 // the most units that can pass at once
	unit      Unit
	zone      *time.Location
	words     [4]string // as scripts read them: algorithm, rate, per or unit, burst or zone
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
	case o.Algorithm == FixedWindow && units[o.Unit].letter == "":
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
	t := &terms{algorithm: o.Algorithm, rate: o.Rate, unit: o.Unit, zone: o.Zone, burst: cmp.Or(o.Burst, o.Rate)}
	rate := strconv.FormatInt(t.rate, 10)
	if o.Algorithm == FixedWindow {
		if t.zone == nil {
			t.zone = time.UTC
		}
		t.per = units[t.unit].nominal.Microseconds()
		t.words = [4]string{"f", rate, units[t.unit].letter, t.zone.String()}
		return t, nil
	}
	per := cmp.Or(o.Per, time.Second)
	t.per = per.Microseconds()
	if per < time.Microsecond || per > maxPer || per%time.Microsecond != 0 {
		return nil, errs.InvalidOption("Per", o.Per,
			fmt.Sprintf("whole microseconds between 1µs and %v, or 0 for a second", maxPer))
	}
	if t.words = [4]string{"s", rate, strconv.FormatInt(t.per, 10)}; o.Algorithm == SlidingWindow {
		return t, nil
	}
	t.words[0], t.words[3] = "g", strconv.FormatInt(t.burst, 10)
	if t.burst < 1 {
		return nil, errs.InvalidOption("Burst", o.Burst, "at least 1, or 0 for Rate")
	}
	if high, low := bits.Mul64(uint64(t.burst), uint64(t.per)); high > 0 || low > 1<<52 {
		return nil, errs.InvalidOption("Burst", t.burst, fmt.Sprintf("at most %d with Per %v", int64(1<<52)/t.per, per))
	}
	return t, nil
}

// readTerms reads words that are joined by commas.
func readTerms(text string) (*terms, error) {
	words := strings.Split(text, ",")
	if len(words) != 4 {
		return nil, errs.ErrWrongType
	}
	var err error
	number := func(word string) int64 {
		n, bad := strconv.ParseInt(word, 10, 64)
		err = errors.Join(err, bad)
		return n
	}
	o := LimiterOptions{Rate: number(words[1])}
	switch words[0] {
	case "g":
		o.Per, o.Burst = script.Micros(number(words[2])), number(words[3])
	case "s":
		o.Algorithm, o.Per = SlidingWindow, script.Micros(number(words[2]))
	case "f":
		zone, bad := loadZone(words[3])
		o.Algorithm, o.Zone, err = FixedWindow, zone, errors.Join(err, bad)
		for unit, is := range units {
			if is.letter == words[2] {
				o.Unit = unit
			}
		}
	default:
		return nil, errs.ErrWrongType
	}
	if err != nil {
		return nil, err
	}
	return newTerms(&o)
}

// loadZone returns the time zone of that name, which must mean the same to all processes.
func loadZone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err == nil && zone == time.Local {
		err = errors.New("it differs from process to process")
	}
	return zone, err
}

// window is the time in which all of the burst is there again after it was used up; of a FixedWindow the nominal length
// of its unit.
func (t *terms) window() time.Duration {
	if t.algorithm == GCRA {
		return script.Micros(ceilDiv(t.burst*t.per, t.rate))
	}
	return script.Micros(t.per)
}

// same reports whether two are the same terms.
func (t *terms) same(o *terms) bool { return t == o || t.words == o.words }

// args appends the arguments of a limit: see limit.lua.
func (t *terms) args(to []string) []string {
	if to = append(to, t.words[:]...); t.algorithm == FixedWindow {
		to[len(to)-1] = t.zoneTable()
	}
	return to
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
	until, ahead := now.Add(24*time.Hour), now.AddDate(0, 0, 40)
	// Minutes count in UTC, because zones differ by whole minutes: a minute that comes twice is two units. If it were one
	// unit, as an hour that comes twice is, it would last for an hour.
	switch now = now.In(t.zone); t.unit {
	case Minute:
		now = now.UTC()
	case Year:
		ahead = now.AddDate(0, 0, 400)
	}
	var table []int64
	if start, _ := now.ZoneBounds(); !start.IsZero() {
		table = append(table, offsetAt(start.Add(-time.Second)), start.Unix())
	}
	table = append(table, offsetAt(now))
	for change, next := nextChange(now), true; !change.IsZero() && (next || change.Before(ahead)); next = false {
		if change.Before(until) {
			until = change
		}
		table = append(table, change.Unix(), offsetAt(change))
		change = nextChange(change)
	}
	return &zoneTable{strings.Trim(strings.ReplaceAll(fmt.Sprint(table), " ", ","), "[]"), until}
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

// ceilDiv is a/b rounded up, for b > 0.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a > q*b {
		q++
	}
	return q
}
