package stock

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/ledger"
	"github.com/redlatch/redlatch/internal/script"
)

// A restored stock's ledger says to the database of the winners what that does not know, and nothing else. The database
// has the entries up to some serial; a failover may have given their numbers to others, a loss may have taken those
// after them. So Restore
//
//   - drops the entries that the winners have, or something else under their serials;
//   - drops the rest as far as it tells of units that another claimant has by the winners;
//   - writes an entry for each unit that the stock has sold and no entry tells of, and for each that came back unsaid;
//   - numbers all these from the serial on that the winners' last entry has.
//
// Between "relist" and "end" the hash has numbers by which every other script refuses, returns too. Restore may end
// there, or a copy of a step come late: the next Restore compares what is there with the records again
// (TestRestore_RandomLosses_ChangesNoAnswer).

var xrangeScript = script.Plain("xrange")

// ledgerPage is how many entries Restore reads at a time.
const ledgerPage = 1000

// readLedger reads all entries of the ledger. What is none is left out: it is written anew.
func (r *restorer) readLedger(ctx context.Context) error {
	r.entries, r.strange = nil, false
	key := r.s.keys[5]
	for from := "-"; ; {
		m, err := r.s.c.calls.Do(ctx,
			script.Call{Script: xrangeScript, Keys: r.s.keys[5:6], Command: func(b rueidis.Builder) rueidis.Completed {
				return b.Xrange().Key(key).Start(from).End("+").Count(ledgerPage).Build()
			}})
		if err != nil {
			return err
		}
		list, err := m.AsXRange()
		if err != nil {
			return malformed("xrange", key)
		}
		for _, x := range list {
			if e, _, err := ledger.Decode(x, entry); err == nil && e.Epoch == r.epoch {
				r.entries = append(r.entries, e)
			} else {
				r.strange = true
			}
		}
		if len(list) < ledgerPage {
			return nil
		}
		from = "(" + list[len(list)-1].ID
	}
}

// holder is who has the units of an entry, as restorer.wins has it.
func (e *Entry) holder() string {
	switch {
	case e.Claimant == "":
		return "a:" + e.Request
	case e.Request == "":
		return "u" + e.Claimant
	}
	return "r:" + e.Request
}

func (e *Entry) units() span { return span{e.Ordinal, e.Ordinal + max(e.N, 1) - 1} }

// returned are the units that came back by the entries of the ledger, by the holder that had them. Of one that the
// winners give to this very holder they do not know that: entries that a database has name no units that are held by
// it.
func (r *restorer) returned() map[string][]span {
	all := map[string][]owned{}
	for _, e := range r.entries {
		if e.Kind == KindReturn {
			all[e.holder()] = append(all[e.holder()], owned{e.units(), e.holder()})
		}
	}
	back := map[string][]span{}
	for holder, spans := range all {
		back[holder] = merged(spans)
	}
	return back
}

// sells reports whether e says that units are sold.
func (e *Entry) sells() bool { return e.Kind == KindGrant || e.Kind == KindLate || e.Kind == "" }

// relist returns the entries that the ledger is to have, and whether those are others than it has. began is what the
// hash said when the records were read.
func (r *restorer) relist(began restoreReply) (list []Entry, serial int64, differs bool) {
	base := max(r.serial, began.moved)
	differs = r.strange
	var sold, back []owned // by the winners, and by the entries that are kept
	for _, o := range r.owned {
		if o.holder == "" {
			back = append(back, o)
		} else {
			sold = append(sold, o)
		}
	}
	for _, e := range r.entries {
		drop := e.Serial <= base
		if e.Ordinal > 0 && !drop {
			for range r.others(e.holder(), e.units()) {
				drop = true
			}
		}
		if drop {
			differs = true
			continue
		}
		switch {
		case e.sells():
			sold = append(sold, owned{e.units(), e.holder()})
		case e.Kind == KindReturn:
			back = append(back, owned{e.units(), e.holder()})
		}
		differs = differs || e.Serial != base+int64(len(list))+1
		list = append(list, e)
	}
	untold := r.missing(sold, back)
	for _, e := range untold {
		e.Epoch, e.At = began.epoch, time.Unix(began.at/1e3, began.at%1e3*1e6)
		list = append(list, e)
	}
	serial = base + int64(len(list))
	return list, serial, differs || len(untold) > 0 || serial != began.serial
}

