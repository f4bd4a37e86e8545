package redpacket

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

// Stand is what Inspect reads. Total - TakenCents is what is left, or what went back.
type Stand struct {
	// Phase is "open", "ended" or "refunded". A packet without shares is open until its end.
	Phase             string
	Shares, Taken     int64
	Total, TakenCents int64
	Unmoved           int64 // entries that no database has
	Epoch             int64 // as Send returned it
	// Times left on the server's clock, 0 when past.
	UntilEnd, UntilGone time.Duration
}

var inspectScript = script.Load("redpacket_inspect", files, "inspect").Reads()

// Inspect reads the packet. Errors: ErrNoPacket, ErrSending, and those of the server.
func (p *Packet) Inspect(ctx context.Context) (stand Stand, err error) {
	defer edge(&err)
	if err := p.usable(); err != nil {
		return Stand{}, err
	}
	v, err := p.run(ctx, p.call(inspectScript))
	if err != nil {
		return Stand{}, err
	}
	if len(v) != 10 {
		return Stand{}, p.malformed()
	}
	stand = Stand{Phase: "open", Epoch: v[1], Shares: v[3], Total: v[4], Taken: v[5], TakenCents: v[6],
		UntilEnd: script.Duration(max(0, v[7])), UntilGone: script.Duration(max(0, v[8])), Unmoved: v[9]}
	if v[2] == 2 {
		stand.Phase = "refunded"
	} else if stand.UntilEnd == 0 {
		stand.Phase = "ended"
	}
	return stand, nil
}

// Shares yields the shares that were taken, in the order of taking. Shares reads all of them, about 500 in a round
// trip, before it yields the first. Every share that was taken before the call is among them; a share that is taken
// meanwhile may be. After an error, which comes with a zero Share, it ends. Errors: as for Inspect.
func (p *Packet) Shares(ctx context.Context) iter.Seq2[Share, error] {
	return func(yield func(Share, error) bool) {
		shares, err := p.all(ctx)
		if err != nil {
			yield(Share{}, edged(err))
			return
		}
		for i, s := range shares {
			if s.Ordinal != int64(i)+1 || !yield(s, nil) { // after a gap are shares that were taken meanwhile
				return
			}
		}
	}
}

var hscanScript = script.Plain("hscan")

func (p *Packet) all(ctx context.Context) ([]Share, error) {
	before, err := p.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	byOrdinal := map[int64]Share{} // a scan may show a field twice
	users := p.keys[2]
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		from := cursor
		m, err := p.c.calls.Do(ctx, script.Call{Script: hscanScript, Keys: p.keys[2:3],
			Command: func(b rueidis.Builder) rueidis.Completed {
				return b.Hscan().Key(users).Cursor(from).Count(500).Build()
			}})
		if err != nil {
			return nil, err
		}
		e, err := m.AsScanEntry()
		if err != nil {
			return nil, p.malformed()
		}
		cursor = e.Cursor
		for i := 0; i+1 < len(e.Elements); i += 2 {
			s := Share{User: e.Elements[i], Again: true, Epoch: before.Epoch}
			if _, err := fmt.Sscanf(e.Elements[i+1], "%d;%d", &s.Ordinal, &s.Cents); err != nil {
				return nil, p.verdict([3]int64{codeCorrupt, -1})
			}
			byOrdinal[s.Ordinal] = s
		}
	}
	after, err := p.Inspect(ctx)
	if err == nil && after.Epoch != before.Epoch { // what was read may be a part
		err = fmt.Errorf("%w: %q was removed while it was read", ErrNoPacket, p.keys[0])
	}
	byPlace := func(a, b Share) int { return cmp.Compare(a.Ordinal, b.Ordinal) }
	return slices.SortedFunc(maps.Values(byOrdinal), byPlace), err
}
