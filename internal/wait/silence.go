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

// Silence logs that a server does not answer the waiting calls, and that it answers again: one line each, however many
// calls wait, because a caller that waits without an end would otherwise wait through an outage without a word about
// it.
//
// A server is silent from the first request of a waiter that it does not answer until the first one that it does. Of
// the nodes of a Cluster one may be silent and the others not, so the outage is that of the slot that was silent first:
//
//	slot 1        slot 2        log
//	no answer     answer        does not answer
//	no answer     no answer     nothing
//	answer        no answer     answers again; an outage of slot 2 begins
//
// An outage to which no request has added for a while is forgotten. Then the next answer, of any slot, ends it.
type Silence struct {
	log     *slog.Logger
	limit   time.Duration
	cluster bool

	silent       atomic.Bool // an outage has begun: answers are looked at only then
	mu           sync.Mutex
	scope        string    // of the outage
	silentSince  time.Time // zero: there is no outage
	lastFailedAt time.Time // when a request last was not answered in its scope
	logged       bool
	endedAt      time.Time // of the last outage
}

const (
	// silentCalls is for how many call timeouts a server is silent before that is logged.
	silentCalls = 3
	// forever is longer than anybody looks at a log.
	forever = 365 * 24 * time.Hour
	// forgetAfter is how much longer than that an outage lasts to which no request adds. Waiters ask more often.
	forgetAfter = 2 * MaxPoll
)

// NewSilence returns a Silence that logs to log, of a client that gives a request callTimeout.
func NewSilence(client rueidis.Client, callTimeout time.Duration, log *slog.Logger) *Silence {
	return &Silence{log: log, limit: silentCalls * min(callTimeout, forever),
		cluster: client.Mode() == rueidis.ClientModeCluster}
}

// scopeOf returns what is silent or not by itself. A request to several servers has a scope of its own, because the
// server of this client may answer it while the others do not.
func (s *Silence) scopeOf(request *Request) string {
	switch {
	case request.Several:
		return "several " + request.QueueKey
	case s.cluster:
		return strconv.Itoa(int(keyname.Slot(request.QueueKey)))
	}
	return ""
}

// failed is called when a request was not answered that was made at began, for a caller that goes on waiting.
func (s *Silence) recordFailure(request *Request, began time.Time, err error) {
	if s == nil {
		return
	}
	now, scope := time.Now(), s.scopeOf(request)
	s.mu.Lock()
	if s.silentSince.IsZero() || s.isForgotten(now) {
		if s.scope = scope; !s.logged {
			s.silentSince = began
			if began.Before(s.endedAt) { // a request of before that answer is no word about the time after it
				s.silentSince = s.endedAt
			}
		}
		s.silent.Store(true)
	}
	tell := false
	if scope == s.scope {
		s.lastFailedAt = now
		tell = !s.logged && now.Sub(s.silentSince) >= s.limit
		s.logged = s.logged || tell
	}
	silence := now.Sub(s.silentSince)
	s.mu.Unlock()
	if tell {
		s.log.Warn("redlatch: the server does not answer those who wait; they go on asking", "name", request.Name, "silence",
			silence, "error", err)
	}
}

// answered is called when the server has answered a request.
func (s *Silence) recordAnswer(request *Request) {
	if s == nil || !s.silent.Load() {
		return
	}
	now, scope := time.Now(), s.scopeOf(request)
	s.mu.Lock()
	over := scope == s.scope || s.isForgotten(now)
	tell, silence := over && s.logged, now.Sub(s.silentSince)
	if over {
		s.silentSince, s.logged, s.endedAt = time.Time{}, false, now
		s.silent.Store(false)
	}
	s.mu.Unlock()
	if tell {
		s.log.Info("redlatch: the server answers those who wait again", "name", request.Name, "silence", silence)
	}
}

// isForgotten reports whether no request has added to the outage for a while. Called with mu held.
func (s *Silence) isForgotten(now time.Time) bool {
	return now.Sub(s.lastFailedAt) > s.limit+forgetAfter
}
