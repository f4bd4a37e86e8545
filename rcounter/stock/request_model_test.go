package stock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// act is what a request or reservation has come to.
type act struct {
	state    string // granted, held, returned, cancelled, expired
	kind     string // once, reserve, or forbidden: cancelled before it was made
	claimant string
	asked, n int64
	held     int64  // of a reservation: how many it held
	cart     string // of which it is a line
	vain     bool   // expired, and nothing is sold any more
	ordinal  int64
	deadline time.Duration
	ended    time.Duration // when it became returned, cancelled or expired
}

// requestModel is a stock of requests and reservations as their documentation describes it.
type requestModel struct {
	now        time.Duration
	limit, per int64
	seq        int64
	paused     bool
	end        time.Duration // 0: far away
	acts       map[string]*act
	single     map[string]int64   // by Claim
	parts      map[int64][2]int64 // ClaimAny: first ordinal -> units, and how many of them from the front were returned
}

// expire ends the reservations whose time is over: when that is written down makes no difference to anybody.
func (m *requestModel) expire() {
	for _, a := range m.acts {
		if a.state == "held" && m.now > a.deadline { // to the end of that millisecond
			a.state, a.ended = "expired", m.now
		}
	}
}

func (m *requestModel) sold() (n int64) {
	for _, a := range m.acts {
		if a.state == "granted" {
			n += a.n
		}
	}
	for _, p := range m.parts {
		n += p[0] - p[1]
	}
	return n + int64(len(m.single))
}

func (m *requestModel) held() (n int64) {
	for _, a := range m.acts {
		if a.state == "held" {
			n += a.n
		}
	}
	return n
}

func (m *requestModel) left() int64 { return m.limit - m.sold() - m.held() }

func (m *requestModel) has(claimant string) (n int64) {
	for _, a := range m.acts {
		if a.claimant == claimant && (a.state == "granted" || a.state == "held") {
			n += a.n
		}
	}
	if m.single[claimant] > 0 {
		n++
	}
	return n
}

// closed is the answer to whoever has nothing yet, or 0 while the stock sells.
func (m *requestModel) closed() stock.Outcome {
	switch {
	case m.end > 0 && m.now >= m.end:
		return stock.Ended
	case m.paused:
		return stock.Paused
	}
	return ""
}

// fits is how many of n units claimant may have, or nothing and why not.
func (m *requestModel) fits(claimant string, n int64, part bool) (int64, stock.Grant) {
	left, may := m.left(), m.per-m.has(claimant)
	switch {
	case m.closed() != "":
		return 0, stock.Grant{Outcome: m.closed()}
	case left <= 0 || !part && left < n:
		return 0, stock.Grant{Outcome: stock.SoldOut}
	case may <= 0 || !part && may < n:
		return 0, stock.Grant{Outcome: stock.UserLimit}
	}
	return min(n, left, may), stock.Grant{}
}

// has is the answer with what a has.
func (a *act) has(o stock.Outcome, id string) stock.Grant {
	return stock.Grant{Outcome: o, Ordinal: a.ordinal, N: a.n, Missing: a.asked - a.n, Request: id}
}

// over is the answer if a is, else nothing.
func (a *act) over() stock.Outcome {
	return map[string]stock.Outcome{"returned": stock.Returned, "cancelled": stock.Cancelled,
		"expired": stock.Expired}[a.state]
}

func (m *requestModel) once(id, claimant string, n int64, part bool) (stock.Grant, error) {
	a := m.acts[id]
	switch {
	case a != nil && a.kind == "forbidden":
		return stock.Grant{Outcome: stock.Cancelled}, nil
	case a != nil && (a.kind != "once" || a.claimant != claimant || a.asked != n):
		return stock.Grant{}, errs.ErrMismatch
	case a != nil && a.state == "returned":
		return stock.Grant{Outcome: stock.Returned}, nil
	case a != nil:
		return a.has(stock.Replayed, id), nil
	}
	got, refused := m.fits(claimant, n, part)
	if got == 0 {
		return refused, nil
	}
	m.acts[id] = &act{state: "granted", kind: "once", claimant: claimant, asked: n, n: got, ordinal: m.seq + 1}
	m.seq += got
	return m.acts[id].has(stock.Granted, id), nil
}

