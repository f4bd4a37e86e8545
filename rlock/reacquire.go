package rlock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
	"weak"
)

// win makes a round's parts the hold, and has the votes that are missing, or are lost later, asked for again.
func (e *election) win(p *parts, all bool) {
	e.won = p
	if e.lease > 0 {
		return
	}
	// The plan must not keep the hold from being forgotten.
	b, weakly, members := p.b, weak.Make(p), e.members
	after := e.members[0].c.opts.WatchdogTimeout
	for _, m := range members {
		after = min(after, m.c.opts.WatchdogTimeout)
	}
	// At first soon: what was refused was perhaps just being released. Then every third of the lease.
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
	e := &election{q: p.of, members: members}
	var wg sync.WaitGroup
	for _, i := range p.missing() {
		m := members[i]
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(m.c.session.Context(), e.limit(m))
			defer cancel()
			x, err := m.take(ctx, terms{0, 0, m.label}, true)
			if err != nil {
				return
			}
			p.mu.Lock()
			old := p.holds[i]
			p.mu.Unlock()
			if !p.add(i, x) {
				x.discard(ctx)
			} else if old != nil {
				old.discard(ctx) // lost, which asks nobody
			}
		})
	}
	wg.Wait()
}
