package redistest

import (
	"regexp"
	"slices"
)

// announcement matches the key in which a process without heartbeats has its name. The key outlasts the holds of the
// process.
var announcement = regexp.MustCompile(`^redlatch_alive:(\{\d+\}:)?[0-9a-f]{8}-[0-9a-f]{4}-8000(-|$)`)

// Objects returns the keys without the keys of processes.
func Objects(keys []string) []string {
	return slices.DeleteFunc(keys, announcement.MatchString)
}
