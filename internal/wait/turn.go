package wait

import (
	"hash/maphash"
	"math/rand/v2"
	"time"
)

// turns spreads the requests of contenders, each of another process, that have heard of a release. It is for what has
// no queue on the server, so that none can be named: if all asked at once, every release would cost the server a call
// of each process, and all but one of them would be refused.
//
// Each contender draws by itself, from its process's guess of how many they are. The guess grows when a request that
// followed a message at once is refused, and falls when one is granted, most of all when no one else took the release
// up for a while. It never exceeds those that listen; these alone are no good guess, because a process goes on
// listening for some time after its last wait. One of the first two asks at once, the next two after two trips of a
// request, and so on, each time twice as long. So
//
//   - a few contenders ask at once, as if there were no turns;
//   - many cost a release a few requests, not one each;
//   - a release that the first do not take up, because they have gone, is idle for some trips, 128 at most;
//   - each that hears of the next release draws anew: none has a place that could be lost.
//
// A guess of each waiter's own, from 1 at each wait, would favour newcomers: they would ask at once where those who
// were refused more often wait. For the same reason a process that has just released, and acquires again, draws before
// it asks ([Waiters.BackOff]):
//
//	A, who releases                 B and C, who wait
//	release, published  ----------> draw: B at once, C after two trips
//	hears that it is released
//	draws: after two trips
//	                                B asks: granted
//	asks: refused
//
// Without that A, which hears first, asks first, and most often has the lock again. Interleavings:
//
//   - All draw late. The first turn that comes asks: the lock is idle for 128 trips at most.
//   - B, whose turn is the first, has died, or its request is lost. None had a place: C and A ask when their turns
//     come.
//   - The message to B is lost. B asks when the holder's lease ends, or within a PollCap, as ever; A and C have their
//     turns.
//   - B and C have gone, and A's guess is of before. A draws late once or twice: each grant lowers the guess, most of
//     all a late one.
//   - A's patience is shorter than its turn. It asks once when that is over, as a wait that is over does.
type turns struct {
	guess float64
	stage int           // drawn last
	trip  time.Duration // that the last request took; 0: none was refused
	heard bool          // the next request follows a message
}

const (
	atOnce   = 2   // so many ask at once, on average
	doubling = 6   // how often the time between turns doubles
	more     = 1.5 // a request at once was refused
	fewer    = 0.7 // ... granted
	much     = 0.4 // a later one was granted
)

// guess is what a process has learned of a key's contenders.
type guess struct {
	contenders float64
	trip       time.Duration
	released   time.Time // by this process, while it guessed that others wait
	paced      int       // pace.bound, when the last local queue was left; 0: not known
}

// comeback is how long after a release the process that made it backs off: all turns are over then.
const comeback = 100 * time.Millisecond

// guesses are those of the process: by a hash of the key, because keys come and go, and a wrong guess costs a few
// requests only.
type guesses [64]guess

var seed = maphash.MakeSeed()

func (g *guesses) of(key string) *guess { return &g[maphash.String(seed, key)%uint64(len(g))] }

// BackOff is called when this process has released what several contend for: its next request for the key has a turn,
// too.
func (q *Waiters) BackOff(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if g := q.guesses.of(key); g.contenders > atOnce {
		g.released = time.Now()
	}
}

// backOff has the contender of a process that has just released wait for its turn before it asks.
func (w *waiter) backOff() {
	if w.localQueue == nil || w.taker() != nil {
		return
	}
	w.q.mu.Lock()
	g := *w.q.guesses.of(w.r.QueueKey)
	w.q.mu.Unlock()
	if g.contenders <= atOnce || g.trip == 0 || time.Since(g.released) > comeback {
		return
	}
	w.turns.guess, w.turns.trip = g.contenders, g.trip
	if turn := w.turns.draw(); turn > 0 {
		w.sleep(turn) // out of patience: it asks once all the same
	}
}

// turnAfterWake is how long to wait after a wake-up of the local queue.
func (w *waiter) turnAfterWake() time.Duration {
	if !w.r.DrawsTurn {
		return 0
	}
	return w.turns.draw()
}

// refused takes in an answer. listeners is how many could have been refused, this one included.
func (t *turns) refused(listeners int, took time.Duration) {
	t.trip = took
	if t.heard && t.stage == 0 {
		t.guess *= more
	}
	t.heard = false
	t.guess = max(1, min(t.guess, float64(listeners)))
}

// learned returns what the process is to guess after the wait, which has ended with a grant or without.
func (t *turns) learned(granted bool) float64 {
	switch {
	case !t.heard || !granted:
	case t.stage == 0:
		t.guess *= fewer
	default:
		t.guess *= much
	}
	return t.guess
}

// refuse takes in an answer for the waiter's turns.
func (w *waiter) refuse(listeners int, took time.Duration) {
	if w.turns.trip == 0 {
		w.q.mu.Lock()
		w.turns.guess = w.q.guesses.of(w.r.QueueKey).contenders
		w.q.mu.Unlock()
	}
	w.turns.refused(listeners, max(took, 1))
}

// draw returns how long to wait after a message.
func (t *turns) draw() time.Duration {
	t.heard, t.stage = true, 0
	if t.guess > atOnce {
		t.stage = int(rand.Float64() * t.guess / atOnce)
	}
	if t.stage == 0 {
		return 0
	}
	d := max(2*t.trip, time.Millisecond/2) << min(t.stage-1, doubling)
	return d - rand.N(d/2)
}
