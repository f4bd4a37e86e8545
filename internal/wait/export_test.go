package wait

import "time"

// Linger is how long grants are listened for when nobody waits.
const Linger = idleTimeout

// Turns is what the contenders of one process draw from.
type Turns struct{ turns }

func NewTurns(guess float64, trip time.Duration) *Turns {
	return &Turns{turns{guess: guess, trip: trip}}
}
func (t *Turns) Guess() float64               { return t.guess }
func (t *Turns) Heard(stage int)              { t.heard, t.stage = true, stage }
func (t *Turns) Refused(listeners int)        { t.refused(listeners, time.Millisecond) }
func (t *Turns) Learned(granted bool) float64 { return t.learned(granted) }

// SetGuess has the process guess so many contenders of a key.
func (q *Waiters) SetGuess(key string, n float64, trip time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	*q.guesses.of(key) = guess{contenders: n, trip: trip}
}
