package rlock

// Stats are counts of one client in this process. Other processes are not counted.
type Stats struct {
	Held            int // holds that are renewed or last for their lease, without re-entries
	Waiting         int // calls that wait for a lock that was refused to them, or to an earlier call
	PendingReleases int // releases that the server has not confirmed; they are retried in the background

	// Since the client was made:
	// waiting acquisitions that a release, of this process or another, made the next holder
	HandOvers int64
}

// Stats returns the current counts. It sends nothing, and works on a closed client. It takes O(names that are waited
// for): negligible for metrics that are read every few seconds.
func (c *Client) Stats() Stats {
	stats := Stats{Held: c.engine.Count(), PendingReleases: c.keeper.Retrier.Count()}
	stats.Waiting, stats.HandOvers = c.waiters.Count()
	stats.HandOvers += c.cohorts.countFollowingTurns()
	return stats
}
