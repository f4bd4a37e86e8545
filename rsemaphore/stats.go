package rsemaphore

// Stats are the counts of one client. They do not include other processes.
type Stats struct {
	Held            int // permits that last, counted by acquisition, and parties of barriers; nothing of package counting
	Waiting         int // calls that wait, because they or a call before them were refused
	PendingReleases int // releases that the server has not confirmed, and that go on in the background

	// Since the client was made:
	HandOvers int64 // acquisitions whose wait a hand-over has ended
}

// Stats returns the current counts. It sends nothing, and works on a closed client. Its cost grows with the number of
// names that are waited for, and does not matter to metrics that are read once in seconds.
func (c *Client) Stats() Stats {
	stats := Stats{Held: c.engine.Count(), PendingReleases: c.keeper.Retrier.Count()}
	stats.Waiting, stats.HandOvers = c.waiters.Count()
	return stats
}
