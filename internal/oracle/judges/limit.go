package judges

import (
	"cmp"
	"slices"
)

// LimitAlgorithm is how a Limit counts.
type LimitAlgorithm int

// The algorithms of package ratelimit. FixedMinute is a FixedWindow of a minute.
const (
	GCRA LimitAlgorithm = iota
	SlidingWindow
	FixedMinute
)

// Limit is the reference of a rate limit of one key, at times that the test gives: what the scripts of package
// ratelimit do, without a server. limit.lua says how a limit counts, and why; here are the same names.
type Limit struct {
	algorithm LimitAlgorithm
	rate, per int64 // units, us
	full      int64
	at        int64 // us
	by        string

	level  int64 // GCRA
	line   []limitTurn
	freed  int64
	credit int64
	most   int64

	ends, units []int64 // slices of SlidingWindow, and of GCRA while charges are open
	open        map[string]openCharge

	minute, count int64 // FixedMinute
}

// openCharge is units that are not settled.
type openCharge struct{ n, mark int64 }

// limitTurn is a reservation whose turn is to come.
type limitTurn struct {
	id               string
	at, amount, rest int64
}

// position is that of a turn in the line.
func (k *Limit) position(t limitTurn) int64 { return (t.at-k.at)*k.rate - t.rest }

// NewLimit returns a limit of which nothing was taken. per is in us.
func NewLimit(algorithm LimitAlgorithm, rate, per, burst int64) *Limit {
	return &Limit{algorithm: algorithm, rate: rate, per: per, full: burst * per}
}

// LimitReply is a script's reply. Wait and Empty are in us.
type LimitReply struct{ Taken, Wait, Free, Empty int64 }

// Take takes n units at now; with upTo as many as there are of them.
func (k *Limit) Take(now, n int64, upTo bool) LimitReply {
	k.pass(now)
	return k.take(n, upTo, now)
}

// Reserve reserves units that pass within most us.
func (k *Limit) Reserve(now int64, id string, n, most int64) LimitReply {
	k.pass(now)
	return k.reserve(id, n, most, now)
}

// Cancel gives them back.
func (k *Limit) Cancel(now int64, id string, n int64) LimitReply {
	k.pass(now)
	return k.cancel(id, n, now)
}

// Charge takes n units at now, which Settle settles.
func (k *Limit) Charge(now int64, id string, n int64) LimitReply {
	k.pass(now)
	if n <= k.room() {
		if k.algorithm == GCRA && len(k.line) == 0 && k.ends == nil {
			k.ends, k.units = []int64{}, []int64{}
			if k.level > 0 {
				k.ends, k.units = append(k.ends, now), append(k.units, k.level)
			}
		}
		for charge, is := range k.open {
			if is.mark < now-max(3_600_000_000, k.lasts()) {
				delete(k.open, charge)
			}
		}
		k.add(n, now)
		mark := now
		switch {
		case k.algorithm == FixedMinute:
			mark = now + k.left(now)
		case len(k.line) == 0:
			mark = k.ends[len(k.ends)-1]
		}
		if k.open == nil {
			k.open = map[string]openCharge{}
		}
		k.open[id] = openCharge{n, mark}
		return k.answer(n, 0, now)
	}
	return k.answer(-1, k.wait(n, now), now)
}

// Settle settles a charge, and returns how many units were taken or, negative, given back. open: it was not settled.
func (k *Limit) Settle(now int64, id string, used int64) (units int64, open bool) {
	c, open := k.open[id]
	if open = open && now < c.mark+max(3_600_000_000, k.lasts()); !open {
		return 0, false
	}
	k.pass(now)
	delete(k.open, id)
	if used > c.n {
		units = k.owe(used-c.n, now)
	} else {
		units = -k.giveBack(c.n-used, c.mark, now)
	}
	if k.algorithm == GCRA && len(k.open) == 0 {
		k.ends, k.units = nil, nil
	}
	return units, true
}

func (k *Limit) giveBack(n, mark, now int64) int64 {
	switch {
	case len(k.line) > 0, k.algorithm == FixedMinute && mark != now+k.left(now):
		return 0
	case k.algorithm == FixedMinute:
		back := min(n, k.count)
		k.count -= back
		return back
	}
	at := slices.Index(k.ends, mark)
	switch {
	case at < 0:
		return 0
	case k.algorithm == SlidingWindow:
		back := min(n, k.units[at])
		k.units[at] -= back
		return back
	}
	back := min(n*k.per, k.units[at])
	k.units[at] -= back
	level, before := int64(0), min(k.ends[0], now)
	for i, n := range k.units {
		last := min(k.ends[i], now)
		level = max(0, level-(last-before)*k.rate) + n
		before = last
	}
	was := k.level
	k.level = min(was, max(0, was-back, level-(now-before)*k.rate))
	return (2*(was-k.level) + k.per) / (2 * k.per)
}

