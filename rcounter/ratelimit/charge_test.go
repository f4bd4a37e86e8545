package ratelimit_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// spent is units that were admitted at an instant, us. least is what was used of them in the end. most is what a limit
// may still count: an estimate that was settled too late stays.
type spent struct{ at, least, most int64 }

// book is what was admitted by a limit, as a slow and obvious judge of what charges promise.
type book struct {
	o     ratelimit.LimiterOptions
	spent []spent
}

// span is for how long a unit counts at least, us.
func (b *book) span() int64 {
	switch b.o.Algorithm {
	case ratelimit.SlidingWindow:
		return b.o.Per.Microseconds()
	case ratelimit.FixedWindow:
		return time.Minute.Microseconds()
	}
	return (b.o.Burst*b.o.Per.Microseconds() + b.o.Rate - 1) / b.o.Rate
}

// slice is how much longer it may count.
func (b *book) slice() int64 { return (b.span() + 31) / 32 }

// settle notes that of n units admitted earlier so many were used.
func (b *book) settle(i int, now, used int64) {
	s := &b.spent[i]
	timely := now < s.at+b.span()
	if b.o.Algorithm == ratelimit.FixedWindow {
		timely = now/b.span() == s.at/b.span()
	}
	if s.least = min(s.least, used); timely {
		s.most = s.least
	}
}

// level is that of a leaky bucket into which of each admission of ran at its instant, up to now.
func (b *book) level(now int64, of func(spent) int64) int64 {
	level, before := int64(0), int64(0)
	drain := func(at int64) {
		if past := at - before; past > level/b.o.Rate {
			level = 0
		} else {
			level -= past * b.o.Rate
		}
		before = at
	}
	for _, s := range b.spent {
		drain(s.at)
		level += of(s) * b.o.Per.Microseconds()
	}
	drain(now)
	return level
}

// sum is how many units count at now that were admitted less than span ago, or in this minute.
func (b *book) sum(now, span int64, of func(spent) int64) (n int64) {
	for _, s := range b.spent {
		if b.o.Algorithm == ratelimit.FixedWindow && s.at/span == now/span ||
			b.o.Algorithm == ratelimit.SlidingWindow && now-s.at < span {
			n += of(s)
		}
	}
	return n
}

func leastOf(s spent) int64 { return s.least }
func mostOf(s spent) int64  { return s.most }

// check checks what the limit says: units that count are counted, and those that were given back are not, except for
// a slice.
func (b *book) check(t *testing.T, now int64, a ratelimit.Admission, hint ...any) {
	t.Helper()
	if b.o.Algorithm != "" {
		free := max(0, b.o.Rate-b.sum(now, b.span(), leastOf))
		sure := max(0, b.o.Rate-b.sum(now, b.span()+b.slice(), mostOf))
		if b.o.Algorithm == ratelimit.FixedWindow {
			sure = max(0, b.o.Rate-b.sum(now, b.span(), mostOf))
		}
		require.LessOrEqual(t, a.Remaining, free, hint...)
		require.GreaterOrEqual(t, a.Remaining, sure, hint...)
		return
	}
	reset := a.ResetAfter.Microseconds()
	require.GreaterOrEqual(t, reset*b.o.Rate, b.level(now, leastOf), hint...)
	require.LessOrEqual(t, (reset-1)*b.o.Rate, b.level(now, mostOf)+b.slice()*b.o.Rate, hint...)
}

// kept checks that no more was used in any stretch of time than the limit lets pass, but for what was beyond estimates.
func (b *book) kept(t *testing.T, hint ...any) {
	t.Helper()
	for i, s := range b.spent {
		if b.o.Algorithm == "" {
			of := book{b.o, b.spent[:i+1]}
			require.LessOrEqual(t, of.level(s.at, leastOf), b.o.Burst*b.o.Per.Microseconds(), hint...)
		} else {
			of := book{b.o, b.spent[:i+1]}
			require.LessOrEqual(t, of.sum(s.at, b.span(), leastOf), b.o.Rate, hint...)
		}
	}
}

