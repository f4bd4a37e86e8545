package redpacket_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// packet is a packet that is open for as long as a test may last.
func packet(total, shares int64) redpacket.Spec {
	return redpacket.Spec{Total: total, Shares: shares, OpenFor: time.Hour, Retain: time.Hour}
}

func sent(t testing.TB, c *redpacket.Client, name string, o redpacket.Spec) *redpacket.Packet {
	t.Helper()
	p := c.Packet(name)
	_, err := p.Send(ctx, o)
	require.NoError(t, err)
	return p
}

// purse is what users were told they took.
type purse struct {
	mu     sync.Mutex
	byUser map[string]redpacket.Share
	places map[int64]string
	wrong  []string
}

func newPurse() *purse {
	return &purse{byUser: map[string]redpacket.Share{}, places: map[int64]string{}}
}

func (p *purse) record(s redpacket.Share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, known := p.byUser[s.User]
	switch {
	case known && (!s.Won() || s.Ordinal != old.Ordinal || s.Cents != old.Cents):
		p.wrong = append(p.wrong,
			fmt.Sprintf("%s was told %d: %d and %v %d: %d", s.User, old.Ordinal, old.Cents, s.Outcome, s.Ordinal, s.Cents))
	case s.Won():
		if u, ok := p.places[s.Ordinal]; ok && u != s.User {
			p.wrong = append(p.wrong, fmt.Sprintf("place %d went to %s and %s", s.Ordinal, u, s.User))
		}
		p.byUser[s.User], p.places[s.Ordinal] = s, s.User
	}
}

// requireAll fails unless n users took together total.
func (p *purse) requireAll(t testing.TB, n int, total int64) {
	t.Helper()
	require.Empty(t, p.wrong)
	require.Len(t, p.byUser, n)
	var sum int64
	for i := range n {
		require.Contains(t, p.places, int64(i+1))
		sum += p.byUser[p.places[int64(i+1)]].Cents
	}
	require.Equal(t, total, sum)
}

func TestACrowdTakesExactlyTheSharesOfAPacket(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		const n, total, callers, users = 100, 20_000, 64, 400
		each := 60
		if srv.Embedded != nil {
			each = 10
		}
		c := srv.Client(t)
		packets := []*redpacket.Packet{sent(t, on(t, c, patient), "p", packet(total, n)),
			on(t, srv.Client(t), patient).Packet("p")}
		got := newPurse()
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for range each {
					s, err := packets[i%2].Grab(ctx, "u"+strconv.Itoa(rand.IntN(users)))
					if err != nil {
						t.Error(err)
						return
					}
					got.record(s)
				}
			})
		}
		wg.Wait()
		got.requireAll(t, n, total)
		i := 0
		for s, err := range packets[1].Shares(ctx) {
			require.NoError(t, err)
			i++
			require.EqualValues(t, i, s.Ordinal)
			require.Equal(t, got.byUser[s.User].Cents, s.Cents)
			require.Equal(t, got.places[s.Ordinal], s.User)
		}
		require.Equal(t, n, i)
		st, err := packets[0].Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, redpacket.PhaseOpen, st.Phase)
		require.EqualValues(t, []int64{n, n, total, total}, []int64{st.Shares, st.Taken, st.Total, st.TakenCents})
		requireEnds(t, c)
	})
}

func TestGrabsOverKilledConnectionsGiveEveryUserOneShare(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	control := srv.Client(t)
	const n, total, users = 100, 5_000, 150
	o := redpacket.Options{CallTimeout: 5 * time.Second}
	sent(t, on(t, control, patient), "p", packet(total, n))
	packets := []*redpacket.Packet{on(t, srv.Client(t), o).Packet("p"), on(t, srv.Client(t), o).Packet("p")}
	got := newPurse()
	during(func() {
		raw(control, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		raw(control, "SCRIPT", "FLUSH")
		for range 50 {
			raw(control, "PING")
		}
	}, func() {
		next := make(chan string, 3*users)
		for range 3 {
			for _, i := range rand.Perm(users) {
				next <- "u" + strconv.Itoa(i)
			}
		}
		close(next)
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for u := range next {
					var s redpacket.Share
					err := errors.New("not asked")
					for end := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(end); {
						s, err = packets[i%2].Grab(ctx, u)
					}
					if err != nil {
						t.Error(err)
						return
					}
					got.record(s)
				}
			})
		}
		wg.Wait()
	})
	got.requireAll(t, n, total)
}

