package hold

import (
	"context"
	"fmt"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
)

// Keeper keeps the holds of one client, and its waiting calls. The fields are set by NewKeeper and not changed
// afterwards. It is safe for concurrent use.
type Keeper struct {
	*session.Session
	Noun string // what a handle is called: "hold"
	Verb string // the method that releases it: "Unlock"

	Engine  *lease.Engine
	Waiters *wait.Waiters
	Retrier *Retrier
	ID      string       // the connection id: the first half of every owner
	Seed    [16]byte     // the bytes of ID
	owners  atomic.Int64 // the number of owners so far: the second half of the last owner
}

// NewKeeper makes the keeper of a session. It fills in the fields of config that depend on the session, whose Close
// ends the holds. Waits and wake-ups are reported to the Observer.
func NewKeeper(s *session.Session, noun, verb string, config lease.Config) *Keeper {
	keeper := &Keeper{Session: s, Noun: noun, Verb: verb, Retrier: NewRetrier()}
	keeper.ID, keeper.Seed = lease.NewConnectionID(config.Heartbeats.Trust,
		s.Hub.Client().Mode() == rueidis.ClientModeCluster)
	keeper.Waiters = wait.NewWaiters(s.Hub, s.PollCap, func(ctx context.Context, name string, byMessage bool) {
		s.Tell(ctx, errs.Event{Kind: errs.EventWoken, Name: name, ByMessage: byMessage})
	}, func(ctx context.Context, name string) { s.Tell(ctx, errs.Event{Kind: errs.EventWaiting, Name: name}) })
	keeper.Waiters.Unclaimed = keeper.Retrier.Kick
	keeper.Waiters.Silence = wait.NewSilence(s.Hub.Client(), s.CallTimeout, s.Logger)
	config.ConnectionID, config.Client, config.Runner, config.Log = keeper.ID, s.Hub.Client(), s.Runner, s.Logger
	config.Replicas, config.ReplicasWait = s.MinReplicas, s.ReplicaTimeout
	keeper.Engine = lease.New(config)
	s.Keep(keeper)
	return keeper
}

// NewOwner returns an id that was never used before. A label becomes part of the id. There it needs no key of its own
// and lives exactly as long as the hold. Redisson does not notice it, because Redisson only compares owners.
func (k *Keeper) NewOwner(label string) string {
	var room [64]byte // so that the id needs one allocation
	id := string(strconv.AppendInt(append(append(room[:0], k.ID...), ':'), k.owners.Add(1), 10))
	if label != "" {
		id += ":" + url.PathEscape(label)
		if head, ok := strings.CutSuffix(id, ":write"); ok {
			id = head + ":%77rite" // Redisson's mark of a writer
		}
	}
	return id
}

// TellOf reports an event of a lease outside of any call.
func (k *Keeper) TellOf(lease *lease.Lease, kind errs.EventKind, err error) {
	k.Tell(k.Engine.Values(lease), errs.Event{Kind: kind, Name: lease.Name, Err: err})
}

// releaseError returns the error of a release.
func (k *Keeper) releaseError(name string, reason error) error {
	return k.Error(fmt.Errorf("%s %q: %w", strings.ToLower(k.Verb), name, reason))
}

// End implements session.Holds.
func (k *Keeper) End() {
	k.Waiters.Close()
	k.Engine.EndAll(errs.ErrClosed)
	if k.Engine.Unrenewed() && k.Count() > 0 {
		// A hold that is never renewed may have been left to its lease on purpose, and then has no handle. Only the collector
		// finds that out, which in a short or an idle process has not run since
		// (TestClose_PermitsLeftToTheirLease_DoesNotWait).
		k.Finish(runtime.GC)
	}
}

// Stop implements session.Holds.
func (k *Keeper) Stop(ctx context.Context) error {
	names := k.Engine.Names()
	pending := k.Retrier.Drain(ctx)
	k.Engine.Stop()
	k.Retrier.Stop()
	return leftovers(ctx, names, pending)
}

// leftovers is the error of a Close whose ctx ended first, with the names of the holds that are left to their leases.
// It is nil if nothing is left. pending are the names of releases that were not confirmed.
func leftovers(ctx context.Context, names, pending []string) error {
	var problems []string
	if len(names) > 0 {
		problems = append(problems, fmt.Sprintf("%d still held, left to their leases: %s", len(names), shorten(names)))
	}
	if len(pending) > 0 {
		problems = append(problems,
			fmt.Sprintf("%d unconfirmed releases given up, left to their leases: %s", len(pending), shorten(pending)))
	}
	switch reason := context.Cause(ctx); {
	case len(problems) == 0:
		return nil
	case reason == nil:
		return fmt.Errorf("close: %s", strings.Join(problems, "; "))
	default:
		return fmt.Errorf("close: %s: %w", strings.Join(problems, "; "), reason)
	}
}

// shorten joins names, at most 20 of them, so that an error stays readable.
func shorten(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}
