package simulation

import (
	"slices"
	"testing"
)

// Mutant is a fault that is planted in scripts, on their way to the server.
type Mutant struct {
	Name  string
	Kinds []string // of the objects of the plans that are to find it
	Of    string   // what stands in the scripts that it changes
	Old   string
	New   string
	Crowd bool // it is looked for in crowds
}

// Mutants are the faults that the simulation is tried with.
var Mutants = []Mutant{
	{"a release takes any owner's hold", []string{"reentrant", "nonreentrant", "spin"}, "-- Take an owner out of a lock,",
		`redis.pcall('HDEL', key, owner, owner .. '!')`, `redis.pcall('DEL', key)`, false},
	{"a hold that is handed over has a short lease", []string{"reentrant", "fenced", "nonreentrant"},
		"local function hand_over(",
		`redis.call('PEXPIRE', lock, lease)`, `redis.call('PEXPIRE', lock, 200)`, false},
	{"a renewal does not ask whose the hold is", []string{"reentrant", "nonreentrant", "fenced"},
		"-- Renew the leases of many holds",
		"elseif not held[1] then", "elseif false then", false},
	{"a renewal shortens a lease", []string{"reentrant", "nonreentrant", "fenced"}, "local function raise(",
		`redis.call('PEXPIRE', key, math.max(left, lease))`, `redis.call('PEXPIRE', key, 100)`, false},
	{"a plain release does not compare owners", []string{"plain", "plain", "reentrant"}, "-- Delete a plain mutex",
		"if held == ARGV[1] then", "if held then", false},
	{"tokens are counted, and begin again", []string{"fenced", "fenced", "reentrant"}, "-- Take a fenced lock",
		"local token = us", "local token = 1", false},
	{"who comes last is served first", []string{"fair", "fair", "reentrant"}, "local function line_up(queue, timeouts",
		`redis.call('RPUSH', queue, owner)`, `redis.call('LPUSH', queue, owner)`, false},
	{"readers are forgotten a second too early", []string{"readwrite", "readwrite", "reentrant"},
		"local function forget(lock, ends, now)",
		`redis.pcall('ZRANGE', ends, 0, elapsed(now), 'BYSCORE')`,
		`redis.pcall('ZRANGE', ends, 0, elapsed(now + 1500), 'BYSCORE')`, false},
	{"a server that has forgotten its votes votes", []string{"quorum"}, "-- One server's vote for an owner",
		"if young > 0 then", "if false then", false},
	{"a second run takes permits again", []string{"semaphore", "semaphore", "reentrant"},
		"-- Take permits for several waiters",
		`.. '\0\0\0') == 1 then`, `.. '\0\0\0') >= 0 then`, false},
	{"a second release raises the count again", []string{"semaphore", "semaphore", "reentrant"},
		"-- Give permits back, and hand them",
		`.. '\0\0\0') == 1 then`, `.. '\0\0\0') >= 0 then`, false},
	{"permits whose lease is over come back twice", []string{"weighted", "weighted", "reentrant"},
		"local function weighed(",
		"return capacity, used - freed, noted", "return capacity, used - 2 * freed, noted", false},
	{"a claim does not look for its own answer", []string{"stock", "stock", "reentrant"}, "-- Claims one unit for each",
		` and not redis.call('HGET', KEYS[2], ARGV[3]) then`, " then", false},
	{"what is reserved is sold", []string{"stock", "stock", "reentrant"}, "-- Claims one unit for each",
		"elseif s.sold + s.held >= s.limit then", "elseif s.sold >= s.limit then", false},
	{"what was cancelled is confirmed late", []string{"sale", "sale"}, "local function confirm(",
		"E = confirm, G = answered, R = answered, C = answered, V = answered,",
		"E = confirm, G = answered, R = answered, C = answered, V = confirm,", false},
	{"a part that is not confirmed does not come back", []string{"sale", "sale"}, "local function confirm(",
		"log_entry('cancelled', '0', digits(n - k), claimant, id)", "", false},
	{"an extension ends a hold", []string{"sale", "sale"}, "local function extend(",
		"todo.hold[k + 1], todo.hold[k + 2] = q.deadline, id", "todo.hold[k + 1], todo.hold[k + 2] = digits(s.now), id",
		false},
	{"units come back again and again", []string{"sale", "sale"}, "local function return_units(",
		"(first or r.n), digits(keep)", "(first or r.n), r.n", false},
	{"a sale that is paused goes on", []string{"sale", "sale"}, "local function refusal()",
		"if s.state == 6 then return 12 end", "", false},
	{"the end of a sale does not move", []string{"sale", "sale"}, "-- Changes what Open has set",
		"s.ending = s.now + to['end']", "s.ending = s.ending", false},
	{"an id is not answered what it came to", []string{"sale", "sale"}, "-- Reads the records of requests",
		"reply[i] = ARGV[i] ~= '' and reply[i] or ''", "reply[i] = ''", false},
	{"the end of a hold is not in the ledger", []string{"sale", "sale"}, "local function reap(",
		"for i, id in ipairs(due) do log_entry('expired', '0', ended[i].n, ended[i].claimant, id) end", "", false},
	{"a mover removes what it has not read", []string{"sale", "sale"}, "local function shorten(",
		"digits(ARGV[1]:match('^%d+') + 1)", "digits(ARGV[1]:match('^%d+') + 2)", false},
	{"a line of a cart is held though another is refused", []string{"cart", "cart"},
		"-- Reserves, confirms, extends, cancels or returns a cart",
		"if not (refused and left) or", "if not (refused and left and i > 1) or", false},
	{"who has counted counts again", []string{"latch", "latch", "reentrant"}, "local function over()",
		"if before then", "if false then", false},
	{"a barrier lets go when one is missing", []string{"barrier", "barrier", "reentrant"}, "if verb == 'arrive' then",
		"if n == parties then", "if n >= parties - 1 then", false},
	{"a limit counts no units", []string{"limit"}, "-- Takes units from rate limits",
		"level, room, taken = level + units * per, room - units, taken + units", "taken = taken + units", true},
	{"the level is lowered for who leaves", []string{"limit"}, "-- Gives the units of a reservation back",
		"l.level = l.full + position_of(l, last[1], last[2])", "l.level = l.level - n * l.per", true},
	{"a turn that is given back stays in line", []string{"limit"}, "-- Gives the units of a reservation back",
		"redis.call('ZREM', l.key, all[i])", "", true},
	{"who leaves stays in line", []string{"reentrant"}, "-- Take an owner out of a lock,",
		"redis.call('ZREM', queue, leave, '!' .. owner)", "", true},
	{"who leaves a plain lock's line stays in it", []string{"plain"}, "-- Delete a plain mutex",
		"redis.pcall('ZREM', line, ARGV[5])", "", true},
	{"who leaves a fair lock's line stays in it", []string{"fair"}, "-- ",
		"if redis.call('ZREM', timeouts, owner) == 1 then", "if false then", true},
}

// MutantOf is that of a name, or nil.
func MutantOf(name string) *Mutant {
	i := slices.IndexFunc(Mutants, func(m Mutant) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &Mutants[i]
}

// Kill runs seeds until one finds the mutant, so many at most. It returns the plan and the result of that one, and how
// many were tried.
func Kill(t *testing.T, m *Mutant, seeds int) (Plan, Result, int) {
	struck := false
	for seed := range uint64(seeds) {
		plan := NewPlan
		if m.Crowd {
			plan = NewCrowd
		}
		p := plan(seed+1, m.Kinds...)
		r := Run(t, p, m)
		struck = struck || r.Struck
		if len(r.Violations) > 0 {
			return p, r, int(seed) + 1
		}
	}
	if !struck {
		t.Errorf("mutant %s: no script has what it changes", m.Name)
	}
	return Plan{}, Result{}, seeds
}
