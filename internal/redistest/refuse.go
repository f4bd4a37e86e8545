package redistest

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/keyname"
)

// refusing returns a call to which the server replies with the error text: a script of one line. So the error is in its
// place among the replies to earlier and later calls, like an error of the server itself.
func refusing(text string) []byte {
	return call("EVAL", "return redis.error_reply(ARGV[1])", "0", text)
}

// call returns a call in the form in which a client sends it.
func call(words ...string) []byte {
	var b strings.Builder
	b.WriteString("*" + strconv.Itoa(len(words)) + "\r\n")
	for _, w := range words {
		b.WriteString("$" + strconv.Itoa(len(w)) + "\r\n" + w + "\r\n")
	}
	return []byte(b.String())
}

// Command returns a Trap.Match for a command, which may have a subcommand or first arguments: "CLIENT TRACKING", "HELLO
// 3". Upper and lower case are the same.
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

// SeveralSlots matches the scripts with keys of several slots, which a node of a Cluster refuses.
func SeveralSlots(words []string) bool {
	if !Command("EVAL")(words) && !Command("EVALSHA")(words) || len(words) < 4 {
		return false
	}
	n, _ := strconv.Atoi(words[2])
	keys := words[3:min(len(words), 3+n)]
	return slices.ContainsFunc(keys, func(key string) bool { return keyname.Slot(key) != keyname.Slot(keys[0]) })
}

// CrossSlot is the error of a node of a Cluster for such a script.
const CrossSlot = "CROSSSLOT Keys in request don't hash to the same slot"

// RefuseSeveralSlots makes the proxy refuse such scripts with text, and counts them.
func (p *Proxy) RefuseSeveralSlots(text string) (*Trap, *atomic.Int64) {
	var refused atomic.Int64
	match := func(words []string) bool {
		if !SeveralSlots(words) {
			return false
		}
		refused.Add(1)
		return true
	}
	return p.Trap(&Trap{Match: match, Every: true, Fate: RefuseRequest, Says: func([]string) string { return text }}),
		&refused
}
