package session

import (
	"context"
	"log/slog"
	"time"
	"weak"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// Calls are the session of a client that holds nothing: it makes calls, and finishes some in the background.
type Calls struct {
	*Session
	complaints complaints
}

// NewCalls is New for such a client.
func NewCalls(h *pubsub.Hub, pkg, keeps string, o Options) (*Calls, error) {
	s, err := New(h, pkg, keeps, o)
	if err != nil {
		return nil, err
	}
	return &Calls{Session: s, complaints: complaints{to: s.Logger}}, nil
}

// Client is the client that all is sent by.
func (c *Calls) Client() rueidis.Client { return c.Hub.Client() }

// Prefix is what stands before every name.
func (c *Calls) Prefix() string { return c.KeyPrefix }

// Timeout is for how long one attempt waits for its reply.
func (c *Calls) Timeout() time.Duration { return c.CallTimeout }

// Attempt makes one attempt of call.
func (c *Calls) Attempt(ctx context.Context, call script.Call) (rueidis.RedisMessage, error) {
	return c.Runner.Attempt(ctx, call)
}

// Confirmed is call with what it writes confirmed by as many replicas as the options say.
func (c *Calls) Confirmed(call script.Call) script.Call {
	call.Replicas, call.ReplicasWait = c.MinReplicas, c.ReplicaTimeout
	return call
}

// Mark is the argument of a script that says whether its grants are to be confirmed.
func (c *Calls) Mark() string {
	if c.MinReplicas > 0 {
		return "1"
	}
	return "0"
}

// Wanted is for how long a request made now may still be wanted.
func (c *Calls) Wanted(ctx context.Context) time.Duration {
	if d, ok := ctx.Deadline(); ok {
		return min(c.Bound(), max(0, time.Until(d)))
	}
	return c.Bound()
}

// Now is the monotonic time since the client was made, in ns; At is the instant of such a time.
func (c *Calls) Now() int64             { return int64(time.Since(c.Base)) }
func (c *Calls) At(now int64) time.Time { return c.Base.Add(time.Duration(now)) }

// RemoveAfter has what is left of an object removed some time after its retention, which is as long as that from now, is
// over: see ends.lua. call is of a script that does so when it finds the object over, and otherwise no harm. If this process
// is gone by then, or its client, whoever else calls does it.
func (c *Calls) RemoveAfter(d time.Duration, call script.Call) {
	client := weak.Make(c)
	time.AfterFunc(d+d/1000+time.Second, func() { // two clocks may run apart
		c := client.Value()
		if c == nil || c.Closed() {
			return
		}
		c.Finish(func() { c.Do(context.Background(), call) }) // if that fails, they expire
	})
}

// Complain logs something in the background that failed for good: what says what that means. Of one kind it logs at most one
// line in 10 s.
func (c *Calls) Complain(what, name string, err error) { c.complaints.log(what, name, err) }

// Logger is the options' logger.
func (c *Calls) Logger() *slog.Logger { return c.Session.Logger }
