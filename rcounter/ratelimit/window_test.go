package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // the zones of the tests, wherever they run

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// In no period do more units pass than the limit, and a unit counts for no longer than a period and a slice.
func TestASlidingWindowLetsAtMostItsRatePassInAnyPeriod(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redistest.Embedded(t)
	c := on(t, srv.Client(t), patient)
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	at := time.Now().Truncate(time.Millisecond)
	for round := range redistest.Sized(6, 6, 400) {
		o := ratelimit.LimiterOptions{Rate: 1 + rnd.Int64N(12),
			Per: time.Duration(32+rnd.Int64N(3_000_000)) * time.Microsecond, Algorithm: ratelimit.SlidingWindow}
		l := c.Limiter("l"+strconv.Itoa(round), o)
		m := l.NewModel()
		per := o.Per.Microseconds()
		slice := (per + 31) / 32
		var passed []passing
		for range 80 {
			at = at.Add(time.Duration(rnd.Int64N(2*per/o.Rate+2)) * time.Microsecond)
			srv.Embedded.SetTime(at)
			now := at.UnixMicro()
			n := 1 + rnd.Int64N(o.Rate)
			want := m.Take(now, n, false)
			got, err := l.Allow(ctx, "", n)
			require.NoError(t, err)
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
				passed = append(passed, passing{now, n})
				continue
			}
			require.Greater(t, mayBe+n, o.Rate, "seed %d: refused without need: %+v", seed, o)
			if rnd.IntN(2) == 0 {
				at = at.Add(got.RetryAfter)
				srv.Embedded.SetTime(at)
				a, err := l.Allow(ctx, "", n)
				require.NoError(t, err)
				require.True(t, a.Allowed, "seed %d: it was told to come now: %+v", seed, o)
				m.Take(at.UnixMicro(), n, false)
				passed = append(passed, passing{at.UnixMicro(), n})
			}
		}
	}
	for _, k := range keys(t, srv.Client(t)) {
		require.Positive(t, number(t, srv.Client(t), "PTTL", k))
	}
}

// nextUnit is when the local name of the unit changes, found by looking: every quarter of an hour begins all units but
// minutes.
func nextUnit(at time.Time, unit ratelimit.Unit, zone *time.Location) time.Time {
	name := func(at time.Time) string {
		at = at.In(zone)
		switch unit {
		case ratelimit.Minute:
			return at.Format("2006-01-02 15:04")
		case ratelimit.Hour:
			return at.Format("2006-01-02 15")
		case ratelimit.Day:
			return at.Format("2006-01-02")
		case ratelimit.Week:
			y, w := at.ISOWeek()
			return strconv.Itoa(y*100 + w)
		case ratelimit.Month:
			return at.Format("2006-01")
		}
		return at.Format("2006")
	}
	step := 15 * time.Minute
	if unit == ratelimit.Minute {
		step = time.Minute
	}
	was := name(at)
	for at = at.Truncate(step).Add(step); name(at) == was; at = at.Add(step) {
	}
	return at
}

// The server's calendar is that of package time: in UTC for a century, in other zones around the changes of the clocks.
func TestAFixedWindowEndsWithTheUnitOfTheCalendar(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redistest.Embedded(t)
	c := on(t, srv.Client(t), patient)
	rnd := rand.New(rand.NewPCG(rand.Uint64(), 1))
	units := []ratelimit.Unit{ratelimit.Minute, ratelimit.Hour, ratelimit.Day, ratelimit.Week, ratelimit.Month,
		ratelimit.Year}
	names := 0
	ends := func(t *testing.T, at time.Time, unit ratelimit.Unit, zone *time.Location) time.Time {
		srv.Embedded.SetTime(at)
		names++
		l := c.Limiter("l"+strconv.Itoa(names),
			ratelimit.LimiterOptions{Rate: 5, Algorithm: ratelimit.FixedWindow, Unit: unit, Zone: zone})
		a, err := l.Allow(ctx, "", 1)
		require.NoError(t, err)
		require.True(t, a.Allowed)
		return at.Add(a.ResetAfter)
	}
	for range redistest.Sized(40, 40, 5000) {
		at := time.Unix(rnd.Int64N(130*365*86400), rnd.Int64N(1_000_000)*1000)
		unit := units[rnd.IntN(len(units)-1)] // a year takes long to look through
		require.Equal(t, nextUnit(at, unit, time.UTC).UTC(), ends(t, at, unit, nil).UTC(), "%v of %v", unit, at.UTC())
	}
	for _, year := range []int{1972, 1999, 2000, 2001, 2024, 2100, 2101} {
		at := time.Date(year, 2, 29, 12, 0, 0, 0, time.UTC)
		require.Equal(t, time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC), ends(t, at, ratelimit.Year, nil).UTC())
	}
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu",
		"America/St_Johns", "Asia/Beirut", "America/Havana", "Pacific/Auckland", "Africa/Cairo"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		table := c.Limiter("t",
			ratelimit.LimiterOptions{Rate: 1, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day, Zone: zone}).ZoneTable()
		fields := strings.Split(table, ",")
		around := []time.Time{time.Now().Truncate(time.Second)}
		for _, i := range []int{1, 3} {
			s, err := strconv.ParseInt(fields[i], 10, 64)
			require.NoError(t, err)
			if s > 0 && s < 1<<39 {
				around = append(around, time.Unix(s, 0))
			}
		}
		for range redistest.Sized(40, 40, 2000) {
			at := around[rnd.IntN(len(around))].Add(time.Duration(rnd.Int64N(60*3600_000_000))*time.Microsecond - 30*time.Hour)
			for _, unit := range []ratelimit.Unit{ratelimit.Day, ratelimit.Week} {
				require.Equal(t, nextUnit(at, unit, zone).UTC(), ends(t, at, unit, zone).UTC(), "%v of %v (%v)", unit, at.In(zone),
					table)
			}
		}
	}
}

