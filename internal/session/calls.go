package session

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"
	"weak"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// AttemptOnce is Runner.Attempt for a request whose outcome cannot be found out afterwards. So it awaits the reply for
// ReplyGrace after ctx has ended. A reply that comes later still goes to Call.Late.
func (s *Session) AttemptOnce(ctx context.Context, call script.Call) (rueidis.RedisMessage, error) {
	if ctx.Err() != nil {
		return s.Runner.Attempt(ctx, call) // returns the error, and sends nothing
	}
	call.Patient = true // the runner sends the attempt on a goroutine of its own, where the reply is not lost
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.CallTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if script.Pause(own, ReplyGrace) {
			cancel()
		}
	})
	defer stop()
	reply, err := s.Runner.Attempt(own, call)
	// The ended context may be own, which the caller does not know, so the error names the end of the caller's context
	switch unknown := errors.Is(err, errs.ErrUnknownOutcome); {
	case unknown && ctx.Err() != nil:
		err = errs.Once(fmt.Errorf("%w: on %q: %w", errs.ErrUnknownOutcome, call.Keys[0], errs.Ended(ctx)))
	case unknown && own.Err() != nil:
		err = errs.Once(fmt.Errorf("%w: on %q: %w", errs.ErrUnknownOutcome, call.Keys[0], errNoReply))
	}
	return reply, err
}

// ReplyGrace is how long AttemptOnce awaits the reply after its caller's context has ended. A server under normal load
// answers long before, so that giving up does not cost the caller the outcome.
const ReplyGrace = 40 * time.Millisecond

var errNoReply = errors.New("no reply within the call timeout")

// DoOnce is Runner.Do for a request that may not run twice: another attempt follows only if the last one surely has not
// run.
func (s *Session) DoOnce(ctx context.Context, call script.Call) (reply rueidis.RedisMessage, err error) {
	_, err = script.Repeat(ctx, true, func() (err error) {
		reply, err = s.AttemptOnce(ctx, call)
		return err
	})
	return reply, err
}

// ToRelease gives a caller whose context has ended a second of its own: releasing is what such callers do last.
func ToRelease(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}

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

// CallID names one call, so that a second run of its script finds the work of the first. 48 random bits are enough,
// because an id is compared only with the few ids that the same claimant, or the same name, has used.
func CallID() string { return randomID(6) }

// RecordID names a record that has no other name. 96 random bits are needed, because all such ids of an opening must
// differ.
func RecordID() string { return randomID(12) }

func randomID(size int) string {
	bytes := make([]byte, size)
	rand.Read(bytes) // never fails
	return base64.RawURLEncoding.EncodeToString(bytes)
}
