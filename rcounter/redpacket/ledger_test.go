package redpacket_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

var errReissued = errors.New("a number that was given twice")

// books is a database into which the ledger of one packet is moved, with a row for each entry.
type ledgerCopy struct {
	mu   sync.Mutex
	rows map[int64]redpacket.Entry
}

// move does what a transaction does.
func (b *ledgerCopy) move(_ context.Context, entries []redpacket.Entry) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range entries {
		was, there := b.rows[e.Serial]
		was.At = e.At
		if there && was != e {
			return fmt.Errorf("%w: %+v, and %+v", errReissued, e, was)
		}
		if b.rows == nil {
			b.rows = map[int64]redpacket.Entry{}
		}
		b.rows[e.Serial] = e
	}
	return nil
}

// drain moves all that the ledger has.
func (b *ledgerCopy) drain(t testing.TB, p *redpacket.Packet) {
	t.Helper()
	for {
		n, err := p.Ledger(ctx, 7, b.move)
		require.NoError(t, err)
		if n == 0 {
			return
		}
	}
}

// text is the rows in the order of their serials: "grant 1 1 10 ann, refund 0 2 50".
func (b *ledgerCopy) text() string {
	var all []string
	for serial := int64(1); serial <= int64(len(b.rows)); serial++ {
		e := b.rows[serial]
		all = append(all, strings.TrimSpace(fmt.Sprintln(e.Kind, e.Ordinal, e.N, e.Cents, e.User)))
	}
	return strings.Join(all, ", ")
}

// sendWith opens a packet of these shares, with a ledger.
func sendWith(t testing.TB, c *redpacket.Client, shares ...int64) (*redpacket.Packet, int64) {
	t.Helper()
	o := redpacket.Spec{Shares: int64(len(shares)), OpenFor: time.Hour, Retain: time.Hour, Ledger: true}
	for _, s := range shares {
		o.Total += s
	}
	p := c.Packet("p")
	epoch, err := p.SendAs(ctx, "S", o, shares, 0, 2)
	require.NoError(t, err)
	return p, epoch
}

// end sets the packet's time to be over.
func end(t testing.TB, raw rueidis.Client) {
	must(t, raw, "HSET", "rc:{p}:p", "end", dec(serverNow(t, raw)-1))
}

// A crowd whose replies get lost, and movers beside it: the database has what the packet has.
func TestPacketLedger_CrowdAndMovers_HasEveryShareOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(1, 2))
	lossy := newLossy(t, srv, func() bool { mu.Lock(); defer mu.Unlock(); return rnd.IntN(4) == 0 })
	p, epoch := sendWith(t, on(t, lossy, patient), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
	moving, stop := context.WithCancel(ctx)
	var b ledgerCopy
	var movers, crowd sync.WaitGroup
	for range 2 {
		movers.Go(func() { p.KeepLedger(moving, time.Millisecond, 3, b.move) })
	}
	for u := range 15 {
		crowd.Go(func() {
			for range 2 {
				_, err := p.Grab(ctx, fmt.Sprint("u", u))
				require.NoError(t, err)
			}
		})
	}
	crowd.Wait()
	end(t, raw)
	refund, err := p.Refund(ctx)
	require.NoError(t, err)
	stop()
	movers.Wait()
	b.drain(t, p)
	var want []string
	for s, err := range p.Shares(ctx) {
		require.NoError(t, err)
		want = append(want, fmt.Sprint("grant ", s.Ordinal, " 1 ", s.Cents, " ", s.User))
	}
	require.Len(t, want, 15)
	require.Equal(t, strings.Join(append(want, fmt.Sprint("refund 0 5 ", refund.Cents)), ", "), b.text())
	for _, e := range b.rows {
		require.Equal(t, epoch, e.Epoch)
		require.False(t, e.At.IsZero())
	}
	require.Equal(t, "16", hash(t, raw, "rc:{p}:p")["moved"])
	require.Zero(t, number(t, raw, "XLEN", "rc:{p}:e"))
}

