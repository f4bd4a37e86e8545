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

// Silence logs that a server does not answer those who wait, and that it answers again: one line each, however many
// wait, because a caller that waits without an end would otherwise wait through an outage without a word about it.
//
// A server is silent from the first request of a waiter that it does not answer until one that it does. Of the nodes of
// a Cluster one may be silent and the others not, so each slot counts by itself; there is one line for all:
//
//	slot 1        slot 2        log
//	no answer     no answer
//	no answer     no answer     does not answer
//	answer                      nothing: slot 2 is still silent
//	              answer        answers again
//
// What was not asked for a while is forgotten. Then the next answer, of any slot, ends the outage.
type Silence struct {
	log     *slog.Logger
	limit   time.Duration
	cluster bool

	some atomic.Bool // silent or logged is not empty: answers are looked at only then
	mu   sync.Mutex
	// silent are the spans without an answer, by what is asked: see place.
	silent map[string]span
	logged time.Time // since when it was silent, as the log has it; zero: it was not logged
	ended  time.Time // when something was last answered that had been silent
}

type span struct{ began, last time.Time }

const (
	// silentCalls is for how many call timeouts a server is silent before that is logged.
	silentCalls = 3
	// forever is longer than anybody looks at a log.
	forever = 365 * 24 * time.Hour
	// forgetAfter is how much longer than that a span lasts that no request adds to. Waiters ask more often.
	forgetAfter = 2 * MaxPoll
)

// NewSilence returns a Silence that logs to log, of a client that gives a request callTimeout.
func NewSilence(client rueidis.Client, callTimeout time.Duration, log *slog.Logger) *Silence {
	return &Silence{log: log, limit: silentCalls * min(callTimeout, forever),
		cluster: client.Mode() == rueidis.ClientModeCluster, silent: map[string]span{}}
}

// scope is what is silent or not by itself. several: the request asks several servers, of which this client's may be
// well.
func (s *Silence) scope(key string, several bool) string {
	switch {
	case several:
		return "several " + key
	case s.cluster:
		return strconv.Itoa(int(keyname.Slot(key)))
	}
	return ""
}

// failed is called when a request for key, which was made at began for one who goes on waiting, was not answered.
func (s *Silence) failed(r *Request, began time.Time, err error) {
	if s == nil {
		return
	}
	now, scope := time.Now(), s.scope(r.QueueKey, r.Several)
	s.mu.Lock()
	s.forget(now)
	x, known := s.silent[scope]
	if !known {
		if x.began = began; began.Before(s.ended) { // a request of before that answer is no word about the time after it
			x.began = s.ended
		}
	}
	x.last = now
	s.silent[scope] = x
	s.some.Store(true)
	tell := s.logged.IsZero() && now.Sub(x.began) >= s.limit
	if tell {
		s.logged = x.began
	}
	s.mu.Unlock()
	if tell {
		s.log.Warn("redlatch: the server does not answer those who wait; they go on asking", "name", r.Name, "silence",
			now.Sub(x.began), "error", err)
	}
}

// answered is called when the server has answered a request.
func (s *Silence) answered(r *Request) {
	if s == nil || !s.some.Load() {
		return
	}
	now := time.Now()
	s.mu.Lock()
	scope := s.scope(r.QueueKey, r.Several)
	if _, was := s.silent[scope]; was {
		s.ended = now
	}
	delete(s.silent, scope)
	s.forget(now)
	since := s.logged
	if len(s.silent) == 0 {
		s.logged = time.Time{}
		s.some.Store(false)
	} else {
		since = time.Time{}
	}
	s.mu.Unlock()
	if !since.IsZero() {
		s.log.Info("redlatch: the server answers those who wait again", "name", r.Name, "silence", now.Sub(since))
	}
}

// forget is called with mu held.
func (s *Silence) forget(now time.Time) {
	for scope, x := range s.silent {
		if now.Sub(x.last) > s.limit+forgetAfter {
			delete(s.silent, scope)
		}
	}
}
