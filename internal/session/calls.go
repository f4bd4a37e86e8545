package session

import (
	"context"
	"time"
	"weak"

	"github.com/redlatch/redlatch/internal/script"
)

// The functions below are for a client without holds, which makes calls, and finishes some in the background.

// Confirmed returns call, with as many replicas to confirm its writes as the options say.
func (s *Session) Confirmed(call script.Call) script.Call {
	call.Replicas, call.ReplicasWait = s.MinReplicas, s.ReplicaTimeout
	return call
}

// Mark is the argument of a script that says whether its grants are to be confirmed.
func (s *Session) Mark() string {
	if s.MinReplicas > 0 {
		return "1"
	}
	return "0"
}

// Wanted is how long the caller of a request made now may still want it.
func (s *Session) Wanted(ctx context.Context) time.Duration {
	if d, ok := ctx.Deadline(); ok {
		return min(s.Bound(), max(0, time.Until(d)))
	}
	return s.Bound()
}

// Now is the monotonic time since the client was made, in ns.
func (s *Session) Now() int64 { return int64(time.Since(s.Base)) }

// At is the instant of such a time.
func (s *Session) At(now int64) time.Time { return s.Base.Add(time.Duration(now)) }

// RemoveAfter removes what is left of an object shortly after its retention, which ends d from now: see ends.lua. call
// runs a script that removes an object if it is over, and does no harm otherwise. If this process or its client is gone
// by then, the next call of any process does it.
func (s *Session) RemoveAfter(d time.Duration, call script.Call) {
	session := weak.Make(s)
	time.AfterFunc(d+d/1000+time.Second, func() { // two clocks may run apart
		s := session.Value()
		if s == nil || s.Closed() {
			return
		}
		s.Finish(func() {
			_ = s.GiveBack(context.Background(), func(ctx context.Context) error {
				_, err := s.Do(ctx, call)
				return err
			}) // if that fails, they expire
		})
	})
}
