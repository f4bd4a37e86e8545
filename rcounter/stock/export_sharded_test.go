package stock

import (
	"context"
)

// The steps of an opening and of a transfer by themselves, so that tests can break off between them and repeat them.

type (
	Transfer = transfer
	Plan     = plan
)

func MakeTransfer(number, n int64) Transfer { return transfer{number, n} }

func (t transfer) Number() int64 { return t.number }
func (t transfer) N() int64      { return t.n }

func (s *Sharded) Begin(ctx context.Context, id string, o Spec) (Plan, error) {
	if err := o.check(); err != nil {
		return Plan{}, err
	}
	return s.begin(ctx, id, o)
}

func (p plan) Epoch() int64 { return p.epoch }

func (s *Sharded) Prepare(ctx context.Context, i int, p Plan) error {
	_, _, err := s.prepare(ctx, i, p)
	return err
}

// Fix prepares all shards and writes their incarnations into the plan.
func (s *Sharded) Fix(ctx context.Context, p Plan) error {
	incs := make([]string, len(s.shards))
	for i := range incs {
		inc, _, err := s.prepare(ctx, i, p)
		if err != nil {
			return err
		}
		incs[i] = inc
	}
	_, err := s.fix(ctx, p.epoch, incs, false)
	return err
}

// of is the plan as it is, with that epoch.
func (s *Sharded) of(ctx context.Context, epoch int64) (plan, error) {
	p, err := s.read(ctx)
	p.epoch = epoch
	return p, err
}

func (s *Sharded) Enliven(ctx context.Context, i int, epoch int64) error {
	p, err := s.of(ctx, epoch)
	if err != nil {
		return err
	}
	return s.enliven(ctx, i, p)
}

func (s *Sharded) Debit(ctx context.Context, epoch int64, from, to int, fresh bool) (Transfer, error) {
	p, err := s.of(ctx, epoch)
	if err != nil {
		return Transfer{}, err
	}
	return s.debit(ctx, p, from, to, fresh)
}

func (s *Sharded) Credit(ctx context.Context, epoch int64, from, to int, t Transfer) error {
	p, err := s.of(ctx, epoch)
	if err != nil {
		return err
	}
	return s.credit(ctx, p, from, to, t)
}

func (s *Sharded) Acknowledge(ctx context.Context, epoch int64, from, to int, number int64) error {
	p, err := s.of(ctx, epoch)
	if err != nil {
		return err
	}
	return s.acknowledge(ctx, p, from, to, number)
}

// Home is the shard at which claimant claims; Shard is a shard, nil if there is none of that number.
func (s *Sharded) Home(claimant string) int { return s.home(claimant) }
func (s *Sharded) Shard(i int) *Stock {
	if i < 0 || i >= len(s.shards) {
		return nil
	}
	return s.shards[i]
}

// Key is a shard's main key.
func (s *Stock) Key() string { return s.keys[0] }

// WarmLook looks once.
func (s *Sharded) WarmLook(ctx context.Context) error {
	_, err := s.look(ctx)
	return err
}