func TestALargePacketIsSentInPartsAndOpensWithTheLast(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	wire := &counting{Client: srv.Client(t)}
	c := on(t, wire, patient)
	const n, total = 8_000, 1_000_000
	sent(t, c, "warm", packet(100, 1))
	wire.Sent.Store(0)
	p := sent(t, c, "p", packet(total, n))
	require.EqualValues(t, 4, wire.Sent.Load(), "the time, and a call for each 3,900")
	st, err := p.Inspect(ctx)
	require.NoError(t, err)
	require.EqualValues(t, n, st.Shares)

	// some take theirs, in batches; Shares reads them in several pages, while others go on
	for i := range 30 {
		users := make([]string, 128)
		for j := range users {
			users[j] = fmt.Sprintf("u%d", i*128+j)
		}
		_, err := p.GrabAs(ctx, "B", users...)
		require.NoError(t, err)
	}
	stop := make(chan struct{})
	var going sync.WaitGroup
	going.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := p.Grab(ctx, fmt.Sprintf("v%d", i)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var sum int64
	shares, err := p.SharesBy(ctx, 100)
	require.NoError(t, err)
	close(stop)
	going.Wait()
	require.GreaterOrEqual(t, len(shares), 30*128)
	for i, s := range shares {
		require.EqualValues(t, i+1, s.Ordinal)
		if i < 30*128 {
			require.Equal(t, fmt.Sprintf("u%d", i), s.User)
		}
		sum += s.Cents
	}
	st, err = p.Inspect(ctx)
	require.NoError(t, err)
	require.GreaterOrEqual(t, st.TakenCents, sum)
	require.EqualValues(t, total-st.TakenCents, sumOf(t, wire.Client, "rc:{p}:a"), "what is left")
}

func sumOf(t testing.TB, c rueidis.Client, list string) (sum int64) {
	t.Helper()
	v, err := raw(c, "LRANGE", list, "0", "-1").AsStrSlice()
	require.NoError(t, err)
	for _, s := range v {
		n, err := strconv.ParseInt(s, 10, 64)
		require.NoError(t, err)
		sum += n
	}
	return sum
}

func TestASendingBrokenOffVanishesByItself(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	began := time.Now().Truncate(time.Millisecond)
	srv.Embedded.SetTime(began)
	c := srv.Client(t)
	p := on(t, c, redpacket.Options{}).Packet("p")
	o := packet(60, 3)
	_, err := p.SendAs(ctx, "A", o, []int64{10, 20}, 0, 2)
	require.NoError(t, err)
	_, err = p.Send(ctx, o)
	require.ErrorIs(t, err, redpacket.ErrSending)
	srv.Embedded.SetTime(began.Add(29 * time.Second))
	_, err = p.Send(ctx, o)
	require.ErrorIs(t, err, redpacket.ErrSending)
	st, err := p.Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, redpacket.PhaseSending, st.Phase)
	srv.Embedded.SetTime(began.Add(31 * time.Second))
	_, err = p.SendAs(ctx, "A", o, []int64{10, 20, 30}, 2, 1)
	require.ErrorIs(t, err, errs.ErrUnavailable)
	require.ErrorContains(t, err, "the parts of")
	_, err = p.Send(ctx, o)
	require.NoError(t, err)
}

// packetModel is a red packet as its documentation describes it.
type packetModel struct {
	now       time.Duration
	there     bool
	refunded  bool
	broken    bool
	epoch     int64
	total     int64
	n         int64
	taken     []redpacket.Share
	end, gone time.Duration
	given     int64
}

func (m *packetModel) grab(u string) (redpacket.Share, error) {
	switch {
	case !m.there:
		return redpacket.Share{User: u, Outcome: redpacket.NotOpen}, nil
	case m.broken:
		return redpacket.Share{}, errs.ErrCorrupt
	}
	s := redpacket.Share{User: u, Epoch: m.epoch, Outcome: redpacket.Granted}
	for _, t := range m.taken {
		if t.User == u {
			s.Outcome, s.Ordinal, s.Cents = redpacket.Replayed, t.Ordinal, t.Cents
		}
	}
	switch {
	case s.Ordinal > 0:
	case m.now >= m.end || m.refunded:
		s.Outcome = redpacket.Ended
	case int64(len(m.taken)) == m.n:
		s.Outcome = redpacket.SoldOut
	default:
		s.Ordinal = int64(len(m.taken)) + 1 // Cents: whatever it is, but once and for all
	}
	return s, nil
}