func (m *requestModel) reserve(id, claimant string, n int64, ttl time.Duration, part bool) (stock.Grant, error) {
	a := m.acts[id]
	switch {
	case a != nil && a.kind == "forbidden":
		return stock.Grant{Outcome: stock.Cancelled}, nil
	case a != nil && (a.kind != "reserve" || a.claimant != claimant || a.asked != n):
		return stock.Grant{}, errs.ErrMismatch
	case a != nil && a.over() != "":
		return stock.Grant{Outcome: a.over()}, nil
	case a != nil:
		return a.has(stock.Replayed, id), nil
	}
	got, refused := m.fits(claimant, n, part)
	if got == 0 {
		return refused, nil
	}
	m.acts[id] = &act{state: "held", kind: "reserve", claimant: claimant, asked: n, n: got, held: got,
		deadline: m.now + ttl}
	return m.acts[id].has(stock.Granted, id), nil
}

// paid is the answer to a payment for what a held.
func (a *act) paid(o stock.Outcome, id string) stock.Grant {
	g := a.has(o, id)
	g.Missing = a.held - a.n
	return g
}

// answered is the answer to an act on a reservation that is not held; false if it is held.
func (m *requestModel) answered(id string) (stock.Grant, error, bool) {
	a := m.acts[id]
	switch {
	case a == nil:
		return stock.Grant{}, stock.ErrNotFound, true
	case a.kind == "forbidden":
		return stock.Grant{Outcome: stock.Cancelled}, nil, true
	case a.kind != "reserve":
		return stock.Grant{}, errs.ErrMismatch, true
	case a.over() != "":
		return stock.Grant{Outcome: a.over(), Missing: a.held}, nil, true
	case a.state == "granted":
		return a.paid(stock.Replayed, id), nil, true
	}
	return stock.Grant{}, nil, false
}

// confirm sells what is held, or what is left of it; pays is how many were paid for, 0 for all.
func (m *requestModel) confirm(id string, pays int64) (g stock.Grant, err error) {
	defer func() {
		if pays > 0 && g.Outcome.Final() {
			g.Missing = max(0, pays-g.N)
		}
	}()
	a := m.acts[id]
	if a == nil {
		m.cancel(id)
		return stock.Grant{Outcome: stock.Cancelled}, nil
	}
	late := a.state == "expired" && !a.vain
	if g, err, answered := m.answered(id); answered && !late {
		return g, err
	}
	n := a.n
	if pays > 0 {
		n = min(n, pays)
	}
	if late {
		got, refused := m.fits(a.claimant, n, true)
		switch {
		case refused.Outcome == stock.Paused:
			return refused, nil
		case got == 0:
			a.vain, a.ended = true, m.now
			return stock.Grant{Outcome: stock.Expired, Missing: a.held}, nil
		}
		n = got
	}
	a.state, a.n, a.ordinal = "granted", n, m.seq+1
	m.seq += n
	return a.paid(stock.Granted, id), nil
}

func (m *requestModel) extend(id string, ttl time.Duration) (stock.Grant, error) {
	if g, err, answered := m.answered(id); answered {
		return g, err
	}
	a := m.acts[id]
	if m.now+ttl <= a.deadline {
		return a.has(stock.Replayed, id), nil
	}
	a.deadline = m.now + ttl
	return a.has(stock.Granted, id), nil
}

func (m *requestModel) cancel(id string) (bool, error) {
	a := m.acts[id]
	switch {
	case a == nil:
		m.acts[id] = &act{state: "cancelled", kind: "forbidden", ended: m.now}
	case a.kind == "once":
		return false, errs.ErrMismatch
	case a.state == "expired" && !a.vain:
		a.vain, a.ended = true, m.now
	case a.state == "held":
		a.state, a.ended = "cancelled", m.now
		return true, nil
	}
	return false, nil
}

// look is what became of an id.
func (m *requestModel) look(id string) stock.Holding {
	a := m.acts[id]
	if a == nil {
		return stock.Holding{}
	}
	h := stock.Holding{Outcome: a.over(), Request: id, Claimant: a.claimant, Ordinal: a.ordinal, N: a.n, Asked: a.asked}
	if h.Outcome == "" {
		h.Outcome = stock.Replayed
	}
	if a.kind == "forbidden" || a.vain {
		h.N = 0
	}
	return h
}

