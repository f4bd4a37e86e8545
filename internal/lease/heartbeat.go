package lease

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strconv"
	"sync"
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
	announcing = script.Plain("set")
)

// Heartbeats let others take over from a process that is gone before its leases are over, and take nothing from a
// process that is there. While anything is held a key's expiry is moved on every Interval, and a hold is trusted until
//
//	(monotonic time before the last confirmed beat was sent, or since when it may have existed) + Trust - Margin(Trust)
//
// unless its lease ends before. The end is final: a beat that is confirmed after that does not bring the hold back. A
// process that wants to take over has to see the hold, and the key unchanged or missing, for Trust by its own clock,
// and then has to find the hold still there:
//
//	holder                              the other
//	beat sent at s, confirmed
//	                                    sees that beat at r >= s
//	no beat is confirmed from here on
//	s + Trust - Margin: the hold is over
//	                                    sees that beat at r + Trust or later: removes the hold
//
// The change counts, not whether the key exists: a key that expired early, because the server's clock stepped or
// because it was deleted, is there again with the next beat. A beat whose key is deleted before a look can see it does
// not count. Trust counts for each hold from the first look at the hold, because a process that holds nothing does not
// beat. The first look may be as early as the server may have granted the hold; if earlier requests for it were sent
// before the answered one, that is before the answered one. Neither side compares its clock with the other's, or with
// the server's.
//
// Where others find out only by a beat that a process has heartbeats (Renewed), a beat has to be there before anything
// can be taken over. So a beat is sent with the first request, unless the key of the last beat outlasts the lease that
// is requested:
//
//	holder                                  the other
//	beat sent, permit asked for
//	granted
//	killed
//	                                        sees the permit, and the beat: takes the permit over
//
// An interval later would be too late: the permits of a process that is killed in its first second would be kept for
// their lease (the suite of internal/contract cuts such a process off). The very first beat is awaited before the
// permit is used, because a process that is killed earlier had no permit. Holds that are shorter than an interval cause
// a beat in Renewed and Trust.
//
// The idea of watching a version that its owner keeps changing is that of the Amazon DynamoDB lock client.
//
// Beats without Trust describe the process and do no more: no hold ends for want of them, nothing is taken over, and
// their failures are not logged. The first is sent a second after the first hold, in the background, for holds of any
// length; so nothing waits for it, and a program that holds something once, for less than a second, sends no beat.
type Heartbeats struct {
	Interval time.Duration // 0: no heartbeats
	Trust    time.Duration // 0: the beats describe the process only
	// Key is where the beats for the keys of one slot group (see SlotGroup) go.
	Key func(group int) string
	// Value tells people something about the process.
	Value string
	// Renewed, if it is not 0, is the lease of the holds that are renewed, and the beats are for those alone: a lease that
	// is not renewed, or is shorter, ends by itself whatever becomes of the process, and others know it by its owner. The
	// key of a beat then exists for as long as any such lease.
	Renewed time.Duration
}

// TrustFor returns for how long a process with that interval is trusted after a beat: for three of them, as a
// connection id says it.
func TrustFor(interval time.Duration) time.Duration {
	return (3*interval + trustUnit - 1).Truncate(trustUnit)
}

// lasts is for how long a beat's key is there after it.
func (h *heart) lasts() time.Duration { return 2 * (h.Trust + h.Renewed) }

// carries reports whether the beats have a say in a lease of that length.
func (h *Heartbeats) carries(length time.Duration, auto bool) bool {
	return h.Renewed == 0 || auto && length >= h.Renewed
}

// BeatKey is where a client of that connection id has its beats for the keys of a slot group: all in one place, unless
// the client is of a Cluster (see SlotGroups).
//
// The id says whether it is, not the client that looks. One process may be a client of the Cluster and another see it
// as one server, behind a proxy. If each looked where it has its own beats, it would not find the other's, and would
// take over the other's holds (TestLiveness_ProxyAndClusterClients_SeeEachOther in rlock).
func BeatKey(id string, group int) string {
	if !grouped(id) {
		return "redlatch_alive:" + id
	}
	return "redlatch_alive:{" + slotGroupTags()[group] + "}:" + id
}

