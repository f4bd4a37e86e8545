package redlatchledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/redlatchtest"
)

// gift is a red packet of which a database knows.
type gift struct {
	server *redlatchtest.Server
	packet *redpacket.Packet
	spec   redpacket.Spec
	epoch  int64
	open   func() *sql.DB
	redlatchledger.PacketMover
}

func eachGift(t *testing.T, spec redpacket.Spec, test func(t *testing.T, g *gift)) {
	spec.OpenFor, spec.Ledger = time.Hour, true
	onDatabases(t, func(t *testing.T, d redlatchledger.Dialect, open func() *sql.DB) {
		server := redlatchtest.New(t)
		g := &gift{server: server, packet: server.Open().RedPackets().Packet("gift"), spec: spec, open: open}
		g.send(t)
		g.PacketMover = redlatchledger.PacketMover{DB: open(), Dialect: d, Packet: "gift"}
		require.NoError(t, g.Announce(t.Context(), g.epoch, spec))
		test(t, g)
	})
}

func (g *gift) send(t *testing.T) {
	t.Helper()
	var err error
	g.epoch, err = g.packet.Send(t.Context(), g.spec)
	require.NoError(t, err)
}

func (g *gift) grab(t *testing.T, user string) redpacket.Share {
	t.Helper()
	share := redistest.NoError(g.packet.Grab(t.Context(), user))(t)
	return share
}

func (g *gift) refund(t *testing.T) redpacket.Share {
	t.Helper()
	g.server.Advance(2 * time.Hour)
	share := redistest.NoError(g.packet.Refund(t.Context()))(t)
	return share
}

func (g *gift) drain(t *testing.T) error {
	t.Helper()
	for {
		if n, err := g.packet.Ledger(t.Context(), 10, g.Move); n == 0 || err != nil {
			return err
		}
	}
}

// A packet is grabbed while movers crash. What the database has, and what it has paid, is what users were told, and
// with the refund it is the total to the cent.
func TestPacketMover_CrashesDuringGrabs_SumsToTheTotal(t *testing.T) {
	t.Parallel()
	eachGift(t, redpacket.Spec{Total: 12_345, Shares: 100}, func(t *testing.T, g *gift) {
		redistest.NoError(g.DB.Exec(`CREATE TABLE payments (serial bigint PRIMARY KEY, cents bigint)`))(t)
		stop := crashingMovers(t, g.packet.Ledger, func(crash func() error) func(context.Context, []redpacket.Entry) error {
			own := redlatchledger.PacketMover{DB: g.open(), Dialect: g.Dialect, Packet: "gift",
				Also: func(ctx context.Context, tx *sql.Tx, entries []redpacket.Entry) error {
					for _, e := range entries {
						if _, err := tx.ExecContext(ctx,
							fmt.Sprintf(`INSERT INTO payments VALUES (%d, %d)`, e.Serial, e.Cents)); err != nil {
							return err
						}
					}
					return crash()
				}}
			return own.Move
		})
		told := map[string]int64{}
		var mu sync.Mutex
		var users sync.WaitGroup
		for i := range 60 {
			users.Go(func() {
				user := "user " + strconv.Itoa(i)
				share, err := g.packet.Grab(t.Context(), user)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && share.Won() {
					told[user] = share.Cents
				}
			})
		}
		users.Wait()
		require.Len(t, told, 60)
		back := g.refund(t)
		stop()

		has, sum := map[string]int64{}, int64(0)
		for e, err := range g.Entries(t.Context()) {
			require.NoError(t, err)
			if sum += e.Cents; e.Kind == "grabbed" {
				has[e.User] = e.Cents
			} else {
				e.At = time.Time{}
				require.Equal(t, redpacket.Entry{Serial: 61, Kind: "refunded", Epoch: g.epoch, N: 40,
					Cents: back.Cents}, e)
			}
		}
		require.Equal(t, told, has)
		require.EqualValues(t, 12_345, sum)
		books := redistest.NoError(g.Books(t.Context()))(t)
		require.Equal(t, redlatchledger.Books{Total: 12_345, Shares: 100, Taken: 60, TakenCents: 12_345 - back.Cents,
			RefundCents: back.Cents, Refunded: true}, books)
		require.Equal(t, "61 12345 ", strings.TrimSuffix(text(t, g.DB, `SELECT COUNT(*), SUM(cents) FROM payments`), "\n"),
			"each paid once")
	})
}

