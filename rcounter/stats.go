package rcounter

// Stats are counts of one client since it was made: what this process does, not what others do.
type Stats struct {
	// calls that several of Add, Incr and Decr could share: those that were sent where four and more were under way
	SharedCalls    int64
	SharedRequests int64 // of Add, Incr and Decr, those in such calls
}

// Stats returns the counts of now. It sends nothing, and works on a closed client.
func (c *Client) Stats() (s Stats) {
	s.SharedCalls, s.SharedRequests = c.tally.Counts()
	return s
}
