package simulation

import (
	"slices"
	"testing"
)

// Shrink finds a short plan that still fails: it takes away parts, from halves to single steps, while what is left
// fails in one of so many runs. A run is not the same each time, because owners and pauses are random; so a plan that
// fails seldom shrinks less.
func Shrink(t *testing.T, p Plan, m *Mutant, runs int) (Plan, Result) {
	fails := func(p Plan) (Result, bool) {
		for range runs {
			if r := Run(t, p, m); len(r.Violations) > 0 {
				return r, true
			}
		}
		return Result{}, false
	}
	worst, ok := fails(p)
	if !ok {
		return p, worst
	}
	for size := (len(p.Steps) + 1) / 2; size >= 1; {
		smaller := false
		for at := 0; at < len(p.Steps); {
			numbers := p.Numbers()
			less := p.Keep(slices.Concat(numbers[:at], numbers[min(at+size, len(numbers)):]))
			if r, ok := fails(less); ok {
				p, worst, smaller = less, r, true
			} else {
				at += size
			}
		}
		if size == 1 && !smaller {
			break
		}
		size = max(1, size/2)
	}
	return p, worst
}
