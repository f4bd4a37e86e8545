package ratelimit

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// localLimits are the limits of one process: what the scripts do, with a map for a server and a monotonic clock.
// limit.lua says how a limit counts, and why; here are the same names.
type localLimits struct {
	mu   sync.Mutex
	base time.Time
	keys map[string]*localLimit
	tidy int // keys at which those that are empty are looked for
}

// localLimit is the limit of one key.
type localLimit struct {
	algorithm Algorithm
	rate, per int64
	full      int64
	whole     int64 // units: the largest request that passes
	at        int64 // us
	by        string

	level  int64 // GCRA
	line   []localTurn
	freed  int64
	credit int64
	most   int64

	ends, units []int64 // SlidingWindow: slices

	number, count int64 // FixedWindow
	end           int64 // us
}

// localTurn is a reservation whose turn is to come.
type localTurn struct {
	id               string
	at, amount, rest int64
}

// position is that of a turn in the line.
func (k *localLimit) position(t localTurn) int64 { return (t.at-k.at)*k.rate - t.rest }

const tidyAt = 1024

// now is the process's time in us: monotonic, after its first reading of the clock.
func (l *localLimits) now() int64 {
	return l.base.UnixMicro() + time.Since(l.base).Microseconds()
}

// on runs f on the limit of a key as it stands now.
func (l *localLimits) on(t *terms, key string, f func(k *localLimit, now int64) reply) reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	k := l.keys[key]
	if k == nil {
		k = &localLimit{at: now}
	}
	k.pass(t, now)
	r := f(k, now)
	// a key whose units no longer count is as if it had never been there
	if k.idle(now) {
		delete(l.keys, key)
		return r
	}
	if l.keys[key] = k; len(l.keys) >= max(tidyAt, l.tidy) {
		for name, k := range l.keys {
			if k.gone(now) {
				delete(l.keys, name)
			}
		}
		l.tidy = 2 * len(l.keys)
	}
	return r
}

// take takes n units now, or as many as there are of them.
func (l *localLimits) take(t *terms, key string, n int64, upTo bool) reply {
	return l.on(t, key, func(k *localLimit, now int64) reply { return k.take(n, upTo, now) })
}

// takeAll takes units of several limits in place of the server, all or none; those under Open are not asked.
func (l *localLimits) takeAll(parts []part) []reply {
	all, passes := make([]reply, len(parts)), true
	for _, n := range []int64{0, 1} { // first to look
		for i, p := range parts {
			if p.l.o.WhenDown != Local {
				all[i] = reply{taken: p.n, free: p.t.burst}
				continue
			}
			all[i] = l.on(p.t.share(p.l.o.Share), "down:"+p.key, func(k *localLimit, now int64) reply {
				if n == 0 && !k.admits(p.n) {
					return k.answer(tookNone, k.wait(p.n, now), now)
				}
				return k.take(n*p.n, false, now)
			})
			if n == 0 && all[i].taken >= 0 {
				all[i].taken = p.n
			}
			all[i].wait = p.patience(all[i].wait)
			passes = passes && all[i].taken >= 0
		}
		if !passes {
			break
		}
	}
	return all
}

// pass has time pass, under the terms of the call.
func (k *localLimit) pass(t *terms, now int64) {
	if k.algorithm != t.algorithm {
		*k = localLimit{algorithm: t.algorithm, at: now}
	}
	switch t.algorithm {
	case GCRA:
		full := t.burst * t.per
		if k.per != 0 && (k.rate != t.rate || k.per != t.per || k.full != full) {
			k.drain(now)
			// whole units: of what no limit is kept
			k.level, k.line, k.credit, k.freed = product(ceilDiv(k.level, k.per), t.per), nil, 0, 0
			if k.level > full {
				wait := ceilDiv(k.level-full, t.rate)
				k.line, k.most = []localTurn{{"!", now + wait, k.level - full, wait*t.rate - (k.level - full)}}, full
			}
		}
		k.rate, k.per, k.full, k.whole = t.rate, t.per, full, cmp.Or(t.whole, t.burst)
		k.advance(now)
	case SlidingWindow:
		k.rate, k.per = t.rate, t.per
		for len(k.ends) > 0 && k.ends[0]+k.per <= now {
			k.ends, k.units = k.ends[1:], k.units[1:]
		}
	case FixedWindow:
		number, end := t.ends(time.UnixMicro(now))
		k.rate = t.rate
		if number > k.number || k.end == 0 {
			k.number, k.count = number, 0
		}
		k.end = end.UnixMicro()
	}
	k.at = now
}

func (k *localLimit) drain(now int64) {
	if past := now - k.at; past > k.level/k.rate {
		k.level = 0
	} else if past > 0 {
		k.level -= past * k.rate
	}
}

