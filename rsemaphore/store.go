package rsemaphore

import (
	"math"

	"github.com/redlatch/redlatch/internal/script"
)

// store is one of the two ways in which the server keeps what is out of a semaphore. The scripts of both have the same
// arguments and replies (lib/verbs.lua).
type store struct {
	kind        string // of a semaphore, to people
	maxCapacity int64
	maxPerCall  int // permits that one call can acquire
	// perPermit: each permit has an id and a member in the leases. Otherwise an acquisition has one, whatever it weighs,
	// and a part of it can be released.
	perPermit bool

	acquire, release, renew, resize, extend, inspect *script.Script
}

// ids is Redisson's layout, which has scripts for several semaphores in one call besides.
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
	// maxIDs is how many ids one call can name: each is one of the leases on the server.
	maxIDs = 1000
	// maxWeight is up to where the server's Lua counts exactly.
	maxWeight = min(1<<53-1, math.MaxInt)
)

// records is how many of the leases on the server an acquisition of n has.
func (st *store) records(n int) int {
	if st.perPermit {
		return n
	}
	return 1
}
