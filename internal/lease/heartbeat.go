package lease

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

var (
	//go:embed lua
	lua embed.FS

	beatScript = script.Load("heartbeat", lua, "heartbeat_beat")
	lookScript = script.Load("look at a heartbeat", lua, "heartbeat_look").Reads()
	setScript  = script.Plain("set")
)

// Heartbeats let other processes take over from a dead process before its leases are over, and protect the holds of a
// living process. While anything is held, a beat moves a key's expiry every Interval. A hold is trusted until
//
//	(monotonic time before the last confirmed beat was sent, or since when it may have existed) + Trust - Margin(Trust)
//
// unless its lease ends before. The end is final: a beat that is confirmed later does not bring the hold back. A
// process that wants to take over has to see the hold, and the key unchanged or missing, for Trust by its own clock,
// and then has to find the hold still there. Neither side compares its clock with the other's, or with the server's.
//
// Beats without Trust only describe the process: no hold ends without them, nothing is taken over, and their failures
// are not logged. The first is sent a second after the first hold, in the background, for holds of any length. Nothing
// waits for it, and a program that holds something once, for less than a second, sends no beat.
//
// docs/design/protocols.md, "Crashed holders", has the interleavings.
type Heartbeats struct {
	Interval time.Duration // 0: no heartbeats
	Trust    time.Duration // 0: the beats only describe the process
	// Key returns the key of the beats for the leases of one slot group (see SlotGroup).
	Key func(group int) string
	// Value describes the process for people.
	Value string
	// Renewed, if it is not 0, is the lease of the holds that are renewed, and the beats are for those holds alone. A
	// lease that is not renewed, or is shorter, ends by itself whatever becomes of the process, and others recognise it by
	// its owner. The key of a beat then lasts as long as any such lease.
	Renewed time.Duration
}

// TrustFor returns how long a process with that interval is trusted after a beat: three intervals, rounded up to the
// unit of connection ids.
func TrustFor(interval time.Duration) time.Duration {
	return (3*interval + trustUnit - 1).Truncate(trustUnit)
}

// keyLifetime returns how long a beat's key lasts.
func (h *heartbeatState) keyLifetime() time.Duration { return 2 * (h.Trust + h.Renewed) }

// appliesTo reports whether a lease of that length depends on the beats.
func (h *Heartbeats) appliesTo(length time.Duration, auto bool) bool {
	return h.Interval > 0 && (h.Renewed == 0 || auto && length >= h.Renewed)
}

// BeatKey returns the key of a client's beats for the keys of a slot group. All groups share one key, unless the client
// is a Cluster's (see SlotGroups).
//
// The connection id says whether it is, not the client that looks. One process may be a client of the Cluster and
// another see the Cluster as one server, behind a proxy. If each looked at the keys of its own beats, it would not find
// the other's beats, and would take over the other's holds (TestLiveness_ProxyAndClusterClients_SeeEachOther in rlock).
func BeatKey(id string, group int) string {
	if !grouped(id) {
		return "redlatch_alive:" + id
	}
	return "redlatch_alive:{" + SlotGroupTag(group) + "}:" + id
}

// BeatKeyFor returns the BeatKey for the group of key.
func BeatKeyFor(id, key string) string { return BeatKey(id, SlotGroup(grouped(id), key)) }

// Announced returns beats without Trust, which only describe a process.
func Announced(key func(group int) string, process string) Heartbeats {
	return Heartbeats{Interval: announceEvery, Key: key, Value: process}
}

const (
	announceEvery = 10 * time.Minute
	announceFor   = 2 * announceEvery
	announceFrom  = time.Second // after the first hold
	announceAgain = time.Minute // after a failed beat: the user may lack the right
)

// SlotGroups is the number of parts into which a Cluster's slots are divided for heartbeats. Each part has a key of its
// own, so that a node that is down ends little more than its own locks, wherever slots move. The parts are fixed, and
// do not follow the nodes: all processes agree on them although they see slots move at different times. A part's key
// may be on another node than a lock of the part. Then the lock depends on both nodes, and stays safe.
const SlotGroups = 16

const slots = 16384

// noGroup is the group of leases that do not depend on beats.
const noGroup = SlotGroups

// SlotGroup returns the part of a key, and 0 if there are no parts.
func SlotGroup(parts bool, key string) int {
	if !parts {
		return 0
	}
	return int(keyname.Slot(key)) * SlotGroups / slots
}

