package redlatchledger

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"time"

	"github.com/redlatch/redlatch/rcounter/redpacket"
)

// PacketMover moves the ledger of one red packet into a database, as a Book does that of a sale: each share that is
// taken, and the refund, is a row of shares with its amount in cents. The row of the packet in packets has the sums,
// and no transaction commits after which they would contradict the packet's total. Several PacketMovers, in one process
// or in many, may move one ledger.
type PacketMover struct {
	// DB, Dialect, Also, After and Failed are as those of a Book.
	DB      *sql.DB
	Dialect Dialect
	// Packet is the packet's name in the tables. Required.
	Packet string
	// Also, if set, pays: it is called once for every entry, in the transaction that writes it.
	Also   func(ctx context.Context, tx *sql.Tx, entries []redpacket.Entry) error
	After  func(ctx context.Context, entries []redpacket.Entry) error
	Failed func(err error)
}

func (m *PacketMover) ledger() *ledger[redpacket.Entry] {
	return &ledger[redpacket.Entry]{db: m.DB, dialect: m.Dialect, of: m.Packet, also: m.Also, after: m.After,
		failed: m.Failed, balance: m.balance,
		tables: tables[redpacket.Entry]{heads: "packets", entries: "shares", name: "packet",
			columns: `serial, epoch, kind, ordinal, n, user_id, cents, at`,
			fields: func(e *redpacket.Entry) []any {
				return []any{&e.Serial, &e.Epoch, &e.Kind, &e.Ordinal, &e.N, &e.User, &e.Cents, micros{&e.At}}
			},
			number: func(e *redpacket.Entry) (epoch, serial int64) { return e.Epoch, e.Serial },
			at:     func(e *redpacket.Entry) *time.Time { return &e.At }}}
}

// Keep is Book.Keep for the ledger of p. It may also return ErrUnbalanced.
func (m *PacketMover) Keep(ctx context.Context, p *redpacket.Packet, every time.Duration) error {
	if p == nil {
		return invalid("p", "nil", "a red packet")
	}
	return m.ledger().keep(ctx, every, p.KeepLedger)
}

// Move is Book.Move, for Packet.Ledger and Packet.KeepLedger. It may also return ErrUnbalanced: the entries are
// more than the packet has, or after the last share, or the refund, they are not its total.
func (m *PacketMover) Move(ctx context.Context, entries []redpacket.Entry) error {
	return m.ledger().move(ctx, entries)
}

// Announce tells the database of the packet that Send has opened with spec, of which Total and Shares are used. Until
// then a PacketMover moves nothing. Running it again changes nothing. If Send says ErrAlreadyOpen, because a process
// died before it announced the packet, call it with the epoch that Send returned.
//
// The error is redlatch.ErrMismatch if the database knows another packet of this name: the server has lost it, and it
// was sent again, so that its total would be paid twice. Another packet has another name. Otherwise the error is the
// database's.
func (m *PacketMover) Announce(ctx context.Context, epoch int64, spec redpacket.Spec) error {
	l := m.ledger()
	if err := l.check(); err != nil {
		return err
	}
	if epoch < 1 || spec.Total < 1 || spec.Shares < 1 || spec.Shares > spec.Total {
		return invalid("epoch, Total, Shares", fmt.Sprintf("%d, %d, %d", epoch, spec.Total, spec.Shares), "those of Send")
	}
	if _, err := m.DB.ExecContext(ctx, l.sql(`INSERT INTO packets (packet, epoch, last_serial, total, shares, taken,
		taken_cents) VALUES (?, ?, 0, ?, ?, 0, 0)`+m.Dialect.unlessThere("packet")), m.Packet, epoch, spec.Total,
		spec.Shares); err != nil {
		return err
	}
	known, b, err := m.sums(ctx, m.DB)
	if err == nil && (known != epoch || b.Total != spec.Total || b.Shares != spec.Shares) {
		err = l.mismatch("the database has opening %d of %d cents in %d shares, not opening %d of %d in %d", known, b.Total,
			b.Shares, epoch, spec.Total, spec.Shares)
	}
	return err
}

