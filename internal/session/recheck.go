package session

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Rechecks gathers the questions of waiters for which most probably nothing has changed (wait.Rechecker), and asks them
// in one call. It is full with mostRechecks, which take the server some 100 us, or goes when the first has waited for
// recheckWindow.
type Rechecks struct {
	Session *Session
	Script  *script.Script // its keys and arguments are those of all questions; its reply is an integer for each

	mu    sync.Mutex
	open  []Recheck
	timer *time.Timer // nil: open is empty
}

// Recheck is one question.
type Recheck struct {
	Keys, Args []string
	Answered   func(reply int64) // called once, unless the session ends; 0: there was no answer
}

const (
	mostRechecks  = 64
	recheckWindow = 50 * time.Millisecond
)

// Add adds a question. It does not block.
func (r *Rechecks) Add(q Recheck) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = append(r.open, q)
	if r.timer == nil {
		r.timer = time.AfterFunc(recheckWindow, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.send()
		})
	}
	if len(r.open) == mostRechecks {
		r.send()
	}
}

// send sends what was gathered. Called with mu held.
func (r *Rechecks) send() {
	all, s := r.open, r.Session
	if len(all) == 0 {
		return // it was full, and gone, when the timer went off
	}
	r.timer.Stop()
	r.open, r.timer = nil, nil
	if s.Context().Err() != nil { // the waiter has left
		return
	}
	s.Finish(func() {
		var keys, args []string
		for _, q := range all {
			keys, args = append(keys, q.Keys...), append(args, q.Args...)
		}
		// for a CallTimeout at most
		m, err := s.Runner.Attempt(context.Background(), script.Call{Script: r.Script, Keys: keys, Args: args})
		replies, bad := m.AsIntSlice()
		for i, q := range all {
			if err != nil || bad != nil || len(replies) != len(all) {
				q.Answered(0)
			} else {
				q.Answered(replies[i])
			}
		}
	})
}