// SlotGroupTag returns a hash tag in the slots of a part, the same for all processes.
func SlotGroupTag(group int) string {
	for n := 0; ; n++ {
		if tag := strconv.Itoa(n); SlotGroup(true, tag) == group {
			return tag
		}
	}
}

// heartbeatState is the state of an engine's beats. Guarded by Engine.mu.
type heartbeatState struct {
	Heartbeats
	grouped bool // each slot group has beats of its own, because the client is a Cluster's
	groups  [SlotGroups]beatGroup
}

// groupOf returns the slot group of a key.
func (h *heartbeatState) groupOf(key string) int { return SlotGroup(h.grouped, key) }

// beatGroup is the state of the beats for the leases of one slot group.
type beatGroup struct {
	leases           int           // registered leases
	lastSentAt       instant       // before the last confirmed beat was sent
	rowSince         instant       // before the first beat of the unbroken row that ends with that beat was sent
	rowConfirmedAt   instant       // when that first beat was confirmed
	nextAt           instant       // when the next beat is due
	inFlight         bool          // a beat is under way
	answered         chan struct{} // closed when the beat under way was answered or given up; nil: no caller waits for it
	dueWithoutLeases bool          // a beat is sent even if nothing is held any more
	lastFailed       bool          // the last beat failed, and the failure was logged
	noneEndsBefore   instant       // no lease ends before this for want of beats
	sleptFor         time.Duration // the time since the beat for which the machine may have slept
}

// trustedUntil returns the instant until which beats allow to rely on a lease. A row of beats that began when the
// lease's time was over does not help the lease (TestHeartbeat_AfterAGap_BringsNothingBack).
func (h *heartbeatState) trustedUntil(lease *Lease) instant {
	if h.Trust == 0 || lease.group == noGroup {
		return forever
	}
	state, trust := &h.groups[lease.group], h.trustPeriod()
	end := lease.trust.possibleSince.Add(trust)
	if !lease.trust.possibleSince.Before(state.rowSince) || state.rowConfirmedAt.Before(end) {
		end = max(end, state.lastSentAt.Add(trust))
	}
	return end
}

// safeUntil is trustedUntil, less the time for which the machine may have slept since the last beat.
func (h *heartbeatState) safeUntil(lease *Lease) instant {
	if lease.group == noGroup {
		return forever
	}
	return h.trustedUntil(lease).Add(-h.groups[lease.group].sleptFor)
}

// trustPeriod returns how long a lease is trusted after a beat. It is 0 without Trust.
func (h *heartbeatState) trustPeriod() time.Duration { return h.Trust - Margin(h.Trust) }

// firstBeatAt returns when a beat is due, if none is due before, because something is held from now on.
func (h *heartbeatState) firstBeatAt(state *beatGroup, now instant) instant {
	switch {
	case h.Trust > 0:
		return now.Add(h.Interval) // a hold that is shorter needs no beat
	case state.nextAt == 0: // no beat was sent yet
		return now.Add(announceFrom)
	}
	return now
}

// recordConfirmed records that a beat sent at sent was confirmed at now.
func (p *beatGroup) recordConfirmed(sent, now instant, trust time.Duration) {
	broken := trust > 0 && now.After(p.lastSentAt.Add(trust))
	p.lastSentAt = max(p.lastSentAt, sent)
	if broken {
		p.rowSince, p.rowConfirmedAt = sent, now
		p.noneEndsBefore = 0 // found anew: leases may be over, and were not checked yet
	} else {
		p.noneEndsBefore = max(p.noneEndsBefore, p.lastSentAt.Add(trust)) // forever without trust
	}
}

// isOver reports whether the lease is over, by its deadline or for want of beats.
func (e *Engine) isOver(lease *Lease, now instant) bool {
	return !now.Before(lease.trust.deadline) || !now.Before(e.heartbeats.trustedUntil(lease))
}

// wakeUp makes beats due at once after a sleep, because other processes have counted the sleep as time without a beat.
func (h *heartbeatState) wakeUp(now instant, slept time.Duration) {
	for group := range h.groups {
		if state := &h.groups[group]; state.leases > 0 {
			state.sleptFor += slept
			state.nextAt = now
		}
	}
}