// walker makes random charges of one limit.
type walker struct {
	t       *testing.T
	rnd     *rand.Rand
	o       ratelimit.LimiterOptions
	l       *ratelimit.Limiter
	m       *ratelimit.Model
	b       *book
	charges []walked
	turns   []walked // reservations
	queues  bool     // it reserves now and then

	reserved int
	unsure   bool // more was used than estimated, or there was a line: the book knows neither
	hint     []any
}

// walked is a charge, or a reservation.
type walked struct {
	h      *ratelimit.Charge
	id     string
	n      int64
	at     int   // in the book
	turn   int64 // of a reservation
	closed bool
}

// took compares what was answered to a charge, or to an Allow.
func (w *walker) took(now, n int64, charged bool, h *ratelimit.Charge, a ratelimit.Admission) {
	id := strconv.Itoa(len(w.charges))
	if want := w.m.Take(now, 0, false); charged {
		require.Equal(w.t, w.m.Charge(now, id, n), a, w.hint...)
	} else if n > 0 {
		require.Equal(w.t, w.m.Take(now, n, false), a, w.hint...)
	} else {
		require.Equal(w.t, want, a, w.hint...)
	}
	require.Equal(w.t, charged && a.Allowed, h != nil, w.hint...)
	if h != nil {
		w.charges = append(w.charges, walked{h: h, id: id, n: n, at: len(w.b.spent)})
	}
	if a.Allowed && n > 0 {
		w.b.spent = append(w.b.spent, spent{now, n, n})
	}
}

// use is what is said that a charge has used.
func (w *walker) use(c *walked) int64 {
	switch w.rnd.IntN(6) {
	case 0:
		return 0
	case 1:
		return c.n + w.rnd.Int64N(3*most(w.o))
	}
	return w.rnd.Int64N(c.n + 1)
}

// settled compares what was settled.
func (w *walker) settled(now int64, c *walked, used, units int64) {
	want, open := w.m.Settle(now, c.id, used)
	require.Equal(w.t, want, units, w.hint...)
	require.False(w.t, open && c.closed, w.hint...)
	if open {
		w.b.settle(c.at, now, used)
		w.unsure = w.unsure || used > c.n
	}
	c.closed = true
}

// queue reserves a turn in the limit's line, or gives one back.
func (w *walker) queue(now, n int64) {
	w.unsure = true
	w.turns = slices.DeleteFunc(w.turns, func(c walked) bool { return c.turn <= now })
	if len(w.turns) > 0 && w.rnd.IntN(2) == 0 {
		i := w.rnd.IntN(len(w.turns))
		c := w.turns[i]
		w.turns = slices.Delete(w.turns, i, i+1)
		canceled := redistest.NoError(w.l.CancelAs(ctx, c.id, "", c.n, ""))(w.t)
		require.Equal(w.t, w.m.Cancel(now, c.id, c.n), canceled, w.hint...)
		return
	}
	w.reserved++
	id, most := "r"+strconv.Itoa(w.reserved), 3*w.b.span()
	got, _, err := w.l.ReserveAs(ctx, id, "", n, time.Duration(most)*time.Microsecond)
	require.NoError(w.t, err)
	require.Equal(w.t, w.m.Reserve(now, id, n, most), got, w.hint...)
	if got.Done {
		w.turns = append(w.turns, walked{id: id, n: n, turn: now + got.Wait.Microseconds()})
	}
}

// Random charges with lost, doubled and late settlings are counted as the model does. More than the limit is never
// used, but for the units beyond the estimates. Units that were given back can be taken again. Each step is one call
// for the charges of several limits, and one call for their settlings.
func TestCharge_RandomSettling_KeepsTheLimit(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for _, seed := range redistest.Seeds(t, redistest.Sized(1, 1, 10)) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			walkCharges(t, seed, redistest.Sized(500, 3000, 100_000))
		})
	}
}

