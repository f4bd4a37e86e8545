package rcounter

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

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
	return s.planned(ctx, shardedOpenScript, id, strconv.Itoa(len(s.shards)), decimal(o.Limit), decimal(o.PerUser),
		decimal(millis(o.StartIn)), decimal(millis(o.OpenFor)), decimal(millis(o.Retain)), decimal(ledger))
}

// read runs sharded_phase.lua to read.
func (s *ShardedStock) read(ctx context.Context) (plan, error) {
	return s.planned(ctx, shardedPhaseScript, "", "0")
}

// advance runs sharded_phase.lua to move an opening on.
func (s *ShardedStock) advance(ctx context.Context, epoch int64, phase int) error {
	p, err := s.planned(ctx, shardedPhaseScript, decimal(epoch), strconv.Itoa(phase))
	if err == nil && (p.epoch != epoch || p.phase < phase) {
		err = fmt.Errorf("%w: %q went away while it was opened", ErrCorrupt, s.plan)
	}
	return err
}

func (s *ShardedStock) planned(ctx context.Context, sc *script.Script, args ...string) (plan, error) {
	m, err := s.c.do(ctx, script.Call{Script: sc, Keys: []string{s.plan}, Args: args})
	if err != nil {
		return plan{}, err
	}
	v, err := m.AsIntSlice()
	switch {
	case err != nil || len(v) < 3:
		return plan{}, malformed("a sharded stock's script", s.plan)
	case v[0] == stockCorrupt:
		return plan{}, corrupt(s.plan, -1, 0)
	case v[0] != stockOK || len(v) != 11:
		return plan{}, malformed("a sharded stock's script", s.plan)
	}
	return plan{epoch: v[1], phase: int(v[2]), shards: int(v[3]), total: v[4], per: v[5], ledger: v[6], start: v[7], end: v[8], gone: v[9], mine: v[10] == 1}, nil
}

// prepare runs sharded_prepare.lua: shard i has its even part of the total, the first ones one unit more.
func (s *ShardedStock) prepare(ctx context.Context, i int, p plan) error {
	k := int64(len(s.shards))
	part := p.total / k
	if int64(i) < p.total%k {
		part++
	}
	st := s.shards[i]
	v, err := st.ints(ctx, 3, shardedPrepareScript, decimal(p.epoch), decimal(part), decimal(p.per), decimal(p.start), decimal(p.end), decimal(max(1, p.gone)),
		decimal(p.ledger), strconv.Itoa(len(s.shards)), strconv.Itoa(i), decimal(p.total))
	if err != nil {
		return err
	}
	if v[0] == 1 {
		return &AlreadyOpenError{Key: st.keys[0], Epoch: v[1]}
	}
	return st.verdict(v)
}

// enliven runs sharded_live.lua.
func (s *ShardedStock) enliven(ctx context.Context, i int, epoch int64) error {
	_, err := s.atShard(ctx, i, false, shardedLiveScript, decimal(epoch))
	return err
}

// lookAt runs sharded_look.lua; the zero shard is none.
func (s *ShardedStock) lookAt(ctx context.Context, i int) (shard, error) {
	st, k := s.shards[i], len(s.shards)
	v, err := st.ints(ctx, 3, shardedLookScript, strconv.Itoa(k))
	if err != nil {
		return shard{}, err
	}
	if v[0] == stockNone {
		return shard{out: make([]transfer, k), in: make([]int64, k)}, nil
	}
	if err := st.verdict(v); err != nil {
		return shard{}, err
	}
	if len(v) != 11+3*k {
		return shard{}, malformed("sharded_look", st.keys[0])
	}
	sh := shard{epoch: v[1], state: v[2], limit: v[3], sold: v[4], held: v[5], seq: v[6], start: v[7], end: v[8], gone: v[9], out: make([]transfer, k), in: v[11+2*k:]}
	for j := range k {
		sh.out[j] = transfer{number: v[11+2*j], n: v[12+2*j]}
	}
	return sh, nil
}

// debit runs sharded_debit.lua.
func (s *ShardedStock) debit(ctx context.Context, epoch int64, from, to int, fresh bool) (transfer, error) {
	wanted := "0"
	if fresh {
		wanted = "1"
	}
	v, err := s.atShard(ctx, from, true, shardedDebitScript, decimal(epoch), s.c.mark(), strconv.Itoa(to), wanted)
	if err != nil {
		return transfer{}, err
	}
	return transfer{number: v[1], n: v[2]}, nil
}

// credit runs sharded_credit.lua.
func (s *ShardedStock) credit(ctx context.Context, epoch int64, from, to int, t transfer) error {
	_, err := s.atShard(ctx, to, true, shardedCreditScript, decimal(epoch), s.c.mark(), strconv.Itoa(from), decimal(t.number), decimal(t.n))
	return err
}

// acknowledge runs sharded_ack.lua.
func (s *ShardedStock) acknowledge(ctx context.Context, epoch int64, from, to int, number int64) error {
	_, err := s.atShard(ctx, from, false, shardedAckScript, decimal(epoch), strconv.Itoa(to), decimal(number))
	return err
}

// atShard runs one of the scripts that need a shard of this very opening; sure has it confirmed by replicas.
func (s *ShardedStock) atShard(ctx context.Context, i int, sure bool, sc *script.Script, args ...string) ([]int64, error) {
	st := s.shards[i]
	run := st.ints
	if sure {
		run = st.sure
	}
	v, err := run(ctx, 3, sc, args...)
	if err != nil {
		return nil, err
	}
	if v[0] == stockNone {
		return nil, fmt.Errorf("%w: shard %q is gone", ErrCorrupt, st.keys[0])
	}
	return v, st.verdict(v)
}
