package ratelimit

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// localLimits are the limits of one process: take.lua with a map for a server and a monotonic clock.
type localLimits struct {
	mu   sync.Mutex
	base time.Time
	keys map[string]localLevel
	tidy int // keys at which those that are empty are looked for
}

type localLevel struct {
	at, level int64 // us since base; units * per
	id        string
}

const tidyAt = 1024

func (l *localLimits) take(o LimiterOptions, id, key string, n int64, most time.Duration) rateReply {
	per := o.Per.Microseconds()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.base).Microseconds()
	s := l.keys[key]
	s.drain(now, o.Rate)
	answer := func(passed bool, wait int64) rateReply {
		return rateReply{passed: passed, wait: script.Micros(wait), free: max(0, (o.Burst*per-s.level)/per), empty: script.Micros(ceilDiv(s.level, o.Rate))}
	}
	mine := s.id == id
	switch {
	case n < 0 && !mine:
		return answer(false, 0)
	case n < 0:
		s.level, s.id = max(0, s.level+n*per), "!"+id
	case n == 0:
		return answer(true, 0)
	case s.id == "!"+id:
		return answer(false, 0)
	case mine: // as the script, though nothing repeats a call here
	default:
		wait := max(0, ceilDiv(s.level+n*per-o.Burst*per, o.Rate))
		if wait > most.Microseconds() || s.level+n*per > 1<<53-1 {
			return answer(false, wait)
		}
		s.level, s.id = s.level+n*per, id
	}
	s.at = now
	// a key whose units no longer count is as if it had never been there
	if l.keys[key] = s; len(l.keys) >= max(tidyAt, l.tidy) {
		for k, s := range l.keys {
			if s.drain(now, o.Rate); s.level == 0 {
				delete(l.keys, k)
			}
		}
		l.tidy = 2 * len(l.keys)
	}
	return answer(true, max(0, ceilDiv(s.level-o.Burst*per, o.Rate)))
}

// drain takes off what has passed since the last call.
func (s *localLevel) drain(now, rate int64) {
	if past := now - s.at; past > s.level/rate {
		s.level = 0
	} else if past > 0 {
		s.level -= past * rate
	}
}

// ceilDiv is a/b rounded up, for b > 0.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a > q*b {
		q++
	}
	return q
}
