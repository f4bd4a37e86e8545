package redpacket

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// claim is a Grab by do, and reports it. Without an observer no clock is read.
func (p *Packet) claim(ctx context.Context, do func() (Share, error)) (Share, error) {
	if p.c.calls.Observer == nil {
		return do()
	}
	began := time.Now()
	s, err := do()
	p.c.calls.Tell(ctx, errs.Event{Kind: errs.EventClaimed, Name: p.name, Outcome: string(s.Outcome), N: s.Cents,
		Took: time.Since(began), Err: edged(err)})
	return s, err
}