// missing are entries for the units that were sold or came back, and of which nothing tells: sold is what was sold,
// back what came back.
func (r *restorer) missing(sold, back []owned) (list []Entry) {
	has := r.held()
	said, returned, still := merged(sold), merged(back), merged(has)
	for _, o := range has {
		for _, s := range o.minusAll(said) {
			list = append(list, o.entry(KindGrant, s, r))
		}
	}
	for _, o := range sold {
		for _, s := range o.minusAll(still) {
			for _, s := range s.minusAll(returned) {
				list = append(list, o.entry(KindReturn, s, r))
			}
		}
	}
	slices.SortFunc(list, func(a, b Entry) int { return bySpan(a.units(), b.units()) })
	return list
}

// held is who has what by the records as they are to be.
func (r *restorer) held() (all []owned) {
	for claimant, text := range r.users.is {
		if ordinal, _, _ := strings.Cut(text, ";"); number(ordinal) > 0 {
			all = append(all, owned{span{number(ordinal), number(ordinal)}, "u" + claimant})
		}
	}
	for field, text := range r.records.is {
		if field[0] == 'r' {
			if q, ok := parseRecord(text); ok && q.state == "G" {
				all = append(all, owned{span{q.ordinal, q.ordinal + q.n - 1}, field})
			}
		} else if a, ok := parseAny(text); field[0] == 'a' && ok && a.n > 0 {
			for _, s := range a.units().minus(a.returned) {
				all = append(all, owned{s, field})
			}
		}
	}
	return all
}

// entry says what happened to some units of o.
func (o owned) entry(kind Kind, s span, r *restorer) Entry {
	e := Entry{Kind: kind, Ordinal: s.first, N: s.n()}
	switch o.holder[0] {
	case 'u':
		e.Claimant = o.holder[1:]
	case 'r':
		e.Request = o.holder[2:]
		if q, ok := parseRecord(r.records.is[o.holder]); ok {
			e.Claimant = q.claimant
		} else {
			e.Claimant = r.wins[o.holder].claimant
		}
	default:
		e.Request = o.holder[2:]
	}
	return e
}

// merged is the spans of all, sorted, those that overlap as one.
func merged(all []owned) (spans []span) {
	for _, o := range all {
		spans = append(spans, o.span)
	}
	slices.SortFunc(spans, bySpan)
	n := 0
	for _, s := range spans {
		if n > 0 && s.first <= spans[n-1].last {
			spans[n-1].last = max(spans[n-1].last, s.last)
			continue
		}
		spans[n] = s
		n++
	}
	return spans[:n]
}

// minusAll is minus for very many others.
func (s span) minusAll(others []span) []span {
	from, _ := slices.BinarySearchFunc(others, s.first, func(o span, first int64) int {
		return int(min(1, max(-1, o.last-first)))
	})
	to := from
	for to < len(others) && others[to].first <= s.last {
		to++
	}
	return s.minus(others[from:to])
}

// rewrite has the ledger consist of these entries, the last of which has the given serial.
func (r *restorer) rewrite(ctx context.Context, list []Entry, serial int64) error {
	if _, err := r.step(ctx, "relist"); err != nil {
		return err
	}
	serial -= int64(len(list))
	for part := range slices.Chunk(list, 128) {
		var args []string
		for _, e := range part {
			serial++
			args = append(args, decimal(serial), string(e.Kind), decimal(e.Epoch), decimal(e.Ordinal), decimal(e.N), e.Claimant,
				e.Request, decimal(e.At.Unix()*1e6+int64(e.At.Nanosecond()/1e3)))
		}
		if _, err := r.step(ctx, "lines", args...); err != nil {
			return err
		}
	}
	return nil
}
