package rcounter

// LocalKeys is how many keys a limiter of the process remembers.
func (l *RateLimiter) LocalKeys() int {
	l.local.mu.Lock()
	defer l.local.mu.Unlock()
	return len(l.local.keys)
}
