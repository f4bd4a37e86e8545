package election

// Stats are counts of one client: what this process does, not what others do.
type Stats struct {
	Leading         int // leaderships that last
	Campaigning     int // calls that wait to be elected
	PendingReleases int // resignations that the server has not confirmed, and that go on in the background
}

// Stats returns the counts of now. It sends nothing, and works on a closed client.
func (c *Client) Stats() Stats {
	s := c.locks.Stats()
	return Stats{Leading: s.Held, Campaigning: s.Waiting, PendingReleases: s.PendingReleases}
}
