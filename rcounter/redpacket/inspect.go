package redpacket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Phase is where a red packet is in its life.
type Phase string

// The phases of a red packet. An empty packet has no phase of its own: it is open, with no shares left.
const (
	PhaseAbsent   Phase = "absent"   // never sent, its retention is over, or lost
	PhaseSending  Phase = "sending"  // Send has stored some of the shares: nothing can be taken yet
	PhaseOpen     Phase = "open"     // shares can be taken while any are left
	PhaseEnded    Phase = "ended"    // its time is over, and what is left is not refunded yet
	PhaseRefunded Phase = "refunded" // what was left is refunded
)

// State is what the server knew of a red packet when it answered. Total - TakenCents is what is left, or, in
// PhaseRefunded, what went back.
type State struct {
	Phase             Phase
	Shares, Taken     int64
	Total, TakenCents int64
	Epoch             int64 // as Send returned it
	// Times left on the server's clock, 0 when past.
	UntilEnd, UntilGone time.Duration
}

// Inspect reads the packet. The State is zero, but for PhaseAbsent, if there is none. One round trip, repeated until
// answered. With ErrCorrupt for records, shares or entries of the ledger that are missing, the State is what the packet
// itself says.
func (p *Packet) Inspect(ctx context.Context) (now State, err error) {
	defer edge(&err)
	if err := p.usable(); err != nil {
		return State{}, err
	}
	pg, err := p.page(ctx, "", 0)
	return pg.status, err
}

// sharesPage is about how many records one call of Shares reads.
const sharesPage = 500

// Shares lists the shares that were taken and their users, in the order of taking; none for a packet that is not there.
// It reads all of them, about 500 in a round trip, before it yields the first. Every share that was taken before the
// call is among them; one that is taken meanwhile may be. After an error, which comes with a zero Share, it ends.
func (p *Packet) Shares(ctx context.Context) iter.Seq2[Share, error] {
	return func(yield func(Share, error) bool) {
		shares, err := p.all(ctx, sharesPage)
		if err != nil {
			yield(Share{}, edged(err))
			return
		}
		for _, s := range shares {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func (p *Packet) all(ctx context.Context, size int) ([]Share, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	byOrdinal := map[int64]Share{} // a scan may show an entry twice
	for cursor, epoch := "0", int64(0); ; {
		pg, err := p.page(ctx, cursor, size)
		if err != nil {
			return nil, err
		}
		if epoch == 0 {
			epoch = pg.status.Epoch
		}
		if pg.status.Epoch != epoch {
			return nil, fmt.Errorf("%w: %q went away while it was read", ErrNoPacket, p.keys[0])
		}
		for _, s := range pg.shares {
			s.Epoch = epoch
			byOrdinal[s.Ordinal] = s
		}
		if cursor = pg.next; cursor == "0" {
			break
		}
	}
	shares := make([]Share, 0, len(byOrdinal))
	for _, s := range byOrdinal {
		shares = append(shares, s)
	}
	slices.SortFunc(shares, func(a, b Share) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	for i, s := range shares {
		if s.Ordinal != int64(i)+1 { // a gap, before one that came later: taken meanwhile
			return shares[:i], nil
		}
	}
	return shares, nil
}

var statusScript = script.Load("redpacket_status", files, "status").Reads()

type packetPage struct {
	status State
	next   string // "0": no more
	shares []Share
}

// look is status.lua; from is the cursor of the page of records wanted, "" for none.
func (p *Packet) look(from string, size int) script.Call {
	return p.call(statusScript, from, strconv.Itoa(size))
}

// page runs it.
func (p *Packet) page(ctx context.Context, from string, size int) (packetPage, error) {
	m, err := p.c.calls.Do(ctx, p.look(from, size))
	if err != nil {
		return packetPage{}, err
	}
	bad := malformed("a red packet's status", p.keys[0])
	parts, err := m.ToArray()
	if err != nil || len(parts) != 3 {
		return packetPage{}, bad
	}
	v, err1 := parts[0].AsIntSlice()
	next, err2 := parts[1].ToString()
	records, err3 := parts[2].AsStrSlice()
	if errors.Join(err1, err2, err3) != nil || len(v) != 12 || len(records)%2 != 0 {
		return packetPage{}, bad
	}
	phases := map[int64]Phase{0: PhaseSending, 1: PhaseOpen, 2: PhaseRefunded, 3: PhaseAbsent, 4: PhaseEnded}
	phase, ok := phases[v[0]]
	if !ok {
		return packetPage{}, corrupt(p.keys[0], -1, 0)
	}
	pg := packetPage{next: next,
		status: State{Phase: phase, Epoch: v[1], Shares: v[2], Total: v[3], Taken: v[4], TakenCents: v[5],
			UntilEnd: script.Duration(max(0, v[7])), UntilGone: script.Duration(max(0, v[8]))}}
	if phase == PhaseRefunded && v[6] != v[3]-v[5] {
		return packetPage{}, corrupt(p.keys[0], -1, 0)
	}
	if v[9] == 2 {
		return pg, misled(p.keys[3], v[10], v[11])
	}
	if v[9] != 0 {
		return pg, fmt.Errorf("%w: records or shares of %q are missing", errs.ErrCorrupt, p.keys[0])
	}
	for i := 0; i < len(records); i += 2 {
		f := strings.SplitN(records[i+1], ";", 3)
		if len(f) != 3 {
			return packetPage{}, corrupt(p.keys[0], -1, 0)
		}
		ordinal, err1 := strconv.ParseInt(f[0], 10, 64)
		cents, err2 := strconv.ParseInt(f[1], 10, 64)
		if errors.Join(err1, err2) != nil {
			return packetPage{}, corrupt(p.keys[0], -1, 0)
		}
		pg.shares = append(pg.shares, Share{User: records[i], Outcome: Replayed, Ordinal: ordinal, Cents: cents})
	}
	return pg, nil
}
