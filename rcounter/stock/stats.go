package stock

// Stats are counts of one client since it was made: what this process does, not what others do.
type Stats struct {
	// calls that several claims or reservations could share: those that were sent while another was under way
	SharedCalls    int64
	SharedRequests int64 // claims, reservations and other acts in those
}

// Stats returns the counts of now. It sends nothing, and works on a closed client.
func (c *Client) Stats() (s Stats) {
	s.SharedCalls, s.SharedRequests = c.tally.Counts()
	return s
}
