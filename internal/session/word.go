package session

import "strconv"

// Word is the text of v, a constant of a public type: its own if words has one, else what and the number.
func Word[T ~uint8](v T, what string, words ...string) string {
	if int(v) < len(words) {
		return words[v]
	}
	return what + " " + strconv.Itoa(int(v))
}
