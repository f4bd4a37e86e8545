package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/oracle/judges"
	"github.com/redlatch/redlatch/proof/history"
)

// verdict is what an oracle says of a history.
type verdict struct {
	Wrong     []string      // what no such primitive may do
	Longest   time.Duration // overlap of holds
	Undecided bool          // porcupine took too long
	Unguarded []string      // what is wrong whatever the servers forget: tokens and what they guard
}

func (v *verdict) wrong(format string, a ...any) {
	if len(v.Wrong) < 10 {
		v.Wrong = append(v.Wrong, fmt.Sprintf(format, a...))
	}
}

func (v *verdict) unguarded(format string, a ...any) {
	if len(v.Unguarded) < 10 {
		v.Unguarded = append(v.Unguarded, fmt.Sprintf(format, a...))
	}
}

func ms(ns int64) string { return fmt.Sprintf("%.1fms", float64(ns)/1e6) }

// exclusion: no two holds overlap, and the history is one that a lock can have, by porcupine.
func (v *verdict) exclusion(h record) {
	v.capacity(h, 1)
	v.tokens(h)
	if len(v.Wrong) == 0 {
		switch err := linear(h); {
		case errors.Is(err, history.ErrUndecided):
			v.Undecided = true
		case err != nil:
			v.wrong("no lock can have this history: %v", err)
		}
	}
}

// capacity: at no instant more than limit is in use, each use counting until its holder's own deadline or its end.
func (v *verdict) capacity(h record, limit int64) {
	var in []use // that began before the next, and have not ended
	for _, u := range h.uses() {
		in = slices.DeleteFunc(in, func(o use) bool { return o.to <= u.from })
		sum := u.n
		for _, o := range in {
			sum += o.n
		}
		if in = append(in, u); sum <= limit {
			continue
		}
		most := sum
		byEnd := slices.SortedFunc(slices.Values(in), func(a, b use) int { return cmp.Compare(a.to, b.to) })
		for i := 0; sum > limit; i++ {
			sum -= byEnd[i].n
			v.Longest = max(v.Longest, time.Duration(byEnd[i].to-u.from))
		}
		o := in[0]
		v.wrong("%d of %d in use at %s: %s of client %d until %s, %s of client %d from then on", most, limit, ms(u.from),
			o.id, o.client, ms(o.to), u.id, u.client)
	}
}

// tokens: a later grant has a higher one, whatever the servers forgot. The resource that takes no write with a token
// below the highest it has seen takes every write of who holds the lock.
func (v *verdict) tokens(h record) {
	var granted []event
	for _, e := range h.all("take") {
		if e.Out == "ok" && e.V > 0 {
			granted = append(granted, e)
		}
	}
	slices.SortFunc(granted, func(a, b event) int { return cmp.Compare(a.Return, b.Return) })
	seen := map[int64]string{}
	for i, g := range granted {
		if other, ok := seen[g.V]; ok {
			v.unguarded("token %d was given to %s and to %s", g.V, other, g.ID)
		}
		seen[g.V] = g.ID
		for _, before := range slices.Backward(granted[:i]) {
			if before.Return < g.Call && before.V > g.V {
				v.unguarded("token %d of %s is lower than %d, which %s had before it asked", g.V, g.ID, before.V, before.ID)
				break
			}
		}
	}
	valid := map[string]use{}
	for _, u := range h.uses() {
		valid[u.id] = u
	}
	writes := h.all("write")
	slices.SortFunc(writes, func(a, b event) int { return cmp.Compare(a.Call, b.Call) })
	highest := int64(0)
	for _, w := range writes {
		if w.V >= highest {
			highest = w.V
			continue
		}
		if u, ok := valid[w.ID]; ok && w.Call >= u.from && w.Call < u.to {
			v.wrong("the resource had to refuse %s, which held the lock with token %d, because it had seen %d", w.ID, w.V,
				highest)
		}
	}
}

// linear has porcupine look for an order of the calls in which a lock with leases can have given these answers.
// Refusals are not noted: a lock may be left to an owner that no client knows of.
func linear(h record) error {
	log := history.New()
	base, at := time.Now(), int64(0)
	base = base.Add(-log.At(base)) // when the log begins, however late this line runs
	if len(h.events) > 0 {
		at = h.events[0].Call
	}
	left, stopped := map[string]event{}, map[string]event{}
	for _, e := range h.all("leave") {
		left[e.ID] = e
	}
	for _, e := range h.all("stop") {
		stopped[e.ID] = e
	}
	for i, e := range h.all("take") {
		op := history.Op{Client: i, Lock: e.Of, Owner: log.Owner(), Kind: history.Acquire, Outcome: history.Unknown,
			Lease: h.lease, Renewed: true}
		op.Call, op.Return = time.Duration(e.Call-at), time.Duration(e.Return-at)
		// who left soon had nothing that another one's answer rests on
		if e.Out == "not_acquired" || e.Out != "ok" && e.Patience == 0 {
			continue
		}
		if e.Out == "ok" {
			op.Outcome = history.OK
		}
		log.Add(op)
		l, ok := left[e.ID]
		if e.Out != "ok" {
			continue
		}
		op.Kind = history.Release
		switch {
		case !ok: // killed
			op.Call, op.Return, op.Outcome = h.killed(e, at), history.Forever, history.Unknown
			if s, ok := stopped[e.ID]; ok { // while it gave it back: its release may have run
				op.Call = time.Duration(s.Call - at)
			}
		case l.Out == "ok":
			op.Call, op.Return, op.Outcome = time.Duration(l.Call-at), time.Duration(l.Return-at), history.OK
		case l.Out == "lost" || l.Out == "gone":
			log.Lost(op.Owner, base.Add(time.Duration(l.To-at)))
			op.Call, op.Return, op.Outcome = time.Duration(l.Call-at), time.Duration(l.Return-at), history.Refused
		default:
			op.Call, op.Return, op.Outcome = time.Duration(l.Call-at), time.Duration(l.Return-at), history.Unknown
		}
		log.Add(op)
	}
	model := history.LockModel{Slack: 5 * time.Millisecond, LateAcquire: time.Minute, LateGrant: time.Minute,
		Late: time.Minute, Timeout: 10 * time.Second}
	return model.Check(log)
}

