package stock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// The scripts' Go functions, with the call's id given, so that tests can send one call twice.

func (s *Stock) OpenAs(ctx context.Context, id string, o Spec) (epoch int64, opened bool, err error) {
	if err := o.check(); err != nil {
		return 0, false, err
	}
	r, err := s.open(ctx, id, o)
	return r.epoch, r.opened, err
}

func (s *Stock) ClaimAs(ctx context.Context, id string, claimants ...string) ([]Grant, error) {
	return s.claim(ctx, id, claimants)
}

func (s *Stock) ReturnAs(ctx context.Context, id, claimant string, ordinal int64) (bool, error) {
	return s.giveBack(ctx, id, claimant, ordinal)
}

func (s *Stock) AnyAs(ctx context.Context, id string, n int64) (Grant, error) {
	return s.any(ctx, id, n)
}

func (s *Stock) OnceAs(ctx context.Context, id, request, claimant string, n int64) (Grant, error) {
	return s.once(ctx, id, request, claimant, n)
}

func (s *Stock) GiveUp(ctx context.Context, id string) (int64, error) {
	return s.giveBackAny(ctx, session.CallID(), id, 0, 0)
}

func (s *Stock) ReserveAs(ctx context.Context, call, id, claimant string, n int64) (Grant, error) {
	return s.reserve(ctx, call, id, claimant, n, time.Hour)
}

func (s *Stock) ConfirmAs(ctx context.Context, call, id string) (Grant, error) {
	return s.confirm(ctx, call, id)
}