// Opened is the opening of the packet that the database knows, or 0. Ask it before Send, unless each name is used once
// anyway: a packet that Redis has lost looks as one that never was.
func (m *PacketMover) Opened(ctx context.Context) (epoch int64, err error) {
	return m.ledger().opened(ctx)
}

// Entries yields the entries of the packet by serial.
func (m *PacketMover) Entries(ctx context.Context) iter.Seq2[redpacket.Entry, error] {
	return m.ledger().query(ctx, m.DB, selectEntries+`{name} = ? ORDER BY serial`, m.Packet)
}

// Books is what a database has of a packet. Total - TakenCents - RefundCents is what is left of it, or is not moved
// yet; 0 once it is refunded.
type Books struct {
	Total, Shares     int64 // as Send was given
	Taken, TakenCents int64 // how many shares, and their sum
	RefundCents       int64
	Refunded          bool
}

func (m *PacketMover) sums(ctx context.Context, q querier) (epoch int64, b Books, err error) {
	var refund sql.NullInt64
	err = q.QueryRowContext(ctx, m.Dialect.bind(
		`SELECT epoch, total, shares, taken, taken_cents, refund_cents FROM packets WHERE packet = ?`), m.Packet).
		Scan(&epoch, &b.Total, &b.Shares, &b.Taken, &b.TakenCents, &refund)
	b.RefundCents, b.Refunded = refund.Int64, refund.Valid
	return epoch, b, err
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

// balance adds fresh entries to the sums of their packet, whose row tx has locked.
func (m *PacketMover) balance(ctx context.Context, tx *sql.Tx, fresh []redpacket.Entry) error {
	_, b, err := m.sums(ctx, tx)
	if err != nil {
		return err
	}
	for _, e := range fresh {
		fault := "an entry after the refund, or of less than nothing"
		if e.Cents >= 0 && !b.Refunded {
			if e.Kind == "refunded" {
				b.Refunded, b.RefundCents = true, e.Cents
			} else {
				b.Taken, b.TakenCents = b.Taken+1, b.TakenCents+e.Cents
			}
			fault = b.fault()
		}
		if fault != "" {
			return fmt.Errorf("%w: %q, entry %d: %s", ErrUnbalanced, m.Packet, e.Serial, fault)
		}
	}
	_, err = tx.ExecContext(ctx,
		m.Dialect.bind(`UPDATE packets SET taken = ?, taken_cents = ?, refund_cents = ? WHERE packet = ?`), b.Taken,
		b.TakenCents, sql.NullInt64{Int64: b.RefundCents, Valid: b.Refunded}, m.Packet)
	return err
}

const countShares = `SELECT COUNT(CASE WHEN kind = 'grabbed' THEN 1 END),
	COALESCE(SUM(CASE WHEN kind = 'grabbed' THEN cents END), 0),
	COALESCE(SUM(CASE WHEN kind = 'refunded' THEN cents END), 0) FROM shares WHERE packet = ?`

// Books adds up all rows of a packet. The error is ErrUnbalanced if they contradict the sums that the PacketMovers have
// written, as after rows were changed by hand; redlatch.ErrMismatch if the database knows no such packet; or the
// database's.
func (m *PacketMover) Books(ctx context.Context) (sums Books, err error) {
	l := m.ledger()
	if err := l.check(); err != nil {
		return Books{}, err
	}
	err = l.inTx(ctx, func(tx *sql.Tx, _, _ int64) (err error) { // no one adds rows meanwhile
		if _, sums, err = m.sums(ctx, tx); err != nil {
			return err
		}
		var taken, cents, refund int64
		if err := tx.QueryRowContext(ctx, l.sql(countShares), m.Packet).Scan(&taken, &cents, &refund); err != nil {
			return err
		}
		if sums.Taken != taken || sums.TakenCents != cents || sums.RefundCents != refund || sums.fault() != "" {
			return fmt.Errorf("%w: %q: the rows have %d shares of %d cents and a refund of %d; their sums say %d, %d and %d, "+
				"of %d", ErrUnbalanced, m.Packet, taken, cents, refund, sums.Taken, sums.TakenCents, sums.RefundCents, sums.Total)
		}
		return nil
	})
	return sums, err
}