// Whatever takes entries out of the stream, or puts some in, or takes shares without an entry, every verb of the packet
// says so and gives nothing. The numbers are in the error.
func TestPacketLedger_NotWhole_EndsThePacket(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	for what, tc := range map[string]struct {
		damage        [][]string
		should, found int // of a ledger with three entries, of which one is moved
	}{
		"deleted": {[][]string{{"DEL", "rc:{p}:e"}}, 2, 0},
		"trimmed": {[][]string{{"XTRIM", "rc:{p}:e", "MAXLEN", "1"}}, 2, 1},
		"one out": {[][]string{{"XDEL", "rc:{p}:e", "2-0"}}, 2, 1},
		"two in":  {[][]string{{"XADD", "rc:{p}:e", "8-0", "k", "grant"}, {"XADD", "rc:{p}:e", "9-0", "k", "grant"}}, 2, 4},
		"a grab by a version without ledgers": {[][]string{{"HINCRBY", "rc:{p}:p", "taken", "1"},
			{"HINCRBY", "rc:{p}:p", "given", "40"}, {"LPOP", "rc:{p}:a"},
			{"HSET", "rc:{p}:g", "old", "4;40;O"}}, 3, 2},
	} {
		for _, refunded := range []bool{false, true} {
			must(t, raw, "FLUSHALL")
			p, _ := sendWith(t, on(t, raw, patient), 10, 20, 30, 40, 50)
			_, err := p.GrabAs(ctx, "A", "ann", "bob", "cid")
			require.NoError(t, err)
			_, err = p.Ledger(ctx, 1, new(ledgerCopy).move)
			require.NoError(t, err)
			for _, d := range tc.damage {
				must(t, raw, d...)
			}
			if refunded {
				given, err := strconv.Atoi(hash(t, raw, "rc:{p}:p")["given"])
				require.NoError(t, err)
				must(t, raw, "HSET", "rc:{p}:p", "state", "2", "refund", strconv.Itoa(150-given), "by", "R")
				tc.should++
			}
			before := packetCounts(t, raw)
			verbs := packetVerbs(p)
			delete(verbs, "Send")
			verbs["Ledger"] = func() error { _, err := p.Ledger(ctx, 9, new(ledgerCopy).move); return err }
			verbs["KeepLedger"] = func() error { return p.KeepLedger(ctx, time.Hour, 9, new(ledgerCopy).move) }
			for verb, call := range verbs {
				err := call()
				require.ErrorIs(t, err, errs.ErrCorrupt, "%s: %s", what, verb)
				require.EqualError(t, err,
					fmt.Sprintf(`redpacket: corrupt: the ledger "rc:{p}:e" should have %d entries, and has %d`, tc.should, tc.found),
					"%s: %s", what, verb)
			}
			end(t, raw)
			_, err = p.Refund(ctx)
			require.ErrorIs(t, err, errs.ErrCorrupt, what)
			require.Equal(t, before, packetCounts(t, raw), what)
		}
	}
}

// What the ledger has of a packet that lost its records, or its hash, can be moved. Nothing is sent over it.
func TestPacketLedger_PacketLost_IsReadAllTheSame(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	for _, lost := range [][]string{{"rc:{p}:g"}, {"rc:{p}:p"}, {"rc:{p}:p", "rc:{p}:a", "rc:{p}:g"}} {
		must(t, raw, "FLUSHALL")
		p, _ := sendWith(t, on(t, raw, patient), 10, 20)
		_, err := p.GrabAs(ctx, "A", "ann")
		require.NoError(t, err)
		must(t, raw, append([]string{"DEL"}, lost...)...)
		var b ledgerCopy
		n, err := p.Ledger(ctx, 9, func(ctx context.Context, entries []redpacket.Entry) error {
			_, err := p.Send(ctx, packet(5, 2))
			require.Error(t, err, "%v", lost)
			return b.move(ctx, entries)
		})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, "grant 1 1 10 ann", b.text())
		n, err = p.Ledger(ctx, 9, b.move)
		require.NoError(t, err)
		require.Zero(t, n)
	}
}