// giveBack returns all but keep units, and says how many.
func (m *requestModel) giveBack(id string, keep int64) int64 {
	a := m.acts[id]
	if a == nil || a.state != "granted" || a.n <= keep {
		return 0
	}
	back := a.n - keep
	if keep > 0 {
		a.n = keep
	} else {
		a.state, a.ended = "returned", m.now
	}
	return back
}

// Requests, reservations, their confirmations, cancellations and returns, in any order, each repeated at any later
// time, over the three wires: everything is as the model says, and the ordinals are all different.
func TestRequestsAndReservationsKeepToTheirModelInAnyOrder(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	t.Run("a claimed unit counts", func(t *testing.T) { // many a walk does not come by this
		s := on(t, redistest.Start(t).Client(t), exact).Stock("s")
		_, err := s.Open(ctx, stock.Spec{Limit: 10, PerUser: 2, OpenFor: time.Hour})
		require.NoError(t, err)
		require.Equal(t, stock.Granted, claimed(t, s, "ann").Outcome)
		g, err := s.Claim(ctx, "ann", stock.Request{ID: "two", N: 2})
		require.NoError(t, err)
		require.Equal(t, stock.UserLimit, g.Outcome)
		g, err = s.Claim(ctx, "ann", stock.Request{ID: "one", N: 1})
		require.NoError(t, err)
		require.Equal(t, stock.Granted, g.Outcome)
		g, err = s.Reserve(ctx, "ann", stock.Request{ID: "held", N: 1}, time.Hour)
		require.NoError(t, err)
		require.Equal(t, stock.UserLimit, g.Outcome)
	})
	for wire, wrap := range map[string]func(t *testing.T, s *redistest.Server, rnd *rand.Rand) rueidis.Client{
		"once": func(t *testing.T, s *redistest.Server, _ *rand.Rand) rueidis.Client { return s.Client(t) },
		"twice": func(t *testing.T, s *redistest.Server, _ *rand.Rand) rueidis.Client {
			return twice{Client: s.Client(t)}
		},
		"lossy": func(t *testing.T, s *redistest.Server, rnd *rand.Rand) rueidis.Client {
			return newLossy(t, s, func() bool { return rnd.IntN(3) == 0 })
		},
	} {
		rounds := redistest.Sized(1, 1, 3)
		if redistest.RaceEnabled {
			rounds = min(rounds, 2)
		}
		for i := range rounds {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("%s/%d", wire, seed), func(t *testing.T) {
				srv := redistest.Embedded(t)
				if i == 0 == (wire == "once") {
					srv = redistest.Start(t) // whose clock cannot be moved: nothing expires
				}
				walkRequests(t, srv, on(t, wrap(t, srv, rand.New(rand.NewPCG(seed, 2))), exact), rand.New(rand.NewPCG(seed, 1)))
			})
		}
	}
}

