package simulation

import (
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// While the network is well, and until a crowd has settled:
//
//   - what is free, with a caller waiting for it, is acquired within two round trips and 10 ms, plus one round trip for
//     each grant whose caller has left meanwhile;
//   - what no caller holds is not taken for longer than two round trips and 10 ms;
//   - a call that gives up returns that soon.
//
// Two kinds of crowds have bounds of their own. What is released by UnlockAfter is free from the server's end on, which
// is so long after the acquisition, and not a moment sooner: these times count from there. Without Pub/Sub the first
// two may take a PollCap more; a fair lock, of which each in line may leave before it asks, three of them.
//
// Times are exact: the clients, servers and goroutines of a simulation take none.

// slack is what the library may take besides its round trips.
const slack = 10 * time.Millisecond

// warming is for how long a crowd is not judged: servers do not know the scripts, and clients connect.
const warming = 200 * time.Millisecond

// settling is for how long a crowd is looked at after its last call has ended.
const settling = 100 * time.Millisecond

// progress is what the oracle knows of one resource in a crowd.
type progress struct {
	owners   map[string]time.Time // as the server has them: since when no caller has them here
	reported map[string]bool      // the owners that were reported
	left     map[string]time.Time // when a process, or an id, had it last
	grants   int                  // by the server
	before   int                  // of them, when it became free
}

// deaf is how much longer it takes those to whom no message says that something is free: they ask once in a PollCap.
func (p Plan) deaf() time.Duration {
	if p.Mute {
		return pollCap
	}
	return 0
}

// soon is how long the library may take for what takes it two round trips.
func (p Plan) soon() time.Duration { return 4*p.Longest + slack }

// kept: c is released by UnlockAfter of d, which counts from when c was acquired: a round trip before its caller knew,
// at most. It is taken until the server's end then, though others wait, and no longer than anything else. The server
// counts what is left of d from when the call arrives, in whole milliseconds, and the last of them is the lock's.
func (w *world) kept(c *claim, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range c.units {
		r.kept = later(r.kept, c.from.Add(d+w.plan.Longest+2*time.Millisecond))
		r.firm = later(r.firm, c.from.Add(d-2*w.plan.Longest-time.Millisecond))
	}
}

// granted: the server gives a unit of what key keeps to a caller. Called by node.before, within the server's script.
func (w *world) granted(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.resources {
		if key == r.name || strings.HasPrefix(key, "{"+r.name+"}:") {
			r.progress.grants++
		}
	}
}

// lookAtProgress is called each millisecond of a crowd, while no client runs.
func (w *world) lookAtProgress(began time.Time) {
	now := time.Now()
	warm := now.After(began.Add(warming))
	for _, n := range w.nodes {
		n.tick()
		n.m.Keys() // ends what has ended, also when no client asks
	}
	for _, o := range w.objects {
		if o.kind.owners == nil {
			continue
		}
		late := w.plan.deaf()
		if o.kind.late != nil {
			late += o.kind.late(w.plan)
		}
		for _, r := range o.parts {
			var there []string
			for _, n := range r.nodes {
				there = append(there, o.kind.owners(n, r.name)...)
			}
			w.mu.Lock()
			w.lookAtOwners(r, there, now, warm)
			if !r.isLimit {
				w.lookAtFree(r, late, now, warm)
			}
			w.mu.Unlock()
		}
	}
}

// lookAtOwners: what no caller holds is not taken for long. Called with mu held.
func (w *world) lookAtOwners(r *resource, there []string, now time.Time, warm bool) {
	had := map[string]bool{}
	for c := range r.active {
		for _, id := range c.mine() {
			had[id] = true
		}
	}
	for c := range r.waiting {
		if len(c.units) > 1 { // a Multi has what it could get, while it waits for the rest
			for _, id := range c.mine() {
				had[id] = true
			}
		}
	}
	since := map[string]time.Time{}
	for _, owner := range there {
		at, seen := r.progress.owners[owner]
		if !seen {
			at = now
		}
		for id, t := range r.progress.left {
			if of(owner, id) {
				at = later(at, t)
			}
		}
		for id := range had {
			if of(owner, id) {
				at = now
			}
		}
		at = later(at, r.kept)
		since[owner] = at
		d := now.Sub(at)
		if d > 0 && warm {
			w.figures.LongestOrphan = max(w.figures.LongestOrphan, d)
		}
		if d > w.plan.soon()+w.plan.deaf() && warm && !r.progress.reported[owner] {
			r.progress.reported[owner] = true
			w.violation("%s: no caller has had it for %v, and it is taken for %s; %d wait", r.name, d.Round(time.Microsecond),
				printed(owner), len(r.waiting))
		}
	}
	r.progress.owners = since
}

// lookAtFree: what is free is acquired soon. late is how much longer a kind may take. Called with mu held.
func (w *world) lookAtFree(r *resource, late time.Duration, now time.Time, warm bool) {
	used, most, first := 0, 0, time.Time{}
	for c := range r.active {
		used += c.units[r]
	}
	for c := range r.waiting {
		if len(c.units) > 1 && c.tenant == "" { // a Multi has what it could get, while it waits for the rest
			most = r.capacity + 1
			break
		}
		if !c.hasRoom(r) { // its tenant holds its maximum
			continue
		}
		if most = max(most, c.units[r]); first.IsZero() || c.began.Before(first) {
			first = c.began
		}
	}
	if most == 0 || used+most > r.capacity || now.Before(r.kept) {
		r.free = time.Time{}
		return
	}
	if r.free.IsZero() {
		r.free, r.progress.before = now, r.progress.grants
	}
	d := now.Sub(later(r.free, first))
	if !warm || d <= 0 {
		return
	}
	w.figures.LongestFree = max(w.figures.LongestFree, d)
	bound := w.plan.soon() + late + time.Duration(r.progress.grants-r.progress.before)*2*w.plan.Longest
	if d > bound {
		w.violation("%s: there is room for each of the %d who wait, and none gets it for %v, with %d grants to callers "+
			"who had left", r.name, len(r.waiting), d, r.progress.grants-r.progress.before)
		r.free = now
	}
}

// of reports whether an owner is that of an id: a process's, a hold's, or a permit's without its number.
func of(owner, id string) bool {
	return owner == id || strings.HasPrefix(owner, id+":") || len(id) == permitBase && strings.HasPrefix(owner, id)
}

// permitBase is what the ids of permits have in common that are acquired together.
const permitBase = 13

// bases are what the ids of a permit have in common, as the server has them.
func bases(ids []string) []string {
	raw, _ := hex.DecodeString(ids[0])
	return []string{string(raw[:permitBase])}
}

// printed is an owner as people read it.
func printed(owner string) string {
	if utf8.ValidString(owner) {
		return owner
	}
	return hex.EncodeToString([]byte(owner))
}

// mine are the beginnings of a claim's owners: its ids, or what all owners of its process begin with.
func (c *claim) mine() []string {
	if c.ids != nil {
		return c.ids
	}
	return c.who.names
}

// overstayed judges how late a call returned that gave up.
func (w *world) overstayed(s Step, began time.Time) {
	if !w.plan.Crowd {
		return
	}
	d := time.Since(began) - s.Wait
	w.count(func(f *Figures) { f.LongestStay = max(f.LongestStay, d) })
	if d > w.plan.soon() {
		w.violated("step %d: the call gave up after %v, and returned %v later", s.Number, s.Wait, d)
	}
}

// fields are the owners of a lock that is a hash.
func fields(n *node, key string) (owners []string) {
	return slices.DeleteFunc(keysOfHash(n, key), func(f string) bool { return f == "mode" || strings.HasSuffix(f, "!") })
}

func keysOfHash(n *node, key string) []string {
	if n.m.Type(key) != "hash" {
		return nil
	}
	f, _ := n.m.HKeys(key)
	return f
}

// text is the owner of a lock that is a string.
func text(n *node, key string) []string {
	if n.m.Type(key) != "string" {
		return nil
	}
	owner, _ := n.m.Get(key)
	return []string{owner}
}

// members are the ids of permits in a sorted set.
func members(n *node, key string) []string {
	if n.m.Type(key) != "zset" {
		return nil
	}
	ids, _ := n.m.ZMembers(key)
	return ids
}
