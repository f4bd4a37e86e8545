package redpacket_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/oracle/judges"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

// packet is a packet that is open for as long as a test may last.
func packet(total, shares int64) redpacket.Spec {
	return redpacket.Spec{Total: total, Shares: shares, OpenFor: time.Hour, Retain: time.Hour}
}

func sent(t testing.TB, c *redpacket.Client, name string, o redpacket.Spec) *redpacket.Packet {
	t.Helper()
	p := c.Packet(name)
	redistest.NoError(p.Send(ctx, o))(t)
	return p
}

// recorded takes in what a user was answered.
func recorded(w *judges.Winners, s redpacket.Share) {
	if s.Won() {
		w.Won(s.User, judges.Unit{Ordinal: s.Ordinal, Worth: s.Cents})
	} else {
		w.Refused(s.User)
	}
}

func TestSend_LargePacket_OpensWithItsLastPart(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	wire := &counting{Client: srv.Client(t)}
	c := on(t, wire, patient)
	const n, total = 8_000, 1_000_000
	sent(t, c, "warm", packet(100, 1))
	wire.Sent.Store(0)
	p := sent(t, c, "p", packet(total, n))
	require.EqualValues(t, 4, wire.Sent.Load(), "the time, and a call for each 3,900")
	st := redistest.NoError(p.Inspect(ctx))(t)
	require.EqualValues(t, n, st.Shares)

	// some take theirs, in batches; Shares reads them in several pages, while others go on
	for i := range 30 {
		users := make([]string, 128)
		for j := range users {
			users[j] = fmt.Sprintf("u%d", i*128+j)
		}
		redistest.NoError(p.GrabEach(ctx, users...))(t)
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
	var shares []redpacket.Share
	for s, err := range p.Shares(ctx) {
		require.NoError(t, err)
		shares = append(shares, s)
	}
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
	st = redistest.NoError(p.Inspect(ctx))(t)
	require.GreaterOrEqual(t, st.TakenCents, sum)
	require.EqualValues(t, total-st.TakenCents, sumOf(t, wire.Client, "rc:{p}:a"), "what is left")
}

func sumOf(t testing.TB, c rueidis.Client, list string) (sum int64) {
	t.Helper()
	v := redistest.NoError(raw(c, "LRANGE", list, "0", "-1").AsStrSlice())(t)
	for _, s := range v {
		n := redistest.NoError(strconv.ParseInt(s, 10, 64))(t)
		sum += n
	}
	return sum
}

func TestSend_BrokenOff_VanishesByItself(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	began := time.Now().Truncate(time.Millisecond)
	srv.Embedded.SetTime(began)
	c := srv.Client(t)
	p := on(t, c, redpacket.Options{}).Packet("p")
	o := packet(60, 3)
	redistest.NoError(p.SendAs(ctx, "A", o, []int64{10, 20}, 0, 2))(t)
	_, err := p.Send(ctx, o)
	require.ErrorIs(t, err, redpacket.ErrSending)
	srv.Embedded.SetTime(began.Add(29 * time.Second))
	_, err = p.Send(ctx, o)
	require.ErrorIs(t, err, redpacket.ErrSending)
	for verb, call := range packetVerbs(p) {
		require.ErrorIs(t, call(), redpacket.ErrSending, verb)
	}
	srv.Embedded.SetTime(began.Add(31 * time.Second))
	_, err = p.SendAs(ctx, "A", o, []int64{10, 20, 30}, 2, 1)
	require.ErrorIs(t, err, errs.ErrUnavailable)
	require.ErrorContains(t, err, "the parts of")
	redistest.NoError(p.Send(ctx, o))(t)
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
		return redpacket.Share{}, redpacket.ErrNoPacket
	case m.broken:
		return redpacket.Share{}, errs.ErrCorrupt
	}
	s := redpacket.Share{User: u, Epoch: m.epoch}
	for _, t := range m.taken {
		if t.User == u {
			s.Again, s.Ordinal, s.Cents = true, t.Ordinal, t.Cents
		}
	}
	switch {
	case s.Ordinal > 0:
	case m.now >= m.end || m.refunded:
		s.Why = redpacket.Ended
	case int64(len(m.taken)) == m.n:
		s.Why = redpacket.SoldOut
	default:
		s.Ordinal = int64(len(m.taken)) + 1 // Cents: whatever it is, but once and for all
	}
	return s, nil
}

// lost is the error of all verbs while the packet is not there, or not whole.
func (m *packetModel) lost() error {
	if m.broken {
		return errs.ErrCorrupt
	}
	return redpacket.ErrNoPacket
}

