// Package judges has the judges of what many callers were answered: who won which unit of a stock or a red packet, and
// how many units a rate limiter let pass. The tests of these packages, the simulation and the chaos cells call them. It
// also has references of the scripts of rate limits and of tenures, with which random tests compare each reply.
package judges

import (
	"fmt"
	"sync"
)

// Unit is one that was won: its ordinal, and what it is worth, such as the cents of a share.
type Unit struct{ Ordinal, Worth int64 }

// Winners are the claimants of one unit each, by what they were answered. The zero value has none.
type Winners struct {
	mu     sync.Mutex
	units  map[string]Unit
	owners map[int64]string
	wrong  []string
}

// Won takes in the answer that a claimant has a unit, now or from before.
func (w *Winners) Won(claimant string, u Unit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if was, has := w.units[claimant]; has {
		if was != u {
			w.wrong = append(w.wrong,
				fmt.Sprintf("%s has unit %d and unit %d: %v, %v", claimant, was.Ordinal, u.Ordinal, was, u))
		}
		return
	}
	if other, taken := w.owners[u.Ordinal]; taken {
		w.wrong = append(w.wrong, fmt.Sprintf("unit %d is %s's and %s's", u.Ordinal, other, claimant))
	}
	if w.units == nil {
		w.units, w.owners = map[string]Unit{}, map[int64]string{}
	}
	w.units[claimant], w.owners[u.Ordinal] = u, claimant
}

// Refused takes in the answer that nothing is left for a claimant. It is wrong if the claimant had a unit.
func (w *Winners) Refused(claimant string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if u, has := w.units[claimant]; has {
		w.wrong = append(w.wrong, fmt.Sprintf("%s has unit %d and was answered that nothing is left", claimant, u.Ordinal))
	}
}

// Wrong returns the answers that contradict others.
func (w *Winners) Wrong() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrong
}

// Total returns how many claimants have won, and what their units are worth together.
func (w *Winners) Total() (n, worth int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, u := range w.units {
		worth += u.Worth
	}
	return int64(len(w.units)), worth
}

// Exactly returns an error unless n claimants have won the ordinals 1 to n, worth so much together.
func (w *Winners) Exactly(n, worth int64) error {
	if wrong := w.Wrong(); len(wrong) > 0 {
		return fmt.Errorf("%d wrong answers: %q", len(wrong), wrong)
	}
	if won, sum := w.Total(); won != n || sum != worth {
		return fmt.Errorf("%d have won units of %d together, not %d of %d", won, sum, n, worth)
	}
	for o := int64(1); o <= n; o++ {
		if w.owners[o] == "" {
			return fmt.Errorf("unit %d is missing", o)
		}
	}
	return nil
}
