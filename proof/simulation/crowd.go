package simulation

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// crowdLength is how long the callers of a crowd begin something.
const crowdLength = 1500 * time.Millisecond

// Crowds are the kinds of objects that crowds are tried with.
func Crowds() []string { return named(func(k *kind) bool { return k.crowds }) }

// Keeping are those that can be released by UnlockAfter.
func Keeping() []string { return named(func(k *kind) bool { return k.keeps }) }

// Held are those that are held, and waited for.
func Held() []string { return named(func(k *kind) bool { return k.crowds && k.owners != nil }) }

func named(which func(k *kind) bool) (names []string) {
	for _, k := range all {
		if which(k) {
			names = append(names, k.name)
		}
	}
	return names
}

// NewCrowd makes the plan of a seed in which nothing goes wrong but that callers give up: callers of several clients,
// who ask again and again, wait for a moment, and leave, each in its way. A few are patient. kinds, if any, are those
// of the objects.
func NewCrowd(seed uint64, kinds ...string) Plan { return crowd(seed, Plan{}, Crowds(), kinds) }

// Plays are the ways to make plans.
var Plays = map[string]func(seed uint64, kinds ...string) Plan{
	"plans":  NewPlan,
	"crowds": NewCrowd,
	// a crowd whose holders release by UnlockAfter, half of the time, of up to 20 ms
	"keeping": func(seed uint64, kinds ...string) Plan { return crowd(seed, Plan{Keeping: true}, Keeping(), kinds) },
	// a crowd whose callers have leases and labels of their own, or MaxHold
	"terms": func(seed uint64, kinds ...string) Plan {
		return crowd(seed, Plan{Terms: true, MaxHold: seed%4 == 0}, Held(), kinds)
	},
	// a crowd in which no client may subscribe, so that who waits asks again and again
	"mute": func(seed uint64, kinds ...string) Plan { return crowd(seed, Plan{Mute: true}, Held(), kinds) },
}

// crowd is NewCrowd, of one of these kinds if none is named.
func crowd(seed uint64, p Plan, of, kinds []string) Plan {
	r := rand.New(rand.NewPCG(seed, 21))
	p.Seed, p.Clients, p.Servers, p.Alone, p.Crowd, p.Kinds = seed, 2+r.IntN(3), 1, r.IntN(4) == 0, true, kinds
	p.Shortest, p.Longest = upTo(r, 10*time.Microsecond, 100*time.Microsecond), upTo(r, 150*time.Microsecond,
		1500*time.Microsecond)
	if len(kinds) == 0 {
		p.Kinds = []string{of[r.IntN(len(of))]}
	}
	if slices.Contains(p.Kinds, "quorum") {
		p.Servers = 3
	}
	for range p.Servers {
		p.Drift = append(p.Drift, (r.Float64()-0.5)*0.0001)
	}
	longest := []time.Duration{time.Millisecond, 5 * time.Millisecond, 5 * time.Millisecond,
		20 * time.Millisecond}[r.IntN(4)]
	ways := [][]ends{{byWait}, {byDeadline}, {byCancel}, {byWait, byDeadline, byCancel, byAnother}}[r.IntN(4)]
	work := []time.Duration{0, 200 * time.Microsecond, time.Millisecond, 5 * time.Millisecond}[r.IntN(4)]
	callers := 3 + r.IntN(12)
	for i, name := range p.Kinds {
		for n := range callers {
			p.caller(r, i, n, kindOf(name), longest, work, ways)
		}
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return int(a.At - b.At) })
	for i := range p.Steps {
		p.Steps[i].Number = i
	}
	return p
}

// caller adds what one caller does: it asks again when it may have given up. One of each client is patient.
func (p *Plan) caller(r *rand.Rand, object, n int, k *kind, longest, work time.Duration, ways []ends) {
	for at := upTo(r, 0, 5*time.Millisecond); at < crowdLength; {
		s := Step{Who: n % p.Clients, On: object, At: at}
		k.plan(r, &s)
		if s.What == again || s.What == longr {
			s.What = take
		}
		if s.For = upTo(r, 0, work); k.owners != nil {
			s.Lease = 0
		}
		s.Ends, s.Wait = ways[r.IntN(len(ways))], upTo(r, 0, longest)
		if n < p.Clients { // the first caller of each client
			s.Ends, s.Wait = byWait, 3*time.Second
			at += upTo(r, 0, 20*time.Millisecond)
		}
		if k.tenantOf != nil && k.tenantOf(s) == "heavy" { // it has a backlog, and most of its calls are patient
			s.For = upTo(r, time.Millisecond, 10*time.Millisecond)
			if at += upTo(r, 0, 15*time.Millisecond); r.IntN(4) > 0 {
				s.Ends, s.Wait = byWait, 3*time.Second
			}
		}
		if s.Ends == byAnother {
			s.Wait = 0
		}
		if p.Terms && k.owners != nil {
			s.Lease = []time.Duration{0, 0, 300 * time.Millisecond, 2 * time.Second, 20 * time.Second}[r.IntN(5)]
			s.Label = []string{"", "", "label", "label-" + strconv.Itoa(n)}[r.IntN(4)]
		}
		if p.Keeping && r.IntN(2) == 0 {
			s.Keep = upTo(r, time.Millisecond, 20*time.Millisecond)
		}
		at += min(s.Wait, longest) + upTo(r, 0, time.Millisecond)
		p.Steps = append(p.Steps, s)
	}
}
