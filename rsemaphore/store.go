package rsemaphore

import (
	"math"

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
