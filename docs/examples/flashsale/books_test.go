package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// book enters one claim and its answer.
func book(b *books, user string, o outcome, ordinal int64) {
	c := claim{user: user}
	b.took(c)
	b.answered(c, answer{outcome: o, ordinal: ordinal}, time.Now())
}

func opened(start sold) *books {
	b := newBooks()
	b.opened(start, time.Now())
	return b
}

func TestTheCheckPassesAnHonestSale(t *testing.T) {
	b := opened(sold{limit: 2, epoch: 7})
	book(b, "a", granted, 1)
	book(b, "b", granted, 2)
	book(b, "a", replayed, 1)
	book(b, "c", soldOut, 0)
	v := b.check(&sold{limit: 2, count: 2, last: 2, epoch: 7}, true, true)
	require.Empty(t, v.faults)
	require.Empty(t, v.notes)
	tot := b.totals()
	require.Equal(t, []int64{4, 2, 1, 1}, []int64{tot.read, tot.winners, tot.already, tot.soldOut})
	require.Equal(t, []win{{1, "a"}, {2, "b"}}, b.winners())
}

func TestTheCheckBites(t *testing.T) {
	full := &sold{limit: 2, count: 2, last: 2}
	for _, c := range []struct {
		name  string
		start sold
		end   *sold
		do    func(b *books)
		want  string
	}{
		{"an ordinal twice", sold{limit: 2}, full, func(b *books) {
			book(b, "a", granted, 1)
			book(b, "b", granted, 1)
		}, `unit 1 was given twice: to "a" and to "b"`},
		{"an ordinal twice, the second as a replay", sold{limit: 2}, full, func(b *books) {
			book(b, "a", granted, 1)
			book(b, "b", replayed, 1)
		}, `unit 1 was given twice: to "a" and to "b"`},
		{"a user twice", sold{limit: 2}, full, func(b *books) {
			book(b, "a", granted, 1)
			book(b, "a", granted, 2)
		}, `user "a" won twice: units 1 and 2`},
		{"a user twice, by a replay", sold{limit: 2}, full, func(b *books) {
			book(b, "a", granted, 1)
			book(b, "a", replayed, 2)
		}, `user "a" won twice: units 1 and 2`},
		{"too many", sold{limit: 1}, &sold{limit: 1, count: 2}, func(b *books) {
			book(b, "a", granted, 1)
			book(b, "b", granted, 2)
		}, "oversold: 2 winners and 1 unit"},
		{"too many for what was left", sold{limit: 3, count: 2, last: 2}, &sold{limit: 3, count: 4}, func(b *books) {
			book(b, "a", granted, 3)
			book(b, "b", granted, 4)
		}, "oversold: 2 winners and 1 unit"},
		{"too few: answered sold out", sold{limit: 2}, &sold{limit: 2, count: 1}, func(b *books) {
			book(b, "a", granted, 1)
			book(b, "b", soldOut, 0)
		}, "1 winner, and 2 were due: 2 units free and 2 users or more without one"},
		{"too few: no user got a unit", sold{limit: 2}, full, func(b *books) {
			book(b, "a", granted, 1)
			book(b, "b", soldOut, 0)
		}, "the server sold 2 units and this run knows of only 1 winner"},
		{"the server has forgotten one", sold{limit: 2}, &sold{limit: 2, count: 1}, func(b *books) {
			book(b, "a", granted, 1)
			book(b, "b", granted, 2)
		}, "the server sold 1 unit and this run knows of 2 winners"},
		{"two answers to one user", sold{limit: 2}, full, func(b *books) {
			book(b, "a", granted, 1)
			book(b, "b", granted, 2)
			book(b, "b", soldOut, 0)
		}, `user "b" holds unit 2 and got the answer that all are sold`},
		{"two answers to an earlier winner", sold{limit: 2, count: 1, last: 1}, &sold{limit: 2, count: 2}, func(b *books) {
			book(b, "a", replayed, 1)
			book(b, "b", granted, 2)
			book(b, "a", soldOut, 0)
		}, `user "a" holds unit 1 and got the answer that all are sold`},
		{"a unit of an earlier run again", sold{limit: 2, count: 1, last: 1}, full, func(b *books) {
			book(b, "a", granted, 1)
		}, `unit 1 was given twice: before this run and to "a"`},
		{"no such unit", sold{limit: 2}, &sold{limit: 2, count: 1}, func(b *books) {
			book(b, "a", granted, 0)
		}, `user "a" won unit 0, and there is no such unit`},
		{"opened anew", sold{limit: 1, epoch: 1}, &sold{limit: 1, count: 1, epoch: 2}, func(b *books) {
			book(b, "a", granted, 1)
		}, "the stock was opened anew during the run (opening 1, now 2)"},
		{"gone", sold{limit: 1, epoch: 1}, &sold{}, func(b *books) {
			book(b, "a", granted, 1)
		}, "the server no longer has the stock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := opened(c.start)
			c.do(b)
			require.Contains(t, b.check(c.end, true, true).faults, c.want)
		})
	}
}

func TestAnIncompleteRunMayWinLessAndNeverMore(t *testing.T) {
	b := opened(sold{limit: 5})
	book(b, "a", granted, 1)
	book(b, "b", granted, 3)
	v := b.check(&sold{limit: 5, count: 3, last: 3}, false, true)
	require.Empty(t, v.faults)
	require.Equal(t, []string{"1 unit went to claims that were not answered"}, v.notes)
	require.Empty(t, b.check(nil, false, true).faults, "the server could not be asked")
	book(b, "c", granted, 3)
	require.NotEmpty(t, b.check(nil, false, true).faults)
}

