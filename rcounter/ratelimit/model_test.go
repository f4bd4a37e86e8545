package ratelimit

import (
	"github.com/redlatch/redlatch/internal/oracle/judges"
	"github.com/redlatch/redlatch/internal/script"
)

// Model is a reference of a limiter's key, whose answers are those of the limiter.
type Model struct{ limit *judges.Limit }

// NewModel returns the model of a key of which nothing was taken.
func (l *Limiter) NewModel() *Model {
	algorithm := map[Algorithm]judges.LimitAlgorithm{GCRA: judges.GCRA, SlidingWindow: judges.SlidingWindow,
		FixedWindow: judges.FixedMinute}[l.terms.algorithm]
	return &Model{judges.NewLimit(algorithm, l.terms.rate, l.terms.per, l.terms.burst)}
}

func replyOf(r judges.LimitReply) reply {
	return reply{taken: r.Taken, wait: script.Micros(r.Wait), free: r.Free, empty: script.Micros(r.Empty)}
}

// Take takes n units, or as many as there are of them.
func (m *Model) Take(now, n int64, upTo bool) Admission {
	one := replyOf(m.limit.Take(now, n, upTo))
	return one.admission(upTo)
}

// Reserve reserves units that pass within most us.
func (m *Model) Reserve(now int64, id string, n, most int64) Turn {
	turn, _ := turned(replyOf(m.limit.Reserve(now, id, n, most)), nil)
	return turn
}

// Cancel gives them back.
func (m *Model) Cancel(now int64, id string, n int64) Turn {
	turn, _ := turned(replyOf(m.limit.Cancel(now, id, n)), nil)
	return turn
}

// Charge takes an estimate of n units.
func (m *Model) Charge(now int64, id string, n int64) Admission {
	one := replyOf(m.limit.Charge(now, id, n))
	return one.admission(false)
}

// Settle settles a charge, and returns how many units were taken or, negative, given back.
func (m *Model) Settle(now int64, id string, used int64) (units int64, open bool) {
	return m.limit.Settle(now, id, used)
}
