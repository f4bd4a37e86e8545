package redpacket

import (
	"cmp"
	crand "crypto/rand"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/redlatch/redlatch/internal/errs"
)

const (
	// maxShares is the largest number of shares of a red packet.
	maxShares = 1_000_000
	// maxTotal is the largest total of a red packet, in cents: 2^53-1, to which the server's Lua counts exactly.
	maxTotal = 1<<53 - 1
)

// Method is how a total is split into shares.
type Method string

const (
	// DoubleMean draws each share between the least and twice the mean of what is left by then, and shuffles the shares,
	// so that no place is better than another. Users of red packets know it: up to about the mean all amounts are equally
	// likely, few are above twice the mean, and the largest is about that. The default.
	DoubleMean Method = "double mean"
	// LineCutting cuts the total at random points, and shuffles the shares: the spread is wider than DoubleMean's, the
	// largest share about ln(n) times the mean.
	LineCutting Method = "line cutting"
	// Equal gives everybody the same, to the cent: the first total mod n shares have one more.
	Equal Method = "equal"
)

// Split splits total cents into n shares whose sum is exactly total. Each share is at least lo and at most hi; hi 0
// means no upper limit. The same r in the same state gives the same shares; a nil r stands for an unpredictable
// generator. With DoubleMean and LineCutting every place has the same distribution.
//
// The error is ErrInvalidOption if total is outside 1 to 2^53-1, n is outside 1 to 1,000,000, lo is below 0, hi is
// below lo, n shares of such sizes cannot add up to total, or the method is unknown.
func Split(total, n, lo, hi int64, m Method, r *rand.Rand) (parts []int64, err error) {
	defer edge(&err)
	m = cmp.Or(m, DoubleMean)
	hi, err = checkSplit(total, n, lo, hi, m, [...]string{"total", "n", "lo", "hi", "method"})
	if err != nil {
		return nil, err
	}
	if r == nil {
		var seed [32]byte
		crand.Read(seed[:]) // never fails
		r = rand.New(rand.NewChaCha8(seed))
	}
	// Every share has lo; only the surplus is drawn, up to room a share.
	surplus, room := total-n*lo, hi-lo
	shares := make([]int64, n)
	switch m {
	case DoubleMean:
		doubleMean(shares, surplus, room, r)
	case LineCutting:
		lineCutting(shares, surplus, room, r)
		// Of whole cents two cuts meet more seldom than a cut and an end: without this, of one cent in three shares the
		// one in the middle would get it half of the time (TestSplit_EveryPlace_HasTheDistributionOfItsMethod).
		shuffle(shares, r)
	case Equal:
		for i := range shares {
			shares[i] = surplus / n
			if int64(i) < surplus%n {
				shares[i]++
			}
		}
	}
	for i := range shares {
		shares[i] += lo
	}
	return shares, nil
}

// checkSplit refuses what cannot be split, under the names that the caller knows, and returns hi: total if it was 0.
func checkSplit(total, n, lo, hi int64, m Method, name [5]string) (int64, error) {
	given := hi != 0
	if !given {
		hi = total
	}
	switch {
	case total < 1 || total > maxTotal:
		return 0, errs.InvalidOption(name[0], total, fmt.Sprintf("between 1 and %d", int64(maxTotal)))
	case n < 1 || n > maxShares:
		return 0, errs.InvalidOption(name[1], n, fmt.Sprintf("between 1 and %d", maxShares))
	case lo < 0:
		return 0, errs.InvalidOption(name[2], lo, "at least 0")
	case given && hi < lo:
		return 0, errs.InvalidOption(name[3], hi, fmt.Sprintf("at least %s, which is %d, or 0 for none", name[2], lo))
	case lessThanProduct(total, n, lo):
		return 0, errs.InvalidOption(name[0], total,
			fmt.Sprintf("at least %s * %s, which is %d * %d", name[1], name[2], n, lo))
	case !lessThanProduct(total, n, hi) && total != n*hi:
		return 0, errs.InvalidOption(name[0], total,
			fmt.Sprintf("at most %s * %s, which is %d * %d", name[1], name[3], n, hi))
	case m != DoubleMean && m != LineCutting && m != Equal:
		return 0, errs.InvalidWord(name[4], m, "DoubleMean, LineCutting or Equal")
	}
	return hi, nil
}

// lessThanProduct reports a < b*c for numbers that are not negative.
func lessThanProduct(a, b, c int64) bool {
	high, low := bits.Mul64(uint64(b), uint64(c))
	return high > 0 || uint64(a) < low
}

// doubleMean draws each share evenly from [0, 2*mean of the rest], or, where room is less than that, from the interval
// around the same mean that ends at room: the means of all places are then still equal, and what is left always fits
// into the shares that are left. (Cutting the draw off at room instead would leave too much for the last ones.)
func doubleMean(shares []int64, rest, room int64, r *rand.Rand) {
	for i := range shares[:len(shares)-1] {
		left := int64(len(shares) - i)
		// 2*rest/left rounded down and up, without leaving 64 bits: rest < 2^53
		high := 2 * rest / left
		low := int64(0)
		if high > room {
			low = (2*rest+left-1)/left - room
			high = room
		}
		// rounding: the rest must fit into left-1 shares
		if least := rest - min(rest, saturated(left-1, room)); low < least {
			low = least
		}
		shares[i] = low + r.Int64N(high-low+1)
		rest -= shares[i]
	}
	shares[len(shares)-1] = rest
	shuffle(shares, r)
}

func shuffle(shares []int64, r *rand.Rand) {
	r.Shuffle(len(shares), func(i, j int) { shares[i], shares[j] = shares[j], shares[i] })
}

// saturated is a*b, or maxTotal if that is less.
func saturated(a, b int64) int64 {
	if lessThanProduct(maxTotal, a, b) {
		return maxTotal
	}
	return a * b
}

// lineCutting cuts [0, surplus] at len(shares)-1 random points. What a share gets beyond room is put together and cut
// again among those with room, a bounded number of times; then it fills them in a random order.
func lineCutting(shares []int64, surplus, room int64, r *rand.Rand) {
	open := make([]int, len(shares)) // shares with room
	for i := range open {
		open[i] = i
	}
	cuts := make([]int64, 0, len(shares))
	for range 32 {
		cuts = cuts[:0]
		for range len(open) - 1 {
			cuts = append(cuts, r.Int64N(surplus+1))
		}
		slices.Sort(cuts)
		cuts = append(cuts, surplus)
		var from, excess int64
		still := open[:0]
		for k, i := range open {
			shares[i] += cuts[k] - from
			from = cuts[k]
			if over := shares[i] - room; over > 0 {
				shares[i] -= over
				excess += over
			}
			if shares[i] < room {
				still = append(still, i)
			}
		}
		open, surplus = still, excess
		if surplus == 0 {
			return
		}
	}
	r.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	for _, i := range open {
		add := min(surplus, room-shares[i])
		shares[i] += add
		surplus -= add
	}
}