func walkCharges(t *testing.T, seed uint64, charges int) {
	srv := redistest.Embedded(t)
	c := on(t, srv.Client(t), patient)
	rnd := rand.New(rand.NewPCG(seed, 1))
	at := time.Now().Truncate(time.Minute)
	made, again, returned, owed := 0, 0, 0, 0
	for round := 0; made < charges; round++ {
		var walkers []*walker
		per := rates(rnd).Per
		for i := range 40 {
			o := kinds(rnd)
			if o.Algorithm != ratelimit.FixedWindow {
				o.Per = per // so that pauses suit all
			}
			if o.Algorithm == "" {
				o.Burst += rnd.Int64N(40)
			} else {
				o.Rate += rnd.Int64N(40)
			}
			l := c.Limiter(strconv.Itoa(round)+"-"+strconv.Itoa(i), o)
			walkers = append(walkers, &walker{t: t, rnd: rnd, o: o, l: l, m: l.NewModel(), b: &book{o: o},
				queues: i%16 == 0 && o.Algorithm == ""})
		}
		for step := range 80 {
			span := walkers[rnd.IntN(len(walkers))].b.span()
			at = at.Add(time.Duration(pause(rnd, span)) * time.Microsecond)
			srv.Embedded.SetTime(at)
			now := at.UnixMicro()
			var takes []ratelimit.Take
			var charged []bool
			var takers, settlers []*walker
			var settles []*walked
			var handles []*ratelimit.Charge
			var used []int64
			for i, w := range walkers {
				w.hint = []any{"seed %d, round %d, walker %d, step %d, %+v", seed, round, i, step, w.o}
				n := 1 + rnd.Int64N(most(w.o))
				if rnd.IntN(3) > 0 {
					n = 1 + rnd.Int64N(most(w.o)/8+1)
				}
				switch what := rnd.IntN(10); {
				case what < 2 && w.queues:
					w.queue(now, n)
				case what < 4 && len(w.charges) > 0:
					chosen := &w.charges[len(w.charges)-1-rnd.IntN(min(len(w.charges), 12))]
					if chosen.closed {
						again++
					}
					settlers, settles, handles = append(settlers, w), append(settles, chosen), append(handles, chosen.h)
					used = append(used, w.use(chosen))
				default:
					takers, takes = append(takers, w), append(takes, ratelimit.Take{Limiter: w.l, N: n})
					charged = append(charged, what < 9)
				}
			}
			charges, admissions, err := c.ChargeTogether(ctx, takes, charged)
			require.NoError(t, err)
			for i, w := range takers {
				w.took(now, takes[i].N, charged[i], charges[i], admissions[i])
			}
			units, err := c.SettleTogether(ctx, handles, used)
			require.NoError(t, err)
			for i, w := range settlers {
				w.settled(now, settles[i], used[i], units[i])
				if units[i] < 0 {
					returned++
				} else if units[i] > 0 {
					owed++
				}
			}
			if step%4 == 0 {
				look(t, c, walkers, now)
			}
		}
		for _, w := range walkers {
			if !w.queues {
				w.b.kept(t, w.hint...)
			}
			made += len(w.charges)
		}
		at = at.Add(2 * time.Hour)
	}
	require.Positive(t, again)
	require.Positive(t, returned)
	require.Positive(t, owed)
	t.Logf("%d charges; settled again %d times; units returned %d times, owed %d times", made, again, returned, owed)
}

// pause is how long nothing happens, us.
func pause(rnd *rand.Rand, span int64) int64 {
	pause := rnd.Int64N(span/8 + 2)
	switch what := rnd.IntN(40); {
	case what == 0:
		return pause * 20
	case what == 1:
		return pause + time.Hour.Microseconds()
	case what < 10:
		return 0
	}
	return pause
}

// look checks where limits stand.
func look(t *testing.T, c *ratelimit.Client, walkers []*walker, now int64) {
	looks, none := make([]ratelimit.Take, len(walkers)), make([]bool, len(walkers))
	for i, w := range walkers {
		looks[i] = ratelimit.Take{Limiter: w.l}
	}
	_, stand, err := c.ChargeTogether(ctx, looks, none)
	require.NoError(t, err)
	for i, w := range walkers {
		w.took(now, 0, false, nil, stand[i])
		if !w.unsure {
			w.b.check(t, now, stand[i], w.hint...)
		}
	}
}

// algorithms are limits of 10 units in each of the algorithms. Their units count for an hour at least.
var algorithms = map[string]ratelimit.LimiterOptions{
	"GCRA":    {Rate: 10, Per: 2 * time.Hour},
	"sliding": {Rate: 10, Per: 2 * time.Hour, Algorithm: ratelimit.SlidingWindow},
	"fixed":   {Rate: 10, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Year},
}