// BeatKeyFor is the BeatKey for the group of key.
func BeatKeyFor(id, key string) string { return BeatKey(id, SlotGroup(grouped(id), key)) }

var slotGroupTags = sync.OnceValue(func() (tags [SlotGroups]string) {
	for group := range tags {
		tags[group] = SlotGroupTag(group)
	}
	return tags
})

// Announced are the beats of a process that has no others.
func Announced(key func(group int) string, who string) Heartbeats {
	return Heartbeats{Interval: announceEvery, Key: key, Value: who}
}

const (
	announceEvery = 10 * time.Minute
	announceFor   = 2 * announceEvery
	announceFrom  = time.Second // after the first hold
	announceAgain = time.Minute // after one that failed: the user may lack the right
)

// forever is later than everything.
const forever = instant(1<<63 - 1)

// SlotGroups is the number of parts into which a Cluster's slots are divided for heartbeats. Each part has a key of its
// own, so that a node that is down takes little more with it than its own locks, wherever slots move. The parts are
// fixed, not the nodes': all processes agree on them though they see slots move at different times. A part's key may be
// on another node than a lock of the part, which costs independence, not safety.
const SlotGroups = 16

const slots = 16384

// beatless is the group of leases that beats have no say in.
const beatless = SlotGroups

// SlotGroup returns the part to which a key belongs, where there are parts.
func SlotGroup(parts bool, key string) int {
	if !parts {
		return 0
	}
	return int(keyname.Slot(key)) * SlotGroups / slots
}

// SlotGroupTag returns a hash tag of the slots of a part, the same for all processes.
func SlotGroupTag(group int) string {
	for n := 0; ; n++ {
		if tag := strconv.Itoa(n); SlotGroup(true, tag) == group {
			return tag
		}
	}
}

// heart sends the beats of an engine. All of it is guarded by Engine.mu.
type heart struct {
	Heartbeats
	parts [SlotGroups]pulse
}

type pulse struct {
	leases int
	beat   instant // before the last confirmed beat was sent
	since  instant // before the first of the unbroken row of beats to which that belongs was sent
	began  instant // and when it was confirmed
	next   instant // when a beat is due
	flying bool
	landed chan struct{} // closed when the beat under way was answered or given up; nil: it is not awaited
	owed   bool          // a beat is sent also if nothing is held any more
	failed bool          // the last beat failed, and that was logged
	ends   instant       // no lease ends before this for want of beats
	slept  time.Duration // how much of the time since the beat the machine may have slept
}

// trusted returns until when l may be relied on as far as beats go. A row of beats that began when l's time was over
// does not help l (TestHeartbeat_AfterAGap_BringsNothingBack).
func (h *heart) trusted(l *Lease) instant {
	if h.Trust == 0 || l.group == beatless {
		return forever
	}
	p, trust := &h.parts[l.group], h.trust()
	end := l.asked.Add(trust)
	if !l.asked.Before(p.since) || p.began.Before(end) {
		end = max(end, p.beat.Add(trust))
	}
	return end
}

// until is trusted, less what the machine may have slept since the last beat.
func (h *heart) until(l *Lease) instant {
	if l.group == beatless {
		return forever
	}
	return h.trusted(l).Add(-h.parts[l.group].slept)
}

// trust is 0 if nothing depends on the beats: the margin of nothing is nothing.
func (h *heart) trust() time.Duration { return h.Trust - Margin(h.Trust) }

// first is when a beat is to be sent, if none is due before, because something is held from now on.
func (h *heart) first(p *pulse, now instant) instant {
	switch {
	case h.Trust > 0:
		return now.Add(h.Interval) // a hold that is short needs no beat
	case p.next == 0: // there has been none
		return now.Add(announceFrom)
	}
	return now
}

// confirmed notes that a beat sent at sent was confirmed at now.
func (p *pulse) confirmed(sent, now instant, trust time.Duration) {
	broken := trust > 0 && now.After(p.beat.Add(trust))
	p.beat = max(p.beat, sent)
	if broken {
		p.since, p.began = sent, now
		p.ends = 0 // to be found anew: leases may be over, and were not looked at yet
	} else {
		p.ends = max(p.ends, p.beat.Add(trust)) // forever without trust
	}
}

