package session

import (
	"sync"
	"time"
)

// failureLogInterval is the minimum time between two lines of one kind. Without it many calls would log when a server
// does not answer.
const failureLogInterval = 10 * time.Second

// failureLog is the time of the last line of each kind.
type failureLog struct {
	mu        sync.Mutex
	lastLines map[string]failureLine
}

type failureLine struct {
	at      time.Time
	skipped int // lines that were not logged since at
}

// Complain logs a failure in the background that is final. The text of the line, message, says what the failure means,
// and is its kind. Complain logs at most one line of a kind in 10 s, and keeps the error for RecentErrors.
func (s *Session) Complain(message, name string, err error) {
	s.recentErrors.Add("background", name, err)
	log := &s.failureLog
	log.mu.Lock()
	last := log.lastLines[message]
	due := time.Since(last.at) >= failureLogInterval
	if due {
		log.lastLines[message] = failureLine{at: time.Now()}
	} else {
		log.lastLines[message] = failureLine{last.at, last.skipped + 1}
	}
	log.mu.Unlock()
	if due {
		s.Logger.Warn("redlatch: "+message, "name", name, "error", err, "more", last.skipped)
	}
}
