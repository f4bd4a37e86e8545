package rsemaphore

import (
	"fmt"
	"math"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// store is one of the two layouts of a semaphore on the server. The scripts of both have the same arguments and replies
// (lib/verbs.lua).
type store struct {
	kind        string // the name of the kind, for people
	maxCapacity int64
	maxPerCall  int // permits in one acquisition
	// perPermit is set if each permit has an id and a member in the leases. Otherwise an acquisition has one, whatever it
	// weighs, and a part of it can be released.
	perPermit bool

	acquire, release, renew, resize, extend, inspect *script.Script
}

// ids is Redisson's layout. It also has scripts for several semaphores in one call.
var ids = &store{
	kind: "Semaphore", maxCapacity: math.MaxInt32, maxPerCall: maxIDs, perPermit: true,
	acquire: script.Load("acquire", luaFiles, "acquire"),
	release: script.Load("release", luaFiles, "release"),
	renew:   script.Load("renew", luaFiles, "renew"),
	resize:  script.Load("resize", luaFiles, "resize"),
	extend:  script.Load("extend", luaFiles, "extend"),
	inspect: script.Load("inspect", luaFiles, "inspect").Reads(),
}

// weights is a layout of this library, for amounts.
var weights = &store{
	kind: "WeightedSemaphore", maxCapacity: maxWeight, maxPerCall: maxWeight,
	acquire: script.Load("acquire", luaFiles, "weighted_acquire"),
	release: script.Load("release", luaFiles, "weighted_release"),
	renew:   script.Load("renew", luaFiles, "weighted_renew"),
	resize:  script.Load("resize", luaFiles, "weighted_resize"),
	extend:  script.Load("extend", luaFiles, "weighted_extend"),
	inspect: script.Load("inspect", luaFiles, "weighted_inspect").Reads(),
}

const (
	// maxIDs is the maximum number of ids in a call: each id is one of the leases on the server.
	maxIDs = 1000
	// maxWeight is the largest number up to which the server's Lua counts exactly.
	maxWeight = min(1<<53-1, math.MaxInt)
)

// records returns how many of the leases on the server an acquisition has.
func (st *store) records(permits int) int {
	if st.perPermit {
		return permits
	}
	return 1
}

// WeightedSemaphore describes the weighted semaphore of that name: an amount that processes share, such as bytes, cores
// or tokens. Each acquisition takes as much of it as it weighs. It is a Semaphore with these differences:
//
//   - The server keeps one record of an acquisition whatever its weight, and a part of it may be released
//     ([Permit.ReleasePart]).
//   - One call can acquire all of the capacity.
//   - The layout is this library's own, and Java does not read it, so it is never Shared, nor Fenced
//     (ErrInvalidOption).
//
// capacity is the total amount, 1 to 2⁵³-1 (2³¹-1 where an int has 32 bits). The first acquisition writes it. Every
// other call must bring the same (ErrCapacityMismatch), until a Resize. If the name or capacity cannot be used, every
// call returns the error. Its keys are its own: another kind may have the same name.
func (c *Client) WeightedSemaphore(name string, capacity int) *Semaphore {
	key, bad := c.session.Key(name)
	at := site{c: c, name: name, key: keyname.Suffix(key, "weighted"), store: weights}
	at.permits, at.channel = keyname.Suffix(key, "weights"), keyname.Prefix("redisson_sc", keyname.Own(key))
	shares := keyname.Suffix(key, "weighted_shares")
	keys := []string{at.key, at.permits, keyname.Prefix("redlatch_queue", at.key), shares}
	at.allKeys, at.releaseKeys, at.renewKeys = keys, keys, keys[1:2:2]
	at.inspectKeys = []string{at.key, at.permits, shares}
	return c.semaphore(at, capacity, bad)
}

// refuseWeights refuses an option that a WeightedSemaphore cannot have.
func (s *Semaphore) refuseWeights(option string) {
	if !s.store.perPermit {
		s.refuse(fmt.Errorf("%q: %w: a WeightedSemaphore cannot be %s", s.name, errs.ErrInvalidOption, option))
	}
}
