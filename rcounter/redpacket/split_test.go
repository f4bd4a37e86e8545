package redpacket_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

var methods = []redpacket.Method{redpacket.DoubleMean, redpacket.LineCutting, redpacket.Equal}

// requireSplit fails unless shares are n between min and max (0: none) that sum to total.
func requireSplit(t testing.TB, shares []int64, total, n, min, max int64) {
	t.Helper()
	var sum int64
	for _, s := range shares {
		if s < min || max > 0 && s > max {
			t.Fatalf("a share of %d, not between %d and %d, of %d in %d", s, min, max, total, n)
		}
		sum += s
	}
	if int64(len(shares)) != n || sum != total {
		t.Fatalf("%d shares of together %d, want %d of %d (min %d, max %d)", len(shares), sum, n, total, min, max)
	}
}

func TestSplit_RandomInput_HasItsSumAndBounds(t *testing.T) {
	t.Parallel()
	seed := redistest.Seeds(t, 1)[0]
	r := rand.New(rand.NewPCG(seed, 1))
	for range redistest.Sized(2_000, 6_000, 20_000) {
		n := 1 + r.Int64N(40)
		least := r.Int64N(20)
		room := r.Int64N(1 << r.IntN(20))
		if r.IntN(4) == 0 {
			room = r.Int64N(3) // hardly any
		}
		most := least + room
		total := n*least + r.Int64N(n*room+1)
		switch r.IntN(8) {
		case 0:
			total = n * least
		case 1:
			total = n * most
		case 2:
			most = 0 // none
			total = n*least + r.Int64N(1<<r.IntN(50))
		}
		if total == 0 {
			continue
		}
		for _, m := range methods {
			shares, err := redpacket.Split(total, n, least, most, m, r)
			require.NoError(t, err, "seed %d: %d in %d, %d to %d, %v", seed, total, n, least, most, m)
			requireSplit(t, shares, total, n, least, most)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(int64(10000), int64(10), int64(1), int64(0), uint8(0), uint64(1))
	f.Add(int64(maxTotal), int64(1000), int64(0), int64(math.MaxInt64), uint8(1), uint64(2))
	f.Add(int64(math.MaxInt64), int64(1_000_000), int64(math.MaxInt64), int64(math.MinInt64), uint8(2), uint64(3))
	f.Add(int64(7), int64(3), int64(2), int64(3), uint8(3), uint64(4))
	f.Fuzz(func(t *testing.T, total, n, least, most int64, m uint8, seed uint64) {
		method := redpacket.Method("fair") // there is none
		if int(m) < len(methods) {
			method = methods[m]
		}
		shares, err := redpacket.Split(total, n, least, most, method, rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			require.ErrorIs(t, err, errs.ErrInvalidOption)
			return
		}
		requireSplit(t, shares, total, n, least, most)
	})
}

func TestSplit_BadInput_IsRefusedByNameAndValue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		total, n, least, most int64
		m                     redpacket.Method
		says                  []string
	}{
		{0, 1, 0, 0, "", []string{"total is 0"}},
		{-5, 1, 0, 0, "", []string{"total is -5"}},
		{maxTotal + 1, 1, 0, 0, "", []string{"total is 9007199254740992"}},
		{10, 0, 0, 0, "", []string{"n is 0"}},
		{10, -1, 0, 0, "", []string{"n is -1"}},
		{10, maxShares + 1, 0, 0, "", []string{"n is 1000001"}},
		{10, 2, -1, 0, "", []string{"lo is -1"}},
		{10, 2, 3, 2, "", []string{"hi is 2", "3"}},
		{10, 2, 1, -1, "", []string{"hi is -1"}},
		{9, 10, 1, 0, "", []string{"total is 9", "10 * 1"}},
		{9, 4, 0, 2, "", []string{"total is 9", "4 * 2"}},
		{9, 1_000_000, math.MaxInt64, 0, "", []string{"total is 9", "1000000 * 9223372036854775807"}},
		{9, 1_000_000, math.MaxInt64, math.MaxInt64, "", []string{"total is 9", "1000000 * 9223372036854775807"}},
		{10, 2, 1, 0, "fair", []string{`method is "fair"`}},
	} {
		_, err := redpacket.Split(tc.total, tc.n, tc.least, tc.most, tc.m, nil)
		require.ErrorIs(t, err, errs.ErrInvalidOption, "%+v", tc)
		for _, s := range tc.says {
			require.ErrorContains(t, err, s)
		}
	}
}

func TestSplit_LargestInput_Works(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for _, m := range methods {
		shares := redistest.NoError(redpacket.Split(maxTotal, maxShares, 1, 0, m, nil))(t)
		requireSplit(t, shares, maxTotal, maxShares, 1, 0)
		shares = redistest.NoError(redpacket.Split(maxTotal, 2, 0, math.MaxInt64, m, nil))(t)
		requireSplit(t, shares, maxTotal, 2, 0, 0)
		shares = redistest.NoError(redpacket.Split(maxTotal, 1, 0, 0, m, nil))(t)
		require.Equal(t, []int64{maxTotal}, shares)
	}
}

func TestSplit_Equal_GivesOddCentsToTheFirst(t *testing.T) {
	t.Parallel()
	shares := redistest.NoError(redpacket.Split(11, 4, 2, 3, redpacket.Equal, nil))(t)
	require.Equal(t, []int64{3, 3, 3, 2}, shares)
}

func TestSplit_SameGenerator_GivesTheSameShares(t *testing.T) {
	t.Parallel()
	for _, m := range methods[:2] {
		split := func(r *rand.Rand) []int64 {
			s := redistest.NoError(redpacket.Split(100_000, 50, 1, 5000, m, r))(t)
			return s
		}
		require.Equal(t, split(rand.New(rand.NewPCG(1, 2))), split(rand.New(rand.NewPCG(1, 2))))
		require.NotEqual(t, split(nil), split(nil))
	}
}

func BenchmarkSplit(b *testing.B) {
	for _, m := range methods {
		b.Run(string(m), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			for b.Loop() {
				if _, err := redpacket.Split(1_000_000, 10_000, 1, 0, m, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