// isBeatDue reports whether other processes need a beat before they can take over from this one: no beat is under way,
// and the key of the last beat may end before a lease that begins now.
func (h *heartbeatState) isBeatDue(state *beatGroup, now instant) bool {
	lastsLongEnough := !state.lastSentAt.IsZero() && now.Before(state.lastSentAt.Add(h.keyLifetime()/2))
	return h.Renewed > 0 && !state.inFlight && !lastsLongEnough
}

// Announce sends a beat, if other processes need one, because a lease of key that will be renewed is about to be
// requested. If no other process can know of a beat yet, answered is closed when that beat was answered or given up;
// otherwise it is nil.
func (e *Engine) Announce(key string) (answered <-chan struct{}) {
	if e.heartbeats.Renewed == 0 {
		return nil
	}
	now, group := e.clock.now(), e.heartbeats.groupOf(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	state := &e.heartbeats.groups[group]
	if e.heartbeats.isBeatDue(state, now) && !now.Before(state.nextAt) && e.ctx.Err() == nil {
		state.inFlight = true
		e.sendHeartbeat(group)
	}
	if !state.inFlight || !state.lastSentAt.IsZero() && now.Before(state.lastSentAt.Add(e.heartbeats.keyLifetime())) {
		return nil
	}
	if state.answered == nil {
		state.answered = make(chan struct{})
	}
	return state.answered
}

// addLease counts a lease, and returns when the engine has to check the beats next because of it.
func (h *heartbeatState) addLease(lease *Lease, now instant) instant {
	if lease.group == noGroup {
		return forever
	}
	state := &h.groups[lease.group]
	if state.leases++; state.leases == 1 {
		state.sleptFor = 0
		state.noneEndsBefore = h.trustedUntil(lease)
		if state.nextAt.Before(now) {
			state.nextAt = h.firstBeatAt(state, now)
		}
		if h.isBeatDue(state, now) {
			state.dueWithoutLeases, state.nextAt = true, now
		}
	}
	state.noneEndsBefore = min(state.noneEndsBefore, h.trustedUntil(lease))
	return min(state.noneEndsBefore, state.nextAt)
}

// checkHeartbeats ends the leases that were without a beat for too long. It returns them, the groups that are to send
// beats, and when to check again. Called with mu held.
func (e *Engine) checkHeartbeats(now instant) (ended []*Lease, beatGroups []int, next instant) {
	next = now.Add(time.Hour)
	for group := range e.heartbeats.groups {
		state := &e.heartbeats.groups[group]
		if state.leases == 0 && !state.dueWithoutLeases {
			continue
		}
		if !now.Before(state.noneEndsBefore) {
			ended = append(ended, e.endUntrusted(group, now)...)
		}
		if !state.inFlight && !now.Before(state.nextAt) && (state.leases > 0 || state.dueWithoutLeases) {
			state.inFlight, state.dueWithoutLeases = true, false
			beatGroups = append(beatGroups, group)
		}
		if state.leases > 0 {
			next = min(next, state.noneEndsBefore)
			if !state.inFlight {
				next = min(next, state.nextAt)
			}
		}
	}
	return ended, beatGroups, next
}

// endUntrusted removes and returns the leases of a group that were without a beat for too long. Called with mu held.
func (e *Engine) endUntrusted(group int, now instant) (ended []*Lease) {
	state := &e.heartbeats.groups[group]
	state.noneEndsBefore = now.Add(time.Hour)
	for _, lease := range e.leases {
		if int(lease.group) != group {
			continue
		}
		if end := e.heartbeats.trustedUntil(lease); now.Before(end) {
			state.noneEndsBefore = min(state.noneEndsBefore, end)
		} else {
			ended = append(ended, lease)
		}
	}
	for _, lease := range ended { // not within the range over e.leases, which remove changes
		if lease.state == registered {
			e.remove(lease)
		}
	}
	return ended
}

// sendHeartbeat sends one beat.
func (e *Engine) sendHeartbeat(group int) {
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		heartbeats := &e.heartbeats
		ctx, cancel := context.WithTimeout(e.ctx, heartbeats.Interval)
		defer cancel()
		sent := e.clock.now()
		call := script.Call{Script: beatScript, Keys: []string{heartbeats.Key(group)},
			Args: []string{script.Millis(heartbeats.keyLifetime()), heartbeats.Value}, Patient: true}
		if heartbeats.Trust == 0 { // other processes only read the value
			call.Script, call.Args = setScript, []string{heartbeats.Value, "PX", script.Millis(announceFor)}
		}
		call.Late = func(res rueidis.RedisResult) {
			if res.Error() == nil {
				e.onLateHeartbeat(group, sent)
			}
		}
		_, err := e.runner.Attempt(ctx, call)
		now := e.clock.now()
		e.mu.Lock()
		state := &heartbeats.groups[group]
		state.inFlight = false
		if state.answered != nil {
			close(state.answered)
			state.answered = nil
		}
		warn := err != nil && state.leases > 0 && !state.lastFailed && e.ctx.Err() == nil && heartbeats.Trust > 0
		state.lastFailed = err != nil && (state.lastFailed || state.leases > 0)
		if err == nil {
			state.recordConfirmed(sent, now, heartbeats.trustPeriod())
			state.nextAt = sent.Add(heartbeats.Interval)
			state.dueWithoutLeases = false
			if e.clock.sleptSince(sent) > 0 {
				state.nextAt = now
			} else {
				state.sleptFor = 0
			}
		} else if heartbeats.Trust == 0 {
			state.nextAt = now.Add(announceAgain)
		} else {
			state.nextAt = now.Add(min(max(heartbeats.Interval/10, time.Millisecond), 250*time.Millisecond))
		}
		e.wakeBy(min(state.nextAt, max(state.noneEndsBefore, now)))
		e.mu.Unlock()
		if warn {
			e.log.Warn("redlatch: a heartbeat was not confirmed; holds end unless one is confirmed in time",
				"trust", heartbeats.Trust, "error", err)
		}
	}()
}