func TestPacketMover_SharesDoNotAddUp_AreRefused(t *testing.T) {
	t.Parallel()
	eachGift(t, redpacket.Spec{Total: 100, Shares: 3}, func(t *testing.T, g *gift) {
		e := func(serial, cents int64) redpacket.Entry {
			return redpacket.Entry{Serial: serial, Kind: "grabbed", Epoch: g.epoch, Ordinal: serial, N: 1,
				Cents: cents, User: fmt.Sprint("user ", serial)}
		}
		refund := func(serial, cents int64) redpacket.Entry {
			return redpacket.Entry{Serial: serial, Kind: "refunded", Epoch: g.epoch, Cents: cents}
		}
		move := func(entries ...redpacket.Entry) error { return g.Move(t.Context(), entries) }
		for _, wrong := range [][]redpacket.Entry{
			{e(1, 101)}, {e(1, 50), e(2, 51)}, {e(1, 30), e(2, 30), e(3, 39)}, {e(1, 97), e(2, 1), e(3, 1), e(4, 1)}, {e(1, -1)},
			{e(1, 30), refund(2, 69)}, {e(1, 30), refund(2, 71)}, {refund(1, 100), refund(2, 0)}, {refund(1, 100), e(2, 0)},
		} {
			err := move(wrong...)
			require.ErrorIs(t, err, redlatchledger.ErrUnbalanced, "%v", wrong)
			require.ErrorContains(t, err, `"gift", entry`)
		}
		books := redistest.NoError(g.Books(t.Context()))(t)
		require.Equal(t, redlatchledger.Books{Total: 100, Shares: 3}, books, "nothing is written")
		require.NoError(t, move(e(1, 30)))
		require.NoError(t, move(e(1, 30), e(2, 30)))
		require.ErrorIs(t, move(e(2, 31)), redlatch.ErrMismatch)
		require.ErrorIs(t, move(e(4, 10)), redlatchledger.ErrHole)
		require.ErrorIs(t, move(e(2, 30), e(3, 41)), redlatchledger.ErrUnbalanced)
		require.NoError(t, move(e(2, 30), e(3, 40)))
		require.NoError(t, move(refund(4, 0)))
		books = redistest.NoError(g.Books(t.Context()))(t)
		require.Equal(t, redlatchledger.Books{Total: 100, Shares: 3, Taken: 3, TakenCents: 100, Refunded: true}, books)

		redistest.NoError(g.DB.Exec(`UPDATE shares SET cents = 41 WHERE serial = 3`))(t)
		_, err := g.Books(t.Context())
		require.ErrorIs(t, err, redlatchledger.ErrUnbalanced, "somebody has changed a row")
		other := g.spec
		other.Total++
		require.ErrorIs(t, g.Announce(t.Context(), g.epoch, other), redlatch.ErrMismatch)
		g.Packet = "another"
		_, err = g.Books(t.Context())
		require.ErrorIs(t, err, redlatch.ErrMismatch)
	})
}

// Redis loses a packet, and it is sent again: its total would be paid twice.
func TestPacketMover_SentASecondTime_IsPaidOnce(t *testing.T) {
	t.Parallel()
	eachGift(t, redpacket.Spec{Total: 300, Shares: 3, Method: redpacket.Equal}, func(t *testing.T, g *gift) {
		g.grab(t, "ann")
		require.NoError(t, g.drain(t))
		g.server.Redis().FlushAll()
		known := redistest.NoError(g.Opened(t.Context()))(t)
		require.Equal(t, g.epoch, known, "which a sender may ask before")
		g.send(t)
		g.grab(t, "ann")
		for _, err := range []error{g.drain(t), g.Announce(t.Context(), g.epoch, g.spec)} {
			require.ErrorIs(t, err, redlatch.ErrMismatch)
		}
		keeping, stop := context.WithCancel(t.Context())
		defer stop()
		g.Failed = func(err error) {
			require.ErrorIs(t, err, redlatch.ErrMismatch)
			stop()
		}
		require.ErrorIs(t, g.Keep(keeping, g.packet, time.Millisecond), context.Canceled)
		books := redistest.NoError(g.Books(t.Context()))(t)
		require.Equal(t, redlatchledger.Books{Total: 300, Shares: 3, Taken: 1, TakenCents: 100}, books)
	})
}
