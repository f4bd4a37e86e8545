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

// tracker keeps one connection on which the server remembers which keys the renewals read, and says so when one of them
// is changed or removed (server-assisted client-side caching: CLIENT TRACKING OPTIN NOLOOP). The connection is its own
// for two reasons. Its own writes must not count (NOLOOP); on the user's connection that would make cached reads
// stale. And a client that observes invalidations pipelines on every connection, which makes each single call slower.
//
// A key is tracked by renewing its lease here: CLIENT CACHING YES, then the script. The script ends with a read of the
// key, because with NOLOOP the connection's own write drops the key from tracking. So keeping a key tracked costs
// nothing beyond the renewals that are needed anyway; a hold older than trackAfter is looked at once for it.
//
// In a Cluster every node would need such a connection, and the tracker a way to follow moving slots. So there the keys
// are tracked on the client's own connections, if its invalidations are observed. The client's own renewals count
// there: each causes one look, which writes nothing and so causes no other.
//
// An invalidation is a hint, never proof. The leases of that key are looked at, which also finds out that a lease was
// shortened (see applyServerLease). A lost connection has all leases looked at, which has their keys tracked on the
// next one.
type tracker struct {
	e      *Engine
	client rueidis.Client
	start  sync.Once

	mu   sync.Mutex
	conn rueidis.DedicatedClient // nil while there is no connection
}

const (
	// trackAfter is the age from which a hold's key is tracked: a shorter hold costs no call for it.
	trackAfter = 50 * time.Millisecond
	// trackSetup bounds the one exchange that switches tracking on.
	trackSetup = 5 * time.Second
	// trackTries is after how many times in a row a server does not track that answers, but not this.
	trackTries = 3
)

// lacks are what the server is known to lack.
func (t *tracker) lacks() *errs.Lacks { return t.e.runner.Lacks }

// current returns the connection, or nil while there is no connection. The first call starts making it.
func (t *tracker) current() rueidis.DedicatedClient {
	t.start.Do(func() { go t.run() })
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conn
}

// run keeps the connection until the engine stops. Stop does not wait for it: in rueidis neither dialling nor closing
// heeds a context, and a silent server holds both up for seconds, which would be added to those of Close. run ends by
// itself when they do, and closes what it has (TestStop_ConnectionNotThereYet_DoesNotWait).
//
// An old or restricted server does not track: then a loss is noticed by renewals alone. The server says so by an error;
// or a proxy closes the connection, or does not answer, at a command that it does not know. An outage does that too, at
// any command. So it counts only where the server has just answered another command on that connection, and if that
// comes several times in a row:
//
//	tracker                      server
//	PING ----------------------> PONG
//	CLIENT TRACKING -----------> ends: once
//	PING ----------------------> (an outage: nothing)    none; the count begins anew
func (t *tracker) run() {
	unanswered := 0
	for failures := 0; t.e.ctx.Err() == nil && !t.lacks().Has(errs.LackTracking); failures++ {
		up, deaf, err := t.serve()
		switch {
		case up:
			failures, unanswered = 0, 0
		case !deaf:
			unanswered = 0
		default:
			if unanswered++; unanswered == trackTries {
				t.lacks().Add(errs.LackTracking, err)
			}
		}
		script.Pause(t.e.ctx, 4*script.Backoff(failures))
	}
}

// serve keeps one connection until it is lost. up: it was there. deaf: the server answers, but not to this, for which
// err is the reason.
func (t *tracker) serve() (up, deaf bool, err error) {
	conn, release := t.client.Dedicate()
	defer func() {
		conn.Close()
		release()
	}()
	if t.e.ctx.Err() != nil {
		return false, false, nil
	}
	lost := conn.SetOnInvalidations(func(msgs []rueidis.RedisMessage) {
		var keys []string
		for _, m := range msgs {
			if key, err := m.ToString(); err == nil {
				keys = append(keys, key)
			}
		}
		t.e.invalidated(keys)
	})
	ctx, cancel := context.WithTimeout(t.e.ctx, trackSetup)
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
		return false, t.e.ctx.Err() == nil, err
	}
	t.mu.Lock()
	t.conn = conn
	t.mu.Unlock()
	t.e.CheckAll() // holds of before are not tracked here yet, and the loss of one may have gone unnoticed
	select {
	case <-lost: //nolint:errcheck // lost, whatever the error
	case <-t.e.ctx.Done():
	}
	t.mu.Lock()
	t.conn = nil
	t.mu.Unlock()
	return true, false, nil
}

// tracks reports whether keys are tracked here at all.
func (e *Engine) tracks() bool {
	return (e.watched || e.tracker != nil) && !e.runner.Lacks.Has(errs.LackTracking)
}

// tracked returns the connection on which renewals have their keys tracked, or nil.
func (e *Engine) tracked() script.Conn {
	if !e.tracks() {
		return nil
	}
	if e.watched {
		return e.client
	}
	if e.tracker != nil {
		if conn := e.tracker.current(); conn != nil {
			return conn
		}
	}
	return nil
}

// invalidated is called when something has happened to these keys or, if nil, to any.
func (e *Engine) invalidated(keys []string) {
	if keys == nil {
		e.CheckAll()
	}
	for _, key := range keys {
		e.Check(key)
	}
}

// Check has the leases on key asked about at once: something has happened to it.
func (e *Engine) Check(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	for l := e.entries[e.entry(key)]; l != nil; l = l.sibling {
		if l.Untracked {
			continue
		}
		l.checkAt = now
		l.schedule()
		heap.Fix(&e.due, int(l.index))
		e.wakeBy(l.next)
	}
}

// CheckAll has all leases looked at, without the leases that are too young to have been looked at yet.
//
// Age alone would not tell which leases are too young: a lease may be looked at a little before it is trackAfter old,
// together with others. If that was before the connection was there, or the key was flushed in the rest of that time,
// it is not tracked now (TestHint_Everything_CoversALeaseCheckedEarly).
func (e *Engine) CheckAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	for _, l := range e.due {
		if first := l.start.Add(trackAfter); l.Untracked || l.checkAt == first {
			continue
		}
		l.checkAt = now
		l.schedule()
	}
	heap.Init(&e.due)
	if len(e.due) > 0 {
		e.wakeBy(e.due[0].next)
	}
}
