package rcounter

import "context"

// The steps of an opening and of a transfer by themselves, so that tests can break off between them and repeat them.

type (
	Transfer = transfer
	Plan     = plan
)

func MakeTransfer(number, n int64) Transfer { return transfer{number, n} }

func (t transfer) Number() int64 { return t.number }
func (t transfer) N() int64      { return t.n }

func (s *ShardedStock) Begin(ctx context.Context, id string, o OpenSpec) (Plan, error) {
	if err := o.check(); err != nil {
		return Plan{}, err
	}
	return s.begin(ctx, id, o)
}

func (p plan) Epoch() int64 { return p.epoch }

func (s *ShardedStock) Prepare(ctx context.Context, i int, p Plan) error { return s.prepare(ctx, i, p) }

func (s *ShardedStock) Advance(ctx context.Context, epoch int64, phase int) error {
	return s.advance(ctx, epoch, phase)
}

func (s *ShardedStock) Enliven(ctx context.Context, i int, epoch int64) error {
	return s.enliven(ctx, i, epoch)
}

func (s *ShardedStock) Debit(ctx context.Context, epoch int64, from, to int, fresh bool) (Transfer, error) {
	return s.debit(ctx, epoch, from, to, fresh)
}

func (s *ShardedStock) Credit(ctx context.Context, epoch int64, from, to int, t Transfer) error {
	return s.credit(ctx, epoch, from, to, t)
}

func (s *ShardedStock) Acknowledge(ctx context.Context, epoch int64, from, to int, number int64) error {
	return s.acknowledge(ctx, epoch, from, to, number)
}

// Key is a shard's main key.
func (s *Stock) Key() string { return s.keys[0] }

// WarmLook looks once.
func (s *ShardedStock) WarmLook(ctx context.Context) error {
	_, err := s.look(ctx)
	return err
}