// remaining is how many units could pass.
func remaining(t *testing.T, l *ratelimit.Limiter) int64 {
	t.Helper()
	return redistest.NoError(l.Peek(ctx, "k"))(t).Remaining
}

func TestSettle_AnyUse_CountsWhatWasUsedOnce(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		for wire, client := range map[string]rueidis.Client{"once": srv.Client(t), "twice": twice{Client: srv.Client(t)}} {
			c := on(t, client, patient)
			for name, o := range algorithms {
				for _, tt := range []struct {
					says                  string
					estimate, used, after int64
				}{{"less", 6, 2, 8}, {"nothing", 10, 0, 10}, {"as much", 6, 6, 4}, {"more", 2, 5, 5},
					{"more than there is", 6, 14, 0}} {
					l := c.Limiter(wire+name+tt.says, o)
					h, a, err := l.Charge(ctx, "k", tt.estimate)
					require.NoError(t, err)
					require.True(t, a.Allowed)
					require.Equal(t, 10-tt.estimate, a.Remaining)
					require.EqualValues(t, 1, redistest.NoError(l.OpenCharges(ctx, "k"))(t))
					ended, end := context.WithCancel(ctx)
					end()
					require.NoError(t, h.Settle(ended, tt.used))
					require.Equal(t, tt.after, remaining(t, l), "%s, %s", name, tt.says)
					require.NoError(t, h.Settle(ctx, 0))
					require.NoError(t, h.Copy().Settle(ctx, 0), "a process that does not know better")
					require.Equal(t, tt.after, remaining(t, l), "%s, %s", name, tt.says)
					require.Zero(t, redistest.NoError(l.OpenCharges(ctx, "k"))(t))
				}
			}
		}
		rig.RequireEnds(t, srv.Client(t))
	})
}

func TestSettle_Refused_HasNoCharge(t *testing.T) {
	t.Parallel()
	c := on(t, redistest.Embedded(t).Client(t), patient)
	for name, o := range algorithms {
		l := c.Limiter(name, o)
		redistest.NoError(l.Allow(ctx, "k", 7))(t)
		h, a, err := l.Charge(ctx, "k", 4)
		require.NoError(t, err)
		require.False(t, a.Allowed)
		require.Nil(t, h)
		require.NoError(t, h.Settle(ctx, 100))
		require.EqualValues(t, 3, remaining(t, l))
	}
}

// The table in limit.lua: units that have drained are not given back, because others have used their room.
func TestSettle_UnitsHaveDrained_GivesNothingBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	at := time.Now().Truncate(time.Minute)
	srv.Embedded.SetTime(at)
	c := on(t, srv.Client(t), patient)
	for name, o := range map[string]ratelimit.LimiterOptions{
		"GCRA":    {Rate: 1, Burst: 10},
		"sliding": {Rate: 10, Per: 9 * time.Second, Algorithm: ratelimit.SlidingWindow},
		"fixed":   {Rate: 10, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Minute},
	} {
		l := c.Limiter(name, o)
		first, _, err := l.Charge(ctx, "k", 10)
		require.NoError(t, err)
		at = at.Add(time.Minute)
		srv.Embedded.SetTime(at)
		second, a, err := l.Charge(ctx, "k", 10)
		require.NoError(t, err)
		require.True(t, a.Allowed)
		require.NoError(t, first.Settle(ctx, 0))
		require.Zero(t, remaining(t, l), name)
		require.NoError(t, second.Settle(ctx, 4))
		require.EqualValues(t, 6, remaining(t, l), name)
	}
}

// The loop of redisson#7342 takes a unit and gives it back every 100 ms. There 10 permits become 2. The bound of
// redisson#7329 is never passed.
func TestSettle_LoopOfRedisson_KeepsAllUnits(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	at := time.Now().Truncate(time.Minute)
	c := on(t, srv.Client(t), patient)
	for name, o := range map[string]ratelimit.LimiterOptions{
		"GCRA":    {Rate: 10},
		"sliding": {Rate: 10, Per: time.Second, Algorithm: ratelimit.SlidingWindow},
		"fixed":   {Rate: 10, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Minute},
	} {
		l := c.Limiter(name, o)
		for range 100 {
			srv.Embedded.SetTime(at)
			h, a, err := l.Charge(ctx, "k", 1)
			require.NoError(t, err)
			require.EqualValues(t, 9, a.Remaining, name)
			require.NoError(t, h.Settle(ctx, 0))
			require.EqualValues(t, 10, remaining(t, l), name)
			at = at.Add(100 * time.Millisecond)
		}
	}
}

