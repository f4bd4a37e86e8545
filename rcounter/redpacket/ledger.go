package redpacket

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/ledger"
)

// Entry is a line of a packet's ledger: everything that happens to its money. Kinds:
//
//	grabbed   User took a share of Cents       refunded   N shares of Cents together went back to the sender
//
// (Epoch, Serial) is the key of an entry. Serials are 1, 2, 3 and so on, without a hole. Two different entries with one
// key come from a failover to a replica that had not heard of the first.
type Entry struct {
	Serial, Epoch int64
	Kind, User    string
	N             int64 // shares: 1, or those that went back, which may be 0
	Ordinal       int64 // the place in the order of taking, from 1, which is the Serial, too; 0 of a refund
	Cents         int64
	At            time.Time // by the server's clock
}

// The kinds of entries.
const grabbed, refunded = "grabbed", "refunded"

// Ledger hands the first entries of the ledger, at most n (1 to 10,000), to fn, and removes them once fn has returned
// nil. The result is the number of entries that fn took: 0 if the ledger is empty or the packet keeps none
// (Spec.Ledger). fn gets entries in the order of their serials, without a hole. Two round trips.
//
// fn may get an entry more than once: after an error or a crash, and beside another caller, so that entries may come
// after those that followed them. In one transaction, fn inserts every entry under the primary key (packet, Epoch,
// Serial), and commits before it returns nil. If a row is there already and is of another entry, fn returns an error: a
// failover has forgotten a share, and its place and its money were given a second time. Then nothing is removed, and a
// person decides who is paid; a packet has no Restore. PacketMover of package
// github.com/redlatch/redlatch/contrib/ledger is such a fn for SQL databases.
//
// The error is fn's, unchanged; ErrNoPacket, once no entry is left; with ErrCorrupt, if entries were lost or were
// removed from outside, which every verb says then; or the server's. With Options.MinReplicas fn gets only what so many
// replicas have. The ledger of a packet that lost its hash, users or shares is read all the same.
//
// A ledger that is not moved grows by about 60 bytes and the user's name for each share. It outlives the packet's
// retention by less than an hour, and what is not moved then is gone: after Refund run Ledger until the result is 0.
func (p *Packet) Ledger(ctx context.Context, n int,
	fn func(ctx context.Context, entries []Entry) error) (moved int, err error) {
	return p.ledger().Move(ctx, n, fn)
}

// KeepLedger runs Ledger until ctx ends: at once again while there are entries, and at the interval every while there
// are none. The result is ctx's error, fn's, or an error that asking again does not cure, such as ErrNoPacket.
func (p *Packet) KeepLedger(ctx context.Context, every time.Duration, n int,
	fn func(ctx context.Context, entries []Entry) error) error {
	return p.ledger().Keep(ctx, every, n, fn)
}

// entryFields are the fields of an entry on the server, in their order: see log in packet.lua.
var entryFields = []string{"k", "e", "o", "n", "u", "m", "at"}

func (p *Packet) ledger() *ledger.Ledger[Entry] {
	return &ledger.Ledger[Entry]{Calls: p.c.calls, Refused: p.refused, Keys: []string{p.keys[0], p.keys[3]},
		Fields: entryFields, Entry: entry, Verdict: p.verdict, Edge: edged,
		Failed: func(_ context.Context, err error) {
			p.c.calls.Complain("a ledger could not be moved; trying again", p.name, err)
		}}
}

func entry(l *ledger.Line) (Entry, error) {
	e := Entry{Serial: l.Serial, Epoch: l.Number("e"), Kind: l.Text["k"], User: l.Text["u"], N: l.Number("n"),
		Ordinal: l.Number("o"), Cents: l.Number("m"), At: l.Time("at")}
	if e.Kind != grabbed && e.Kind != refunded {
		return Entry{}, fmt.Errorf("kind %.32q", e.Kind)
	}
	return e, nil
}
