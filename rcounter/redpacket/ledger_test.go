package redpacket_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
		n := redistest.NoError(p.Ledger(ctx, 7, b.move))(t)
		if n == 0 {
			return
		}
	}
}

// text is the rows in the order of their serials: "grabbed 1 1 10 ann, refunded 0 2 50".
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
	epoch := redistest.NoError(p.SendAs(ctx, "S", o, shares, 0, 2))(t)
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
				redistest.NoError(p.Grab(ctx, fmt.Sprint("u", u)))(t)
			}
		})
	}
	crowd.Wait()
	end(t, raw)
	refund := redistest.NoError(p.Refund(ctx))(t)
	stop()
	movers.Wait()
	b.drain(t, p)
	var want []string
	for s, err := range p.Shares(ctx) {
		require.NoError(t, err)
		want = append(want, fmt.Sprint("grabbed ", s.Ordinal, " 1 ", s.Cents, " ", s.User))
	}
	require.Len(t, want, 15)
	require.Equal(t, strings.Join(append(want, fmt.Sprint("refunded 0 5 ", refund.Cents)), ", "), b.text())
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
		"two in":  {[][]string{{"XADD", "rc:{p}:e", "8-0", "k", ""}, {"XADD", "rc:{p}:e", "9-0", "k", ""}}, 2, 4},
	} {
		for _, state := range []string{"1", "2"} { // open, refunded
			must(t, raw, "FLUSHALL")
			p, _ := sendWith(t, on(t, raw, patient), 10, 20, 30, 40, 50)
			redistest.NoError(p.GrabEach(ctx, "ann", "bob", "cid"))(t)
			redistest.NoError(p.Ledger(ctx, 1, new(ledgerCopy).move))(t)
			for _, d := range tc.damage {
				must(t, raw, d...)
			}
			must(t, raw, "HSET", "rc:{p}:p", "state", state)
			before := packetCounts(t, raw)
			verbs := packetVerbs(p)
			verbs["Ledger"] = func() error { _, err := p.Ledger(ctx, 9, new(ledgerCopy).move); return err }
			verbs["KeepLedger"] = func() error { return p.KeepLedger(ctx, time.Hour, 9, new(ledgerCopy).move) }
			end(t, raw)
			for verb, call := range verbs {
				err := call()
				require.ErrorIs(t, err, errs.ErrCorrupt, "%s: %s", what, verb)
				require.EqualError(t, err, fmt.Sprintf(
					`redpacket: no such red packet: corrupt: the ledger "rc:{p}:e" should have %d entries, and has %d`, tc.should,
					tc.found), "%s: %s", what, verb)
			}
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
		redistest.NoError(p.GrabEach(ctx, "ann"))(t)
		must(t, raw, append([]string{"DEL"}, lost...)...)
		var b ledgerCopy
		n, err := p.Ledger(ctx, 9, func(ctx context.Context, entries []redpacket.Entry) error {
			_, err := p.Send(ctx, packet(5, 2))
			require.Error(t, err, "%v", lost)
			return b.move(ctx, entries)
		})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, "grabbed 1 1 10 ann", b.text())
		_, err = p.Ledger(ctx, 9, b.move)
		if lost[0] == "rc:{p}:p" {
			require.ErrorIs(t, err, redpacket.ErrNoPacket, "there is nothing more")
		} else {
			require.NoError(t, err)
		}
	}
}

// Replicas are slow: the mover waits for them, and says so once.
func TestKeepLedger_NotReplicated_GoesOn(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	sendWith(t, on(t, raw, patient), 10, 20)
	var log redistest.Logbook
	p := on(t, raw, redpacket.Options{CallTimeout: patient.CallTimeout, MinReplicas: 1, ReplicaTimeout: time.Millisecond,
		Logger: log.Logger()}).Packet("p")
	_, err := p.Grab(ctx, "ann")
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	moving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- p.KeepLedger(moving, time.Millisecond, 9, func(context.Context, []redpacket.Entry) error {
			return errors.New("fn has what no replica has")
		})
	}()
	redistest.Eventually(t, 20*time.Second, "it says that it goes on, or has ended", func() bool {
		return strings.Contains(log.String(), "trying again") || len(ended) > 0
	})
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// A run may be broken off between any two of its writes. Then the ledger tells what the packet knows, or every next
// call says that it does not.
func TestPacketScripts_BrokenOff_HideNoEntry(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	for name, args := range map[string][]string{
		"grab":   {"0", "bob", "cid"},
		"refund": {"0"},
	} {
		noticed := 0
		for k := 0; ; k++ {
			must(t, raw, "FLUSHALL")
			p, _ := sendWith(t, on(t, raw, patient), 10, 20, 30, 40)
			redistest.NoError(p.GrabEach(ctx, "ann"))(t)
			var b ledgerCopy
			if name == "refund" {
				end(t, raw)
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
			want := []string{"grabbed 1 1 10 ann"}
			if st.Taken == 3 {
				want = append(want, "grabbed 2 1 20 bob", "grabbed 3 1 30 cid")
			}
			if st.Phase == "refunded" {
				want = append(want, "refunded 0 3 90")
			}
			require.Equal(t, strings.Join(want, ", "), b.text(), "%s, before write %d", name, k)
			if whole {
				require.True(t, st.Taken == 3 || st.Phase == "refunded")
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
	redistest.NoError(p.GrabEach(ctx, "ann"))(t)
	dumps := map[string]string{}
	for _, k := range keys(t, raw) {
		dumps[k] = text(t, raw, "DUMP", k)
	}
	redistest.NoError(p.GrabEach(ctx, "bob"))(t)
	var b ledgerCopy
	n, err := p.Ledger(ctx, 9, func(ctx context.Context, entries []redpacket.Entry) error {
		for k, d := range dumps {
			must(t, raw, "RESTORE", k, "3600000", d, "REPLACE")
		}
		must(t, raw, "PEXPIRE", "rc:{p}:e", "7200000")
		redistest.NoError(p.GrabEach(ctx, "cid"))(t)
		return b.move(ctx, entries)
	})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.EqualValues(t, 2, number(t, raw, "XLEN", "rc:{p}:e"), "of ann and cid")
	_, err = p.Ledger(ctx, 9, b.move)
	require.ErrorIs(t, err, errReissued)
	require.EqualValues(t, 2, number(t, raw, "XLEN", "rc:{p}:e"))
}
