package redpacket

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// Observer is a set of functions told of what happens, each with a context and the name of the packet; nil ones are skipped
// and cost nothing. They run on the goroutine of the call: they must return at once. One that panics is logged and otherwise
// ignored.
//
// The context is that of the call: it carries the caller's span, and may have ended.
type Observer struct {
	// Claimed: the server answered a Grab, with n cents if the user has a share; or it did not, for the reason in err.
	Claimed func(ctx context.Context, name string, outcome Outcome, n int64, took time.Duration, err error)
}

// observe takes o, guarded.
func (c *Client) observe(o Observer) {
	if o.Claimed != nil {
		c.claimed = session.Guard4(c.calls, o.Claimed)
	}
}

// claim is a Grab by do, of which the observer is told.
func (p *Packet) claim(ctx context.Context, do func() (Share, error)) (Share, error) {
	if p.c.claimed == nil {
		return do()
	}
	began := time.Now()
	s, err := do()
	p.c.claimed(ctx, p.name, s.Outcome, s.Cents, time.Since(began), edged(err))
	return s, err
}

// And returns an Observer that tells o and then next, for example one for metrics and one for traces. If o panics, next is not
// told.
func (o Observer) And(next Observer) Observer {
	return Observer{Claimed: session.Both4(o.Claimed, next.Claimed)}
}
