package redpacket_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

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
func TestSharesHaveTheDistributionOfTheirMethodAtEveryPlace(t *testing.T) {
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
				shares, err := redpacket.Split(int64(tc.surplus+tc.n), int64(tc.n), 1, int64(tc.room+1), tc.m, r)
				require.NoError(t, err)
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

var update = flag.Bool("update", false, "write the chart of the docs anew")

// The chart of docs/stocks.md is drawn from the laws above.
func TestTheChartOfTheDocsIsThatOfTheDistributions(t *testing.T) {
	t.Parallel()
	const file = "../../docs/stocks/split.svg"
	want := splitChart()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "go test ./rcounter/redpacket -run TheChart -update")
}

// splitChart draws how likely each amount is when 20.00 are split into 10 shares of at least 0.01.
func splitChart() string {
	const (
		cents, n, bin         = 2000, 10, 20
		bins                  = 30 // up to 6.00
		left, top, right, low = 56.0, 74.0, 736.0, 330.0
		most                  = 0.105 // of a bin
	)
	x := func(amount float64) float64 { return left + (right-left)*amount/(bins*bin) }
	y := func(p float64) float64 { return low - (low-top)*p/most }
	var b strings.Builder
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 380" width="760" height="380" role="img" aria-labelledby="t d">
<title id="t">How large is a share?</title>
<desc id="d">The probability of each amount, by 20 cents, when 20.00 are split into 10 shares of at least 0.01. Double mean: even up to 1.50, few shares above 4.00. Line cutting: small shares are the most likely, and large ones occur.</desc>
<style>
text{font:12px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.h{font-size:15px;font-weight:600}.n{fill:#59636e}.bg{fill:#fff}.g{stroke:#d1d9e0}.m{stroke:#59636e;stroke-dasharray:4 4}
.a{fill:#c2185b;fill-opacity:.22;stroke:#c2185b;stroke-width:2}.b{fill:#1d4ed8;fill-opacity:.12;stroke:#1d4ed8;stroke-width:2}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.n{fill:#9198a1}.bg{fill:#0d1117}.g{stroke:#3d444d}.m{stroke:#9198a1}
.a{fill:#ff6f9c;stroke:#ff6f9c}.b{fill:#79a8ff;stroke:#79a8ff}}
</style>
<rect class="bg" width="760" height="380" rx="6"/>
<text x="16" y="26" class="h">How large is a share?</text>
<text x="16" y="44" class="n">20.00 in 10 shares of at least 0.01: how many of 100 shares have an amount within 20 cents</text>
`)
	for p := 0; p <= 10; p += 2 {
		fmt.Fprintf(&b, `<line class="g" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text class="n" x="%.1f" y="%.1f" text-anchor="end">%d</text>`+"\n",
			left, right, y(float64(p)/100), y(float64(p)/100), left-8, y(float64(p)/100)+4, p)
	}
	for a := 0; a <= bins*bin; a += 100 {
		fmt.Fprintf(&b, `<text class="n" x="%.1f" y="%.1f" text-anchor="middle">%d.00</text>`+"\n", x(float64(a)), low+20,
			a/100)
	}
	for _, curve := range []struct {
		class string
		law   []float64
	}{{"b", lineCuttingLaw(cents-n, n)}, {"a", doubleMeanLaw(cents-n, n, cents-n)}} {
		fmt.Fprintf(&b, `<path class="%s" d="M%.1f %.1f`, curve.class, x(0), y(0))
		for i := range bins {
			sum := 0.0
			for s := i * bin; s < (i+1)*bin; s++ {
				sum += curve.law[s] // of one cent more, the least share
			}
			fmt.Fprintf(&b, "V%.1fH%.1f", y(sum), x(float64((i+1)*bin)))
		}
		fmt.Fprintf(&b, `V%.1f"/>`+"\n", y(0))
	}
	fmt.Fprintf(&b, `<line class="m" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text class="n" x="%.1f" y="%.1f">Equal: all 2.00</text>`+"\n", x(200), x(200), top-6, low, x(200)+8, top)
	for i, name := range []string{"DoubleMean", "LineCutting"} {
		fmt.Fprintf(&b, `<rect class="bg" x="592" y="%d" width="144" height="20"/><rect class="%c" x="600" y="%d" width="22" height="12"/><text x="630" y="%d">%s</text>`+"\n", 92+i*20, "ab"[i], 96+i*20, 106+i*20, name)
	}
	fmt.Fprintf(&b, `<text class="n" x="%.1f" y="368" text-anchor="middle">the share</text>`+"\n</svg>\n", (left+right)/2)
	return b.String()
}
