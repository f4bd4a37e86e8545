package election

// Stats are counts of one client: what this process does, not what others do.
type Stats struct {
	Leading         int // leaderships that have not ended
	Campaigning     int // waiting calls of Campaign and Run
	PendingReleases int // resignations that the server has not confirmed; they are retried in the background
}

// Stats returns the current counts. It sends nothing, and works on a closed client.
func (c *Client) Stats() Stats {
	lockStats := c.locks.Stats()
	return Stats{Leading: lockStats.Held, Campaigning: lockStats.Waiting, PendingReleases: lockStats.PendingReleases}
}