func TestSettle_Debt_EndsAfterABurstAtMost(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	at := time.Now().Truncate(time.Minute)
	srv.Embedded.SetTime(at)
	c := on(t, srv.Client(t), patient)
	for name, o := range map[string]ratelimit.LimiterOptions{
		"GCRA":    {Rate: 10, Per: time.Minute},
		"sliding": {Rate: 10, Per: time.Minute, Algorithm: ratelimit.SlidingWindow},
		"fixed":   {Rate: 10, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Minute},
	} {
		l := c.Limiter(name, o)
		for range 2 {
			h, _, err := l.Charge(ctx, "k", 4)
			require.NoError(t, err)
			require.NotNil(t, h)
			require.NoError(t, h.Settle(ctx, 1<<52))
			a := redistest.NoError(l.Allow(ctx, "k", 1))(t)
			require.False(t, a.Allowed)
			require.Zero(t, a.Remaining)
			require.LessOrEqual(t, a.RetryAfter, time.Minute+time.Minute*11/100, name) // and a unit, or a slice
			at = at.Add(a.RetryAfter)
			srv.Embedded.SetTime(at)
			require.True(t, redistest.NoError(l.Allow(ctx, "k", 1))(t).Allowed, name)
			at = at.Add(2 * time.Minute)
			srv.Embedded.SetTime(at)
		}
	}
}

func TestChargeAll_SeveralLimits_AreSettledInOneStep(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		wire := &counting{Client: srv.Client(t)}
		c := on(t, wire, patient)
		requests, tokens := c.Limiter("requests", algorithms["fixed"]), c.Limiter("tokens", algorithms["GCRA"])
		take := func(n int64) []ratelimit.Take {
			return []ratelimit.Take{{Limiter: requests, Key: "k", N: 1}, {Limiter: tokens, Key: "k", N: n}}
		}
		h, _, err := requests.Charge(ctx, "other", 1)
		require.NoError(t, err)
		require.NoError(t, h.Settle(ctx, 1)) // the server has the scripts
		h, d, err := c.ChargeAll(ctx, take(8)...)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		none, d, err := c.ChargeAll(ctx, take(3)...)
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.Nil(t, none)
		wire.Sent.Store(0)
		require.ErrorIs(t, h.Settle(ctx, 3), errs.ErrInvalidOption)
		require.NoError(t, h.Settle(ctx, 1, 3))
		require.EqualValues(t, 1, wire.Sent.Load())
		require.EqualValues(t, 9, remaining(t, requests))
		require.EqualValues(t, 7, remaining(t, tokens))
		require.NoError(t, tokens.Reset(ctx, "k"))
		h, _, err = c.ChargeAll(ctx, take(8)...)
		require.NoError(t, err)
		require.NoError(t, tokens.Reset(ctx, "k"))
		require.NoError(t, h.Settle(ctx, 0, 20))
		require.EqualValues(t, 9, remaining(t, requests))
		require.EqualValues(t, 10, remaining(t, tokens), "after Reset nothing is taken")
	})
}

func TestShadow_Full_RefusesNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		for name, o := range algorithms {
			o.Shadow = true
			shadow := c.Limiter("shadow "+name, o)
			o.Shadow, o.Rate = false, 100
			real := c.Limiter("real "+name, o)
			for i := range 5 {
				a := redistest.NoError(shadow.Allow(ctx, "k", 4))(t)
				require.True(t, a.Allowed)
				require.EqualValues(t, 4, a.N)
				require.Equal(t, i > 1, a.WouldRefuse, name)
			}
			a := redistest.NoError(shadow.AllowAtMost(ctx, "k", 4))(t)
			require.Equal(t, []any{true, true, int64(4)}, []any{a.Allowed, a.WouldRefuse, a.N})
			require.True(t, redistest.NoError(shadow.Peek(ctx, "k"))(t).WouldRefuse)
			takes := []ratelimit.Take{{Limiter: real, Key: "k", N: 40}, {Limiter: shadow, Key: "k", N: 4}}
			h, d, err := c.ChargeAll(ctx, takes...)
			require.NoError(t, err)
			require.True(t, d.Allowed, "the shadow is full, and does not matter")
			require.Zero(t, d.RetryAfter)
			require.Equal(t, []bool{false, true}, []bool{d.Each[0].WouldRefuse, d.Each[1].WouldRefuse})
			require.NoError(t, h.Settle(ctx, 10, 1000))
			require.EqualValues(t, 90, remaining(t, real))
			require.NoError(t, shadow.Reset(ctx, "k"))
			takes[0].N = 95
			d = redistest.NoError(c.AllowAll(ctx, takes...))(t)
			require.False(t, d.Allowed)
			require.False(t, d.Each[1].WouldRefuse)
			require.EqualValues(t, 10, remaining(t, shadow), "a request that did not pass is not counted")
		}
	})
}

