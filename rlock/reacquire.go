package rlock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
	"weak"
)

// win makes a round's parts the hold. From then on votes that are missing, or are lost later, are asked for again.
//
// The first time is soon: Unlock returns when a majority has released, so the slowest server refuses an acquisition
// that follows at once. Without the early retry the hold would have no vote to spare for a third of the lease.
func (a *quorumAcquisition) win(p *parts, all bool) {
	a.won = p
	if a.lease > 0 {
		return
	}
	// The timer must not keep a forgotten hold in use.
	b, weakly, members := p.b, weak.Make(p), a.members
	after := a.members[0].c.opts.WatchdogTimeout
	for _, m := range members {
		after = min(after, m.c.opts.WatchdogTimeout)
	}
	var reacquire func()
	tries := 0
	reacquire = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.reacquire == nil || b.reacquiring != nil {
			return
		}
		pause := min(after/3, 10*time.Millisecond<<min(tries, 20))
		tries++
		b.reacquiring = time.AfterFunc(pause-rand.N(pause/10+1), func() {
			p := weakly.Value()
			if p == nil || b.life.Err() != nil {
				return
			}
			p.reacquire(members)
			b.mu.Lock()
			b.reacquiring = nil
			b.mu.Unlock()
			if len(p.missing()) > 0 { // also what was lost just now
				reacquire()
				return
			}
			b.mu.Lock()
			tries = 0
			b.mu.Unlock()
		})
	}
	b.mu.Lock()
	b.reacquire = reacquire
	b.mu.Unlock()
	if !all || len(p.missing()) > 0 {
		reacquire()
	}
}

// reacquire asks once more for the votes that are missing.
func (p *parts) reacquire(members []member) {
	a := &quorumAcquisition{q: p.of, members: members}
	var wg sync.WaitGroup
	for _, i := range p.missing() {
		m := members[i]
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(m.c.session.Context(), a.limit(m))
			defer cancel()
			x, err := m.take(ctx, terms{label: m.label}, true, true)
			if err != nil {
				return
			}
			p.mu.Lock()
			old := p.holds[i]
			p.mu.Unlock()
			if !p.add(i, x) {
				x.discard(ctx)
				return
			}
			if old != nil {
				old.discard(ctx) // lost, which sends nothing
			}
		})
	}
	wg.Wait()
}
