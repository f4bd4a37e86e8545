package stock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// model is a stock as its documentation describes it, in a few maps and no hurry.
type model struct {
	now time.Duration // since the test began

	there            bool // the stock's key
	records          bool // the claimants' key, or nothing in it yet
	closed           bool
	epoch            int64
	limit, seq       int64
	held             map[string]int64
	known            map[string]bool // who has ever had a unit
	start, end, gone time.Duration
}

// expire lets pass away what retention has ended.
func (m *model) expire() {
	if m.now >= m.gone {
		*m = model{now: m.now}
	}
}

func (m *model) broken() bool { return m.there && len(m.known) > 0 && !m.records }

func (m *model) open(o stock.Spec, epoch int64) error {
	switch {
	case m.there:
		return errs.ErrAlreadyOpen
	case len(m.known) > 0 && m.records && m.now < m.gone-100*time.Millisecond: // see orphans in ends.lua
		return errs.ErrCorrupt
	}
	*m = model{now: m.now, there: true, records: true, epoch: epoch, limit: o.Limit, held: map[string]int64{},
		known: map[string]bool{},
		start: m.now + o.StartIn, end: m.now + o.StartIn + o.OpenFor, gone: m.now + o.StartIn + o.OpenFor + o.Retain}
	return nil
}

func (m *model) claim(u string) (stock.Grant, error) {
	if !m.there {
		return stock.Grant{Outcome: stock.NotOpen}, nil
	}
	if m.broken() {
		return stock.Grant{}, errs.ErrCorrupt
	}
	g := stock.Grant{Epoch: m.epoch}
	switch {
	case m.held[u] > 0:
		g.Outcome, g.Ordinal, g.N = stock.Replayed, m.held[u], 1
	case m.closed || m.now >= m.end:
		g.Outcome = stock.Ended
	case m.now < m.start:
		g.Outcome = stock.NotStarted
	case int64(len(m.held)) >= m.limit:
		g.Outcome = stock.SoldOut
	default:
		m.seq++
		m.held[u], m.known[u] = m.seq, true
		g.Outcome, g.Ordinal, g.N = stock.Granted, m.seq, 1
	}
	g.Remaining = m.limit - int64(len(m.held))
	return g, nil
}

func (m *model) lookup(u string) (stock.Holding, error) {
	switch {
	case m.broken():
		return stock.Holding{}, errs.ErrCorrupt
	case !m.there:
		return stock.Holding{}, nil
	case m.held[u] == 0:
		return stock.Holding{Epoch: m.epoch}, nil
	}
	return stock.Holding{Outcome: stock.Replayed, Claimant: u, Ordinal: m.held[u], N: 1, Asked: 1, Epoch: m.epoch}, nil
}

func (m *model) giveBack(u string, ordinal int64) (bool, error) {
	if m.broken() {
		return false, errs.ErrCorrupt
	}
	if !m.there || m.held[u] != ordinal {
		return false, nil
	}
	delete(m.held, u)
	return true, nil
}

func (m *model) status() (stock.State, error) {
	if !m.there {
		return stock.State{Phase: stock.PhaseAbsent}, nil
	}
	st := stock.State{Phase: stock.PhaseOpen, Limit: m.limit, Sold: int64(len(m.held)),
		Remaining: m.limit - int64(len(m.held)), Seq: m.seq, Epoch: m.epoch,
		UntilStart: max(0, m.start-m.now), UntilEnd: max(0, m.end-m.now), UntilGone: m.gone - m.now}
	switch {
	case m.closed:
		st.Phase = stock.PhaseClosed
	case m.now >= m.end:
		st.Phase = stock.PhaseEnded
	case m.now < m.start:
		st.Phase = stock.PhasePending
	}
	if m.broken() {
		return st, errs.ErrCorrupt
	}
	return st, nil
}

// The wires over which the model must be kept to: as it is, everything run twice, a third of the replies lost.
func TestStockKeepsToItsModel(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for wire, wrap := range map[string]func(t *testing.T, s *redistest.Server, rnd *rand.Rand) rueidis.Client{
		"once": func(t *testing.T, s *redistest.Server, _ *rand.Rand) rueidis.Client { return s.Client(t) },
		"twice": func(t *testing.T, s *redistest.Server, _ *rand.Rand) rueidis.Client {
			return twice{Client: s.Client(t)}
		},
		"lossy": func(t *testing.T, s *redistest.Server, rnd *rand.Rand) rueidis.Client {
			return newLossy(t, s, func() bool { return rnd.IntN(3) == 0 })
		},
	} {
		for range redistest.Sized(1, 1, 3) {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("%s/%d", wire, seed), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				srv := redistest.Embedded(t)
				walk(t, srv, on(t, wrap(t, srv, rand.New(rand.NewPCG(seed, 2))), exact), rnd)
			})
		}
	}
}

func walk(t *testing.T, srv *redistest.Server, c *stock.Client, rnd *rand.Rand) {
	began := time.Now().Truncate(time.Millisecond)
	srv.Embedded.SetTime(began)
	raw := srv.Client(t)
	s := c.Stock("s")
	m := &model{}
	users := []string{"a", "b", "c", "d", "e", "f"}
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
	for range redistest.Sized(120, 120, 200) {
		u := users[rnd.IntN(len(users))]
		switch op := rnd.IntN(100); {
		case op < 12:
			o := stock.Spec{Limit: 1 + rnd.Int64N(4), StartIn: time.Duration(rnd.IntN(3)) * time.Second,
				OpenFor: time.Duration(1+rnd.IntN(60)) * time.Second, Retain: time.Duration(1+rnd.IntN(20)) * time.Second}
			epoch, err := s.Open(ctx, o)
			wantErr := m.open(o, epoch)
			same("open", nil, nil, wantErr, err)
			if wantErr != nil && errors.Is(err, errs.ErrAlreadyOpen) {
				require.Equal(t, m.epoch, epoch)
			} else if wantErr != nil {
				require.Zero(t, epoch)
			}
		case op < 55:
			got, err := s.Claim(ctx, u)
			want, wantErr := m.claim(u)
			same("claim "+u, want, got, wantErr, err)
		case op < 63:
			got, found, err := lookup(s, u)
			want, wantErr := m.lookup(u)
			same("lookup "+u, want, got, wantErr, err)
			require.Equal(t, want.Won(), found)
		case op < 80:
			ordinal := m.held[u]
			if ordinal == 0 || rnd.IntN(4) == 0 {
				ordinal = 1 + rnd.Int64N(m.seq+2)
			}
			got, err := s.Return(ctx, stock.Units{Claimant: u, Ordinal: ordinal})
			want, wantErr := m.giveBack(u, ordinal)
			same(fmt.Sprintf("return %s %d", u, ordinal), want, got > 0, wantErr, err)
		case op < 88:
			got, err := s.Inspect(ctx)
			want, wantErr := m.status()
			same("status", want, got, wantErr, err)
		case op < 90:
			same("close", nil, nil, nil, s.EndSale(ctx))
			m.closed = m.there
		case op < 98:
			m.now += time.Duration(rnd.IntN(4000)) * time.Millisecond
			srv.Embedded.SetTime(began.Add(m.now))
			m.expire()
		case op < 99:
			must(t, raw, "DEL", "rc:{s}")
			m.there = false
		default:
			must(t, raw, "DEL", "rc:{s}:u")
			m.records = len(m.known) == 0 // where there were none, none are lost
		}
		requireEnds(t, raw)
		require.Equal(t, m.there, number(t, raw, "EXISTS", "rc:{s}") == 1, "%v", trace)
	}
}
