package redistest

// IsScript matches calls of scripts.
func IsScript(words []string) bool { return words[0] == "EVALSHA" || words[0] == "EVAL" }