func (k *Limit) owe(n, now int64) int64 {
	burst := k.full / k.per
	switch {
	case len(k.line) > 0:
		n = min(n, burst)
		k.level += n * k.per
		k.most = max(k.most, n*k.per)
		k.line = append(k.line, k.turnAt("!", n*k.per, k.level-k.full, now))
		return n
	case k.algorithm == GCRA:
		n = min(n, floorDiv(k.full-k.level, k.per)+burst)
	case k.algorithm == SlidingWindow:
		n = min(n, k.windowRoom()+k.rate)
	default:
		n = min(n, 2*k.rate-k.count)
	}
	n = max(0, n)
	k.add(n, now)
	return n
}

// lasts is for how long units count in slices, us.
func (k *Limit) lasts() int64 {
	switch k.algorithm {
	case GCRA:
		return ceilDiv(k.full, k.rate)
	case SlidingWindow:
		return k.per
	}
	return 0
}

// endSlices leaves out the slices that count no more. With GCRA what has not drained of them goes on in the next.
func (k *Limit) endSlices(now int64) {
	for len(k.ends) > 0 && k.ends[0]+k.lasts() <= now {
		if k.algorithm == GCRA && len(k.ends) > 1 {
			k.units[1] += max(0, k.units[0]-(k.ends[1]-k.ends[0])*k.rate)
		}
		k.ends, k.units = k.ends[1:], k.units[1:]
	}
}

// pass has time pass.
func (k *Limit) pass(now int64) {
	switch k.algorithm {
	case GCRA:
		if len(k.line) > 0 { // a line has no slices
			k.ends, k.units = nil, nil
		}
		k.advance(now)
		if k.endSlices(now); k.level == 0 || len(k.ends) == 0 {
			k.ends, k.units = nil, nil
		}
	case SlidingWindow:
		k.endSlices(now)
	case FixedMinute:
		if minute := now / 60_000_000; minute > k.minute {
			k.minute, k.count = minute, 0
		}
	}
	k.at = now
}

func (k *Limit) drain(now int64) {
	if past := now - k.at; past > k.level/k.rate {
		k.level = 0
	} else if past > 0 {
		k.level -= past * k.rate
	}
}

// advance is line of limit.lua.
func (k *Limit) advance(now int64) {
	k.drain(now)
	passed := 0
	for passed < len(k.line) && k.line[passed].at <= now {
		passed++
	}
	waited := len(k.line) > 0
	k.line = k.line[passed:]
	if !waited {
		return
	}
	k.at = now
	freed, gone := int64(0), int64(0)
	if k.level > k.full {
		var left int64
		left, gone = k.reserved()
		freed = max(0, k.level-k.full-left)
	}
	k.credit = max(0, min(k.credit+k.freed-freed, k.full-gone))
	if k.freed = freed; passed > 0 {
		k.credit = min(k.credit, max(0, k.full-k.most))
	}
	if k.level <= k.full {
		k.close(max(0, k.level-k.credit))
	}
}

// close ends the line.
func (k *Limit) close(level int64) {
	k.level, k.line, k.credit, k.freed, k.most = level, nil, 0, 0, 0
}

// reserved is what of the line is reserved, and what has passed of the stretch of the next turn.
func (k *Limit) reserved() (left, gone int64) {
	for i, t := range k.line {
		left += t.amount
		if i == 0 {
			gone = max(0, t.amount-k.position(t))
		}
	}
	return left - gone, gone
}

// room is how many units pass at once.
func (k *Limit) room() int64 {
	switch k.algorithm {
	case GCRA:
		if len(k.line) > 0 {
			return k.credit / k.per
		}
		return max(0, k.full-k.level) / k.per
	case SlidingWindow:
		return max(0, k.windowRoom())
	}
	return max(0, k.rate-k.count)
}

// windowRoom is how many units have room in a sliding window; negative: it is in debt.
func (k *Limit) windowRoom() int64 {
	room := k.rate
	for _, n := range k.units {
		room -= n
	}
	return room
}

// turn is where the next n units pass: see limit.lua.
func (k *Limit) turn(n int64) (position, hole int64, here bool) {
	need, credit := n*k.per, k.credit
	if k.freed >= need-credit {
		before := int64(0)
		for i, t := range k.line[:min(64, len(k.line))] {
			if before+need-credit <= k.position(t)-t.amount {
				return before + need - credit, need - credit, i == 0
			}
			before, credit = k.position(t), 0
		}
	}
	return k.level + need - k.full, 0, false
}