func TestAReplayWithoutARecordedWinIsTheWin(t *testing.T) {
	b := opened(sold{limit: 3})
	book(b, "killed before the answer", replayed, 1)
	book(b, "two lines, answers crossed", replayed, 2)
	book(b, "two lines, answers crossed", granted, 2)
	v := b.check(&sold{limit: 3, count: 2, last: 2}, true, true)
	require.Empty(t, v.faults)
	tot := b.totals()
	require.EqualValues(t, 2, tot.winners)
	require.EqualValues(t, 1, tot.already)
}

func TestAContinuedStockOwesOnlyWhatIsLeft(t *testing.T) {
	b := opened(sold{limit: 4, count: 2, last: 3}) // unit 1, 2 or 3 was returned
	book(b, "old 1", replayed, 3)
	book(b, "new 1", granted, 4)
	book(b, "new 2", granted, 5)
	book(b, "old 2", replayed, 1)
	book(b, "late", soldOut, 0)
	v := b.check(&sold{limit: 4, count: 4, last: 5}, true, false)
	require.Empty(t, v.faults)
	tot := b.totals()
	require.Equal(t, []int64{2, 2, 1, 2}, []int64{tot.winners, tot.already, tot.soldOut, tot.earlier})

	b = opened(sold{limit: 4, count: 2, last: 2})
	book(b, "old 1", replayed, 1)
	book(b, "new 1", granted, 3)
	require.Empty(t, b.check(&sold{limit: 4, count: 3, last: 3}, true, false).faults,
		"two units free and one user without")
}

func TestUnitsSoldToOthersAreNotOwed(t *testing.T) {
	b := opened(sold{limit: 3})
	book(b, "a", granted, 2)
	book(b, "b", soldOut, 0)
	v := b.check(&sold{limit: 3, count: 3, last: 3}, true, false)
	require.Empty(t, v.faults)
	require.Equal(t, []string{"2 units went to claims that this run did not make or saw no answer to"}, v.notes)
	require.NotEmpty(t, b.check(&sold{limit: 3, count: 3, last: 3}, true, true).faults,
		"on a stock of its own there are no others")
}

func TestASettledClaimMovesFromErrorToWinner(t *testing.T) {
	b := opened(sold{limit: 3})
	c := claim{user: "a"}
	b.took(c)
	b.answered(c, answer{outcome: failed, asked: true}, time.Now())
	b.settle(c, bought{ordinal: 1}, true)
	tot := b.totals()
	require.Equal(t, []int64{1, 1, 0}, []int64{tot.read, tot.winners, tot.failed})
}

func TestFaultsAreSpelledOutUpToALimit(t *testing.T) {
	b := opened(sold{limit: 1})
	for i := range maxFaults + 5 {
		book(b, fmt.Sprint("u", i), granted, 1)
	}
	v := b.check(nil, false, true)
	require.EqualValues(t, 4, v.extra)
}

func TestMemoryIsBoundByTheStock(t *testing.T) {
	b := opened(sold{limit: 10})
	for i := range 10_000 {
		if i < 10 {
			book(b, fmt.Sprint("u", i), granted, int64(i+1))
		} else {
			book(b, fmt.Sprint("u", i), soldOut, 0)
		}
	}
	require.Len(t, b.users, 10)
	require.Len(t, b.byUser, 10)
	require.Empty(t, b.check(&sold{limit: 10, count: 10, last: 10}, true, true).faults)
}

// The check needs at most as many users as there are units; it must agree with one that remembers everybody.
func TestTheBoundedCheckAgreesWithACompleteOne(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		limit, before := 1+r.Int64N(6), int64(0)
		holders := map[string]int64{}
		b := newBooks()
		// some won before
		for range r.IntN(4) {
			if u := fmt.Sprint("u", r.IntN(8)); holders[u] == 0 && before < limit {
				before++
				holders[u] = before
			}
		}
		earlier := len(holders)
		b.opened(sold{limit: limit, count: before, last: before}, time.Now())
		distinct := map[string]bool{}
		last, lost := before, r.IntN(6) == 0
		for range r.IntN(20) {
			u := fmt.Sprint("u", r.IntN(10))
			distinct[u] = true
			switch {
			case holders[u] != 0:
				book(b, u, replayed, holders[u])
			case last < limit && !(lost && r.IntN(3) == 0):
				last++
				holders[u] = last
				book(b, u, granted, last)
			default:
				book(b, u, soldOut, 0)
			}
		}
		without := 0
		for u := range distinct {
			if o := holders[u]; o == 0 || o > before {
				without++
			}
		}
		right := int64(len(holders)-earlier) == min(limit-before, int64(without))
		v := b.check(&sold{limit: limit, count: last, last: last}, true, true)
		require.Equal(t, right, len(v.faults) == 0, "%v", v.faults)
	}
}

func TestPercentilesAreWithinTwoPercent(t *testing.T) {
	var l latencies
	require.Zero(t, l.percentile(99))
	r := rand.New(rand.NewPCG(5, 6))
	var all []time.Duration
	for range 10_001 {
		d := time.Duration(1+r.Int64N(1<<r.IntN(30))) * time.Microsecond
		all = append(all, d)
		l.add(d)
	}
	slices.Sort(all)
	for _, p := range []float64{1, 50, 99, 99.9} {
		want := all[int(p/100*float64(len(all)))]
		require.InEpsilon(t, float64(want), float64(l.percentile(p)), 0.02, "p%v", p)
	}
	require.Equal(t, 1<<62, int(value(bucket(1<<62))))
	require.Less(t, bucket(1<<64-1), len(l.buckets))
}
