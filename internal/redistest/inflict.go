package redistest

// IsScript reports whether a call is the call of a script.
func IsScript(words []string) bool { return words[0] == "EVALSHA" || words[0] == "EVAL" }
