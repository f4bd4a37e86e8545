package rcounter

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"weak"
)

// desk is what a process keeps of a stock while it claims from it: the claims that share calls, and what is known of
// its being sold out. All Stock values of a name share one, made when first needed, and it goes when nobody has one
// of them and nothing is under way: the client's map holds it weakly.
type desk struct {
	claims, anys lane
	memory       memory
}

// desk is the stock's desk.
func (s *Stock) desk() *desk {
	if d := s.known.Load(); d != nil {
		return d
	}
	d := s.c.desk(s)
	s.known.Store(d)
	return d
}

func (c *Client) desk(s *Stock) *desk {
	key := s.keys[0]
	for {
		if v, ok := c.desks.Load(key); ok {
			if d := v.(weak.Pointer[desk]).Value(); d != nil {
				return d
			}
			c.desks.CompareAndDelete(key, v)
		}
		d := newDesk(c, s)
		p := weak.Make(d)
		if _, loaded := c.desks.LoadOrStore(key, p); !loaded {
			runtime.AddCleanup(d, func(key string) { c.desks.CompareAndDelete(key, p) }, key)
			return d
		}
	}
}

func newDesk(c *Client, s *Stock) *desk {
	s = &Stock{c: c, name: s.name, keys: s.keys} // not the caller's, which refers to the desk
	d := &desk{memory: newMemory(c, s.keys)}
	d.claims = lane{o: &c.combine, spawn: c.tasks.spawn, bound: c.bound, key: s.keys[0], run: s.runClaims}
	d.anys = lane{o: &c.combine, spawn: c.tasks.spawn, bound: c.bound, key: s.keys[0], run: s.runAnys, forsaken: s.takeBack}
	return d
}

// runClaims is a flight of Claim.
func (s *Stock) runClaims(ctx context.Context, seats []*seat) {
	claimants := make([]string, len(seats))
	for i, seat := range seats {
		claimants[i] = seat.claimant
	}
	grants, err := s.claim(ctx, callID(), claimants)
	for i, seat := range seats {
		if grants == nil || err != nil && grants[i].Won() {
			seat.err = err
		} else {
			seat.grant = grants[i] // what was refused needs no replica
		}
	}
}

// runAnys is a flight of ClaimAny: one grant for the sum, shared out in the order of asking.
func (s *Stock) runAnys(ctx context.Context, seats []*seat) {
	id, sum := recordID(), int64(0)
	for _, seat := range seats {
		sum = min(sum+seat.n, MaxLimit) // of two numbers up to 2^53
	}
	g, err := s.any(ctx, id, sum)
	if err != nil {
		for _, seat := range seats {
			seat.err = err
		}
		if errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrUnconfirmed) {
			s.c.tasks.spawn(func() { s.handBack(ctx, id, 0, 0) })
		}
		return
	}
	next, rest := g.Ordinal, g.N
	for _, seat := range seats {
		seat.grant = g
		n := min(seat.n, rest)
		switch {
		case !g.Won():
		case n > 0:
			seat.grant.Ordinal, seat.grant.N = next, n
			next, rest = next+n, rest-n
		default: // the flight won, and nothing of it is left for this one
			seat.grant = Grant{Outcome: SoldOut, Remaining: g.Remaining, Epoch: g.Epoch}
		}
	}
}

// takeBack returns the units of claims whose callers left before the answer.
func (s *Stock) takeBack(left []*seat) {
	s.c.tasks.spawn(func() {
		for _, seat := range left {
			s.handBack(seat.ctx, seat.grant.Request, seat.grant.Ordinal, seat.grant.N)
		}
	})
}

// handBack is giveBackAny for units that nobody waits for.
func (s *Stock) handBack(ctx context.Context, request string, first, n int64) {
	ctx = context.WithoutCancel(ctx) // whose caller has left
	if _, err := s.giveBackAny(ctx, callID(), request, first, n); err != nil {
		s.c.failed(ctx, notReturned, s.name, err)
	}
}

// tasks are goroutines that are waited for. Unlike a sync.WaitGroup's, they may be started while somebody waits.
type tasks struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n gets to 0; nil while nobody waits
}

func (t *tasks) spawn(fn func()) {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
	go func() {
		defer t.done()
		fn()
	}()
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	if t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

func (t *tasks) wait() {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	<-idle
}
