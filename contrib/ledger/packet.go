package redlatchledger

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"time"

	"github.com/redlatch/redlatch/rcounter/redpacket"
)

// PacketMover moves the ledger of one red packet into a database, as a Mover does that of a stock: each share that is
// taken, and the refund, is a row of shares with its amount in cents. The row of the packet in packets has the sums,
// and no transaction commits after which they would contradict the packet's total. Several PacketMovers, in one process
// or in many, may move one ledger.
type PacketMover struct {
	// DB, Dialect, Also, After and Failed are as those of a Mover.
	DB      *sql.DB
	Dialect Dialect
	// Packet is the packet's name in the tables. Required.
	Packet string
	// Also, if set, pays: it is called once for every entry, in the transaction that writes it.
	Also   func(ctx context.Context, tx *sql.Tx, entries []redpacket.Entry) error
	After  func(ctx context.Context, entries []redpacket.Entry) error
	Failed func(err error)
}

func (m *PacketMover) book() *book[redpacket.Entry] {
	return &book[redpacket.Entry]{names: ofPackets, db: m.DB, dialect: m.Dialect, name: m.Packet, also: m.Also,
		after: m.After, failed: m.Failed,
		balance: m.balance,
		row: func(e redpacket.Entry) row {
			return row{epoch: e.Epoch, serial: e.Serial, kind: string(e.Kind), ordinal: e.Ordinal, n: e.N, claimant: e.User,
				cents: e.Cents, at: e.At}
		}}
}

// Keep is Mover.Keep for the ledger of p. It may also return ErrUnbalanced.
func (m *PacketMover) Keep(ctx context.Context, p *redpacket.Packet, every time.Duration) error {
	if p == nil {
		return invalid("p", "nil", "a red packet")
	}
	return m.book().keep(ctx, every, p.KeepLedger)
}

// Move is Mover.Move, for Packet.Ledger and Packet.KeepLedger. It may also return ErrUnbalanced: the entries are more
// than the packet has, or after the last share, or the refund, they are not its total.
func (m *PacketMover) Move(ctx context.Context, entries []redpacket.Entry) error {
	return m.book().move(ctx, entries)
}

// Announce tells the database of the packet that Send has opened with spec, of which Total and Shares are used. Until
// then a PacketMover moves nothing. Running it again changes nothing. If Send says ErrAlreadyOpen, because a process
// died before it announced the packet, call it with the epoch that Send returned.
//
// The error is ErrUnknownOpening if the database knows only others of this name: the server has lost the packet, and
// it was sent again, so that its total would be paid twice; or this is another packet, see Admit. ErrUnbalanced if
// it knows the packet with another total or number of shares. Otherwise it is the database's.
func (m *PacketMover) Announce(ctx context.Context, epoch int64, spec redpacket.Spec) error {
	return m.open(ctx, epoch, false, spec)
}

// Admit is Announce for another packet of a name that was used before.
func (m *PacketMover) Admit(ctx context.Context, epoch int64, spec redpacket.Spec) error {
	return m.open(ctx, epoch, true, spec)
}

func (m *PacketMover) open(ctx context.Context, epoch int64, another bool, spec redpacket.Spec) error {
	if spec.Total < 1 || spec.Shares < 1 || spec.Shares > spec.Total {
		return invalid("Total, Shares", fmt.Sprintf("%d, %d", spec.Total, spec.Shares), "those of Send")
	}
	if err := m.book().open(ctx, epoch, another, ", total, shares, taken, taken_cents", spec.Total, spec.Shares, 0,
		0); err != nil {
		return err
	}
	b, err := m.sums(ctx, m.DB, epoch)
	if err == nil && (b.Total != spec.Total || b.Shares != spec.Shares) {
		err = fmt.Errorf("%w: %q, opening %d: the database has it with %d cents in %d shares, not %d in %d", ErrUnbalanced,
			m.Packet, epoch, b.Total, b.Shares, spec.Total, spec.Shares)
	}
	return err
}

// Opened reports whether the database knows of a packet of this name. Ask it before Send, unless each name is used once
// anyway: a packet that Redis has lost looks as one that never was.
func (m *PacketMover) Opened(ctx context.Context) (bool, error) { return m.book().opened(ctx) }

// Entries reads the entries of a packet by serial, without At.
func (m *PacketMover) Entries(ctx context.Context, epoch int64) iter.Seq2[redpacket.Entry, error] {
	return m.book().read(ctx, epoch, func(r row) redpacket.Entry {
		return redpacket.Entry{Epoch: r.epoch, Serial: r.serial, Kind: redpacket.Kind(r.kind), Ordinal: r.ordinal, N: r.n,
			User: r.claimant, Cents: r.cents}
	}, `SELECT `+columns+` FROM {moves} WHERE {object} = ? AND epoch = ? ORDER BY serial`, m.Packet, epoch)
}

