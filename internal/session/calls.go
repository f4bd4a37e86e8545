package session

import (
	"context"
	"time"
	"weak"

	"github.com/redlatch/redlatch/internal/script"
)

// The functions below are for a client without holds. Some of its calls are finished in the background.

// Confirmed returns call with the number of replicas that the options require to confirm its writes.
func (s *Session) Confirmed(call script.Call) script.Call {
	call.Replicas, call.ReplicasWait = s.MinReplicas, s.ReplicaTimeout
	return call
}

// Mark returns the script argument that tells whether grants need a confirmation by replicas: "1" or "0".
func (s *Session) Mark() string {
	if s.MinReplicas > 0 {
		return "1"
	}
	return "0"
}

// Wanted returns how long the caller of a request made now may still want it.
func (s *Session) Wanted(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(s.Bound(), max(0, time.Until(deadline)))
	}
	return s.Bound()
}

// Now returns the monotonic time since the client was made, in ns.
func (s *Session) Now() int64 { return int64(time.Since(s.Base)) }

// At returns the instant of a time that Now has returned.
func (s *Session) At(now int64) time.Time { return s.Base.Add(time.Duration(now)) }

// RemoveAfter removes the remains of an object shortly after its retention, which is counted from now: see ends.lua.
// call runs a script that removes an object if it is over, and does no harm otherwise. If this process or its client
// has ended by then, the next call of any process removes them.
func (s *Session) RemoveAfter(retention time.Duration, call script.Call) {
	session := weak.Make(s)
	time.AfterFunc(retention+retention/1000+time.Second, func() { // the clocks may drift apart
		session := session.Value()
		if session == nil || session.Closed() {
			return
		}
		session.Finish(func() {
			_ = session.GiveBack(context.Background(), func(ctx context.Context) error {
				_, err := session.Do(ctx, call)
				return err
			}) // after a failure the keys expire
		})
	})
}