// A run may be broken off between any two of its writes. Then the ledger tells what the packet knows, or every next
// call says that it does not.
func TestPacketScripts_BrokenOff_HideNoEntry(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	for name, args := range map[string][]string{
		"grab":   {"G", "0", "bob", "cid"},
		"refund": {"R", "0"},
		"moved":  {"1-0"}, // and its fields
	} {
		noticed := 0
		for k := 0; ; k++ {
			must(t, raw, "FLUSHALL")
			p, _ := sendWith(t, on(t, raw, patient), 10, 20, 30, 40)
			_, err := p.GrabAs(ctx, "A", "ann")
			require.NoError(t, err)
			var b ledgerCopy
			switch name {
			case "refund":
				end(t, raw)
			case "moved":
				_, err = p.Ledger(ctx, 1, func(ctx context.Context, entries []redpacket.Entry) error {
					x, err := raw.Do(ctx, raw.B().Xrange().Key("rc:{p}:e").Start("-").End("+").Build()).AsXRange()
					require.NoError(t, err)
					args = args[:1]
					for _, f := range []string{"k", "e", "o", "n", "c", "m", "at"} {
						args = append(args, x[0].FieldValues[f])
					}
					b.move(ctx, entries)
					return errReissued // not removed here
				})
				require.ErrorIs(t, err, errReissued)
			}
			whole := rig.BrokenOff(t, raw, k, redpacket.Source(name),
				[]string{"rc:{p}:p", "rc:{p}:a", "rc:{p}:g", "rc:{p}:e"}, args)
			st, err := p.Inspect(ctx)
			if errors.Is(err, errs.ErrCorrupt) {
				require.False(t, whole, "%s: %v", name, err)
				noticed++
				continue
			}
			require.NoError(t, err)
			b.drain(t, p)
			want := []string{"grant 1 1 10 ann"}
			if st.Taken == 3 {
				want = append(want, "grant 2 1 20 bob", "grant 3 1 30 cid")
			}
			if st.Phase == redpacket.PhaseRefunded {
				want = append(want, "refund 0 3 90")
			}
			require.Equal(t, strings.Join(want, ", "), b.text(), "%s, before write %d", name, k)
			if whole {
				require.Equal(t, map[string]bool{"grab": st.Taken == 3, "refund": st.Phase == redpacket.PhaseRefunded,
					"moved": true}[name], true)
				break
			}
		}
		require.Positive(t, noticed, name)
	}
}

// A mover reads entries, and is slow. A replica that has not heard of the last of them is promoted, and gives its place
// to another.
func TestPacketMover_EntryReplaced_KeepsIt(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	p, _ := sendWith(t, on(t, raw, patient), 10, 20, 30)
	_, err := p.GrabAs(ctx, "A", "ann")
	require.NoError(t, err)
	dumps := map[string]string{}
	for _, k := range keys(t, raw) {
		dumps[k] = text(t, raw, "DUMP", k)
	}
	_, err = p.GrabAs(ctx, "B", "bob")
	require.NoError(t, err)
	var b ledgerCopy
	n, err := p.Ledger(ctx, 9, func(ctx context.Context, entries []redpacket.Entry) error {
		for k, d := range dumps {
			must(t, raw, "RESTORE", k, "3600000", d, "REPLACE")
		}
		must(t, raw, "PEXPIRE", "rc:{p}:e", "7200000")
		_, err := p.GrabAs(ctx, "C", "cid")
		require.NoError(t, err)
		return b.move(ctx, entries)
	})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.EqualValues(t, 2, number(t, raw, "XLEN", "rc:{p}:e"), "of ann and cid")
	_, err = p.Ledger(ctx, 9, b.move)
	require.ErrorIs(t, err, errReissued)
	require.EqualValues(t, 2, number(t, raw, "XLEN", "rc:{p}:e"))
}
