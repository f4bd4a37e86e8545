package hold

// Calls is the number of calls under way.
func (r *Retrier) Calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// Kept is how much is kept for contexts.
func (l *Life) Kept() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.contexts)
}

const MaxRetryCalls = maxRetryCalls

// Pass gives the holding to the next caller.
func (o *Holding) Pass(h *Handle) bool { return o.passTurn(h) }
