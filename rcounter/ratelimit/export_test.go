package ratelimit

import (
	"context"
	"testing/fstest"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// LocalKeys is how many keys have a bucket in the process.
func (c *Client) LocalKeys() int {
	c.local.mu.Lock()
	defer c.local.mu.Unlock()
	return len(c.local.buckets)
}

// Turn is the answer of a reservation or a cancelling, under an id that the test gives.
type Turn struct {
	Done        bool
	Wait, Empty time.Duration
	Free        int64
}

func turned(r reply, err error) (Turn, error) {
	return Turn{r.taken == 1, r.wait, r.empty, r.free}, err
}

// ReserveAs reserves units that pass within most; place is for CancelAs.
func (l *Limiter) ReserveAs(ctx context.Context, id, key string, n int64,
	most time.Duration) (t Turn, place string, err error) {
	r := &Reservation{part: part{l, l.terms, l.key(key), key, n}, id: id}
	t, err = turned(r.take(ctx, most))
	return t, r.place, err
}

// CancelAs gives them back; place may be "": not known.
func (l *Limiter) CancelAs(ctx context.Context, id, key string, n int64, place string) (Turn, error) {
	r := &Reservation{part: part{l, l.terms, l.key(key), key, n}, id: id, place: place}
	return turned(r.cancel(ctx))
}

// Wanted is units that are wanted in a call of several requests: of one limit, or all or none of several.
type Wanted struct {
	Takes []Take
	UpTo  bool
}

// TakeTogether makes the requests in one call, and returns how each was answered of each limit.
func (c *Client) TakeTogether(ctx context.Context, wanted ...Wanted) ([][]Admission, error) {
	requests := make([]*asked, len(wanted))
	for i, w := range wanted {
		r := &request{upTo: w.UpTo}
		for _, t := range w.Takes {
			if err := r.add(ctx, t, 0); err != nil {
				return nil, err
			}
		}
		requests[i] = &asked{Ctx: ctx, Ask: r}
	}
	c.askAll(ctx, requests)
	all := make([][]Admission, len(wanted))
	for i, r := range requests {
		if r.Err != nil {
			return nil, r.Err
		}
		for _, one := range r.Answer {
			all[i] = append(all[i], one.admission(r.Ask.upTo))
		}
	}
	return all, nil
}

// Key is the Redis key of a limit.
func (l *Limiter) Key(key string) string { return l.key(key) }

// ZoneTableAt is what is sent of a time zone by a process whose time is now.
func (l *Limiter) ZoneTableAt(now time.Time) string { return l.terms.zoneTableAt(now).text }

// SetZoneTableAt has the process send what it sends when its time is now.
func (l *Limiter) SetZoneTableAt(now time.Time) {
	table := l.terms.zoneTableAt(now)
	table.until = time.Now().Add(time.Hour)
	l.terms.table.Store(table)
}

// CalendarScript returns when units of the calendar end, seconds, for unit, zone table and instant of each.
func CalendarScript() *script.Script {
	limit, err := files.ReadFile("lua/lib/limit.lua")
	if err != nil {
		panic(err)
	}
	return script.Load("calendar", fstest.MapFS{"lua/lib/limit.lua": {Data: limit}, "lua/calendar.lua": {Data: []byte(
		`-- Ends of units.
-- uses: clock, limit
--
-- KEYS[1]  none
local ends = {}
for i = 1, #ARGV, 3 do
  local _, last = window(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), 0)
  ends[#ends + 1] = last
end
return ends
`)}}, "calendar")
}

// Letter is how scripts name a unit.
func Letter(u Unit) string { return units[u].letter }

// Copy is the charge as another process would know it: not whether it is settled.
func (h *Charge) Copy() *Charge {
	return &Charge{c: h.c, limits: h.limits, parts: h.parts, turn: make(chan struct{}, 1)}
}

// ChargeTogether makes requests in one call. Those that settle are charges; the others take units for good.
func (c *Client) ChargeTogether(ctx context.Context, takes []Take, settle []bool) ([]*Charge, []Admission, error) {
	requests := make([]*asked, len(takes))
	for i, t := range takes {
		r := &request{}
		if settle[i] {
			r.id = session.RecordID()
		}
		if err := r.add(ctx, t, 0); err != nil {
			return nil, nil, err
		}
		requests[i] = &asked{Ctx: ctx, Ask: r}
	}
	c.askAll(ctx, requests)
	charges, admissions := make([]*Charge, len(takes)), make([]Admission, len(takes))
	for i, r := range requests {
		if r.Err != nil {
			return nil, nil, r.Err
		}
		d := r.Ask.decision(r.Answer, nil)
		admissions[i] = d.Each[0]
		if settle[i] && d.Allowed {
			charges[i] = c.newCharge(r.Ask, d)
		}
	}
	return charges, admissions, nil
}

// SettleTogether settles charges in one call, as processes do that do not know whether they are settled. It returns how
// many units were taken or, negative, given back.
func (c *Client) SettleTogether(ctx context.Context, charges []*Charge, used []int64) ([]int64, error) {
	requests := make([]*settling, len(charges))
	for i, h := range charges {
		requests[i] = &settling{Ctx: ctx, Ask: h.settlement(ctx, used[i:i+1])}
	}
	c.settle(ctx, requests)
	units := make([]int64, len(charges))
	for i, r := range requests {
		if r.Err != nil {
			return nil, r.Err
		}
		units[i] = r.Answer[0]
	}
	return units, nil
}