// over reports whether l's own time has come, by its lease or for want of beats.
func (e *Engine) over(l *Lease, now instant) bool {
	return !now.Before(l.deadline) || e.heart != nil && !now.Before(e.heart.trusted(l))
}

// wake has beats sent at once after a sleep, which the other processes have counted as time without a beat.
func (h *heart) wake(now instant, slept time.Duration) {
	for d := range h.parts {
		if p := &h.parts[d]; p.leases > 0 {
			p.slept += slept
			p.next = now
		}
	}
}

// stale reports whether a beat is due that shows that the process has heartbeats: no beat is under way, and the key of
// the last beat may end before a lease of now.
func (h *heart) stale(p *pulse, now instant) bool {
	return h.Renewed > 0 && !p.flying && (p.beat.IsZero() || !now.Before(p.beat.Add(h.lasts()/2)))
}

// Announce sends a beat, unless there is one, because a lease of key that is to be renewed is about to be requested.
// Where other processes know of no beat yet, landed is closed when that beat was answered or given up; otherwise it is
// nil.
func (e *Engine) Announce(key string) (landed <-chan struct{}) {
	if e.heart == nil || e.heart.Renewed == 0 {
		return nil
	}
	now, group := e.now(), SlotGroup(e.cluster, key)
	e.mu.Lock()
	defer e.mu.Unlock()
	p := &e.heart.parts[group]
	if e.heart.stale(p, now) && !now.Before(p.next) && e.ctx.Err() == nil {
		p.flying = true
		e.sendHeartbeat(group)
	}
	if !p.flying || !p.beat.IsZero() && now.Before(p.beat.Add(e.heart.lasts())) {
		return nil
	}
	if p.landed == nil {
		p.landed = make(chan struct{})
	}
	return p.landed
}

// count takes l in, and returns when the engine has to look next on its account.
func (h *heart) count(l *Lease, now instant) instant {
	if l.group == beatless {
		return forever
	}
	p := &h.parts[l.group]
	if p.leases++; p.leases == 1 {
		p.slept = 0
		p.ends = h.trusted(l)
		if p.next.Before(now) {
			p.next = h.first(p, now)
		}
		if h.stale(p, now) {
			p.owed, p.next = true, now
		}
	}
	p.ends = min(p.ends, h.trusted(l))
	return min(p.ends, p.next)
}

// checkHeartbeats ends the leases that were without a beat for too long, and returns which beats are to be sent, and
// when to look again. Called with mu held.
func (e *Engine) checkHeartbeats(now instant) (ended []*Lease, beats []int, next instant) {
	h := e.heart
	next = now.Add(time.Hour)
	for d := range h.parts {
		p := &h.parts[d]
		if p.leases == 0 && !p.owed {
			continue
		}
		if !now.Before(p.ends) {
			ended = append(ended, e.endUntrusted(d, now)...)
		}
		if !p.flying && !now.Before(p.next) && (p.leases > 0 || p.owed) {
			p.flying, p.owed = true, false
			beats = append(beats, d)
		}
		if p.leases > 0 {
			next = min(next, p.ends)
			if !p.flying {
				next = min(next, p.next)
			}
		}
	}
	return ended, beats, next
}

// endUntrusted removes and returns the leases of a group that were without a beat for too long. Called with mu held.
func (e *Engine) endUntrusted(group int, now instant) (ended []*Lease) {
	p := &e.heart.parts[group]
	p.ends = now.Add(time.Hour)
	for _, l := range e.due {
		if int(l.group) != group {
			continue
		}
		if end := e.heart.trusted(l); now.Before(end) {
			p.ends = min(p.ends, end)
		} else {
			ended = append(ended, l)
		}
	}
	for _, l := range ended { // not within the range over e.due, which this changes
		if l.state == registered {
			e.remove(l)
		}
	}
	return ended
}

