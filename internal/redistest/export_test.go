package redistest

var LaunchAt = launch

// EndUnused ends the servers that no test has.
var EndUnused = endUnused

// Claim claims an address as another process does.
func Claim() string { return claim().host }
