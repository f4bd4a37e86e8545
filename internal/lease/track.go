package lease

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// tracker keeps one connection on which the server remembers the keys that renewals read, and reports when one of them
// is changed or removed (server-assisted client-side caching: CLIENT TRACKING OPTIN NOLOOP). The connection is its own
// for two reasons. Its own writes must not count (NOLOOP); on the user's connection that would make cached reads stale.
// And a client that observes invalidations pipelines on every connection, which makes each single call slower.
//
// A key is tracked by renewing its lease here: CLIENT CACHING YES, then the script. The script ends with a read of the
// key, because with NOLOOP the connection's own write drops the key from tracking. So keeping a key tracked costs
// nothing beyond the renewals that are needed anyway; a hold older than trackAfter is looked at once for it.
//
// In a Cluster every node would need such a connection, and the tracker would have to follow moving slots. So there the
// keys are tracked on the client's own connections, if its invalidations are observed. The client's own renewals count
// there: each causes one look, which writes nothing and so causes no other.
//
// An invalidation is a hint, never proof. The leases of that key are looked at, which also finds a lease that was
// shortened (see applyServerLease). After a lost connection all leases are looked at, so that their keys are tracked on
// the next connection.
type tracker struct {
	engine  *Engine
	client  rueidis.Client
	unwatch func() // in a Cluster: ends the observation of the client's own connections; nil: the connection is its own
	start   sync.Once

	mu   sync.Mutex
	conn rueidis.DedicatedClient // its own connection; nil while there is none
}

// newTracker returns nil in a Cluster if nobody observes the invalidations of the client.
func newTracker(engine *Engine, config Config) *tracker {
	tracker := &tracker{engine: engine, client: config.Client}
	if config.Client.Mode() != rueidis.ClientModeCluster {
		return tracker
	}
	if config.Watch == nil {
		return nil
	}
	stop, observed := config.Watch(engine.invalidated)
	if !observed {
		return nil
	}
	tracker.unwatch = stop
	return tracker
}

const (
	// trackAfter is the age from which on a hold's key is tracked: a shorter hold costs no call for it.
	trackAfter = 50 * time.Millisecond
	// trackSetup bounds the one exchange that switches tracking on.
	trackSetup = 5 * time.Second
	// maxTrackFailures is the number of failures in a row after which a server counts as one without tracking. A failure
	// counts only if the server answers other commands.
	maxTrackFailures = 3
)

// lacks returns the list of commands that the server is known to refuse.
func (t *tracker) lacks() *errs.Lacks { return t.engine.runner.Lacks }

// tracks reports whether keys are tracked at all.
func (t *tracker) tracks() bool { return t != nil && !t.lacks().Has(errs.LackTracking) }

// connection returns the connection on which renewals make the server track their keys, or nil. The first call begins
// to make it.
func (t *tracker) connection() script.Conn {
	switch {
	case !t.tracks():
		return nil
	case t.unwatch != nil:
		return t.client
	}
	t.start.Do(func() { go t.run() })
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		return nil
	}
	return t.conn
}

