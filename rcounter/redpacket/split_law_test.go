package redpacket_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

// doubleMeanLaw is the exact probability of each amount of a share by DoubleMean: each share is drawn evenly from 0 to
// twice the mean of what is left, or from as far below that mean as room is above it, and all places have the average.
func doubleMeanLaw(surplus, n, room int) []float64 {
	law := make([]float64, surplus+1)
	rest := make([]float64, surplus+1) // the probability of what is left
	rest[surplus] = 1
	for left := n; left > 1; left-- {
		after := make([]float64, surplus+1)
		for x, p := range rest {
			if p == 0 {
				continue
			}
			low, high := 0, 2*x/left
			if high > room {
				low, high = max(0, int(math.Ceil(2*float64(x)/float64(left)))-room), room
			}
			low = max(low, x-(left-1)*room)
			for s := low; s <= high; s++ {
				law[s] += p / float64(high-low+1) / float64(n)
				after[x-s] += p / float64(high-low+1)
			}
		}
		rest = after
	}
	for s, p := range rest {
		law[s] += p / float64(n)
	}
	return law
}

// lineCuttingLaw is the same of LineCutting without a largest share: n-1 cuts, each at any cent from 0 to surplus. A
// share of s lies between two cuts that are s apart with none in between, or between a cut and an end.
func lineCuttingLaw(surplus, n int) []float64 {
	law := make([]float64, surplus+1)
	points, cuts := float64(surplus+1), float64(n-1)
	power := func(p float64) float64 { return math.Pow(math.Max(p, 0), cuts) }
	law[0] = 1
	for s := 1; s <= surplus; s++ {
		outside := 1 - float64(s-1)/points // of a cut, that it is not strictly in between
		inner := (points - float64(s)) * (power(outside) - 2*power(outside-1/points) + power(outside-2/points))
		edge := power(1-float64(s)/points) - power(1-float64(s+1)/points)
		law[s] = (inner + 2*edge) / float64(n)
		law[0] -= law[s]
	}
	return law
}

// chiSquare is the statistic of counts against a law, over the value that it exceeds once in a thousand million times
// (by Wilson and Hilferty). Neighbouring amounts are joined until 10 are expected.
func chiSquare(counts []int, law []float64, draws int) float64 {
	var sum, seen, want float64
	cells := 0
	add := func() {
		sum += (seen - want) * (seen - want) / want
		seen, want = 0, 0
		cells++
	}
	tail := 1.0
	for s, p := range law {
		seen, want, tail = seen+float64(counts[s]), want+p*float64(draws), tail-p
		if want >= 10 && tail*float64(draws) >= 10 {
			add()
		}
	}
	add()
	k := float64(cells - 1)
	limit := k * math.Pow(1-2/(9*k)+6*math.Sqrt(2/(9*k)), 3)
	return sum / limit
}

// The seeds are fixed, so the test says the same every time.
func TestSplit_EveryPlace_HasTheDistributionOfItsMethod(t *testing.T) {
	t.Parallel()
	const draws = 20_000
	for _, tc := range []struct {
		name             string
		m                redpacket.Method
		surplus, n, room int
		law              []float64
	}{
		{"double mean", redpacket.DoubleMean, 200, 5, 200, doubleMeanLaw(200, 5, 200)},
		{"double mean, few cents", redpacket.DoubleMean, 7, 4, 7, doubleMeanLaw(7, 4, 7)},
		{"double mean, with a largest share", redpacket.DoubleMean, 200, 5, 60, doubleMeanLaw(200, 5, 60)},
		{"line cutting", redpacket.LineCutting, 200, 5, 200, lineCuttingLaw(200, 5)},
		{"line cutting, few cents", redpacket.LineCutting, 3, 4, 3, lineCuttingLaw(3, 4)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(11, uint64(len(tc.m))))
			counts := make([][]int, tc.n)
			for place := range counts {
				counts[place] = make([]int, tc.surplus+1)
			}
			for range draws {
				shares := redistest.NoError(redpacket.Split(int64(tc.surplus+tc.n), int64(tc.n), 1, int64(tc.room+1), tc.m, r))(t)
				for place, s := range shares {
					counts[place][s-1]++
				}
			}
			other := lineCuttingLaw(tc.surplus, tc.n)
			if tc.m == redpacket.LineCutting {
				other = doubleMeanLaw(tc.surplus, tc.n, tc.room)
			}
			for place := range counts {
				require.Less(t, chiSquare(counts[place], tc.law, draws), 1.0, "place %d", place)
				require.Greater(t, chiSquare(counts[place], other, draws), 1.0, "place %d: the other method passes too", place)
			}
		})
	}
}
