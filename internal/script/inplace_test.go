package script_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// hooked is a client with a hook, such as one that traces: pubsub.Options.NewClient is for these.
type hooked struct {
	rueidis.Client
	before func(context.Context)
}

func (h *hooked) Do(ctx context.Context, c rueidis.Completed) rueidis.RedisResult {
	if h.before != nil {
		h.before(ctx)
	}
	return h.Client.Do(ctx, c)
}

// A hook may hand its call's context to something that goes on for a while, such as an exporter, and that derives its
// own. It must end once, with its own call: not with a later call that another user cancels. Package context panics at
// a context that has ended without an error, on a goroutine of its own, which nobody recovers.
func TestInPlace_HookDerivesContexts_TheyEndWithTheCall(t *testing.T) {
	h := &hooked{Client: redistest.Embedded(t).Client(t)}
	r := script.NewRunner(h, 10*time.Second)
	request, stop := context.WithCancel(context.WithValue(within(t), valueKey{}, "span"))
	defer stop()
	for round := range 50 {
		var derived, own context.Context
		for range 2 { // the first makes the server one that has just answered, so the second is made in place
			h.before = func(ctx context.Context) {
				c, cancel := context.WithTimeout(ctx, time.Hour)
				t.Cleanup(cancel)
				own, derived = ctx, c
			}
			redistest.NoError(r.Attempt(request, call("k")))(t)
			_, bounded := own.Deadline()
			require.True(t, bounded)
			for _, c := range []context.Context{own, derived} {
				select {
				case <-c.Done():
				case <-time.After(slack):
					t.Fatal("the call is over, and its context lasts")
				}
				require.ErrorIs(t, c.Err(), context.Canceled)
				require.ErrorIs(t, context.Cause(c), context.Canceled)
				require.Equal(t, "span", c.Value(valueKey{}))
			}
		}
		other, leave := context.WithCancel(context.Background()) // the request of another user, who leaves
		h.before = func(ctx context.Context) {
			leave()
			<-ctx.Done()
		}
		_, err := r.Attempt(other, call("k"))
		require.ErrorIs(t, err, context.Canceled, "round %d", round)
	}
}

type valueKey struct{}

// contextOfCall is the context of a call that is made in place. during runs with it before the call is sent.
func contextOfCall(t *testing.T, parent context.Context, during func(own context.Context)) (own context.Context) {
	h := &hooked{Client: redistest.Embedded(t).Client(t)}
	r := script.NewRunner(h, 10*time.Second)
	_, err := r.Attempt(within(t), call("k")) // the server has answered a moment ago: the next call is made in place
	require.NoError(t, err)
	h.before = func(ctx context.Context) {
		own = ctx
		during(ctx)
	}
	_, _ = r.Attempt(parent, call("k"))
	require.NotNil(t, own)
	return own
}

func TestInPlace_ContextOfTheCall_EndsAsOneOfPackageContext(t *testing.T) {
	ignore := func(context.Context) {}
	ask := func(ctx context.Context) { ctx.Done() }
	for name, during := range map[string]func(context.Context){"nobody asked for Done": ignore, "asked for Done": ask} {
		t.Run(name, func(t *testing.T) {
			own := contextOfCall(t, context.WithValue(t.Context(), valueKey{}, "span"), during)
			require.Equal(t, context.Canceled, own.Err())
			require.Equal(t, context.Canceled, context.Cause(own))
			require.Equal(t, "span", own.Value(valueKey{}))
			select {
			case <-own.Done():
			default:
				t.Error("the call is over, and its context lasts")
			}
			derived, stop := context.WithCancel(own)
			defer stop()
			require.Equal(t, context.Canceled, derived.Err())
		})
	}
	t.Run("the caller leaves", func(t *testing.T) {
		cause := errors.New("left")
		parent, leave := context.WithCancelCause(t.Context())
		contextOfCall(t, parent, func(own context.Context) {
			require.NoError(t, own.Err())
			leave(cause)
			require.Equal(t, context.Canceled, own.Err())
			require.Equal(t, cause, context.Cause(own))
			<-own.Done()
			require.Equal(t, cause, context.Cause(own))
		})
	})
}

// A shared call ends with the patience of its callers, who came a moment before the call. Otherwise each would get a
// goroutine of its own.
func TestInPlace_CtxLeavesMostOfTheCallTimeout_IsEnough(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *redistest.Server, client rueidis.Client) {
		var end time.Time
		h := &hooked{Client: client, before: func(ctx context.Context) { end, _ = ctx.Deadline() }}
		r := script.NewRunner(h, 10*time.Second)
		time.Sleep(time.Millisecond) // a reply at the time 0 would be none
		redistest.NoError(r.Attempt(t.Context(), call("k")))(t)
		for _, left := range []time.Duration{9 * time.Second, 8 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			redistest.NoError(r.Attempt(ctx, call("k")))(t)
			cancel()
			inPlace := time.Until(end) == left // a flight has no end of its caller's
			require.Equal(t, left == 9*time.Second, inPlace, "%v", left)
		}
	})
}

func TestInPlace_ServerFallsSilent_EndsWithTheCtx(t *testing.T) {
	for _, pipelining := range []bool{false, true} {
		redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
			proxy := redistest.NewProxy(t, servers[0])
			option := proxy.Server().Option()
			option.AlwaysPipelining = pipelining
			client := redistest.NoError(rueidis.NewClient(option))(t)
			t.Cleanup(client.Close)
			r := script.NewRunner(client, time.Second)
			time.Sleep(time.Millisecond)
			redistest.NoError(r.Attempt(t.Context(), call("k")))(t)
			proxy.BlackHole(redistest.Up)
			ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := r.Attempt(ctx, call("k"))
			require.Equal(t, 900*time.Millisecond, time.Since(began))
			require.ErrorIs(t, err, errs.ErrUnknownOutcome)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}
