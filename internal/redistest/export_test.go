package redistest

var LaunchAt = launch

// Claim claims an address as another process does.
func Claim() string { return claim().host }