func TestRedPacketKeepsToItsModel(t *testing.T) {
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
				srv := redistest.Embedded(t)
				walkPacket(t, srv, on(t, wrap(t, srv, rand.New(rand.NewPCG(seed, 2))), patient), rand.New(rand.NewPCG(seed, 1)))
			})
		}
	}
}

func walkPacket(t *testing.T, srv *redistest.Server, c *redpacket.Client, rnd *rand.Rand) {
	began := time.Now().Truncate(time.Millisecond)
	srv.Embedded.SetTime(began)
	raw := srv.Client(t)
	p := c.Packet("p")
	m := &packetModel{}
	for range 250 {
		u := string(rune('a' + rnd.IntN(8)))
		switch op := rnd.IntN(100); {
		case op < 12:
			n := 1 + rnd.Int64N(6)
			o := redpacket.Spec{Total: n + rnd.Int64N(100), Shares: n, Method: methods[rnd.IntN(3)],
				OpenFor: time.Duration(1+rnd.IntN(60)) * time.Second, Retain: time.Duration(1+rnd.IntN(20)) * time.Second}
			epoch, err := p.Send(ctx, o)
			switch {
			case m.there:
				require.ErrorIs(t, err, errs.ErrAlreadyOpen)
			default:
				require.NoError(t, err)
				*m = packetModel{now: m.now, there: true, epoch: epoch, total: o.Total, n: n, end: m.now + o.OpenFor,
					gone: m.now + o.OpenFor + o.Retain}
			}
		case op < 65:
			got, err := p.Grab(ctx, u)
			want, wantErr := m.grab(u)
			require.ErrorIs(t, err, wantErr)
			if want.Outcome == redpacket.Granted {
				require.Positive(t, got.Cents)
				want.Cents = got.Cents
				m.taken = append(m.taken, want)
				m.given += want.Cents
				require.LessOrEqual(t, m.given, m.total)
			}
			if want.Outcome != "" && want.Outcome != redpacket.NotOpen && !m.refunded {
				want.Left, want.LeftCents = m.n-int64(len(m.taken)), m.total-m.given
			}
			require.Equal(t, want, got)
		case op < 75:
			got, err := p.Refund(ctx)
			want, wantErr := redpacket.Share{Outcome: redpacket.Granted, Cents: m.total - m.given,
				Left: m.n - int64(len(m.taken)), Epoch: m.epoch}, error(nil)
			if m.refunded {
				want.Outcome = redpacket.Replayed
			}
			switch {
			case !m.there:
				want, wantErr = redpacket.Share{}, redpacket.ErrNoPacket
			case m.refunded: // the model's breakage is of the records only, and the refund stands
			case m.now < m.end:
				want, wantErr = redpacket.Share{}, redpacket.ErrNotEnded
			case m.broken:
				want, wantErr = redpacket.Share{}, errs.ErrCorrupt
			}
			require.ErrorIs(t, err, wantErr)
			require.Equal(t, want, got)
			m.refunded = m.refunded || err == nil
		case op < 82:
			st, err := p.Inspect(ctx)
			if m.broken {
				require.ErrorIs(t, err, errs.ErrCorrupt)
			} else {
				require.NoError(t, err)
			}
			want := redpacket.State{Phase: redpacket.PhaseAbsent}
			if m.there {
				want = redpacket.State{Phase: redpacket.PhaseOpen, Shares: m.n, Taken: int64(len(m.taken)), Total: m.total,
					TakenCents: m.given,
					Epoch:      m.epoch, UntilEnd: max(0, m.end-m.now), UntilGone: m.gone - m.now}
				switch {
				case m.refunded:
					want.Phase = redpacket.PhaseRefunded
				case m.now >= m.end:
					want.Phase = redpacket.PhaseEnded
				}
			}
			require.Equal(t, want, st)
		case op < 88:
			var got []redpacket.Share
			var err error
			for s, e := range p.Shares(ctx) {
				if err = e; err != nil {
					break
				}
				got = append(got, s)
			}
			if m.broken {
				require.ErrorIs(t, err, errs.ErrCorrupt)
				break
			}
			require.NoError(t, err)
			require.Len(t, got, len(m.taken))
			for i, s := range got {
				require.Equal(t, redpacket.Share{User: m.taken[i].User, Outcome: redpacket.Replayed, Ordinal: int64(i + 1),
					Cents: m.taken[i].Cents, Epoch: m.epoch}, s)
			}
		case op < 98:
			m.now += time.Duration(rnd.IntN(4000)) * time.Millisecond
			srv.Embedded.SetTime(began.Add(m.now))
			if m.now >= m.gone {
				*m = packetModel{now: m.now}
			}
		default:
			if rnd.IntN(3) == 0 && len(m.taken) > 0 {
				must(t, raw, "DEL", "rc:{p}:g")
				m.broken = true
			}
		}
		requireEnds(t, raw)
		require.Equal(t, m.there, number(t, raw, "EXISTS", "rc:{p}:p") == 1)
	}
}