func TestShadow_ServerDown_RefusesNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), ratelimit.Options{CallTimeout: time.Second, RetryTimeout: time.Second})
	shadow := c.Limiter("l", ratelimit.LimiterOptions{Rate: 1, Shadow: true})
	open := c.Limiter("open", ratelimit.LimiterOptions{Rate: 1, WhenDown: ratelimit.Open})
	srv.Stop(t)
	defer srv.Resume(t)
	a := redistest.NoError(shadow.Allow(ctx, "k", 1))(t)
	require.True(t, a.Allowed)
	require.Error(t, a.Down)
	h, d, err := c.ChargeAll(ctx, ratelimit.Take{Limiter: open, Key: "k", N: 1},
		ratelimit.Take{Limiter: shadow, Key: "k", N: 1})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.NoError(t, h.Settle(ctx, 5, 5), "what a policy admitted is not settled")
}

// A charge while callers wait in the line is counted, and is not given back. The rest gets a turn behind them.
func TestSettle_Line_KeepsTurns(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		l := on(t, srv.Client(t), patient).Limiter("l", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour, Burst: 10})
		h, _, err := l.Charge(ctx, "k", 6)
		require.NoError(t, err)
		late, _, err := l.Charge(ctx, "k", 4)
		require.NoError(t, err)
		r := redistest.NoError(l.Reserve(ctx, "k", 3))(t)
		require.NoError(t, h.Settle(ctx, 0))
		require.InDelta(t, 3*time.Hour, r.Delay(), float64(time.Minute))
		stands := func() time.Duration {
			return redistest.NoError(l.Peek(ctx, "k"))(t).ResetAfter.Round(time.Hour)
		}
		require.Equal(t, 13*time.Hour, stands())
		require.NoError(t, late.Settle(ctx, 6))
		require.Equal(t, 15*time.Hour, stands())
		last := redistest.NoError(l.Reserve(ctx, "k", 1))(t)
		require.InDelta(t, 6*time.Hour, last.Delay(), float64(time.Minute))
		require.True(t, redistest.NoError(r.Cancel(ctx))(t))
		require.True(t, redistest.NoError(last.Cancel(ctx))(t))
	})
}

