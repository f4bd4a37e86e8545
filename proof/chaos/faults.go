package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/redistest"
)

// What becomes of the keys in a fault.
type keys int

const (
	kept     keys = iota
	lost          // all are gone, or some
	older         // those of a replica that had not received everything take their place
	shifted       // the server's clock counts them wrong
	repeated      // requests run twice
)

// fault is something that goes wrong. inflict lets it begin and end; it is called again and again.
type fault struct {
	name, what string
	on         []string // deployments; nil: all
	keys       keys
	once       bool // it takes seconds, or leaves nothing that it could befall again
	spent      bool // the servers are of no use afterwards
	wait       bool // clients have MinReplicas
	safe       bool // clients have SurviveFailover, on servers that it accepts
	clock      bool // it sets clocks
	wires      bool // the nodes talk to each other over wires
	atomic     bool // the servers migrate slots by themselves
	inflict    func(s *scene, rnd *rand.Rand)
}

// deployed is the name of the fault that is none.
const deployed = "rolling deploy"

var replicatedOnly = []string{sentinel, cluster}

var faults = []fault{
	{name: "none", what: "nothing goes wrong", inflict: func(*scene, *rand.Rand) { time.Sleep(300 * time.Millisecond) }},
	{name: "client paused", what: "a client is stopped (SIGSTOP) for longer than its leases and goes on",
		inflict: func(s *scene, rnd *rand.Rand) {
			k := s.anyone(rnd)
			k.signal(syscall.SIGSTOP)
			time.Sleep(lease * 3 / 2)
			k.signal(syscall.SIGCONT)
		}},
	{name: "client killed", what: "a client is killed (SIGKILL), another takes its place",
		inflict: func(s *scene, rnd *rand.Rand) {
			s.replace(rnd.IntN(parties))
		}},
	{name: deployed, what: "clients end in good order one by one, and others take their places; with -old all " +
		"change from the old version to the new and back", once: true,
		inflict: func(s *scene, _ *rand.Rand) {
			s.deploy()
			s.deploy()
		}},
	{name: "server paused",
		what: "a primary (of the five, two) is stopped for longer than a lease and goes on; its replica may take its place " +
			"meanwhile", keys: older, spent: true, inflict: func(s *scene, rnd *rand.Rand) {
			hit := s.victims(rnd)
			for _, n := range hit {
				n.Stop(s.st)
			}
			time.Sleep(lease * 3 / 2)
			for _, n := range hit {
				n.Resume(s.st)
			}
		}},
	{name: "server stalls", what: "DEBUG SLEEP 0.6: a primary does nothing for 600 ms",
		inflict: func(s *scene, rnd *rand.Rand) {
			for _, n := range s.victims(rnd) {
				s.ask(n, "DEBUG", "SLEEP", "0.6")
			}
		}},
	{name: "server killed", what: "a primary (two of the five) is killed and starts again at once, with its data",
		keys: older, spent: true, inflict: func(s *scene, rnd *rand.Rand) {
			s.crash(s.victims(rnd), false)
		}},
	{name: "restart empty", what: "a primary (two of the five) is killed and starts again at once, without its data",
		keys: lost, once: true, spent: true, inflict: func(s *scene, rnd *rand.Rand) {
			s.crash(s.victims(rnd), true)
		}},
	{name: "black hole", what: "a client's network loses all that goes in one direction, or in both, for longer than " +
		"a lease", inflict: func(s *scene, rnd *rand.Rand) {
		way := rnd.IntN(3)
		s.proxied(rnd, lease*3/2, func(p *redistest.Proxy) {
			if way != 0 {
				p.BlackHole(redistest.Up)
			}
			if way != 1 {
				p.BlackHole(redistest.Down)
			}
		})
	}},
	{name: "delay", what: "a client's network takes up to 150 ms more in each direction",
		inflict: func(s *scene, rnd *rand.Rand) {
			up, down := time.Duration(rnd.IntN(150))*time.Millisecond, time.Duration(rnd.IntN(150))*time.Millisecond
			s.proxied(rnd, 700*time.Millisecond, func(p *redistest.Proxy) { p.Delay(up, down) })
		}},
	trapped("lost reply", "the connection is cut, or falls silent, when the server has run a script and before it answers",
		redistest.LoseReply, redistest.LoseReplySilently),
	trapped("lost request", "the connection is cut, or falls silent, before a script reaches the server",
		redistest.LoseRequest, redistest.LoseRequestSilently),
	{name: "doubled request", what: "every script of a client runs twice", keys: repeated,
		inflict: func(s *scene, rnd *rand.Rand) {
			s.proxied(rnd, 600*time.Millisecond, func(p *redistest.Proxy) {
				p.Trap(&redistest.Trap{Match: redistest.IsScript, Fate: redistest.RunTwice, Every: true})
			})
		}},
	{name: "reset", what: "all connections of a client are reset", inflict: func(s *scene, rnd *rand.Rand) {
		s.proxied(rnd, 100*time.Millisecond, func(p *redistest.Proxy) { p.Cut() })
	}},
	{name: "lost messages", what: "no message and no invalidation reaches a client",
		inflict: func(s *scene, rnd *rand.Rand) {
			s.proxied(rnd, time.Second, func(p *redistest.Proxy) { p.SwallowPushes() })
		}},
	{name: "clock forward", what: "the clock of a primary (of two of the five) steps 3 s forward", keys: shifted,
		clock: true, once: true, spent: true, inflict: clockStep(3 * time.Second)},
	{name: "clock back", what: "the clock of a primary (of two of the five) steps 3 s back", clock: true, once: true,
		spent: true, inflict: clockStep(-3 * time.Second)},
	{name: "failover", what: "a primary is killed, its replica takes its place, it comes back as a replica",
		on: replicatedOnly, keys: older, once: true, spent: true, inflict: func(s *scene, rnd *rand.Rand) {
			s.failover(s.victims(rnd)[0], false)
		}},
	{name: "failover that forgets", what: "the same, while the replica had stopped receiving", on: replicatedOnly,
		keys: older, once: true, spent: true, inflict: func(s *scene, rnd *rand.Rand) {
			s.failover(s.victims(rnd)[0], true)
		}},
	{name: "failover with WAIT", what: "the same, clients with MinReplicas: 1", on: replicatedOnly, keys: older,
		wait: true, once: true, spent: true, inflict: func(s *scene, rnd *rand.Rand) {
			s.failover(s.victims(rnd)[0], true)
		}},
	{name: "split brain", what: "a primary is cut off, with one client, from all other nodes and clients; both sides go " +
		"on for two leases after its replica took its place", on: replicatedOnly, keys: older, once: true, spent: true,
		wires: true, inflict: func(s *scene, rnd *rand.Rand) {
			s.partition(s.victims(rnd)[0])
		}},
	{name: "split brain with WAIT", what: "the same, clients with MinReplicas: 1", on: replicatedOnly, keys: older,
		wait: true, once: true, spent: true, wires: true, inflict: func(s *scene, rnd *rand.Rand) {
			s.partition(s.victims(rnd)[0])
		}},
	{name: "failover under SurviveFailover", what: "failover that forgets, clients with SurviveFailover, servers with " +
		"min-replicas-to-write 1", on: replicatedOnly, keys: older, wait: true, safe: true, once: true, spent: true,
		inflict: func(s *scene, rnd *rand.Rand) {
			s.failover(s.victims(rnd)[0], true)
		}},
	{name: "split brain under SurviveFailover", what: "split brain, clients with SurviveFailover, servers with " +
		"min-replicas-to-write 1", on: replicatedOnly, keys: older, wait: true, safe: true, once: true, spent: true,
		wires: true, inflict: func(s *scene, rnd *rand.Rand) {
			s.partition(s.victims(rnd)[0])
		}},
	{name: "slot migration", what: "slots that are in use are migrated to another primary, key by key",
		on: []string{cluster}, spent: true, inflict: func(s *scene, rnd *rand.Rand) { s.migrate(rnd) }},
	{name: "atomic slot migration",
		what: "slots that are in use are migrated to another primary, hundreds at once, by the " +
			"servers themselves (CLUSTER MIGRATION IMPORT of Redis 8.4, CLUSTER MIGRATESLOTS of Valkey 9.0)",
		on: []string{cluster}, spent: true, atomic: true,
		inflict: func(s *scene, rnd *rand.Rand) { s.migrateAtOnce(rnd) }},
	{name: "eviction", what: "a primary (two of the five) has less memory than it uses, and evicts keys", keys: lost,
		spent: true, inflict: func(s *scene, rnd *rand.Rand) {
			for _, n := range s.victims(rnd) {
				info, _ := n.TryAsk(s.st, "INFO", "memory")
				_, used, _ := strings.Cut(info, "used_memory:")
				used, _, _ = strings.Cut(used, "\r")
				bytes, _ := strconv.Atoi(used)
				s.ask(n, "CONFIG", "SET", "maxmemory-policy", "allkeys-random")
				s.ask(n, "CONFIG", "SET", "maxmemory", strconv.Itoa(bytes-2000-rnd.IntN(20_000)))
			}
			time.Sleep(300 * time.Millisecond)
			s.spacious("noeviction")
		}},
	{name: "FLUSHALL", what: "a primary (two of the five) loses all keys", keys: lost, spent: true,
		inflict: func(s *scene, rnd *rand.Rand) {
			for _, n := range s.victims(rnd) {
				s.wipe(func() { s.ask(n, "FLUSHALL") })
			}
			time.Sleep(500 * time.Millisecond)
		}},
	{name: "SCRIPT FLUSH", what: "all servers forget all scripts", inflict: everyNode("SCRIPT", "FLUSH")},
	{name: "CLIENT KILL", what: "all servers end all connections of clients", inflict: func(s *scene, rnd *rand.Rand) {
		everyNode("CLIENT", "KILL", "TYPE", "normal")(s, rnd)
		everyNode("CLIENT", "KILL", "TYPE", "pubsub")(s, rnd)
	}},
	{name: "ACL change", what: "the user loses its right to scripts, to writes, to keys or to channels, and gets it back",
		inflict: func(s *scene, rnd *rand.Rand) {
			without := []string{"-@scripting", "-@write", "resetkeys", "resetchannels"}[rnd.IntN(4)]
			everyNode("ACL", "SETUSER", user, without)(s, rnd)
			time.Sleep(400 * time.Millisecond)
			s.rightful()
		}},
	{name: "full memory", what: "a primary (two of the five) has no memory left, and evicts nothing",
		inflict: func(s *scene, rnd *rand.Rand) {
			for _, n := range s.victims(rnd) {
				s.ask(n, "CONFIG", "SET", "maxmemory", "1")
			}
			time.Sleep(600 * time.Millisecond)
			s.spacious("noeviction")
		}},
}