// killed is from when on the lock that e acquired may have been released, because its client was killed.
func (h record) killed(e event, at int64) time.Duration {
	if killed, ok := h.ended[e.Client]; ok {
		return time.Duration(max(min(killed, e.To), e.Return) - at)
	}
	return time.Duration(e.Return - at)
}

// together: no client passes before all have arrived, and no client's round is broken whose others passed.
func together(h record, v *verdict) {
	arrived := map[string][]int64{}
	for _, e := range h.all("arrive") {
		arrived[e.ID] = append(arrived[e.ID], e.Call)
	}
	passed, broken := map[string]int{}, map[string]int{}
	for _, e := range h.all("pass") {
		switch e.Out {
		case "broken_barrier":
			broken[e.ID]++
		case "ok":
			passed[e.ID]++
			before := 0
			for _, at := range arrived[e.ID] {
				if at < e.Return {
					before++
				}
			}
			if before < parties {
				v.wrong("round %s: client %d passed when %d had arrived, of %d", e.ID, e.Client, before, parties)
			}
		}
	}
	for id, n := range passed {
		if n > 0 && broken[id] > 0 && len(arrived[id]) == parties {
			v.wrong("round %s: %d passed, and for %d it was broken", id, n, broken[id])
		}
	}
}

// claims: a unit has one owner, an owner has one unit and one answer, and the server counts as many as were given out.
func claims(h record, v *verdict) {
	var w judges.Winners
	won, tried := map[string]int64{}, map[string]bool{} // since when
	for _, e := range h.all("try") {
		tried[e.ID] = true
	}
	all := h.all("claim")
	slices.SortFunc(all, func(a, b event) int { return cmp.Compare(a.Return, b.Return) })
	for _, e := range all {
		switch since, has := won[e.ID]; {
		case e.Out == "ok":
			if w.Won(e.ID, judges.Unit{Ordinal: e.V, Worth: e.N}); !has {
				won[e.ID] = e.Return
			}
		case e.Out == "sold out" && has && since < e.Call:
			w.Refused(e.ID)
		}
	}
	for _, wrong := range w.Wrong() {
		v.wrong("%s", wrong)
	}
	if h.final != nil {
		n, sum := w.Total()
		h.claimed(n, int64(len(tried)), sum, v)
	}
}

// claimed compares what the server has given out with what the owners have.
func (h record) claimed(won, tried, sum int64, v *verdict) {
	limit := h.final["limit"]
	if won > limit {
		v.wrong("%d have a unit, of %d", won, limit)
	}
	if n := h.final["sold"]; n < won || n > tried {
		v.wrong("the server has given out %d, %d have one and %d asked", n, won, tried)
	}
	if c, ok := h.final["cents"]; ok && (c < sum || h.final["sold"] == won && c != sum || won == limit && sum != cents) {
		v.wrong("the server has given out %d cents in %d shares, and %d have %d", c, h.final["sold"], won, sum)
	}
}

// counts: the value is what was counted, and what may have been; no two saw the same.
func counts(h record, v *verdict) {
	ok, maybe := int64(0), int64(len(h.all("try")))
	seen := map[int64]string{}
	for _, e := range h.all("count") {
		if e.Out != "ok" {
			if !open(e.Out) {
				maybe--
			}
			continue
		}
		ok++
		if other, twice := seen[e.V]; twice {
			v.wrong("%s and %s both counted to %d", other, e.ID, e.V)
		}
		seen[e.V] = e.ID
	}
	if h.final == nil {
		return
	}
	if n := h.final["value"]; n < ok || n > maybe {
		v.wrong("the counter stands at %d, and %d to %d were counted", n, ok, maybe)
	}
}

// rates: in no interval more pass than the rate and the burst allow.
func rates(h record, v *verdict) {
	var passed []judges.Passed
	for _, e := range h.all("pass") {
		if e.Out == "ok" {
			passed = append(passed, judges.Passed{From: time.Duration(e.Call), To: time.Duration(e.Return), N: 1})
		}
	}
	if says := (judges.Rate{N: rate, Per: time.Second, Burst: burst}).Exceeded(passed, .01); says != "" {
		v.wrong("%s", says)
	}
}
