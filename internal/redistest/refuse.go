package redistest

import (
	"strconv"
	"strings"
)

// refusing is the call that has a server answer text as an error: a script of one line. So the answer has its place
// among those of the calls before and after it, as a server's own refusal has, and none of them lose step.
func refusing(text string) []byte {
	return call("EVAL", "return redis.error_reply(ARGV[1])", "0", text)
}

// call is a call as a client sends it.
func call(words ...string) []byte {
	var b strings.Builder
	b.WriteString("*" + strconv.Itoa(len(words)) + "\r\n")
	for _, w := range words {
		b.WriteString("$" + strconv.Itoa(len(w)) + "\r\n" + w + "\r\n")
	}
	return []byte(b.String())
}

// Command matches the calls of a command, which may have a subcommand or first arguments: "CLIENT TRACKING", "HELLO 3".
// Upper and lower case are the same.
func Command(name string) func(words []string) bool {
	wanted := strings.Fields(name)
	return func(words []string) bool {
		if len(words) < len(wanted) {
			return false
		}
		for i, w := range wanted {
			if !strings.EqualFold(w, words[i]) {
				return false
			}
		}
		return true
	}
}
