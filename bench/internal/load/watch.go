package load

import (
	"sync/atomic"
	"time"
)

// Words are what the workers of a run see of each other, without any server. Processes may share them as memory.
type Words struct {
	phase    atomic.Int64
	inside   atomic.Int64 // number of the worker in the critical section, from 1; 0: none
	overlaps atomic.Int64 // entries while another was inside
	count    atomic.Int64 // guarded by the lock under test only: read at entry, written one higher when leaving
	entered  atomic.Int64 // what count should be
	left     atomic.Int64 // when the last worker left, see NewClock
	idle     atomic.Int64 // the longest time from a leaving to the next entering
}

// Phases of a run, which begins with 0: it warms up.
const (
	measuring = 1
	over      = 2
)

// Watch judges a lock while a run measures it: at the end every waiter's context is cancelled, and a peer whose holds
// depend on it releases the lock under its holder then. A Watch must be cheap, or it hides races.
type Watch struct {
	*Words
	now func() int64
}

// NewWatch returns a Watch of all who share the words and a clock.
func NewWatch(w *Words, now func() int64) *Watch { return &Watch{w, now} }

// NewClock returns a clock that processes which start at about the same time share. It reads the wall clock once, and
// goes on with the monotonic one.
func NewClock() func() int64 {
	start := time.Now()
	return func() int64 { return start.UnixNano() + int64(time.Since(start)) }
}

// Begin has the run measure from now on.
func (w *Watch) Begin() {
	w.left.Store(w.now())
	w.phase.Store(measuring)
}

// Counts reports whether the run measures.
func (w *Watch) Counts() bool { return w.phase.Load() == measuring }

// End ends the measuring, and returns the longest time in which no worker was inside.
func (w *Watch) End() (idle time.Duration) {
	if w.inside.Load() == 0 {
		w.idleUntil(w.now())
	}
	w.phase.Store(over)
	return time.Duration(w.idle.Load())
}

// Enter is called by the one worker that should be alone, and Leave, with what it returned, by the same one.
func (w *Watch) Enter(worker int64) (seen int64) {
	if !w.Counts() {
		w.inside.Store(worker + 1)
		return -1
	}
	w.idleUntil(w.now())
	if !w.inside.CompareAndSwap(0, worker+1) {
		w.overlaps.Add(1)
		w.inside.Store(worker + 1)
	}
	w.entered.Add(1)
	return w.count.Load()
}

// Leave ends what Enter began.
func (w *Watch) Leave(worker, seen int64) {
	if seen >= 0 {
		w.count.Store(seen + 1)
	}
	w.left.Store(w.now())
	w.inside.CompareAndSwap(worker+1, 0)
}

// Broken is how often the lock let in a second worker, found in two ways: by who was inside, and by what is missing
// from the count. It is right when the workers are done.
func (w *Watch) Broken() (overlaps, lost int64) {
	return w.overlaps.Load(), w.entered.Load() - w.count.Load()
}

// idleUntil counts the time since the last worker left.
func (w *Watch) idleUntil(now int64) {
	gap := now - w.left.Load()
	for longest := w.idle.Load(); gap > longest; longest = w.idle.Load() {
		if w.idle.CompareAndSwap(longest, gap) {
			return
		}
	}
}
