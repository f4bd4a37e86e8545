package redistest

import "time"

// Stall returns how long the machine kept goroutines waiting while fn ran.
func Stall(fn func()) time.Duration {
	done := make(chan struct{})
	worst := make(chan time.Duration)
	go func() {
		var w time.Duration
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			before := time.Now()
			select {
			case <-tick.C:
				w = max(w, time.Since(before)-5*time.Millisecond)
			case <-done:
				tick.Stop()
				worst <- w
				return
			}
		}
	}()
	fn()
	close(done)
	return <-worst
}