func TestRedPacket_RandomCalls_AnswersAsTheModel(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	rig.OverWires(t, redistest.Sized(1, 1, 3), func(t *testing.T, srv *redistest.Server, c rueidis.Client, rnd *rand.Rand,
		_ string) {
		walkPacket(t, srv, on(t, c, patient), rnd)
	})
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
			case m.broken:
				require.ErrorIs(t, err, errs.ErrCorrupt)
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
			require.True(t, got.Again || !want.Again)
			want.Again = got.Again // also in a repetition of the first call
			if want.Won() && int64(len(m.taken)) < want.Ordinal {
				require.Positive(t, got.Cents)
				want.Cents = got.Cents
				m.taken = append(m.taken, want)
				m.given += want.Cents
				require.LessOrEqual(t, m.given, m.total)
			}
			if err == nil && !m.refunded {
				want.Left, want.LeftCents = m.n-int64(len(m.taken)), m.total-m.given
			}
			require.Equal(t, want, got)
		case op < 75:
			got, err := p.Refund(ctx)
			want, wantErr := redpacket.Share{Again: got.Again, Cents: m.total - m.given,
				Left: m.n - int64(len(m.taken)), Epoch: m.epoch}, error(nil)
			switch {
			case !m.there:
				want, wantErr = redpacket.Share{}, redpacket.ErrNoPacket
			case m.broken:
				want, wantErr = redpacket.Share{}, errs.ErrCorrupt
			case !m.refunded && m.now < m.end:
				want, wantErr = redpacket.Share{}, redpacket.ErrNotEnded
			}
			require.True(t, got.Again || err != nil || !m.refunded)
			require.ErrorIs(t, err, wantErr)
			require.Equal(t, want, got)
			m.refunded = m.refunded || err == nil
		case op < 82:
			st, err := p.Inspect(ctx)
			if m.broken || !m.there {
				require.ErrorIs(t, err, m.lost())
				break
			}
			require.NoError(t, err)
			want := redpacket.Stand{Phase: "open", Shares: m.n, Taken: int64(len(m.taken)), Total: m.total, TakenCents: m.given,
				Epoch: m.epoch, UntilEnd: max(0, m.end-m.now), UntilGone: m.gone - m.now}
			switch {
			case m.refunded:
				want.Phase = "refunded"
			case m.now >= m.end:
				want.Phase = "ended"
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
			if m.broken || !m.there {
				require.ErrorIs(t, err, m.lost())
				break
			}
			require.NoError(t, err)
			require.Len(t, got, len(m.taken))
			for i, s := range got {
				require.Equal(t, redpacket.Share{User: m.taken[i].User, Again: true, Ordinal: int64(i + 1),
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

// Grabs at the same time travel together, though each has a Packet value of its own, and each gets its own answer;
// callers that leave early leave nothing behind.
func TestGrabs_Crowd_ShareCalls(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	wire := &counting{Client: srv.Client(t)}
	const users, n, total = 2000, 1200, 40_000
	c := on(t, wire, patient)
	p := sent(t, c, "p", packet(total, n))
	for _, u := range []string{"warm", "warm"} {
		redistest.NoError(p.Grab(ctx, u))(t)
	}
	wire.Sent.Store(0)
	var got judges.Winners
	warm := redistest.NoError(p.Grab(ctx, "warm"))(t)
	recorded(&got, warm)
	var wg sync.WaitGroup
	for i := range users {
		wg.Go(func() {
			u := "u" + strconv.Itoa(i)
			if i%10 == 0 { // in a hurry; the share is then told to whoever asks again
				hurried, cancel := context.WithTimeout(ctx, time.Duration(i%7)*100*time.Microsecond)
				defer cancel()
				if s, err := c.Packet("p").Grab(hurried, u); err == nil {
					recorded(&got, s)
				}
			}
			for range 2 {
				s, err := c.Packet("p").Grab(ctx, u)
				if err != nil {
					t.Error(err)
					return
				}
				if s.User != u {
					t.Errorf("%s was given the answer of %s", u, s.User)
				}
				recorded(&got, s)
			}
		})
	}
	wg.Wait()
	require.NoError(t, got.Exactly(n, total))
	require.Less(t, wire.Sent.Load(), int64(2*users*3/4), "calls for more than twice as many grabs")

	alone := on(t, srv.Client(t), redpacket.Options{CallTimeout: patient.CallTimeout, MaxBatch: -1}).Packet("p")
	s := redistest.NoError(alone.Grab(ctx, "warm"))(t)
	require.Equal(t, warm.Cents, s.Cents)
}

// A sending's requests stay in the network. The packet is sent by another copy of them, and is lost with all that it
// has; then they arrive, after their caller has long had its answer. Nobody asked for what would be given out again.
func TestSend_LateCopy_OpensNothing(t *testing.T) {
	srv := redistest.Embedded(t)
	at := time.Now()
	srv.Embedded.SetTime(at)
	admin := srv.Client(t)
	wire := &recording{Client: admin}
	c := on(t, wire, patient)
	packet, o := c.Packet("p"), redpacket.Spec{Total: 10, Shares: 3, OpenFor: time.Hour}
	redistest.NoError(packet.Send(ctx, o))(t)
	sent := slices.Clone(wire.Sent)
	srv.Embedded.FlushAll()
	srv.Embedded.SetTime(at.Add(6 * patient.CallTimeout))
	for range 2 {
		for _, args := range sent {
			raw(admin, args...) // some are EVALSHA that the server does not know now
		}
		_, err := packet.Grab(ctx, "bob")
		require.ErrorIs(t, err, redpacket.ErrNoPacket)
		if _, err = c.Packet("other").Send(ctx, o); err != nil { // loads the script
			require.ErrorIs(t, err, errs.ErrAlreadyOpen)
		}
	}
}
