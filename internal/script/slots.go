package script

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

// A Cluster takes the keys of a script only from one slot. A client of the Cluster knows that. A client that sees the
// Cluster as one server, behind a proxy, learns it by the first call that is refused: from then on each call that
// carries several objects, such as a renewal, is of one slot, as for a Cluster (Apart).
//
// The caller makes the refused call again at once, in parts (AcrossSlots, BySlot):
//
//	client                              proxy, or the node behind it
//	one call for a, b and c ----------> looks at the slots of KEYS before the script begins: refused, nothing has run
//	a and c, of one slot   ----------> run
//	b                      ----------> runs
//
// Proxies are assumed to refuse before anything has run. A proxy has the whole call when it answers, and no known proxy
// runs a script in parts. A proxy that does not look at slots, and has the server of the first key run the call, is
// found out only by that server, if it is a node of a Cluster. Otherwise the script runs on keys of which other servers
// know nothing, and no client can see that: see docs/operations.md.

// apartTexts are what is in the texts of Redis ("CROSSSLOT Keys in request don't hash to the same slot"), Alibaba Cloud
// ("ERR eval/evalsha command keys must be in same slot") and redis-cluster-proxy ("ERR Cross-slot queries are not
// supported for this command"), in small letters.
var apartTexts = []string{"crossslot", "cross-slot", "same slot"}

// wantsOneSlot reports whether err refuses a call because of the slots of its keys. The error with which a script ended
// does not count, because the script had begun.
func wantsOneSlot(err error) bool {
	re, answered := rueidis.IsRedisErr(err)
	if !answered || passing(re) {
		return false
	}
	text := strings.ToLower(re.Error())
	return !strings.Contains(text, inScript) && !strings.HasPrefix(text, "noperm ") &&
		slices.ContainsFunc(apartTexts, func(words string) bool { return strings.Contains(text, words) })
}

// acrossSlots is the error of a call that was refused because its keys are of several slots.
type acrossSlots struct{ error }

func (e acrossSlots) Unwrap() error { return e.error }

// AcrossSlots reports whether a call was refused because its keys are of several slots. Nothing has run, and the same
// in parts of one slot each is not refused for that.
func AcrossSlots(err error) bool {
	var refused acrossSlots
	return errors.As(err, &refused)
}

// refusedSlots returns the error err of a call with these keys as acrossSlots, if the server's answer refuses the call
// for the slots of its keys, and notes that the server wants one slot in each call. A refusal of keys that are all of
// one slot has another reason, which parts would not help.
func (r *Runner) refusedSlots(keys []string, answer, err error) error {
	if !wantsOneSlot(answer) || !slices.ContainsFunc(keys[1:], func(key string) bool {
		return keyname.Slot(key) != keyname.Slot(keys[0])
	}) {
		return err
	}
	r.Lacks.Add(errs.LackSlots, answer)
	return acrossSlots{err}
}

// Apart reports whether the keys of a call have to be of one slot: in a Cluster, and where a call was refused before.
func (r *Runner) Apart() bool { return r.cluster || r.Lacks.Has(errs.LackSlots) }

// BySlot divides items by the slots of their keys, has all parts made at once, and waits for them. Within a part the
// items keep their order.
func BySlot[T any](items []T, key func(T) string, do func(part []T)) {
	parts := map[uint16][]T{}
	for _, item := range items {
		slot := keyname.Slot(key(item))
		parts[slot] = append(parts[slot], item)
	}
	var wg sync.WaitGroup
	for _, part := range parts {
		wg.Go(func() { do(part) })
	}
	wg.Wait()
}