// A limit that is changed while charges are open keeps what was taken. Only units that are counted as they were are
// given back, and the rest is taken from what the limit is now.
func TestSettle_OtherTerms_CountsByThoseOfNow(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		for name, tt := range map[string]struct {
			was, is      ratelimit.LimiterOptions
			back, beyond int64 // remaining after 8 units settled at 2, and at 9
		}{
			"another rate": {algorithms["sliding"],
				ratelimit.LimiterOptions{Rate: 20, Per: 2 * time.Hour, Algorithm: ratelimit.SlidingWindow}, 18, 11},
			"another burst": {algorithms["GCRA"], ratelimit.LimiterOptions{Rate: 10, Per: 2 * time.Hour, Burst: 20}, 18, 11},
			"another per":   {algorithms["GCRA"], ratelimit.LimiterOptions{Rate: 10, Per: 3 * time.Hour}, 2, 1},
			"another unit": {ratelimit.LimiterOptions{Rate: 10, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Month},
				algorithms["fixed"], 10, 9},
			"another algorithm": {algorithms["fixed"], algorithms["sliding"], 10, 9},
		} {
			for used, after := range map[int64]int64{2: tt.back, 9: tt.beyond} {
				name := name + strconv.FormatInt(used, 10)
				l := c.Limiter(name, ratelimit.LimiterOptions{Rate: 1, Stored: true})
				require.NoError(t, c.Limiter(name, tt.was).Set(ctx, "test"))
				redistest.Eventually(t, 20*time.Second, "it is known", func() bool {
					_, err := l.Allow(ctx, "other", 8)
					return err == nil
				})
				h, a, err := l.Charge(ctx, "k", 8)
				require.NoError(t, err)
				require.True(t, a.Allowed)
				require.NoError(t, c.Limiter(name, tt.is).Set(ctx, "test"))
				redistest.Eventually(t, 20*time.Second, "the change is known", func() bool {
					redistest.NoError(l.Peek(ctx, "k"))(t)
					n, window := l.Quota()
					wantN, wantWindow := c.Limiter(name, tt.is).Quota()
					return n == wantN && window == wantWindow
				})
				require.NoError(t, h.Settle(ctx, used))
				require.Equal(t, after, remaining(t, c.Limiter(name, tt.is)), name)
			}
		}
	})
}

func TestSettle_Crowd_SharesCalls(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		wire := &counting{Client: srv.Client(t)}
		c := on(t, wire, patient)
		const callers, each = 32, 20
		crowds := 0
		// On a busy machine few callers of a crowd come at the same time.
		redistest.Eventually(t, time.Minute, "a crowd shares half of its calls", func() bool {
			crowds++
			l := c.Limiter("l"+strconv.Itoa(crowds), ratelimit.LimiterOptions{Rate: 2 * callers * each, Per: 24 * time.Hour})
			before := wire.Sent.Load()
			rig.Crowd(callers, each, func(_, i int) {
				h, a, err := l.Charge(ctx, "k", 2)
				if err != nil || !a.Allowed {
					t.Errorf("%+v, %v", a, err)
				}
				if err := h.Settle(ctx, int64(i%2)); err != nil {
					t.Error(err)
				}
			})
			sent := wire.Sent.Load() - before
			require.EqualValues(t, 2*callers*each-callers*each/2, remaining(t, l))
			return sent < callers*each
		})
	})
}

// What charges cost a limit ends with them: no key stays without an end, and those that nobody settles are forgotten.
func TestCharge_LeftOpen_IsForgotten(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	at := time.Now().Truncate(time.Minute)
	srv.Embedded.SetTime(at)
	l := on(t, srv.Client(t), patient).Limiter("l", ratelimit.LimiterOptions{Rate: 1, Burst: 10})
	for range 3 {
		redistest.NoError(l.AllowAtMost(ctx, "k", 10))(t)
		require.NoError(t, l.Reset(ctx, "k"))
		for range 5 {
			_, a, err := l.Charge(ctx, "k", 2)
			require.NoError(t, err)
			require.True(t, a.Allowed)
			at = at.Add(30 * time.Minute)
			srv.Embedded.SetTime(at)
		}
		require.EqualValues(t, 3, redistest.NoError(l.OpenCharges(ctx, "k"))(t), "of the last hour")
	}
	srv.Embedded.SetTime(at.Add(2 * time.Hour))
	require.Empty(t, keys(t, srv.Client(t)))
}

// An open charge costs the server little, and a settled one nothing.
func TestCharge_Open_CostsLittleMemory(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	const charges = 2000
	for name, o := range algorithms {
		o.Rate = charges
		l := on(t, srv.Client(t), patient).Limiter(name, o)
		var open []*ratelimit.Charge
		for range charges {
			h, _, err := l.Charge(ctx, "k", 1)
			require.NoError(t, err)
			open = append(open, h)
		}
		each := number(t, raw, "MEMORY", "USAGE", l.Key("k")+":c", "SAMPLES", "0") / charges
		t.Logf("%s: %d bytes for each open charge, %d for the limit", name, each,
			number(t, raw, "MEMORY", "USAGE", l.Key("k")))
		require.LessOrEqual(t, each, int64(160))
		for _, h := range open {
			require.NoError(t, h.Settle(ctx, 0))
		}
		require.Zero(t, number(t, raw, "EXISTS", l.Key("k")+":c"))
	}
}
