package rcounter

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed sharded_open.lua
var shardedOpenSource string

//go:embed sharded_phase.lua
var shardedPhaseSource string

//go:embed sharded_prepare.lua
var shardedPrepareSource string

//go:embed sharded_live.lua
var shardedLiveSource string

//go:embed sharded_look.lua
var shardedLookSource string

//go:embed sharded_debit.lua
var shardedDebitSource string

//go:embed sharded_credit.lua
var shardedCreditSource string

//go:embed sharded_ack.lua
var shardedAckSource string

var (
	shardedOpenScript    = script.New("sharded_open", shardedOpenSource)
	shardedPhaseScript   = script.New("sharded_phase", shardedPhaseSource)
	shardedPrepareScript = stockScript("sharded_prepare", shardedPrepareSource)
	shardedLiveScript    = stockScript("sharded_live", shardedLiveSource)
	shardedLookScript    = stockScript("sharded_look", shardedLookSource)
	shardedDebitScript   = stockScript("sharded_debit", shardedDebitSource)
	shardedCreditScript  = stockScript("sharded_credit", shardedCreditSource)
	shardedAckScript     = stockScript("sharded_ack", shardedAckSource)
)

func decimal(v int64) string { return strconv.FormatInt(v, 10) }

// begin runs sharded_open.lua.
func (s *ShardedStock) begin(ctx context.Context, id string, o OpenSpec) (plan, error) {
	ledger := int64(0)
	if o.Ledger {
		ledger = 1
	}
	for until := ""; ; {
		p, err := s.planned(ctx, shardedOpenScript, id, strconv.Itoa(len(s.shards)), decimal(o.Limit), decimal(o.PerUser),
			decimal(millis(o.StartIn)), decimal(millis(o.OpenFor)), decimal(millis(o.Retain)), decimal(ledger), until)
		if err != nil || p.now == 0 {
			return p, err
		}
		until = decimal(p.now + millis(s.c.wait(ctx)))
	}
}

// read runs sharded_phase.lua to read.
func (s *ShardedStock) read(ctx context.Context) (plan, error) {
	return s.planned(ctx, shardedPhaseScript, "", "0", "", "0")
}

// fix runs sharded_phase.lua to write down which incarnations of the shards may sell, and answers those that do:
// another opener may have been quicker. sells says that one of them does already.
func (s *ShardedStock) fix(ctx context.Context, epoch int64, incs []string, sells bool) (plan, error) {
	flag := "0"
	if sells {
		flag = "1"
	}
	return s.advance(ctx, epoch, phaseReady, strings.Join(incs, ","), flag)
}

// advance runs sharded_phase.lua to move an opening on.
func (s *ShardedStock) advance(ctx context.Context, epoch int64, phase int, fixed ...string) (plan, error) {
	if len(fixed) == 0 {
		fixed = []string{"", "0"}
	}
	p, err := s.planned(ctx, shardedPhaseScript, append([]string{decimal(epoch), strconv.Itoa(phase)}, fixed...)...)
	if err == nil && (p.epoch != epoch || p.phase < phase) {
		err = fmt.Errorf("%w: %q went away while it was opened", ErrCorrupt, s.plan)
	}
	return p, err
}

func (s *ShardedStock) planned(ctx context.Context, sc *script.Script, args ...string) (plan, error) {
	m, err := s.c.do(ctx, script.Call{Script: sc, Keys: []string{s.plan}, Args: args})
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

// prepare runs sharded_prepare.lua: shard i has its even part of the total, the first ones one unit more. It answers
// the incarnation of the shard that is there now, and whether that sells.
func (s *ShardedStock) prepare(ctx context.Context, i int, p plan) (inc string, sells bool, err error) {
	k := int64(len(s.shards))
	part := p.total / k
	if int64(i) < p.total%k {
		part++
	}
	st := s.shards[i]
	m, err := s.c.do(ctx, st.call(shardedPrepareScript, decimal(p.epoch), decimal(part), decimal(p.per), decimal(p.start), decimal(p.end), decimal(max(1, p.gone)),
		decimal(p.ledger), strconv.Itoa(len(s.shards)), strconv.Itoa(i), decimal(p.total), callID()))
	if err != nil {
		return "", false, err
	}
	v, inc, ok := intsAndText(m)
	switch {
	case !ok || len(v) < 3:
		return "", false, malformed("sharded_prepare", st.keys[0])
	case v[0] == 1:
		return "", false, &AlreadyOpenError{Key: st.keys[0], Epoch: v[1]}
	case v[0] != stockOK:
		return "", false, st.verdict(v)
	case inc == "":
		return "", false, malformed("sharded_prepare", st.keys[0])
	}
	return inc, v[1] == shardOpen, nil
}

// enliven runs sharded_live.lua.
func (s *ShardedStock) enliven(ctx context.Context, i int, p plan) error {
	_, err := s.atShard(ctx, i, false, shardedLiveScript, p)
	return err
}

// lookAt runs sharded_look.lua; the zero shard is none.
func (s *ShardedStock) lookAt(ctx context.Context, i int, p plan) (shard, error) {
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

// debit runs sharded_debit.lua.
func (s *ShardedStock) debit(ctx context.Context, p plan, from, to int, fresh bool) (transfer, error) {
	wanted := "0"
	if fresh {
		wanted = "1"
	}
	v, err := s.atShard(ctx, from, true, shardedDebitScript, p, s.c.mark(), strconv.Itoa(to), wanted)
	if err != nil {
		return transfer{}, err
	}
	return transfer{number: v[1], n: v[2]}, nil
}

// credit runs sharded_credit.lua.
func (s *ShardedStock) credit(ctx context.Context, p plan, from, to int, t transfer) error {
	_, err := s.atShard(ctx, to, true, shardedCreditScript, p, s.c.mark(), strconv.Itoa(from), decimal(t.number), decimal(t.n))
	return err
}

// acknowledge runs sharded_ack.lua.
func (s *ShardedStock) acknowledge(ctx context.Context, p plan, from, to int, number int64) error {
	_, err := s.atShard(ctx, from, false, shardedAckScript, p, strconv.Itoa(to), decimal(number))
	return err
}

// atShard runs one of the scripts that need the very shard that the plan names; sure has it confirmed by replicas.
func (s *ShardedStock) atShard(ctx context.Context, i int, sure bool, sc *script.Script, p plan, args ...string) ([]int64, error) {
	st := s.shards[i]
	run := st.ints
	if sure {
		run = st.sure
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