// Books is what a database has of a packet. Total - TakenCents - RefundCents is what is left of it, or is not moved
// yet; 0 once it is refunded.
type Books struct {
	Total, Shares     int64 // as Send was given
	Taken, TakenCents int64 // how many shares, and their sum
	RefundCents       int64
	Refunded          bool
}

const packetSums = `SELECT total, shares, taken, taken_cents, refund_cents FROM packets WHERE packet = ? AND epoch = ?`

func (m *PacketMover) sums(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, epoch int64) (b Books, err error) {
	var refund sql.NullInt64
	err = q.QueryRowContext(ctx, m.Dialect.bind(packetSums), m.Packet, epoch).Scan(&b.Total, &b.Shares, &b.Taken,
		&b.TakenCents, &refund)
	b.RefundCents, b.Refunded = refund.Int64, refund.Valid
	return b, err
}

// fault is what contradicts itself in b, or "".
func (b Books) fault() string {
	out := b.TakenCents + b.RefundCents
	if b.Taken > b.Shares || out > b.Total || (b.Refunded || b.Taken == b.Shares) && out != b.Total {
		return fmt.Sprintf("%d of %d shares are taken, %d cents, and %d went back, of %d", b.Taken, b.Shares, b.TakenCents,
			b.RefundCents, b.Total)
	}
	return ""
}

// balance adds fresh rows to the sums of their packet, whose mark tx has locked.
func (m *PacketMover) balance(ctx context.Context, tx *sql.Tx, epoch int64, fresh []row) error {
	b, err := m.sums(ctx, tx, epoch)
	if err != nil {
		return err
	}
	fault := ""
	for _, r := range fresh {
		switch {
		case r.cents < 0 || b.Refunded: // nothing comes after the refund
			fault = "an entry after the refund, or of less than nothing"
		case redpacket.Kind(r.kind) == redpacket.KindRefund:
			b.Refunded, b.RefundCents = true, r.cents
		default:
			b.Taken, b.TakenCents = b.Taken+1, b.TakenCents+r.cents
		}
		if fault == "" {
			fault = b.fault()
		}
		if fault != "" {
			return fmt.Errorf("%w: %q, opening %d, entry %d: %s", ErrUnbalanced, m.Packet, epoch, r.serial, fault)
		}
	}
	_, err = tx.ExecContext(ctx,
		m.Dialect.bind(`UPDATE packets SET taken = ?, taken_cents = ?, refund_cents = ? WHERE packet = ? AND epoch = ?`),
		b.Taken, b.TakenCents, sql.NullInt64{Int64: b.RefundCents, Valid: b.Refunded}, m.Packet, epoch)
	return err
}

const countShares = `SELECT COUNT(CASE WHEN kind = 'grant' THEN 1 END), COALESCE(SUM(CASE WHEN kind = 'grant' THEN cents END), 0),
	COALESCE(SUM(CASE WHEN kind = 'refund' THEN cents END), 0) FROM shares WHERE packet = ? AND epoch = ?`

// Books adds up all rows of a packet. The error is ErrUnbalanced if they contradict the sums that the Movers have
// written, as after rows were changed by hand; ErrUnknownOpening; or the database's.
func (m *PacketMover) Books(ctx context.Context, epoch int64) (Books, error) {
	b := m.book()
	if err := b.check(); err != nil {
		return Books{}, err
	}
	tx, err := m.DB.BeginTx(ctx, nil)
	if err != nil {
		return Books{}, err
	}
	defer tx.Rollback()
	if _, err := b.lock(ctx, tx, epoch); err != nil { // no one adds rows meanwhile
		return Books{}, err
	}
	sums, err := m.sums(ctx, tx, epoch)
	if err != nil {
		return Books{}, err
	}
	var taken, cents, refund int64
	if err := tx.QueryRowContext(ctx, b.sql(countShares), m.Packet, epoch).Scan(&taken, &cents, &refund); err != nil {
		return Books{}, err
	}
	if sums.Taken != taken || sums.TakenCents != cents || sums.RefundCents != refund || sums.fault() != "" {
		return sums, fmt.Errorf("%w: %q, opening %d: the rows have %d shares of %d cents and a refund of %d; their sums "+
			"say %d, %d and %d, of %d", ErrUnbalanced,
			m.Packet, epoch, taken, cents, refund, sums.Taken, sums.TakenCents, sums.RefundCents, sums.Total)
	}
	return sums, nil
}
