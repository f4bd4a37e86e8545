package stock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/ledger"
)

// Entry is a line of the ledger: everything that happens to units, and every decision that nothing is sold. So a
// database with all entries can answer any repeated payment. Kinds:
//
//	reserved   N units of Asked, until Until      paid      reserved before
//	extended   the order, until Until             late      lapsed before
//	lapsed     the time was over                  sold      by Buy, N units of Asked
//	cancelled                                     returned  sold before
//	unpaid     reserved, and not in the payment   void      the order is Closed without units: Why
//
// Reserved and sold come for every line of a new order, also if N is 0 under UpTo. Extended and void have no item.
//
// (Epoch, Serial) is the key of an entry. Serials have no hole, and go on over a Restore. Two different entries with
// one key come from a failover to a replica that had not heard of the first.
type Entry struct {
	Serial, Epoch     int64
	Kind              string
	Item              string `json:",omitzero"`
	ID                string
	User, Why         string    `json:",omitzero"`
	Asked, N, Ordinal int64     `json:",omitzero"`
	At                time.Time // by the server's clock
	Until             time.Time `json:",omitzero"` // of reserved and extended
}

var kinds = []string{"reserved", "extended", "lapsed", "cancelled", "unpaid", "paid", "late", "sold", "returned",
	"void"}

// Ledger hands the first entries of the ledger, at most n (1 to 10,000), to fn, and removes them once fn has returned
// nil. Reservations whose time is over are ended first. The result is the number of entries that fn took: 0 if the
// ledger is empty. fn gets entries in the order of their serials, without a hole, and may get an entry more than once:
// see Book.Move.
//
// The error is fn's, unchanged; ErrNoStock, ErrLater, or the server's. With Options.MinReplicas fn gets only what so
// many replicas have.
func (s *Sale) Ledger(ctx context.Context, n int, fn func(ctx context.Context, entries []Entry) error) (int, error) {
	return s.ledger().Move(ctx, n, fn)
}

// KeepLedger runs Ledger until ctx ends: at once again while there are entries, and at the interval every while there
// are none. The result is ctx's error, fn's, or an error that asking again does not cure, such as ErrNoStock. After
// ErrLater KeepLedger goes on.
func (s *Sale) KeepLedger(ctx context.Context, every time.Duration, n int,
	fn func(ctx context.Context, entries []Entry) error) error {
	return s.ledger().Keep(ctx, every, n, fn)
}

// entryFields are the fields of an entry on the server, in their order: see log in sale.lua.
var entryFields = []string{"k", "d", "u", "i", "a", "n", "o", "t", "w", "at", "e"}

func (s *Sale) ledger() *ledger.Ledger[Entry] {
	l := &ledger.Ledger[Entry]{Calls: s.c.calls, Refused: s.refused, Fields: entryFields, Entry: entry, Verdict: s.verdict,
		Edge: edged,
		Before: func(ctx context.Context) error { // it ends what is over
			_, err := s.whole(ctx)
			return err
		},
		Failed: func(ctx context.Context, err error) {
			s.c.failed(ctx, "a ledger could not be moved; trying again", s.name, err)
		}}
	if s.refused == nil { // otherwise there are no keys
		l.Keys = []string{s.keys[0], s.keys[4]}
	}
	return l
}

func entry(l *ledger.Line) (Entry, error) {
	e := Entry{Serial: l.Serial, Epoch: l.Number("e"), Kind: l.Text["k"], Item: l.Text["i"], ID: l.Text["d"],
		User: l.Text["u"], Why: l.Text["w"], Asked: l.Number("a"), N: l.Number("n"), Ordinal: l.Number("o"), At: l.Time("at")}
	if ms := l.Number("t"); ms > 0 {
		e.Until = time.Unix(ms/1e3, ms%1e3*1e6).UTC()
	}
	if !slices.Contains(kinds, e.Kind) {
		return Entry{}, fmt.Errorf("kind %.32q", e.Kind)
	}
	return e, nil
}
