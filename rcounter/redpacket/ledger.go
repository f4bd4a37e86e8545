package redpacket

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/ledger"
	"github.com/redlatch/redlatch/internal/script"
)

// Kind says what an entry of a ledger records.
type Kind string

// The kinds of entries.
const (
	KindGrant  Kind = "grant"  // a user took a share
	KindRefund Kind = "refund" // what was left went back to the sender
)

// Entry is a line of a packet's ledger.
type Entry struct {
	// Serial numbers the entries of a packet: 1, 2, 3 and so on, without a hole. (Epoch, Serial) is the key of an entry:
	// one that comes again has the same. Two different entries with one key come from a failover to a replica that had not
	// heard of the first.
	Serial int64
	Kind   Kind
	// Epoch is that of the packet, as Send returned it.
	Epoch int64
	// Ordinal is the place in the order of taking, from 1. It is the Serial, too. 0 for a refund.
	Ordinal int64
	// N is the number of shares: 1, or for a refund those that are left, which may be 0.
	N int64
	// Cents is their amount.
	Cents int64
	// User took the share. Empty for a refund.
	User string
	// At is when it happened, by the server's clock.
	At time.Time
}

// Ledger hands the first entries of the ledger, at most n (1 to 10,000), to fn, and removes them once fn has returned
// nil. It returns how many entries fn took: 0 if the ledger is empty or the packet keeps none (Spec.Ledger). fn gets
// the entries in the order of their serials, without a hole. Two round trips.
//
// The error is fn's, unchanged; ErrCorrupt if entries were lost, or were removed from outside, which names the ledger's
// key, how many should be there and how many are (every verb of the packet says so, and no user gets anything more); or
// the server's, as for Grab.
//
// Several callers may move a ledger at the same time. fn may get an entry more than once: after an error, a crash, or a
// removal that failed, and by another caller. So a caller that was slow may bring entries after those that followed
// them, and neither the number of times nor the order may matter to fn. In one transaction, committed before it returns
// nil, fn inserts every entry under the primary key (packet, Epoch, Serial). If a row is there already and is of
// another entry, it returns an error: a failover has forgotten a share, and its place and its money were given a second
// time. Then nothing is removed, and a person decides who is paid; a packet has no Restore. PacketMover of package
// github.com/redlatch/redlatch/contrib/ledger is such a fn for SQL databases.
//
// An entry is removed only if it is still the one that fn got, whatever a failover did meanwhile. With
// Options.MinReplicas fn gets only what that many replicas have, and ErrNotReplicated says that they did not confirm it
// in time: try again. Without it, a failover may forget what a database has.
//
// A ledger that is not moved grows by about 60 bytes and the user's name for each share. It outlives the packet's
// retention by less than an hour, and what is not moved then is gone: after Refund run Ledger until it returns 0.
func (p *Packet) Ledger(ctx context.Context, n int,
	fn func(ctx context.Context, entries []Entry) error) (moved int, err error) {
	return p.ledger().Move(ctx, n, fn)
}

// KeepLedger runs Ledger until ctx ends: at once again while there are entries, and at the interval every (at least 1
// ms) while there are none. It returns ctx's error, fn's, or an error that asking again does not cure, such as
// ErrClosed and ErrWrongType. After other errors of the server, and after ErrNotReplicated, it goes on.
func (p *Packet) KeepLedger(ctx context.Context, every time.Duration, n int,
	fn func(ctx context.Context, entries []Entry) error) error {
	return p.ledger().Keep(ctx, every, n, fn)
}

var (
	ledgerScript = script.Load("redpacket_ledger", files, "ledger")
	movedScript  = script.Load("redpacket_moved", files, "moved")
)

func (p *Packet) ledger() *ledger.Book[Entry] {
	return &ledger.Book[Entry]{Calls: p.c.calls, Refused: p.refused, Key: p.keys[3], Fields: entryFields, Call: p.call,
		Read: ledgerScript, Moved: movedScript,
		Verdict: p.verdict, Entry: entry, Edge: edged, Bears: p.bears}
}

// notMoved is a kind of complaint.
const notMoved = "a ledger could not be moved; it goes on"

// bears logs the first of several failures in a row after which KeepLedger goes on.
func (p *Packet) bears(ctx context.Context, err error, failing *bool) {
	if err == nil || ctx.Err() != nil {
		*failing = false
		return
	}
	if !*failing {
		*failing = true
		p.c.calls.Complain(notMoved, p.name, err)
	}
}

// entryFields are the fields of an entry on the server, in their order: see packet.lua.
var entryFields = []string{"k", "e", "o", "n", "c", "m", "at"}

func entry(l *ledger.Line) (Entry, error) {
	e := Entry{Serial: l.Serial, Kind: Kind(l.Text["k"]), Epoch: l.Number("e"), Ordinal: l.Number("o"), N: l.Number("n"),
		Cents: l.Number("m"), User: l.Text["c"], At: l.Time("at")}
	if e.Kind != KindGrant && e.Kind != KindRefund {
		return Entry{}, fmt.Errorf("kind %.32q", l.Text["k"])
	}
	return e, nil
}