func trapped(name, what string, fates ...redistest.Fate) fault {
	return fault{name: name, what: what, inflict: func(s *scene, rnd *rand.Rand) {
		fate := fates[rnd.IntN(len(fates))]
		s.proxied(rnd, 400*time.Millisecond, func(p *redistest.Proxy) {
			for range 3 {
				p.Trap(&redistest.Trap{Match: redistest.IsScript, Fate: fate})
			}
		})
	}}
}

func clockStep(d time.Duration) func(s *scene, rnd *rand.Rand) {
	return func(s *scene, rnd *rand.Rand) {
		time.Sleep(500 * time.Millisecond) // something is held
		for _, n := range s.victims(rnd) {
			if err := stepClock(n.Process.Pid, d); err != nil {
				s.st.Fatalf("clock: %v", err)
			}
		}
		time.Sleep(lease)
	}
}

func everyNode(args ...string) func(s *scene, rnd *rand.Rand) {
	return func(s *scene, _ *rand.Rand) {
		for _, n := range s.d.nodes {
			s.ask(n, args...)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// ask sends a server one command; it may be away.
func (s *scene) ask(n *redistest.Server, args ...string) { _, _ = n.TryAsk(s.st, args...) }

// victims are the primary, one of the primaries, or two of the five.
func (s *scene) victims(rnd *rand.Rand) []*redistest.Server {
	all := s.d.primaries()
	if len(all) == 0 {
		s.st.Fatalf("no primary answers")
	}
	n := 1
	if s.d.name == five {
		n = 2
	}
	if s.struck != nil && s.d.name == five { // a minority in the whole cell
		return s.struck
	}
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	s.struck = all[:n]
	return s.struck
}

func (s *scene) crash(hit []*redistest.Server, empty bool) {
	dead := func() {
		for _, n := range hit {
			n.Kill(s.st)
		}
	}
	if empty {
		s.wipe(dead)
	} else {
		dead()
	}
	time.Sleep(100 * time.Millisecond)
	for _, n := range hit {
		n.Revive(s.st, empty)
	}
	time.Sleep(500 * time.Millisecond)
}

// wipe notes when keys are deleted.
func (s *scene) wipe(f func()) {
	e := event{Do: "wiped", Call: now()}
	f()
	e.Return = now()
	s.note(e)
}

// failover kills n and returns when its replica has taken its place and n is back. behind: the replica does not have
// the last writes.
func (s *scene) failover(n *redistest.Server, behind bool) {
	heir := s.d.other(n)
	if behind {
		heir.Stop(s.st)
		s.ask(n, "CLIENT", "KILL", "TYPE", "replica") // what was sent already would be read after all when it goes on
	}
	time.Sleep(600 * time.Millisecond)
	n.Kill(s.st)
	if behind {
		heir.Resume(s.st)
	}
	redistest.Eventually(s.st, 3*time.Minute, "the replica takes the place of its primary", func() bool {
		info, err := heir.TryAsk(s.st, "INFO", "replication")
		return err == nil && strings.Contains(info, "role:master")
	})
	time.Sleep(300 * time.Millisecond)
	n.Revive(s.st, false)
	// it holds itself for the primary until it hears of its heir; what is migrated to it until then is lost
	if s.d.name == cluster {
		redistest.Eventually(s.st, time.Minute, "the old primary is a replica", func() bool {
			info, err := n.TryAsk(s.st, "INFO", "replication")
			return err == nil && strings.Contains(info, "role:slave") && strings.Contains(info, "master_link_status:up")
		})
	}
}

// toMigrate are the primaries in any order, and some key of the first; "" if there is no second, or no key.
func (s *scene) toMigrate(rnd *rand.Rand) (all []*redistest.Server, key string) {
	if all = s.d.primaries(); len(all) < 2 {
		return nil, ""
	}
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	key, err := all[0].TryAsk(s.st, "RANDOMKEY")
	if err != nil {
		return nil, ""
	}
	return all, key
}

// migrate moves the slot of some key to another primary, all of it: a node that learns of the slot's new owner while
// it still holds keys of it removes them. So a step that is refused or not answered, because the machine stood still,
// is made again; a key that was moved by a MIGRATE whose answer came too late is there twice, and the one that clients
// wrote to replaces the other.
func (s *scene) migrate(rnd *rand.Rand) {
	all, key := s.toMigrate(rnd)
	if key == "" {
		return
	}
	from, to := all[0], all[1]
	done := func(n *redistest.Server, what string, f func() error) {
		var err error
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if err = f(); err == nil {
				return
			}
		}
		s.st.Fatalf("while a slot is migrated, %s does not do %s: %v", n.Addr(), what, err)
	}
	ask := func(n *redistest.Server, args ...string) (answer string) {
		done(n, strings.Join(args, " "), func() (err error) {
			answer, err = n.TryAsk(s.st, args...)
			return err
		})
		return answer
	}
	slot, fromID, toID := ask(from, "CLUSTER", "KEYSLOT", key), ask(from, "CLUSTER", "MYID"), ask(to, "CLUSTER", "MYID")
	host, port, _ := strings.Cut(to.Addr(), ":")
	ask(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	ask(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	for {
		var keys []string
		done(from, "GETKEYSINSLOT", func() (err error) {
			keys, err = from.TryAskList(s.st, "CLUSTER", "GETKEYSINSLOT", slot, "10")
			return err
		})
		if len(keys) == 0 {
			break
		}
		for _, k := range keys {
			ask(from, "MIGRATE", host, port, k, "0", "2000", "REPLACE")
			time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
		}
	}
	for _, n := range append([]*redistest.Server{to, from}, all[2:]...) {
		ask(n, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
}

// migrateAtOnce moves the range of slots around some key to another primary. The old one copies the keys and what is
// done to them meanwhile, holds writes up for a moment, and the range changes hands. If this fails, the range stays
// where it was, and is moved again.
func (s *scene) migrateAtOnce(rnd *rand.Rand) {
	const most = 1000 // slots
	all, key := s.toMigrate(rnd)
	if key == "" {
		return
	}
	from, to := all[0], all[1]
	slot := int(keyname.Slot(key))
	owned := slotsOf(s.st, from)
	in := slices.IndexFunc(owned, func(r slotRange) bool { return r.first <= slot && slot <= r.last })
	if in < 0 {
		return // it was moved away, and its keys are not all deleted yet
	}
	first := max(owned[in].first, slot-rnd.IntN(most))
	last := min(owned[in].last, first+most-1)
	toID, err := to.TryAsk(s.st, "CLUSTER", "MYID")
	if err != nil {
		return
	}
	at, order := to, []string{"CLUSTER", "MIGRATION", "IMPORT", strconv.Itoa(first), strconv.Itoa(last)} // Redis
	if slices.Contains(migrating(s.st, from), "cluster|migrateslots") {                                  // Valkey
		at, order = from, []string{"CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last), "NODE",
			toID}
	}
	var ordered time.Time
	redistest.Eventually(s.st, time.Minute, "slots "+strings.Join(order[2:], " ")+" have changed hands", func() bool {
		// It is refused while the last one is not over, and fails if the machine stands still.
		if time.Since(ordered) > 5*time.Second {
			if _, err := at.TryAsk(s.st, order...); err == nil {
				ordered = time.Now()
			}
		}
		holds := func(r slotRange) bool { return r.first <= first && last <= r.last }
		return slices.ContainsFunc(slotsOf(s.st, to), holds) && !slices.ContainsFunc(slotsOf(s.st, from), holds)
	})
}

// slotRange is slots that a node serves.
type slotRange struct{ first, last int }

// slotsOf are the slots of a node, by its own account; none if it does not answer.
func slotsOf(st *redistest.Stage, n *redistest.Server) (list []slotRange) {
	text, _ := n.TryAsk(st, "CLUSTER", "NODES")
	for line := range strings.Lines(text) {
		words := strings.Fields(line) // id address flags primary ping pong epoch state slots…
		if len(words) < 9 || !strings.Contains(words[2], "myself") {
			continue
		}
		for _, w := range words[8:] {
			first, last, ok := strings.Cut(w, "-")
			if !ok {
				last = first
			}
			var r slotRange
			var err, bad error
			r.first, err = strconv.Atoi(first)
			r.last, bad = strconv.Atoi(last)
			if err == nil && bad == nil { // otherwise it is of a migration, in brackets
				list = append(list, r)
			}
		}
	}
	return list
}

// migrating are the commands of the server that migrate slots atomically, in the words of COMMAND LIST.
func migrating(st *redistest.Stage, n *redistest.Server) []string {
	list, _ := n.TryAskList(st, "COMMAND", "LIST", "FILTERBY", "PATTERN", "cluster|migrat*")
	return list
}

// lacks tells what the servers lack for the fault, if anything.
func (f fault) lacks(d *deployment) string {
	if !f.atomic || len(migrating(d.st, d.nodes[0])) > 0 {
		return ""
	}
	return "the servers have neither CLUSTER MIGRATION nor CLUSTER MIGRATESLOTS"
}

// proxied has one client's network fail for some time.
func (s *scene) proxied(rnd *rand.Rand, d time.Duration, begin func(p *redistest.Proxy)) {
	k := s.anyone(rnd)
	for _, p := range k.proxies {
		begin(p)
	}
	time.Sleep(d)
	for _, p := range k.proxies {
		p.Heal()
	}
}

// spacious ends what was done to the memory of servers.
func (s *scene) spacious(policy string) {
	for _, n := range s.d.nodes {
		s.ask(n, "CONFIG", "SET", "maxmemory", "0")
		s.ask(n, "CONFIG", "SET", "maxmemory-policy", policy)
	}
}

// rightful gives the user all its rights.
func (s *scene) rightful() {
	for _, n := range s.d.nodes {
		s.ask(n, "ACL", "SETUSER", user, "on", "nopass", "~*", "&*", "+@all")
	}
}

// appliesTo tells whether the deployment can have the fault, and why not.
func (f fault) appliesTo(deployment, noClock string) (ok bool, why string) {
	if f.on != nil && !slices.Contains(f.on, deployment) {
		return false, ""
	}
	if f.clock && noClock != "" {
		return false, fmt.Sprintf("the clocks of servers cannot be set: %s", noClock)
	}
	if f.wires && redistest.Host() == "127.0.0.1" {
		return false, "this system has one loopback address only, so nodes cannot be distinguished"
	}
	return true, ""
}
