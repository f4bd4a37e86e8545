package rlock

// Stats are counts of one client: what this process does, not what others do.
type Stats struct {
	Held            int // holds that are renewed or last for their lease: outermost ones, a re-entry is not counted again
	Waiting         int // calls that wait for a lock that was refused to them, or to a call before them
	PendingReleases int // releases that the server has not confirmed, and that go on in the background

	// Since the client was made:
	// acquisitions whose waiting ended because a release, of this process or another, made them the next holder
	HandOvers      int64
	SharedCalls    int64 // calls that several acquisitions and releases of free locks could share
	SharedRequests int64 // acquisitions and releases in those
}

// Stats returns the counts of now. It sends nothing, and works on a closed client. It looks at every name that is
// waited for: for metrics, once in seconds, it costs nothing.
func (c *Client) Stats() Stats {
	s := Stats{Held: c.engine.Count(), PendingReleases: c.session.Retrier.Count()}
	s.Waiting, s.HandOvers = c.waiters.Count()
	s.HandOvers += c.tenancies.count()
	s.SharedCalls, s.SharedRequests = c.coalescer.Counts()
	return s
}