// advance is line of limit.lua.
func (k *localLimit) advance(now int64) {
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
func (k *localLimit) close(level int64) {
	k.level, k.line, k.credit, k.freed, k.most = level, nil, 0, 0, 0
}

// reserved is what of the line is reserved, and what has passed of the stretch of the next turn.
func (k *localLimit) reserved() (left, gone int64) {
	for i, t := range k.line {
		left += t.amount
		if i == 0 {
			gone = max(0, t.amount-k.position(t))
		}
	}
	return left - gone, gone
}

// room is how many units pass at once.
func (k *localLimit) room() int64 {
	switch k.algorithm {
	case GCRA:
		if len(k.line) > 0 {
			return k.credit / k.per
		}
		return max(0, floorDiv(k.full-k.level, k.per))
	case SlidingWindow:
		room := k.rate
		for _, n := range k.units {
			room -= n
		}
		return max(0, room)
	}
	return max(0, k.rate-k.count)
}

// admits reports whether n units pass now. A request of more units than the burst, which a share of a limit gets,
// passes a full bucket, and all of its units count. The level stands above full then, so that the next request waits
// until as many units have drained: to count fewer would let large requests pass at any rate.
func (k *localLimit) admits(n int64) bool {
	return n <= k.room() || k.algorithm == GCRA && k.level == 0 && len(k.line) == 0 && n <= k.whole
}

// product is n * per, but at most 1<<61, which no bucket holds, so that a sum with a level does not overflow.
func product(n, per int64) int64 { return min(n, 1<<61/per) * per }

// turn is where the next n units pass: see limit.lua.
func (k *localLimit) turn(n int64) (position, hole int64, here bool) {
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
func (k *localLimit) wait(n, now int64) int64 {
	room := k.room()
	switch {
	case n <= room:
		return 0
	case k.algorithm == GCRA && len(k.line) > 0:
		position, _, _ := k.turn(min(n, k.full/k.per))
		return ceilDiv(position, k.rate)
	case k.algorithm == GCRA:
		return max(0, ceilDiv(k.level+min(product(n, k.per)-k.full, 0), k.rate))
	case k.algorithm == FixedWindow:
		return k.end - now
	}
	for i, end := range k.ends {
		if room += k.units[i]; room >= n {
			return end + k.per - now
		}
	}
	return k.per
}

// empty is how long until nothing that was taken counts any more, us.
func (k *localLimit) empty(now int64) int64 {
	switch {
	case k.algorithm == GCRA:
		return ceilDiv(k.level, k.rate)
	case k.algorithm == SlidingWindow && len(k.ends) > 0:
		return k.ends[len(k.ends)-1] + k.per - now
	case k.algorithm == FixedWindow && k.count > 0:
		return k.end - now
	}
	return 0
}

// idle reports whether nothing counts; gone is the same after now, whatever the terms are now.
func (k *localLimit) idle(now int64) bool { return k.empty(now) == 0 }

func (k *localLimit) gone(now int64) bool {
	switch k.algorithm {
	case GCRA:
		return len(k.line) == 0 && now-k.at >= ceilDiv(k.level, k.rate) ||
			len(k.line) > 0 && now-k.at > ceilDiv(k.level, k.rate)
	case SlidingWindow:
		return len(k.ends) == 0 || k.ends[len(k.ends)-1]+k.per <= now
	}
	return k.end <= now
}

// answer is the reply for n units of which so many were taken; -1: none could pass.
func (k *localLimit) answer(taken, wait, now int64) reply {
	return reply{taken: taken, wait: script.Micros(wait), free: k.room(), empty: script.Micros(k.empty(now))}
}

func (k *localLimit) take(n int64, upTo bool, now int64) reply {
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
	if !k.admits(n) {
		return k.answer(-1, k.wait(n, now), now)
	}
	k.add(n, now)
	return k.answer(n, 0, now)
}

// add takes n units, which admits has let pass.
func (k *localLimit) add(n, now int64) {
	if n == 0 {
		return
	}
	k.by = ""
	switch {
	case k.algorithm == FixedWindow:
		k.count += n
	case k.algorithm == SlidingWindow:
		if last := len(k.ends) - 1; last < 0 || k.ends[last] <= now {
			k.ends, k.units = append(k.ends, now+max(1, ceilDiv(k.per, 32))), append(k.units, 0)
		}
		k.units[len(k.units)-1] += n
	case len(k.line) > 0:
		k.credit -= n * k.per
	default:
		k.level += product(n, k.per)
	}
}

// reserve is reserve.lua.
func (k *localLimit) reserve(id string, n, most, now int64) reply {
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
	if hole > 0 {
		k.freed -= hole
		if here {
			k.credit = 0
		}
	} else {
		k.level += need
	}
	k.most, k.by = max(k.most, need), ""
	at, _ := slices.BinarySearchFunc(k.line, position, func(t localTurn, p int64) int {
		return cmp.Compare(k.position(t), p)
	})
	k.line = slices.Insert(k.line, at, localTurn{id, now + wait, need, wait*k.rate - position})
	return k.answer(1, wait, now)
}

// cancel is cancel.lua.
func (k *localLimit) cancel(id string, n, now int64) reply {
	need, back := n*k.per, int64(0)
	at := slices.IndexFunc(k.line, func(t localTurn) bool { return t.id == id })
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