func packetVerbs(p *redpacket.Packet) map[string]func() error {
	return map[string]func() error{
		"Send":    func() error { _, err := p.Send(ctx, packet(5, 2)); return err },
		"Grab":    func() error { _, err := p.Grab(ctx, "u"); return err },
		"Refund":  func() error { _, err := p.Refund(ctx); return err },
		"Inspect": func() error { _, err := p.Inspect(ctx); return err },
		"Shares": func() (err error) {
			for _, e := range p.Shares(ctx) {
				err = e
			}
			return err
		},
	}
}

func TestARedPacketsBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	wire := &counting{Client: redistest.Embedded(t).Client(t)}
	c := on(t, wire, patient)
	wire.Sent.Store(0)
	for what, name := range map[string]string{"empty": "", "braces": "a{b}", "not UTF-8": "a\xff",
		"too long": strings.Repeat("x", 64<<10+1)} {
		for verb, call := range packetVerbs(c.Packet(name)) {
			require.ErrorIs(t, call(), errs.ErrInvalidName, what+" "+verb)
		}
	}
	p := c.Packet("p")
	for _, tc := range []struct {
		o    redpacket.Spec
		says []string
	}{
		{redpacket.Spec{}, []string{"Total is 0"}},
		{redpacket.Spec{Total: 5, OpenFor: time.Hour}, []string{"Shares is 0"}},
		{redpacket.Spec{Total: 5, Shares: 6, OpenFor: time.Hour}, []string{"Total is 5", "Shares * Min", "6 * 1"}},
		{redpacket.Spec{Total: 5, Shares: 2, Min: -1, OpenFor: time.Hour}, []string{"Min is -1"}},
		{redpacket.Spec{Total: 5, Shares: 2, Max: 2, OpenFor: time.Hour}, []string{"Total is 5", "Shares * Max", "2 * 2"}},
		{redpacket.Spec{Total: 5, Shares: 2, Method: "fair", OpenFor: time.Hour}, []string{`Method is "fair"`}},
		{redpacket.Spec{Total: 5, Shares: 2}, []string{"OpenFor is 0s"}},
		{redpacket.Spec{Total: 5, Shares: 2, OpenFor: time.Microsecond}, []string{"OpenFor is 1µs"}},
		{redpacket.Spec{Total: 5, Shares: 2, OpenFor: time.Hour, Retain: -1}, []string{"Retain is -1ns"}},
		{redpacket.Spec{Total: 5, Shares: 2, OpenFor: time.Hour, Retain: time.Microsecond}, []string{"Retain is 1µs"}},
		{redpacket.Spec{Total: 5, Shares: 2, OpenFor: lifetime, Retain: lifetime}, []string{"OpenFor + Retain"}},
	} {
		_, err := p.Send(ctx, tc.o)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		for _, s := range tc.says {
			require.ErrorContains(t, err, s)
		}
	}
	for _, u := range []string{"", strings.Repeat("x", 1024+1)} {
		_, err := p.Grab(ctx, u)
		require.ErrorIs(t, err, errs.ErrInvalidName)
	}
	require.NoError(t, c.Close(ctx))
	for verb, call := range packetVerbs(p) {
		require.ErrorIs(t, call(), errs.ErrClosed, verb)
	}
	require.Zero(t, wire.Sent.Load())
}

