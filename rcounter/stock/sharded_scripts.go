package stock

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

var shardedOpenScript = script.Load("sharded_open", files, "sharded_open")

// begin runs sharded_open.lua.
func (s *Sharded) begin(ctx context.Context, id string, o Spec) (plan, error) {
	for until := ""; ; {
		p, err := s.planned(ctx, false, shardedOpenScript, id, strconv.Itoa(len(s.shards)), decimal(o.Limit), decimal(o.PerUser),
			script.Millis(o.StartIn), script.Millis(o.OpenFor), script.Millis(o.Retain), flagged(o.Ledger), until)
		if err != nil || p.now == 0 {
			return p, err
		}
		until = script.NotAfter(p.now, s.c.calls.Wanted(ctx))
	}
}

var shardedPhaseScript = script.Load("sharded_phase", files, "sharded_phase")

// read reads the plan.
func (s *Sharded) read(ctx context.Context) (plan, error) {
	return s.phase(ctx, false, "", 0, nil, false)
}

// fix writes down which incarnations of the shards may sell, and returns those that may: another process may have been
// quicker. sells says that one of the shards sells already. Replicas confirm the answer.
func (s *Sharded) fix(ctx context.Context, epoch int64, incs []string, sells bool) (plan, error) {
	return s.advance(ctx, true, epoch, phaseReady, incs, sells)
}

// advance moves an opening on. With sure, replicas confirm it.
func (s *Sharded) advance(ctx context.Context, sure bool, epoch int64, phase int, incs []string, sells bool) (plan, error) {
	p, err := s.phase(ctx, sure, decimal(epoch), phase, incs, sells)
	if err == nil && (p.epoch != epoch || p.phase < phase) {
		err = fmt.Errorf("%w: %q went away while it was opened", ErrCorrupt, s.plan)
	}
	return p, err
}

// phase runs sharded_phase.lua.
func (s *Sharded) phase(ctx context.Context, sure bool, epoch string, phase int, incs []string, sells bool) (plan, error) {
	mark := ""
	if sure {
		mark = s.c.calls.Mark()
	}
	return s.planned(ctx, sure, shardedPhaseScript, epoch, strconv.Itoa(phase), strings.Join(incs, ","), flagged(sells), mark)
}

// flagged is a bool as an argument of a script.
func flagged(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}

// planned runs a script of the plan and decodes its reply. With sure, replicas confirm it.
func (s *Sharded) planned(ctx context.Context, sure bool, sc *script.Script, args ...string) (plan, error) {
	call := script.Call{Script: sc, Keys: []string{s.plan}, Args: args}
	if sure {
		call = s.c.calls.Confirmed(call)
	}
	m, err := s.c.calls.Do(ctx, call)
	if err != nil {
		return plan{}, err
	}
	v, text, ok := intsAndText(m)
	switch {
	case !ok || len(v) < 3:
		return plan{}, malformed("a sharded stock's script", s.plan)
	case v[0] == stockCorrupt:
		return plan{}, corrupt(s.plan, -1, 0)
	case v[0] == stockChanged:
		return plan{now: v[1]}, nil
	case v[0] != stockOK || len(v) != 11:
		return plan{}, malformed("a sharded stock's script", s.plan)
	}
	p := plan{epoch: v[1], phase: int(v[2]), shards: int(v[3]), total: v[4], per: v[5], ledger: v[6], start: v[7], end: v[8], gone: v[9], mine: v[10] == 1}
	if p.phase >= phaseReady {
		if p.incs = strings.Split(text, ","); text == "" || len(p.incs) != p.shards {
			return plan{}, corrupt(s.plan, -1, 0)
		}
	}
	return p, nil
}

// intsAndText decodes a reply of integers and, at its end, one text.
func intsAndText(m rueidis.RedisMessage) (v []int64, text string, ok bool) {
	list, err := m.ToArray()
	if err != nil {
		return nil, "", false
	}
	for i := range list {
		if n, err := list[i].ToInt64(); err == nil {
			v = append(v, n)
			continue
		}
		if text, err = list[i].ToString(); err != nil || i < len(list)-1 {
			return nil, "", false
		}
	}
	return v, text, true
}

var shardedPrepareScript = script.Load("sharded_prepare", files, "sharded_prepare")

