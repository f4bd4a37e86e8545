package redistest

var LaunchAt = launch

// EndUnused ends the servers that no test has.
var EndUnused = endUnused

// Unused is how many crews of n servers no test has.
func Unused(n int) int {
	reuseMu.Lock()
	defer reuseMu.Unlock()
	return len(unused[n])
}

// Claim claims an address as another process does.
func Claim() string { return claim().host }

// Refused takes what an embedded server has refused to scripts, so that the test does not fail.
func Refused(s *Server) []string { return s.scripts.take() }
