package ratelimit_test

import (
	"archive/zip"
	"fmt"
	"go/build"
	"math/rand/v2"

	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of the tests, wherever they run

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// In no period do more units pass than the limit, and a unit counts for no longer than a period and a slice.
func TestSlidingWindow_AnyPeriod_LetsItsRatePassAtMost(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redistest.Embedded(t)
	c := on(t, srv.Client(t), patient)
	seed := redistest.Seeds(t, 1)[0]
	rnd := rand.New(rand.NewPCG(seed, 1))
	at := time.Now().Truncate(time.Millisecond)
	for round := range redistest.Sized(6, 6, 400) {
		o := ratelimit.LimiterOptions{Rate: 1 + rnd.Int64N(12),
			Per: time.Duration(32+rnd.Int64N(3_000_000)) * time.Microsecond, Algorithm: ratelimit.SlidingWindow}
		l := c.Limiter("l"+strconv.Itoa(round), o)
		m := l.NewModel()
		per := o.Per.Microseconds()
		slice := (per + 31) / 32
		var passed []struct{ at, n int64 }
		for range 80 {
			at = at.Add(time.Duration(rnd.Int64N(2*per/o.Rate+2)) * time.Microsecond)
			srv.Embedded.SetTime(at)
			now := at.UnixMicro()
			n := 1 + rnd.Int64N(o.Rate)
			want := m.Take(now, n, false)
			got := redistest.NoError(l.Allow(ctx, "", n))(t)
			require.Equal(t, want, got, "seed %d: %+v", seed, o)
			sure, mayBe := int64(0), int64(0)
			for _, p := range passed {
				if now-p.at < per {
					sure += p.n
				}
				if now-p.at < per+slice {
					mayBe += p.n
				}
			}
			if got.Allowed {
				require.LessOrEqual(t, sure+n, o.Rate, "seed %d: %+v", seed, o)
				passed = append(passed, struct{ at, n int64 }{now, n})
				continue
			}
			require.Greater(t, mayBe+n, o.Rate, "seed %d: refused without need: %+v", seed, o)
			if rnd.IntN(2) == 0 {
				at = at.Add(got.RetryAfter)
				srv.Embedded.SetTime(at)
				a := redistest.NoError(l.Allow(ctx, "", n))(t)
				require.True(t, a.Allowed, "seed %d: it was told to come now: %+v", seed, o)
				m.Take(at.UnixMicro(), n, false)
				passed = append(passed, struct{ at, n int64 }{at.UnixMicro(), n})
			}
		}
	}
	for _, k := range keys(t, srv.Client(t)) {
		require.Positive(t, number(t, srv.Client(t), "PTTL", k))
	}
}

// calendar is package time's, as a slow and obvious model: it looks at all instants at which a unit can begin. Those
// are the quarters of an hour, because all offsets since 1980 are made of them, and the changes of the clocks.
type calendar struct {
	zone    *time.Location
	changes []time.Time // since 1980
}

func calendarOf(zone *time.Location) calendar {
	c, last := calendar{zone: zone}, time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	for at := time.Date(1980, 1, 1, 0, 0, 0, 0, zone); ; {
		_, end := at.ZoneBounds()
		if at = end; end.IsZero() || end.After(last) {
			return c
		}
		c.changes = append(c.changes, end)
	}
}

// name is the local name of the unit that lasts at an instant. Later units have greater names.
func (c *calendar) name(at time.Time, unit ratelimit.Unit) string {
	switch at = at.In(c.zone); unit {
	case ratelimit.Minute: // one that comes twice is two
		return at.UTC().Format("2006-01-02 15:04")
	case ratelimit.Week:
		y, w := at.ISOWeek()
		return fmt.Sprintf("%d-%02d", y, w)
	}
	return at.Format(map[ratelimit.Unit]string{ratelimit.Hour: "2006-01-02 15", ratelimit.Day: "2006-01-02",
		ratelimit.Month: "2006-01", ratelimit.Year: "2006"}[unit])
}

// next is the first instant after one at which a unit can begin.
func (c *calendar) next(at time.Time, step time.Duration) time.Time {
	n := at.Truncate(step).Add(step)
	for _, change := range c.changes {
		if change.After(at) && change.Before(n) {
			n = change
		}
	}
	return n
}

// end is when the unit ends that lasts at an instant. A unit whose name comes twice is one, and so a unit lasts until a
// later one begins.
func (c *calendar) end(at time.Time, unit ratelimit.Unit) time.Time {
	step := 15 * time.Minute
	if unit == ratelimit.Minute {
		step = time.Minute
	}
	name := c.name(at, unit)
	for _, change := range c.changes {
		// A greater name may have come before the clocks were put back.
		if !change.After(at) && at.Sub(change) < 26*time.Hour {
			name = max(name, c.name(change.Add(-time.Second), unit))
		}
	}
	here := at.In(c.zone)
	switch unit { // no zone is further from UTC, and what lies before is skipped
	case ratelimit.Month:
		at = later(at, time.Date(here.Year(), here.Month()+1, -2, 0, 0, 0, 0, time.UTC))
	case ratelimit.Year:
		at = later(at, time.Date(here.Year()+1, 1, -2, 0, 0, 0, 0, time.UTC))
	case ratelimit.Week:
		at = later(at, at.AddDate(0, 0, 5-(int(here.Weekday())+6)%7))
	}
	for at = c.next(at, step); c.name(at, unit) <= name; at = c.next(at, step) {
	}
	return at
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// zoneNames are those of all zones that Go knows.
func zoneNames(t *testing.T) (names []string) {
	t.Helper()
	r, err := zip.OpenReader(filepath.Join(build.Default.GOROOT, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Skip("no list of time zones: ", err)
	}
	defer r.Close()
	for _, f := range r.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	return names
}

// Units of the calendar end on the server as package time says, in all zones, around each change of
// the clocks since 1980 and at the beginning of years, also if the process's clock differs from the server's.
func TestCalendar_EveryZone_EndsAsPackageTimeSays(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	wire := srv.Client(t)
	calls := script.NewRunner(wire, time.Minute)
	ends := ratelimit.CalendarScript()
	c := on(t, wire, patient)
	units := []ratelimit.Unit{ratelimit.Minute, ratelimit.Hour, ratelimit.Day, ratelimit.Week, ratelimit.Month,
		ratelimit.Year}
	seed := redistest.Seeds(t, 1)[0]
	rnd := rand.New(rand.NewPCG(seed, 1))
	names := zoneNames(t)
	cases, zones, changes := 0, 0, 0
	for _, i := range rnd.Perm(len(names))[:redistest.Sized(5, 50, len(names))] {
		zone := redistest.NoError(time.LoadLocation(names[i]))(t)
		zones++
		model := calendarOf(zone)
		var instants []time.Time
		for range redistest.Sized(10, 20, 20) {
			year, day := 1981+rnd.IntN(58), 1+rnd.IntN(10)
			instants = append(instants, time.Date(year, 1, day, rnd.IntN(24), 0, rnd.IntN(3600), 0, zone))
			if len(model.changes) > 0 {
				changes++
				around := model.changes[rnd.IntN(len(model.changes))]
				instants = append(instants, around.Add(-time.Second), around, around.Add(time.Duration(rnd.IntN(180))*time.Minute),
					around.Add(time.Duration(rnd.Int64N(60*3600))*time.Second-30*time.Hour))
			}
		}
		var args []string
		var want []time.Time
		var what []string
		for _, at := range instants {
			for _, unit := range units {
				l := c.Limiter("l",
					ratelimit.LimiterOptions{Rate: 1, Algorithm: ratelimit.FixedWindow, Unit: unit, Zone: zone})
				table := l.ZoneTableAt(at.Add(time.Duration(rnd.IntN(7)-3) * 4 * time.Hour))
				args = append(args, ratelimit.Letter(unit), table, strconv.FormatInt(at.Unix(), 10))
				want = append(want, model.end(at, unit))
				what = append(what, fmt.Sprintf("%v of %v in %v (%v)", unit, at.In(zone), zone, table))
			}
		}
		m := redistest.NoError(calls.Do(ctx, script.Call{Script: ends, Keys: []string{"none"}, Args: args}))(t)
		got := redistest.NoError(m.AsIntSlice())(t)
		for i := range want {
			if cases++; !time.Unix(got[i], 0).Equal(want[i]) {
				t.Errorf("%s: %v, want %v (seed %d)", what[i], time.Unix(got[i], 0).In(zone), want[i].In(zone), seed)
			}
		}
	}
	t.Logf("%d units of %d zones, %d of them around a change of the clocks", cases, zones, changes*4*len(units))
}

// All of the limit may pass at the end of a window, and again with the next; the server's time counts, not the
// process's.
func TestFixedWindow_NextUnit_StartsAgain(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	c := on(t, srv.Client(t), patient)
	zone := time.FixedZone("east", 3600)
	l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 3, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day,
		Zone: zone})
	day := time.Date(2031, 5, 1, 23, 59, 59, 0, zone)
	srv.Embedded.SetTime(day)
	for range 3 {
		a := redistest.NoError(l.Allow(ctx, "k", 1))(t)
		require.True(t, a.Allowed)
	}
	a := redistest.NoError(l.Allow(ctx, "k", 1))(t)
	require.False(t, a.Allowed)
	require.Equal(t, time.Second, a.RetryAfter)
	require.Equal(t, time.Second, a.ResetAfter)
	srv.Embedded.SetTime(day.Add(time.Second))
	a = redistest.NoError(l.Allow(ctx, "k", 3))(t)
	require.True(t, a.Allowed)
	srv.Embedded.SetTime(day) // set back: the window that has begun goes on
	a = redistest.NoError(l.Allow(ctx, "k", 1))(t)
	require.False(t, a.Allowed)
	require.Equal(t, 24*time.Hour+time.Second, a.RetryAfter, "until the end of the window that goes on")
	srv.Embedded.SetTime(day.Add(49 * time.Hour))
	require.Empty(t, keys(t, srv.Client(t)))
}

// The clocks change more than once before the unit ends. A refusal writes nothing, so the key has to last until then.
func TestFixedWindow_SeveralChangesAhead_LastsUntilItsEnd(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	wire := srv.Client(t)
	c := on(t, wire, patient)
	for _, name := range []string{"America/New_York", "Europe/Berlin", "Antarctica/Troll", "Australia/Lord_Howe",
		"Africa/Casablanca"} {
		zone := redistest.NoError(time.LoadLocation(name))(t)
		year := time.Now().In(zone).Year() + 1
		now := time.Date(year-1, 1, 5, 12, 0, 0, 0, zone)
		srv.Embedded.SetTime(now)
		l := c.Limiter("l"+name,
			ratelimit.LimiterOptions{Rate: 1, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Year, Zone: zone})
		l.SetZoneTableAt(now)
		left := time.Date(year, 1, 1, 0, 0, 0, 0, zone).Sub(now)
		for _, allowed := range []bool{true, false} {
			a := redistest.NoError(l.Allow(ctx, "", 1))(t)
			require.Equal(t, allowed, a.Allowed)
			require.Equal(t, left, a.ResetAfter, name)
			require.True(t, allowed || a.RetryAfter == left, name)
		}
		require.GreaterOrEqual(t, srv.Embedded.TTL(l.Key("")), left, name)
	}
}

// A limit of another algorithm starts anew under the same name.
func TestLimiter_OtherAlgorithm_StartsAnew(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		all := []ratelimit.LimiterOptions{
			{Rate: 2, Per: time.Hour},
			{Rate: 2, Per: time.Hour, Algorithm: ratelimit.SlidingWindow},
			{Rate: 2, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Month},
			{Rate: 2, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Year},
		}
		for i := range 12 {
			l := c.Limiter("l", all[i*5%4])
			a := redistest.NoError(l.Allow(ctx, "k", 2))(t)
			require.True(t, a.Allowed)
			a = redistest.NoError(l.Allow(ctx, "k", 1))(t)
			require.False(t, a.Allowed)
			if i%5 == 0 { // also from a line of reservations
				r := redistest.NoError(c.Limiter("l", all[0]).Reserve(ctx, "k", 2))(t)
				require.NotNil(t, r)
				r = redistest.NoError(c.Limiter("l", all[0]).Reserve(ctx, "k", 2))(t)
				require.Positive(t, r.Delay())
			}
		}
	})
}
