package redistest

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/keyname"
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

// SeveralSlots matches the scripts with keys of several slots, which a node of a Cluster refuses.
func SeveralSlots(words []string) bool {
	if !Command("EVAL")(words) && !Command("EVALSHA")(words) || len(words) < 4 {
		return false
	}
	n, _ := strconv.Atoi(words[2])
	keys := words[3:min(len(words), 3+n)]
	return slices.ContainsFunc(keys, func(key string) bool { return keyname.Slot(key) != keyname.Slot(keys[0]) })
}

// CrossSlot is how a node of a Cluster refuses those.
const CrossSlot = "CROSSSLOT Keys in request don't hash to the same slot"

// RefuseSeveralSlots has the proxy refuse those by text, and counts them.
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
