package redistest

import (
	"regexp"
	"slices"
)

// announcement is the key in which a process without heartbeats says who it is. It outlasts what the process has held.
var announcement = regexp.MustCompile(`^redlatch_alive:(\{\d+\}:)?[0-9a-f]{8}-[0-9a-f]{4}-8000(-|$)`)

// Objects are those of the keys that objects have: without what processes say of themselves.
func Objects(keys []string) []string {
	return slices.DeleteFunc(keys, announcement.MatchString)
}