func TestAStockAndARedPacketOfOneNameAreTwoThings(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		p := sent(t, on(t, srv.Client(t), patient), "x", packet(5, 2))
		stocks, err := stock.New(rig.Hub(t, srv.Client(t)), stock.Options{CallTimeout: patient.CallTimeout})
		require.NoError(t, err)
		t.Cleanup(func() { stocks.Close(ctx) })
		s := stocks.Stock("x")
		_, err = s.Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Hour})
		require.NoError(t, err)
		g, err := s.Claim(ctx, "ann")
		require.NoError(t, err)
		require.Equal(t, stock.Granted, g.Outcome)
		share, err := p.Grab(ctx, "ann")
		require.NoError(t, err)
		require.Equal(t, redpacket.Granted, share.Outcome)
		g, err = s.Claim(ctx, "ann")
		require.NoError(t, err)
		require.EqualValues(t, 1, g.Ordinal)
	})
}

// In a Cluster every part of a packet is in one slot.
func TestRedPacketsWorkInACluster(t *testing.T) {
	t.Parallel()
	c := on(t, redistest.Cluster(t).Client(t), patient)
	for i := range 8 {
		p := sent(t, c, "p"+strconv.Itoa(i), packet(100, 3))
		var sum int64
		for j := range 5 {
			s, err := p.Grab(ctx, "u"+strconv.Itoa(j))
			require.NoError(t, err)
			sum += s.Cents
		}
		require.EqualValues(t, 100, sum)
		n := 0
		for _, err := range p.Shares(ctx) {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 3, n)
		_, err := p.Refund(ctx)
		require.ErrorIs(t, err, redpacket.ErrNotEnded)
	}
}

// Grabs at the same time travel together, and each gets its own answer; those who leave early leave nothing behind.
func TestGrabsOfAProcessShareCalls(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	wire := &counting{Client: srv.Client(t)}
	const users, n, total = 2000, 1200, 40_000
	p := sent(t, on(t, wire, patient), "p", packet(total, n))
	for _, u := range []string{"warm", "warm"} {
		_, err := p.Grab(ctx, u)
		require.NoError(t, err)
	}
	wire.Sent.Store(0)
	got := newPurse()
	warm, err := p.Grab(ctx, "warm")
	require.NoError(t, err)
	got.record(warm)
	var wg sync.WaitGroup
	for i := range users {
		wg.Go(func() {
			u := "u" + strconv.Itoa(i)
			if i%10 == 0 { // in a hurry; the share is then told to whoever asks again
				hurried, cancel := context.WithTimeout(ctx, time.Duration(i%7)*100*time.Microsecond)
				defer cancel()
				if s, err := p.Grab(hurried, u); err == nil {
					got.record(s)
				}
			}
			for range 2 {
				s, err := p.Grab(ctx, u)
				if err != nil {
					t.Error(err)
					return
				}
				if s.User != u {
					t.Errorf("%s was given the answer of %s", u, s.User)
				}
				got.record(s)
			}
		})
	}
	wg.Wait()
	got.requireAll(t, n, total)
	require.Less(t, wire.Sent.Load(), int64(2*users*3/4), "calls for more than twice as many grabs")

	alone := on(t, srv.Client(t), redpacket.Options{CallTimeout: patient.CallTimeout, MaxBatch: -1}).Packet("p")
	s, err := alone.Grab(ctx, "warm")
	require.NoError(t, err)
	require.Equal(t, warm.Cents, s.Cents)
}