// All of the limit may pass at the end of a window, and again with the next; the server's time counts, not the
// process's.
func TestAFixedWindowStartsAgainWithTheNext(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	c := on(t, srv.Client(t), patient)
	zone := time.FixedZone("east", 3600)
	l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 3, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day,
		Zone: zone})
	day := time.Date(2031, 5, 1, 23, 59, 59, 0, zone)
	srv.Embedded.SetTime(day)
	for range 3 {
		a, err := l.Allow(ctx, "k", 1)
		require.NoError(t, err)
		require.True(t, a.Allowed)
	}
	a, err := l.Allow(ctx, "k", 1)
	require.NoError(t, err)
	require.False(t, a.Allowed)
	require.Equal(t, time.Second, a.RetryAfter)
	require.Equal(t, time.Second, a.ResetAfter)
	srv.Embedded.SetTime(day.Add(time.Second))
	a, err = l.Allow(ctx, "k", 3)
	require.NoError(t, err)
	require.True(t, a.Allowed)
	srv.Embedded.SetTime(day) // set back: the window that has begun goes on
	a, err = l.Allow(ctx, "k", 1)
	require.NoError(t, err)
	require.False(t, a.Allowed)
	srv.Embedded.SetTime(day.Add(49 * time.Hour))
	require.Empty(t, keys(t, srv.Client(t)))
}

// A limit of another algorithm starts anew under the same name.
func TestAnotherAlgorithmStartsAnew(t *testing.T) {
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
			a, err := l.Allow(ctx, "k", 2)
			require.NoError(t, err)
			require.True(t, a.Allowed)
			a, err = l.Allow(ctx, "k", 1)
			require.NoError(t, err)
			require.False(t, a.Allowed)
			if i%5 == 0 { // also from a line of reservations
				r, err := c.Limiter("l", all[0]).Reserve(ctx, "k", 2)
				require.NoError(t, err)
				require.NotNil(t, r)
				r, err = c.Limiter("l", all[0]).Reserve(ctx, "k", 2)
				require.NoError(t, err)
				require.Positive(t, r.Delay())
			}
		}
	})
}

// A limiter of one process looks at a calendar of its own.
func TestAWindowOfOneProcessEndsWithTheUnitOfTheCalendar(t *testing.T) {
	t.Parallel()
	units := []ratelimit.Unit{ratelimit.Minute, ratelimit.Hour, ratelimit.Day, ratelimit.Week, ratelimit.Month,
		ratelimit.Year}
	for _, name := range []string{"UTC", "Europe/Berlin", "Asia/Kathmandu", "Asia/Beirut", "America/Havana"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		synctest.Test(t, func(t *testing.T) {
			c := on(t, nowhere{}, patient)
			rnd := rand.New(rand.NewPCG(1, 1))
			for round := range redistest.Sized(2, 2, 40) {
				for _, unit := range units {
					time.Sleep(time.Duration(rnd.Int64N(int64(30 * 24 * time.Hour))).Truncate(time.Microsecond))
					l := c.Limiter(fmt.Sprint(unit, round),
						ratelimit.LimiterOptions{Rate: 2, Algorithm: ratelimit.FixedWindow, Unit: unit, Zone: zone, PerProcess: true})
					left := time.Until(nextUnit(time.Now(), unit, zone))
					a, err := l.Allow(ctx, "", 2)
					require.NoError(t, err)
					require.True(t, a.Allowed)
					require.Equal(t, left, a.ResetAfter, "%v of %v", unit, time.Now().In(zone))
					time.Sleep(left - time.Microsecond)
					a, err = l.Allow(ctx, "", 1)
					require.NoError(t, err)
					require.False(t, a.Allowed)
					require.Equal(t, time.Microsecond, a.RetryAfter)
					time.Sleep(time.Microsecond)
					a, err = l.Allow(ctx, "", 1)
					require.NoError(t, err)
					require.True(t, a.Allowed, "%v of %v", unit, time.Now().In(zone))
				}
			}
		})
	}
}
