package rsemaphore

// Stats are counts of one client: what this process does, not what others do.
type Stats struct {
	Held            int // acquisitions of permits that last, and parties of barriers; nothing of package counting
	Waiting         int // calls that wait for what was refused to them, or to a call before them
	PendingReleases int // releases that the server has not confirmed, and that go on in the background

	// Since the client was made:
	HandOvers      int64 // acquisitions whose waiting ended because a release named them
	SharedCalls    int64 // calls that several acquisitions and releases of free permits could share
	SharedRequests int64 // acquisitions and releases in those
}

// Stats returns the counts of now. It sends nothing, and works on a closed client. It looks at every name that is
// waited for: for metrics, once in seconds, it costs nothing.
func (c *Client) Stats() Stats {
	s := Stats{Held: c.engine.Count(), PendingReleases: c.session.Retrier.Count()}
	s.Waiting, s.HandOvers = c.waiters.Count()
	s.SharedCalls, s.SharedRequests = c.coalescer.Counts()
	return s
}