func walkRequests(t *testing.T, srv *redistest.Server, c *stock.Client, rnd *rand.Rand) {
	began := time.Now().Truncate(time.Millisecond)
	life := time.Second
	if srv.Embedded != nil {
		srv.Embedded.SetTime(began)
	} else {
		life = time.Hour
	}
	raw := srv.Client(t)
	s := c.Stock("s")
	m := &requestModel{limit: 1 + rnd.Int64N(8), per: 1 + rnd.Int64N(4), acts: map[string]*act{},
		single: map[string]int64{}, parts: map[int64][2]int64{}}
	epoch, err := s.Open(ctx, stock.Spec{Limit: m.limit, PerUser: m.per, OpenFor: 1000 * time.Hour, Ledger: true})
	require.NoError(t, err)
	var trace []string
	same := func(what string, want, got any, wantErr, gotErr error) {
		t.Helper()
		trace = append(trace, fmt.Sprintf("%v %s: %v %v", m.now, what, got, gotErr))
		if len(trace) > 30 {
			trace = trace[1:]
		}
		require.ErrorIs(t, gotErr, wantErr, "%v", trace)
		require.Equal(t, want, got, "%v", trace)
	}
	full := func(g stock.Grant, err error) (stock.Grant, error) {
		if err == nil {
			g.Remaining, g.Epoch = m.left(), epoch
		}
		return g, err
	}
	anys := map[int64]stock.Grant{}
	steps := redistest.Sized(200, 200, 300)
	if redistest.RaceEnabled {
		steps = min(steps, 200)
	}
	for range steps {
		id := fmt.Sprintf("id%d", rnd.IntN(12))
		claimant := []string{"ann", "bob;1", "c\nd\x01", "dan"}[rnd.IntN(4)]
		n := 1 + rnd.Int64N(3)
		if a := m.acts[id]; a != nil && a.asked > 0 && rnd.IntN(4) > 0 {
			claimant, n = a.claimant, a.asked // mostly the same again
		}
		m.expire()
		switch op := rnd.IntN(100); {
		case op < 18:
			want, wantErr := full(m.once(id, claimant, n, op%2 == 0))
			got, err := s.Claim(ctx, claimant, stock.Request{ID: id, N: n, UpTo: op%2 == 0})
			same(fmt.Sprintf("once %d %s %q %d", op%2, id, claimant, n), want, got, wantErr, err)
		case op < 38:
			ttl := time.Duration(1+rnd.IntN(20)) * life
			want, wantErr := full(m.reserve(id, claimant, n, ttl, op%2 == 0))
			got, err := s.Reserve(ctx, claimant, stock.Request{ID: id, N: n, UpTo: op%2 == 0}, ttl)
			want.Until = got.Until
			same(fmt.Sprintf("reserve %d %s %q %d", op%2, id, claimant, n), want, got, wantErr, err)
		case op < 47:
			want, wantErr := full(m.confirm(id, 0))
			got, err := s.Confirm(ctx, id)
			same("confirm "+id, want, got, wantErr, err)
		case op < 51:
			want, wantErr := full(m.confirm(id, n))
			got, err := s.Confirm(ctx, id, stock.Paid(n))
			same(fmt.Sprintf("confirm %d of %s", n, id), want, got, wantErr, err)
		case op < 55:
			ttl := time.Duration(1+rnd.IntN(20)) * life
			asked := srv.Embedded != nil // the clock of the other goes on between a copy and the next
			want, wantErr := full(m.extend(id, ttl))
			got, err := s.Extend(ctx, id, ttl)
			want.Until = got.Until
			if !asked && want.Won() {
				want.Outcome = got.Outcome
			}
			same(fmt.Sprintf("extend %s %v", id, ttl), want, got, wantErr, err)
		case op < 60:
			want, wantErr := m.cancel(id)
			got, err := s.Cancel(ctx, id)
			same("cancel "+id, want, got, wantErr, err)
		case op < 68:
			if op%2 == 0 {
				want := m.giveBack(id, n)
				got, err := s.Return(ctx, stock.Units{Request: id, Keep: n})
				same(fmt.Sprintf("return all but %d of %s", n, id), want, got, nil, err)
				break
			}
			want := m.giveBack(id, 0)
			got, err := s.Return(ctx, stock.Units{Request: id})
			same("return "+id, want, got, nil, err)
		case op < 74:
			left := m.left()
			got, err := s.ClaimAny(ctx, n)
			require.NoError(t, err)
			want := stock.Grant{Outcome: stock.SoldOut}
			if closed := m.closed(); closed != "" {
				want.Outcome = closed
			} else if left > 0 {
				want = stock.Grant{Outcome: stock.Granted, Ordinal: m.seq + 1, N: min(n, left), Request: got.Request}
				m.parts[want.Ordinal] = [2]int64{want.N, 0}
				m.seq += want.N
				anys[want.Ordinal] = got
			}
			want, _ = full(want, nil)
			same("any", want, got, nil, err)
		case op < 82 && len(anys) > 0:
			firsts := make([]int64, 0, len(anys))
			for o := range anys {
				firsts = append(firsts, o)
			}
			slices.Sort(firsts)
			first := firsts[rnd.IntN(len(firsts))]
			p, g := m.parts[first], anys[first]
			g.N = 1 + rnd.Int64N(3)
			g.Ordinal += p[1] - rnd.Int64N(2) // the next part, or one that was returned, or is before it
			want := g.Ordinal == first+p[1] && p[1]+g.N <= p[0]
			if g.Ordinal < 1 {
				break
			}
			if want {
				m.parts[first] = [2]int64{p[0], p[1] + g.N}
			}
			got, err := s.Return(ctx, stock.Units{Request: g.Request, Ordinal: g.Ordinal, N: g.N})
			same(fmt.Sprintf("return any %d+%d", g.Ordinal, g.N), want, got > 0, nil, err)
		case op < 86:
			want := stock.Grant{Outcome: stock.Granted, N: 1}
			switch {
			case m.single[claimant] > 0:
				want.Outcome, want.Ordinal = stock.Replayed, m.single[claimant]
			case m.closed() != "":
				want = stock.Grant{Outcome: m.closed()}
			case m.left() == 0:
				want = stock.Grant{Outcome: stock.SoldOut}
			case m.has(claimant) >= m.per:
				want = stock.Grant{Outcome: stock.UserLimit}
			default:
				m.seq++
				m.single[claimant], want.Ordinal = m.seq, m.seq
			}
			want, _ = full(want, nil)
			got, err := s.Claim(ctx, claimant)
			same("claim "+claimant, want, got, nil, err)
		case op < 90:
			limit := 1 + rnd.Int64N(10)
			var wantErr error
			if limit < m.sold()+m.held() {
				wantErr = errs.ErrOutOfRange
			} else {
				m.limit = limit
			}
			same(fmt.Sprintf("resize %d", limit), nil, nil, wantErr, s.Change(ctx, stock.Change{Limit: limit}))
		case op < 91:
			switch m.paused = !m.paused && rnd.IntN(2) == 0; {
			case m.paused:
				require.NoError(t, s.Change(ctx, stock.Change{Pause: true}))
			default:
				require.NoError(t, s.Change(ctx, stock.Change{Resume: true}))
			}
			if srv.Embedded != nil {
				in := time.Duration(1+rnd.IntN(60)) * time.Second // the model takes an end at 0 for none
				require.NoError(t, s.Change(ctx, stock.Change{EndIn: stock.In(in)}))
				m.end = m.now + in
			}
		case op < 93:
			want := m.look(id)
			got, err := s.Lookup(ctx, stock.Units{Request: id})
			want.Epoch, want.Until = epoch, got.Until
			same("look at "+id, want, got, nil, err)
			all := int64(0)
			for h, err := range s.Holders(ctx) {
				require.NoError(t, err)
				all += h.N
			}
			has, err := unitsOf(s, claimant)
			require.NoError(t, err)
			own := int64(0)
			for _, h := range has {
				require.Equal(t, claimant, h.Claimant)
				own += h.N
			}
			same("holders", [2]int64{m.sold() + m.held(), m.has(claimant)}, [2]int64{all, own}, nil, nil)
		case op < 94:
			_, err := s.Reap(ctx)
			require.NoError(t, err)
			st, err := s.Inspect(ctx)
			require.NoError(t, err)
			same("status", [4]int64{m.limit, m.sold(), m.held(), m.seq}, [4]int64{st.Limit, st.Sold, st.Held, st.Seq}, nil, nil)
		case srv.Embedded != nil:
			m.now += time.Duration(rnd.IntN(6000)) * time.Millisecond
			srv.Embedded.SetTime(began.Add(m.now))
		}
		requireEnds(t, raw)
		flagged := number(t, raw, "EXISTS", "rc:{s}:o") == 1
		if m.expire(); flagged {
			require.Zero(t, m.left(), "the flag stands while a unit is left: %v", trace)
		}
	}
	// the ledger tells the same story
	units := map[int64]bool{}
	_, err = s.Ledger(ctx, 10_000, func(_ context.Context, entries []stock.Entry) error {
		for _, e := range entries {
			for o := e.Ordinal; o > 0 && o < e.Ordinal+e.N; o++ {
				require.Equal(t, e.Kind == stock.KindReturn, units[o], "sold once, and returned once after that: %d", o)
				units[o] = e.Kind != stock.KindReturn
				if e.Kind == stock.KindReturn {
					delete(units, o)
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, m.sold(), len(units))
}
