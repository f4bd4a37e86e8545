package contract_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// A proxy, or what another program keeps under a name, may answer what no script does. That is neither a grant nor a
// refusal, and says what was asked.
func TestVerb_ReplyOfAnotherKind_IsAnError(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	var garbling atomic.Bool
	o := redlatch.Options{CallTimeout: time.Minute,
		Locks:      func(o *rlock.Options) { o.WatchdogTimeout = time.Hour }, // renewals are garbled, too
		Elections:  func(o *election.Options) { o.WatchdogTimeout = time.Hour },
		Semaphores: func(o *rsemaphore.Options) { o.WatchdogTimeout = time.Hour },
		Limiters:   func(o *ratelimit.Options) { o.AllowTimeout = time.Minute }}
	o.Hub = func(o *pubsub.Options) {
		o.NewClient = func(o rueidis.ClientOption) (rueidis.Client, error) {
			c, err := rueidis.NewClient(o)
			return &rig.Garbled{Client: c, Match: func(args []string) bool {
				return garbling.Load() && !slices.Contains([]string{"PING", "PUBLISH", "PUBSUB", "INFO", "CLIENT"}, args[0])
			}}, err
		}
	}
	red, other := open(t, s, o), open(t, s, patient)
	o.KeyPrefix = "back:"
	calls, back := unwaiting(t, red, other), releases(t, open(t, s, o))
	calls.warm()
	garbling.Store(true)
	t.Cleanup(func() { garbling.Store(false) }) // or closing takes long
	for verb, call := range calls {
		switch verb {
		case "Hub.Publish", "Counter.Cached": // send nothing that is garbled
		case "Counter.Set", "Limiter.Set", "Limiter.Unset", "Limiter.Reset": // any reply means that it was done
			require.NoError(t, call(t.Context()), verb)
		default:
			err := call(t.Context())
			require.Error(t, err, verb)
			require.NotErrorIs(t, err, errs.ErrNotAcquired, verb)
			require.NotErrorIs(t, err, errs.ErrUnavailable, "%s: it may have run", verb)
			if !errors.Is(err, errs.ErrWrongType) { // a key with any text would be that
				require.ErrorContains(t, err, "unexpected reply", verb)
			}
		}
	}
	for verb, call := range back {
		require.ErrorContains(t, call(t.Context()), "unexpected reply", verb)
	}
	garbling.Store(false)
	next := open(t, s, redlatch.Options{CallTimeout: time.Minute, KeyPrefix: "back:"}).Locks()
	for _, l := range []*rlock.Lock{next.Reentrant("l"), next.Fair("fair"), next.Plain("p"), next.ReadWrite("r").Write()} {
		hold, err := l.TryLock(t.Context(), time.Minute, 0)
		require.NoError(t, err, "the release goes on in the background")
		require.NoError(t, hold.Unlock(t.Context()))
	}
}