// An answer that gives money is confirmed by replicas where that is asked for, and so is its repetition.
// replicaOf starts a replica, and returns when it has what the server has.
func replicaOf(t *testing.T, srv *redistest.Server) *redistest.Server {
	t.Helper()
	host, port, _ := strings.Cut(srv.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", host, port)
	control := srv.Client(t)
	redistest.Eventually(t, 20*time.Second, "a replica", func() bool {
		return strings.Contains(text(t, control, "INFO", "replication"), "state=online")
	})
	return replica
}

func TestSharesAreConfirmedByReplicas(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	calm := on(t, srv.Client(t), patient)
	c := on(t, srv.Client(t),
		redpacket.Options{CallTimeout: 5 * time.Second, MinReplicas: 1, ReplicaTimeout: 50 * time.Millisecond})
	o := packet(10, 1)
	_, err := c.Packet("q").Send(ctx, o)
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	p := c.Packet("p")
	sent(t, calm, "p", o)
	for range 2 {
		s, err := p.Grab(ctx, "ann")
		require.ErrorIs(t, err, errs.ErrNotReplicated)
		require.False(t, s.Won())
	}
	s, err := p.Grab(ctx, "bob")
	require.NoError(t, err, "a refusal needs no replica")
	require.Equal(t, redpacket.SoldOut, s.Outcome)
	s, err = calm.Packet("p").Grab(ctx, "ann")
	require.NoError(t, err)
	require.Equal(t, redpacket.Replayed, s.Outcome)
	brief := packet(10, 1)
	brief.OpenFor = 100 * time.Millisecond
	sent(t, calm, "brief", brief)
	redistest.Eventually(t, 20*time.Second, "it is over", func() bool {
		_, err := c.Packet("brief").Refund(ctx)
		return errors.Is(err, errs.ErrNotReplicated)
	})

	replicaOf(t, srv)
	c = on(t, srv.Client(t),
		redpacket.Options{CallTimeout: 10 * time.Second, MinReplicas: 1, ReplicaTimeout: 5 * time.Second})
	s, err = c.Packet("p").Grab(ctx, "ann")
	require.NoError(t, err)
	require.Equal(t, redpacket.Replayed, s.Outcome)
	r, err := c.Packet("brief").Refund(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 10, r.Cents)
}

// A replica that has stopped: what others wrote meanwhile is not confirmed to those who come by a connection of their
// own.
func TestSharesThatOthersTookAreConfirmedByReplicas(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	calm := on(t, srv.Client(t), patient)
	replica := replicaOf(t, srv)
	c := on(t, srv.Client(t),
		redpacket.Options{CallTimeout: 10 * time.Second, MinReplicas: 1, ReplicaTimeout: 5 * time.Second})
	epoch, err := c.Packet("r").Send(ctx, packet(10, 1))
	require.NoError(t, err)
	brief := packet(10, 1)
	brief.OpenFor = 100 * time.Millisecond
	sent(t, c, "brief", brief)
	replica.Stop(t)
	s, err := calm.Packet("r").Grab(ctx, "ann")
	require.NoError(t, err)
	require.True(t, s.Won())
	hasty := redpacket.Options{CallTimeout: 5 * time.Second, MinReplicas: 1, ReplicaTimeout: 50 * time.Millisecond}
	_, err = on(t, srv.Client(t), hasty).Packet("r").Grab(ctx, "ann")
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	redistest.Eventually(t, 20*time.Second, "it is over", func() bool {
		_, err := calm.Packet("brief").Refund(ctx)
		return err == nil
	})
	_, err = on(t, srv.Client(t), hasty).Packet("brief").Refund(ctx)
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	replica.Resume(t)
	st, err := c.Packet("r").Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, epoch, st.Epoch)
}

func BenchmarkGrab(b *testing.B) {
	for name, most := range map[string]int{"combined": 0, "alone": -1} {
		c := on(b, redistest.Start(b).Client(b), redpacket.Options{CallTimeout: patient.CallTimeout, MaxBatch: most})
		b.Run(name, func(b *testing.B) {
			p := sent(b, c, name, packet(maxTotal, maxShares))
			var n atomic.Int64
			both(b, func() error { _, err := p.Grab(ctx, strconv.FormatInt(n.Add(1), 10)); return err })
		})
	}
}

// A Packet value made for each request shares calls with the others of its name: losers of an empty packet do not cost
// a script each.
func TestGrabsShareCallsThoughEachHasAPacketValueOfItsOwn(t *testing.T) {
	t.Parallel()
	c := on(t, redistest.Start(t).Client(t), patient)
	_, err := c.Packet("p").Send(ctx, redpacket.Spec{Total: 10, Shares: 1, OpenFor: time.Hour})
	require.NoError(t, err)
	first, err := c.Packet("p").Grab(ctx, "winner")
	require.NoError(t, err)
	before := c.Stats()
	const callers, each = 64, 40
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				s, err := c.Packet("p").Grab(ctx, fmt.Sprint("u", i, "-", j))
				if err != nil || s.Outcome != redpacket.SoldOut {
					t.Error(s, err)
				}
			}
		})
	}
	wg.Wait()
	is := c.Stats()
	require.Greater(t, is.SharedRequests-before.SharedRequests, int64(callers*each/2))
	require.Less(t, is.SharedCalls-before.SharedCalls, int64(callers*each/4))
	again, err := c.Packet("p").Grab(ctx, "winner")
	require.NoError(t, err)
	require.Equal(t, first.Ordinal, again.Ordinal)
}