// prepare runs sharded_prepare.lua: shard i gets its even part of the total, the first shards one unit more. It returns the
// incarnation of the shard that is there now, and whether that sells.
func (s *Sharded) prepare(ctx context.Context, i int, p plan) (inc string, sells bool, err error) {
	k := int64(len(s.shards))
	part := p.total / k
	if int64(i) < p.total%k {
		part++
	}
	st := s.shards[i]
	m, err := s.c.calls.Do(ctx, st.call(shardedPrepareScript, decimal(p.epoch), decimal(part), decimal(p.per), decimal(p.start), decimal(p.end), decimal(max(1, p.gone)),
		decimal(p.ledger), strconv.Itoa(len(s.shards)), strconv.Itoa(i), decimal(p.total), session.CallID()))
	if err != nil {
		return "", false, err
	}
	v, inc, ok := intsAndText(m)
	switch {
	case !ok || len(v) < 3:
		return "", false, malformed("sharded_prepare", st.keys[0])
	case v[0] == 1:
		return "", false, fmt.Errorf("%w: %q, epoch %d", ErrAlreadyOpen, s.name, v[1])
	case v[0] != stockOK:
		return "", false, st.verdict(v)
	case inc == "":
		return "", false, malformed("sharded_prepare", st.keys[0])
	}
	return inc, v[1] == shardOpen, nil
}

var shardedLiveScript = script.Load("sharded_live", files, "sharded_live")

// enliven runs sharded_live.lua.
func (s *Sharded) enliven(ctx context.Context, i int, p plan) error {
	_, err := s.atShard(ctx, i, false, shardedLiveScript, p)
	return err
}

var shardedLookScript = script.Load("sharded_look", files, "sharded_look")

// lookAt runs sharded_look.lua; the zero shard is none.
func (s *Sharded) lookAt(ctx context.Context, i int, p plan) (shard, error) {
	st, k := s.shards[i], len(s.shards)
	v, err := st.ints(ctx, 3, shardedLookScript, strconv.Itoa(k), p.inc(i))
	if err != nil {
		return shard{}, err
	}
	if v[0] == stockNone {
		return shard{out: make([]transfer, k), in: make([]int64, k)}, nil
	}
	if err := st.verdict(v); err != nil {
		return shard{}, err
	}
	if len(v) != 12+3*k {
		return shard{}, malformed("sharded_look", st.keys[0])
	}
	sh := shard{epoch: v[1], state: v[2], limit: v[3], sold: v[4], held: v[5], seq: v[6], start: v[7], end: v[8], gone: v[9], anew: v[11] != 1, out: make([]transfer, k), in: v[12+2*k:]}
	for j := range k {
		sh.out[j] = transfer{number: v[12+2*j], n: v[13+2*j]}
	}
	return sh, nil
}

var shardedDebitScript = script.Load("sharded_debit", files, "sharded_debit")

// debit runs sharded_debit.lua.
func (s *Sharded) debit(ctx context.Context, p plan, from, to int, fresh bool) (transfer, error) {
	v, err := s.atShard(ctx, from, true, shardedDebitScript, p, s.c.calls.Mark(), strconv.Itoa(to), flagged(fresh))
	if err != nil {
		return transfer{}, err
	}
	return transfer{number: v[1], n: v[2]}, nil
}

var shardedCreditScript = script.Load("sharded_credit", files, "sharded_credit")

// credit runs sharded_credit.lua.
func (s *Sharded) credit(ctx context.Context, p plan, from, to int, t transfer) error {
	_, err := s.atShard(ctx, to, true, shardedCreditScript, p, s.c.calls.Mark(), strconv.Itoa(from), decimal(t.number), decimal(t.n))
	return err
}

var shardedAckScript = script.Load("sharded_ack", files, "sharded_ack")

// acknowledge runs sharded_ack.lua.
func (s *Sharded) acknowledge(ctx context.Context, p plan, from, to int, number int64) error {
	_, err := s.atShard(ctx, from, false, shardedAckScript, p, strconv.Itoa(to), decimal(number))
	return err
}

// atShard runs a script that needs the very shard that the plan names. With sure, replicas confirm it.
func (s *Sharded) atShard(ctx context.Context, i int, sure bool, sc *script.Script, p plan, args ...string) ([]int64, error) {
	st := s.shards[i]
	run := st.ints
	if sure {
		run = st.confirmed
	}
	v, err := run(ctx, 3, sc, append([]string{decimal(p.epoch), p.inc(i)}, args...)...)
	if err != nil {
		return nil, err
	}
	if v[0] == stockNone {
		return nil, fmt.Errorf("%w: shard %q is gone, or was lost and made anew", ErrCorrupt, st.keys[0])
	}
	return v, st.verdict(v)
}