// onLateHeartbeat records a beat that was confirmed after it had been given up. The beat counts from its own send, so a
// beat that is older than the last confirmed beat changes nothing (TestHeartbeat_SlowServer_EndsNoHold).
func (e *Engine) onLateHeartbeat(group int, sent instant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if state := &e.heartbeats.groups[group]; sent.After(state.lastSentAt) && e.clock.sleptSince(sent) == 0 {
		now := e.clock.now()
		state.recordConfirmed(sent, now, e.heartbeats.trustPeriod())
		e.wakeBy(max(state.noneEndsBefore, now))
	}
}

// notifyExpired calls Ended of leases that were without a beat for too long.
func (e *Engine) notifyExpired(ended []*Lease) {
	for _, lease := range ended {
		e.log.Warn("redlatch: hold ended: no heartbeat was confirmed in time", "name", lease.Name, "owner", lease.Of.Shown())
		lease.Of.Ended(errs.ErrLost)
	}
}

// Beat is the last beat of a process, as another process reads it.
type Beat struct {
	expiry int64 // server ms; 0: the key does not exist
	Value  string
}

// Same reports whether no beat came between the reads of b and a. On servers that do not stop their clock during a
// script the expiry is 1 ms off now and then.
func (a Beat) Same(beat Beat) bool {
	return a.expiry == 0 || beat.expiry != 0 && max(a.expiry-beat.expiry, beat.expiry-a.expiry) <= 2
}

// Look returns the last beat of a key.
func Look(ctx context.Context, runner *script.Runner, key string) (Beat, error) {
	message, err := runner.Attempt(ctx, script.Call{Script: lookScript, Keys: []string{key}})
	if err != nil {
		return Beat{}, err
	}
	values, err := message.ToArray()
	if err != nil || len(values) != 2 {
		return Beat{}, script.Unexpected("heartbeat", fmt.Sprintf("of %d values", len(values)), err)
	}
	var beat Beat
	beat.expiry, _ = values[0].AsInt64()
	beat.Value, _ = values[1].ToString()
	return beat, nil
}

// maxProcesses is the maximum number of keys that Processes reads.
const maxProcesses = 100

// Processes returns the values of the last beats of these keys, which describe the processes for people. The value is
// "" for a beat that cannot be read. Keys after the first hundred are left out.
func Processes(ctx context.Context, runner *script.Runner, keys []string) map[string]string {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	keys = keys[:min(len(keys), maxProcesses)]
	values := make([]string, len(keys))
	var looks errgroup.Group
	looks.SetLimit(16)
	for i, key := range keys {
		looks.Go(func() error {
			beat, _ := Look(ctx, runner, key) // without the right to look the value stays ""
			values[i] = beat.Value
			return nil
		})
	}
	_ = looks.Wait() // always nil
	found := make(map[string]string, len(keys))
	for i, key := range keys {
		found[key] = values[i]
	}
	return found
}