// state describes the tracking in a State.
func (t *tracker) state() string {
	if !t.tracks() {
		return "off"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unwatch == nil && t.conn == nil {
		return "connecting"
	}
	return "on"
}

// stop ends the observation of the client's own connections. A connection of its own ends with the engine.
func (t *tracker) stop() {
	if t != nil && t.unwatch != nil {
		t.unwatch()
	}
}

// run keeps the connection until the engine stops. Stop does not wait for it: in rueidis neither a dial nor a close
// takes a context, and a silent server holds both up for seconds, which would be added to those of Close. run ends by
// itself when they do, and closes its connection (TestStop_ConnectionNotThereYet_DoesNotWait).
//
// An old or restricted server does not track: then only renewals notice a loss. The server says so by an error, or a
// proxy closes the connection, or does not answer, at a command that it does not know. An outage has the same effect at
// any command. So a failure counts only if the server has just answered another command on that connection, and only
// several failures in a row mean that it does not track:
//
//	tracker                      server
//	PING ----------------------> PONG
//	CLIENT TRACKING -----------> ends: the first failure
//	PING ----------------------> (an outage: nothing)    no failure; the count begins anew
func (t *tracker) run() {
	trackFailures := 0
	for failures := 0; t.engine.ctx.Err() == nil && !t.lacks().Has(errs.LackTracking); failures++ {
		connected, refused, err := t.serve()
		switch {
		case connected:
			failures, trackFailures = 0, 0
		case !refused:
			trackFailures = 0
		default:
			if trackFailures++; trackFailures == maxTrackFailures {
				t.lacks().Add(errs.LackTracking, err)
			}
		}
		script.Pause(t.engine.ctx, 4*script.Backoff(failures))
	}
}

// serve keeps one connection until it is lost. connected reports that it tracked keys. refused reports that the server
// answers PING, but failed at CLIENT TRACKING with err.
func (t *tracker) serve() (connected, refused bool, err error) {
	conn, release := t.client.Dedicate()
	defer func() {
		conn.Close()
		release()
	}()
	if t.engine.ctx.Err() != nil {
		return false, false, nil
	}
	lost := conn.SetOnInvalidations(func(msgs []rueidis.RedisMessage) {
		var keys []string
		for _, msg := range msgs {
			if key, err := msg.ToString(); err == nil {
				keys = append(keys, key)
			}
		}
		t.engine.invalidated(keys)
	})
	ctx, cancel := context.WithTimeout(t.engine.ctx, trackSetup)
	defer cancel()
	if conn.Do(ctx, conn.B().Ping().Build()).NonRedisError() != nil {
		return false, false, nil
	}
	err = conn.Do(ctx, conn.B().ClientTracking().On().Optin().Noloop().Build()).Error()
	if _, refused := rueidis.IsRedisErr(err); refused {
		if !script.NotAnswered(script.Explain("CLIENT TRACKING", err)) {
			t.lacks().Add(errs.LackTracking, err)
		}
		return false, false, nil
	}
	if err != nil {
		return false, t.engine.ctx.Err() == nil, err
	}
	t.mu.Lock()
	t.conn = conn
	t.mu.Unlock()
	t.engine.CheckAll() // earlier holds are not tracked here yet, and their loss may have gone unnoticed
	select {
	case <-lost: //nolint:errcheck // lost, whatever the error
	case <-t.engine.ctx.Done():
	}
	t.mu.Lock()
	t.conn = nil
	t.mu.Unlock()
	return true, false, nil
}

// invalidated is called when these keys were changed or removed or, if nil, when any may have been.
func (e *Engine) invalidated(keys []string) {
	if keys == nil {
		e.CheckAll()
	}
	for _, key := range keys {
		e.Check(key)
	}
}

// Check makes the leases of key due for a look at once, because the key may have changed.
func (e *Engine) Check(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.now()
	for lease := e.entries[e.entry(key)]; lease != nil; lease = lease.sibling {
		if lease.Untracked {
			continue
		}
		lease.schedule.checkAt = now
		e.rescheduled(lease)
	}
}

// CheckAll makes all leases due for a look, except leases that are too young to have been looked at yet.
//
// Age alone does not show which leases are too young: a lease may be looked at a little before it is trackAfter old,
// together with others. If that was before the connection was there, or the key was flushed in the rest of that time,
// it is not tracked now (TestHint_Everything_CoversALeaseCheckedEarly).
func (e *Engine) CheckAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.now()
	for _, lease := range e.leases {
		if first := lease.schedule.start.Add(trackAfter); lease.Untracked || lease.schedule.checkAt == first {
			continue
		}
		lease.schedule.checkAt = now
	}
	heap.Init(&e.leases)
	if len(e.leases) > 0 {
		e.wakeBy(e.leases[0].nextEvent())
	}
}