// sendHeartbeat sends one beat.
func (e *Engine) sendHeartbeat(group int) {
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		h := e.heart
		key := h.Key(group)
		ctx, cancel := context.WithTimeout(e.ctx, h.Interval)
		defer cancel()
		sent := e.now()
		call := script.Call{
			Script: beatScript, Keys: []string{key}, Args: []string{script.Millis(h.lasts()), h.Value}, Patient: true,
			Late: func(res rueidis.RedisResult) {
				if res.Error() == nil {
					e.onLateHeartbeat(group, sent)
				}
			},
		}
		if h.Trust == 0 { // others look at the value alone
			call = script.Call{Script: announcing, Keys: call.Keys, Patient: true,
				Command: func(b rueidis.Builder) rueidis.Completed {
					return b.Set().Key(key).Value(h.Value).Px(announceFor).Build()
				}}
		}
		_, err := e.runner.Attempt(ctx, call)
		now := e.now()
		e.mu.Lock()
		p := &h.parts[group]
		p.flying = false
		if p.landed != nil {
			close(p.landed)
			p.landed = nil
		}
		warn := err != nil && p.leases > 0 && !p.failed && e.ctx.Err() == nil && h.Trust > 0
		p.failed = err != nil && (p.failed || p.leases > 0)
		if err == nil {
			p.confirmed(sent, now, h.trust())
			p.next = sent.Add(h.Interval)
			p.owed = false
			if sent.Before(e.woke) {
				p.next = now
			} else {
				p.slept = 0
			}
		} else if h.Trust == 0 {
			p.next = now.Add(announceAgain)
		} else {
			p.next = now.Add(min(max(h.Interval/10, time.Millisecond), 250*time.Millisecond))
		}
		e.wakeBy(min(p.next, max(p.ends, now)))
		e.mu.Unlock()
		if warn {
			e.log.Warn("redlatch: a heartbeat was not confirmed; what is held is lost unless one is in time", "trust", h.Trust,
				"error", err)
		}
	}()
}

// onLateHeartbeat takes in a beat that was confirmed after it had been given up. The beat counts from its own send, so
// a beat older than the last confirmed one changes nothing (TestHeartbeat_SlowServer_EndsNoHold).
func (e *Engine) onLateHeartbeat(group int, sent instant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := &e.heart.parts[group]; sent.After(p.beat) && !sent.Before(e.woke) {
		now := e.now()
		p.confirmed(sent, now, e.heart.trust())
		e.wakeBy(max(p.ends, now))
	}
}

// notifyExpired tells the holders of leases that were without a beat for too long.
func (e *Engine) notifyExpired(ended []*Lease) {
	for _, l := range ended {
		e.log.Warn("redlatch: hold ended: no heartbeat was confirmed in time", "name", l.Name, "owner", l.Called())
		l.Ended(errs.ErrLost)
	}
}

// Beat is what other processes see of a process.
type Beat struct {
	expiry int64 // server ms; 0: the key does not exist
	Value  string
}

// Same reports whether there was no beat between seeing b and seeing a. On servers that do not stop their clock during
// a script the expiry is 1 ms off now and then.
func (a Beat) Same(b Beat) bool {
	return a.expiry == 0 || b.expiry != 0 && max(a.expiry-b.expiry, b.expiry-a.expiry) <= 2
}

// Look returns the last beat of a key.
func Look(ctx context.Context, r *script.Runner, key string) (Beat, error) {
	m, err := r.Attempt(ctx, script.Call{Script: lookScript, Keys: []string{key}})
	if err != nil {
		return Beat{}, err
	}
	v, err := m.ToArray()
	if err != nil || len(v) != 2 {
		return Beat{}, script.Unexpected("heartbeat", fmt.Sprintf("of %d values", len(v)), err)
	}
	var b Beat
	b.expiry, _ = v[0].AsInt64()
	b.Value, _ = v[1].ToString()
	return b, nil
}

// mostAsked is how many processes Processes asks about.
const mostAsked = 100

// Processes returns the values of the last beats of these keys, which describe the processes for people. Beats that
// cannot be read are left out, and so are keys after the first hundred.
func Processes(ctx context.Context, r *script.Runner, keys []string) map[string]string {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	keys = keys[:min(len(keys), mostAsked)]
	who := make([]string, len(keys))
	var each errgroup.Group
	each.SetLimit(16)
	for i, key := range keys {
		each.Go(func() error {
			b, _ := Look(ctx, r, key) // without the right to look it is not known
			who[i] = b.Value
			return nil
		})
	}
	_ = each.Wait() // always nil
	found := make(map[string]string, len(keys))
	for i, key := range keys {
		found[key] = who[i]
	}
	return found
}
