package errs

import (
	"sync"
	"time"
)

// RecentErrors are the last errors of one client, for the debug page. The zero value is empty, and takes no memory
// before the first Add. RecentErrors is safe for concurrent use.
type RecentErrors struct {
	mu   sync.Mutex
	last []RecentError // newest last
}

// RecentError is an error that occurred once or more.
type RecentError struct {
	At    time.Time // of the last occurrence
	What  string    // the operation that failed: "acquire"
	Name  string    // of the object or channel
	Err   error
	Count int // occurrences, whether or not other errors came between them
}

const (
	maxRecent = 16
	maxAlike  = 8 // of one What and reason, so that the cause stays when all holds of a client are lost at once
)

// expected has the reasons of errors that a program expects. Such errors say nothing about the server or the client.
var expected = map[string]bool{
	"ok": true, "not_acquired": true, "canceled": true, "timeout": true, "closed": true, "released": true, "reentry": true,
	"latch_expired": true, "latch_deleted": true,
}

// Add records that the operation what failed with err, unless a program expects err. Add neither logs nor blocks.
func (t *RecentErrors) Add(what, name string, err error) {
	reason := Reason(err)
	if expected[reason] {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	count, drop, alike := 1, -1, 0
	for i, old := range t.last {
		if old.What != what || Reason(old.Err) != reason {
			continue
		}
		if old.Name == name {
			count, drop, alike = old.Count+1, i, 0
			break
		}
		if alike++; alike == 1 {
			drop = i
		}
	}
	if alike > 0 && alike < maxAlike { // all of them may stay
		drop = -1
	}
	if drop < 0 && len(t.last) == maxRecent {
		drop = 0
	}
	if drop >= 0 {
		copy(t.last[drop:], t.last[drop+1:])
		t.last = t.last[:len(t.last)-1]
	}
	t.last = append(t.last, RecentError{At: time.Now(), What: what, Name: name, Err: err, Count: count})
}

// Last returns the errors, the newest first.
func (t *RecentErrors) Last() []RecentError {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := make([]RecentError, 0, len(t.last))
	for i := len(t.last) - 1; i >= 0; i-- {
		last = append(last, t.last[i])
	}
	return last
}
