package hold

// Workers is how many goroutines work off what is pending. It is counted here, because runtime.NumGoroutine also counts
// those that have ended but are not gone yet.
func (r *Retrier) Workers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workers
}

// Kept is how much is kept for contexts.
func (l *Life) Kept() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.contexts)
}

const RetryWorkers = retryWorkers

// Pass gives the holding to the next caller.
func (o *Holding) Pass(h *Handle) bool { return o.passTurn(h) }