// wait is how long until n units could pass if no other request came, us.
func (k *Limit) wait(n, now int64) int64 {
	room := k.room()
	switch {
	case n <= room:
		return 0
	case k.algorithm == GCRA && len(k.line) > 0:
		position, _, _ := k.turn(n)
		return ceilDiv(position, k.rate)
	case k.algorithm == GCRA:
		return max(0, ceilDiv(k.level+n*k.per-k.full, k.rate))
	case k.algorithm == FixedMinute:
		return k.left(now)
	}
	room = k.windowRoom()
	for i, end := range k.ends {
		if room += k.units[i]; room >= n {
			return end + k.per - now
		}
	}
	return k.per
}

// empty is how long until nothing that was taken counts any more, us.
func (k *Limit) empty(now int64) int64 {
	switch {
	case k.algorithm == GCRA:
		return ceilDiv(k.level, k.rate)
	case k.algorithm == SlidingWindow && len(k.ends) > 0:
		return k.ends[len(k.ends)-1] + k.per - now
	case k.algorithm == FixedMinute && k.count > 0:
		return k.left(now)
	}
	return 0
}

// left is how long the minute lasts, us.
func (k *Limit) left(now int64) int64 { return (k.minute+1)*60_000_000 - now }

// answer is the reply for n units of which so many were taken; -1: none could pass.
func (k *Limit) answer(taken, wait, now int64) LimitReply {
	return LimitReply{Taken: taken, Wait: wait, Free: k.room(), Empty: k.empty(now)}
}

func (k *Limit) take(n int64, upTo bool, now int64) LimitReply {
	room := k.room()
	if upTo {
		wait := int64(0)
		if room == 0 {
			wait = k.wait(1, now)
		}
		n = min(n, room)
		k.add(n, now)
		return k.answer(n, wait, now)
	}
	if n > room {
		return k.answer(-1, k.wait(n, now), now)
	}
	k.add(n, now)
	return k.answer(n, 0, now)
}

// add takes n units, for which there is room.
func (k *Limit) add(n, now int64) {
	if n == 0 {
		return
	}
	k.by = ""
	switch {
	case k.algorithm == FixedMinute:
		k.count += n
	case k.algorithm == SlidingWindow:
		k.put(n, now)
	case len(k.line) > 0:
		k.credit -= n * k.per
	default:
		k.level += n * k.per
		if k.ends != nil {
			k.put(n*k.per, now)
		}
	}
}

// put adds units to the present slice.
func (k *Limit) put(n, now int64) {
	if last := len(k.ends) - 1; last < 0 || k.ends[last] <= now {
		k.ends, k.units = append(k.ends, now+max(1, ceilDiv(k.lasts(), 32))), append(k.units, 0)
	}
	k.units[len(k.units)-1] += n
}

// reserve is reserve.lua.
func (k *Limit) reserve(id string, n, most, now int64) LimitReply {
	if n <= k.room() {
		k.add(n, now)
		if len(k.line) == 0 {
			k.by = id
		}
		return k.answer(1, 0, now)
	}
	need := n * k.per
	position, hole, here := k.turn(n)
	wait := ceilDiv(position, k.rate)
	if wait > most || hole == 0 && k.level+need > 1<<53-1 {
		return k.answer(0, wait, now)
	}
	if len(k.line) == 0 && k.level > k.full { // a debt gets a turn
		k.line, k.most = []limitTurn{k.turnAt("!", k.level-k.full, k.level-k.full, now)}, k.full
	}
	if hole > 0 {
		k.freed -= hole
		if here {
			k.credit = 0
		}
	} else {
		k.level += need
	}
	k.most, k.by = max(k.most, need), ""
	at, _ := slices.BinarySearchFunc(k.line, position, func(t limitTurn, p int64) int {
		return cmp.Compare(k.position(t), p)
	})
	k.line = slices.Insert(k.line, at, k.turnAt(id, need, position, now))
	return k.answer(1, wait, now)
}

// turnAt is a turn of an amount at a position in the line.
func (k *Limit) turnAt(id string, amount, position, now int64) limitTurn {
	wait := ceilDiv(position, k.rate)
	return limitTurn{id, now + wait, amount, wait*k.rate - position}
}

// cancel is cancel.lua.
func (k *Limit) cancel(id string, n, now int64) LimitReply {
	need, back := n*k.per, int64(0)
	at := slices.IndexFunc(k.line, func(t limitTurn) bool { return t.id == id })
	switch {
	case at >= 0:
		back = 1
		k.credit = min(k.full, k.credit+max(0, need-k.position(k.line[at])))
		if k.line = slices.Delete(slices.Clone(k.line), at, at+1); len(k.line) == 0 {
			k.close(max(0, k.full-k.credit))
			break
		}
		k.level = k.full + k.position(k.line[len(k.line)-1])
		left, gone := k.reserved()
		k.freed = k.level - k.full - left
		k.credit = min(k.credit, max(0, k.full-gone))
	case len(k.line) == 0 && k.by == id:
		back, k.by, k.level = 1, "", max(0, k.level-need)
	}
	return k.answer(back, 0, now)
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a < q*b {
		q--
	}
	return q
}
