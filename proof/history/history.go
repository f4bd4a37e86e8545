// Package history records what clients did with locks, and checks afterwards that one lock can have given these
// answers. It is for tests.
//
// A property such as "at most one holder" is checked over the record, not by counting at the end: a double grant that
// lasted a millisecond leaves no other trace.
package history

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Kind is what was asked for.
type Kind uint8

// Acquire asks for a lock, Release gives one back; AcquireRead and ReleaseRead are of what readers share.
const (
	Acquire Kind = iota
	Release
	AcquireRead
	ReleaseRead
)

func (k Kind) acquires() bool { return k == Acquire || k == AcquireRead }

func (k Kind) shared() bool { return k >= AcquireRead }

// Outcome is how a call ended for its caller.
type Outcome uint8

const (
	// OK: granted, or released.
	OK Outcome = iota
	// Refused: another owner held the lock (Acquire), or this owner did not hold it (Release).
	Refused
	// Unknown: it may have happened, or may happen later.
	Unknown
)

// Forever is the time of an event that has not happened.
const Forever time.Duration = math.MaxInt64

// Op is one call of one client. Times are monotonic, since the log's start.
type Op struct {
	Client       int
	Lock         string
	Owner        int // of this acquisition: never 0, never another's
	Kind         Kind
	Outcome      Outcome
	Call, Return time.Duration
	Lease        time.Duration // Acquire
	// Renewed: the lease of this grant is renewed until it is released or lost.
	Renewed bool
	// Late is for how much longer than the model's LateAcquire an acquire may still be granted after its caller gave up:
	// the server knows of the caller's deadline, and not that it was cancelled.
	Late time.Duration
}

// Log is a record in the making. It is safe for concurrent use.
type Log struct {
	start time.Time

	mu     sync.Mutex
	owners int
	ops    []Op
	lost   map[int]time.Duration
}

// New starts a log.
func New() *Log { return &Log{start: time.Now(), lost: map[int]time.Duration{}} }

// At is a time as the log counts it.
func (l *Log) At(t time.Time) time.Duration { return t.Sub(l.start) }

// Owner returns the identity of one acquisition.
func (l *Log) Owner() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owners++
	return l.owners
}

// Add records a call that is over.
func (l *Log) Add(op Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, op)
}

// Lost records that an owner's hold ended without a release, and until when the hold was trusted. No other owner may
// have been granted the lock before that instant, and the owner stopped acting by then.
func (l *Log) Lost(owner int, trusted time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.lost[owner]; !ok || l.At(trusted) < at {
		l.lost[owner] = l.At(trusted)
	}
}

// Ops returns what has been recorded, and until when each lost hold was trusted.
func (l *Log) Ops() (ops []Op, lost map[int]time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost = make(map[int]time.Duration, len(l.lost))
	for k, v := range l.lost {
		lost[k] = v
	}
	return slices.Clone(l.ops), lost
}

// Count returns how many operations ended with that outcome.
func (l *Log) Count(k Kind, o Outcome) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for i := range l.ops {
		if l.ops[i].Kind == k && l.ops[i].Outcome == o {
			n++
		}
	}
	return n
}
