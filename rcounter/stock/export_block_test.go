package stock

import (
	"context"
	"time"
)

func (s *Stock) BlockAs(ctx context.Context, id string, n int64) (Grant, error) {
	return s.block(ctx, id, n, time.Hour)
}

func (s *Stock) EndBlockAs(ctx context.Context, call, id string, taken int64, act string) error {
	_, err := s.endBlock(ctx, call, id, taken, blockAct(act), time.Hour)
	return err
}
