package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
)

// Reply is the decoded reply of a script that refuses to run after an instant.
type Reply interface {
	// Clock is the server's time in ms when the script ran, and whether the script came too late and so did nothing.
	Clock() (server int64, late bool)
}

// Timed is a call that the server refuses after an instant, so that nothing is granted to a caller that has given up.
// Deadlines cannot do that: a request that was sent may run at any time later.
//
// The instant, not after, is in the server's own time, which this client estimates from earlier replies (see Clock).
// The first call to a server has no such instant.
//
//	this client                                 server
//	estimates that the server's clock is at T
//	                                            steps its clock forward, or another takes its place
//	sends "not after T + 500 ms"
//	                                            its clock is later than that: does nothing, replies LATE, and its time
//	forgets the estimate, takes that time for
//	the next, sends once more
//	                                            does it
//
// After a second LATE the estimate is not to blame: requests take too long to arrive. The caller learns that nothing
// was done, and may try again later (TestTimed_LateReply_LearnsTheClockAndRepeats).
type Timed[R Reply] struct {
	Key string // its server's clock counts
	// GiveUp is how long after sending the caller gives up on the request. Zero: the runner's call timeout, as is right
	// for one attempt. If the deadline of the caller's context is sooner, the caller gives up then.
	GiveUp time.Duration
	// Beyond is how long after that deadline the caller still waits for the reply.
	Beyond time.Duration
	// Send makes the call, and is called again for the one retry, with another sent and notAfter. notAfter is the server's
	// time in ms, 0 for none. The script's writes hold from sent on, at the earliest.
	Send func(ctx context.Context, sent time.Time, notAfter int64) (rueidis.RedisMessage, error)
	// Decode reads the reply.
	Decode func(rueidis.RedisMessage) (R, error)

	// Runs is set by Run: how long after its send the last request may run if it was not answered, which is until its
	// not-after. Where the server's time is not known nothing refuses the request, and Runs is when it has arrived in all
	// likelihood. (A time would put t on the heap.)
	Runs time.Duration
}

// Run makes the call. The reply is valid if the error is nil, and with IsUnreplicated. ErrUnavailable: the request came
// too late, or Send said so. Other errors are those of Send and Decode.
func (t *Timed[R]) Run(ctx context.Context, runner *Runner) (reply R, err error) {
	for again := false; ; again = true {
		sent := time.Now()
		end := t.notAfter(ctx, runner, sent)
		notAfter := runner.Clock.At(t.Key, end)
		if t.Runs = end.Sub(sent); notAfter == 0 {
			t.Runs = t.giveUp(runner)
		}
		message, err := t.Send(ctx, sent, notAfter)
		received := time.Now()
		if err != nil && !IsUnreplicated(err) {
			return reply, err
		}
		got, bad := t.Decode(message)
		if bad != nil {
			return reply, bad
		}
		server, late := got.Clock()
		if !late {
			runner.Clock.Learn(t.Key, server, sent, received)
			return got, err
		}
		runner.Clock.Relearn(t.Key, server, sent, received)
		if again {
			// A copy of the key: the error would keep t, and with it Send, on the heap in every call.
			why := errTooLate
			if deadline, ok := ctx.Deadline(); ok && deadline.Before(sent.Add(runner.timeout)) { // for that caller
				why = errs.Cut(why)
			}
			return reply, fmt.Errorf("%w: %q: %w", errs.ErrUnavailable, strings.Clone(t.Key), why)
		}
	}
}

var errTooLate = errors.New("the request reached the server too late")

// notAfter is the instant at which the caller gives up on a request sent at sent. Clock.At turns it into the server's
// time and rounds it down: a request is refused a moment too soon, never granted after its caller left, but for the
// rest of a millisecond (see LastRun).
func (t *Timed[R]) notAfter(ctx context.Context, runner *Runner, sent time.Time) time.Time {
	end := sent.Add(t.giveUp(runner))
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(t.Beyond).Before(end) {
		return deadline.Add(t.Beyond)
	}
	return end
}

func (t *Timed[R]) giveUp(runner *Runner) time.Duration {
	if t.GiveUp == 0 {
		return runner.timeout
	}
	return t.GiveUp
}
