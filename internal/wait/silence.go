package wait

import (
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/keyname"
)

// Silence logs that a server does not reply to the waiting calls, and that it replies again: one line each, however
// many calls wait. Otherwise a caller that waits without a limit would wait through an outage without a line in the
// log.
//
// A server is silent from the first request of a waiter without a reply to the next request with a reply. In a Cluster
// one node may be silent while the others are not, so the outage belongs to the slot that was silent first:
//
//	slot 1        slot 2        log
//	no answer     answer        does not answer
//	no answer     no answer     nothing
//	answer        no answer     answers again; an outage of slot 2 begins
//
// If no request of that slot fails for a while, the outage is forgotten. Then the next reply, of any slot, ends it.
type Silence struct {
	log     *slog.Logger
	limit   time.Duration // an outage of this length is logged
	cluster bool

	silent       atomic.Bool // an outage has begun: RecordAnswer does nothing otherwise
	mu           sync.Mutex
	scope        string    // of the outage: see scopeOf
	silentSince  time.Time // zero: there is no outage
	lastFailedAt time.Time // when the outage's scope last failed to reply
	logged       bool      // the outage is in the log
	endedAt      time.Time // when the last outage ended
}

const (
	// silentCalls is the number of call timeouts for which a server is silent before an outage is logged.
	silentCalls = 3
	// forever bounds the call timeout, so that limit does not overflow.
	forever = 365 * 24 * time.Hour
	// forgetAfter, added to limit, is how long an outage without failed requests lasts. Waiters make requests more often.
	forgetAfter = 2 * MaxPoll
)

// NewSilence returns a Silence that logs to log. callTimeout is the client's timeout of a request.
func NewSilence(client rueidis.Client, callTimeout time.Duration, log *slog.Logger) *Silence {
	return &Silence{log: log, limit: silentCalls * min(callTimeout, forever),
		cluster: client.Mode() == rueidis.ClientModeCluster}
}

// scopeOf returns the scope of a request: the slot in a Cluster, and otherwise the server. A request to several servers
// has its own scope, because the server of this client may reply while the others do not.
func (s *Silence) scopeOf(request *Request) string {
	switch {
	case request.MultiServer:
		return "several " + request.QueueKey
	case s.cluster:
		return strconv.Itoa(int(keyname.Slot(request.QueueKey)))
	}
	return ""
}

// recordFailure records that a request, sent at began, got no reply, and that its caller goes on waiting.
func (s *Silence) recordFailure(request *Request, began time.Time, err error) {
	if s == nil {
		return
	}
	now, scope := time.Now(), s.scopeOf(request)
	s.mu.Lock()
	if s.silentSince.IsZero() || s.isForgotten(now) {
		if s.scope = scope; !s.logged {
			s.silentSince = began
			if began.Before(s.endedAt) { // the request was sent before a reply, and proves nothing about later
				s.silentSince = s.endedAt
			}
		}
		s.silent.Store(true)
	}
	shouldLog := false
	if scope == s.scope {
		s.lastFailedAt = now
		shouldLog = !s.logged && now.Sub(s.silentSince) >= s.limit
		s.logged = s.logged || shouldLog
	}
	silence := now.Sub(s.silentSince)
	s.mu.Unlock()
	if shouldLog {
		s.log.Warn("redlatch: the server does not answer waiting calls; they keep asking", "name", request.Name, "silence",
			silence, "error", err)
	}
}

// RecordAnswer records that a request got a reply.
func (s *Silence) RecordAnswer(request *Request) {
	if s == nil || !s.silent.Load() {
		return
	}
	now, scope := time.Now(), s.scopeOf(request)
	s.mu.Lock()
	over := scope == s.scope || s.isForgotten(now)
	shouldLog, silence := over && s.logged, now.Sub(s.silentSince)
	if over {
		s.silentSince, s.logged, s.endedAt = time.Time{}, false, now
		s.silent.Store(false)
	}
	s.mu.Unlock()
	if shouldLog {
		s.log.Info("redlatch: the server answers waiting calls again", "name", request.Name, "silence", silence)
	}
}

// isForgotten reports whether no request of the outage's scope has failed for a while. Called with mu held.
func (s *Silence) isForgotten(now time.Time) bool {
	return now.Sub(s.lastFailedAt) > s.limit+forgetAfter
}
