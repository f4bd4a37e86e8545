package beliefmodel

import (
	"fmt"
	"time"
)

// hold is what one owner has, as its process may know.
type hold struct {
	process, beat string
	until         time.Duration // it may believe so long
}

// seen is what one process has seen of a key of heartbeats.
type seen struct {
	expiry int64
	since  time.Duration // when it saw that first
	known  bool
}

// sight is what one process has seen of a lock.
type sight struct {
	owner string
	first time.Duration
	gone  map[string]bool // owners that it may remove
}

// BeatFollower follows what is seen of heartbeats and take-overs. Instants are durations since any moment, by a true
// clock.
type BeatFollower struct {
	trust  time.Duration
	holds  map[string]*hold         // by owner
	beats  map[string]time.Duration // when the last was sent that was confirmed, by key
	expiry map[string]time.Duration // of the key, by the server's clock
	looks  map[[2]string]*seen      // by process and key of heartbeats
	sights map[[2]string]*sight     // by process and lock
	Taken  int                      // holds that were removed
	Looks  int                      // at heartbeats
}

// NewBeatFollower makes one of processes that are trusted for that long after a heartbeat.
func NewBeatFollower(trust time.Duration) *BeatFollower {
	return &BeatFollower{trust: trust, holds: map[string]*hold{}, beats: map[string]time.Duration{},
		expiry: map[string]time.Duration{}, looks: map[[2]string]*seen{}, sights: map[[2]string]*sight{}}
}

// Held takes in that a process has heard that an owner of its has the lock since a question that was sent then, or
// later. beat is the key of its heartbeats.
func (f *BeatFollower) Held(at, sent time.Duration, process, beat, owner string) {
	h := f.holds[owner]
	if h == nil {
		h = &hold{process: process, beat: beat}
		f.holds[owner] = h
	} else if h.until < at { // over for good
		return
	}
	h.until = max(h.until, trustUntil(at, sent, f.trust))
	if b, ok := f.beats[beat]; ok {
		h.until = max(h.until, trustUntil(at, b, f.trust))
	}
}

// Beat takes in that a server has run a heartbeat, whose key lasts for that long.
func (f *BeatFollower) Beat(server, lasts time.Duration, key string) { f.expiry[key] = server + lasts }

// Forgot takes in that the server has forgotten all.
func (f *BeatFollower) Forgot() { clear(f.expiry) }

// Confirmed takes in that a process has heard of its heartbeat. What is over it brings nothing back.
func (f *BeatFollower) Confirmed(at, sent time.Duration, key string) {
	f.beats[key] = max(f.beats[key], sent)
	for _, h := range f.holds {
		if h.beat == key && h.until >= at {
			h.until = max(h.until, trustUntil(at, sent, f.trust))
		}
	}
}

// Says takes in until when a holder of a process says that it believes.
func (f *BeatFollower) Says(at, until time.Duration, process string) error {
	most := time.Duration(0)
	for _, h := range f.holds {
		if h.process == process {
			most = max(most, h.until)
		}
	}
	if until > most+slack/2 {
		return fmt.Errorf("the model refuses that %s believes at %v until %v: by its heartbeats it may until %v", process, at,
			until, most)
	}
	return nil
}

// Saw takes in who holds a lock by what a process has heard of it; "": it is free, or the holder has no heartbeats.
func (f *BeatFollower) Saw(at time.Duration, process, lock, owner string) {
	k := [2]string{process, lock}
	if s := f.sights[k]; s == nil {
		f.sights[k] = &sight{owner: owner, first: at, gone: map[string]bool{}}
	} else if s.owner != owner {
		s.owner, s.first = owner, at
	}
}

// Ran takes in what a server has replied to a look at a key of heartbeats: when it expires, in ms of the server's clock
// since any moment of its own, which is zero; 0: it is not there.
func (f *BeatFollower) Ran(server time.Duration, key string, expiry, zero int64) error {
	is := f.expiry[key]
	if is+slack < server {
		is = 0
	}
	said := time.Duration(expiry-zero) * time.Millisecond
	if expiry == 0 && is > server+slack || expiry != 0 && max(said-is, is-said) > slack {
		return fmt.Errorf("the model refuses that %s expires at %v: it has it at %v", key, said, is)
	}
	return nil
}

// Looked takes in the reply to a look, which says when a key of heartbeats expires, and whose lock that is: of the
// owners that a process has seen hold locks, beatOf tells the key.
func (f *BeatFollower) Looked(
	at, sent time.Duration, process, key string, expiry int64, beatOf func(owner string) string,
) {
	f.Looks++
	k := [2]string{process, key}
	b := f.looks[k]
	if b == nil {
		b = &seen{}
		f.looks[k] = b
	}
	changed := expiry != 0 && (b.expiry == 0 || max(expiry-b.expiry, b.expiry-expiry) > 2)
	since := b.since
	for s, x := range f.sights {
		if s[0] != process || x.owner == "" || beatOf(x.owner) != key {
			continue
		}
		w := Watch{First: micros(at - x.first), Since: micros(at - b.since), Known: b.known}
		if w.Saw(changed, micros(at-sent), micros(f.trust), Whole) {
			x.gone[x.owner] = true
		}
	}
	if changed || !b.known {
		since = at
	}
	b.since, b.known = since, true
	if expiry != 0 {
		b.expiry = expiry
	}
}

// Removed takes in that a process has removed an owner, or tried to: the model lets it do so only when it has seen the
// heartbeat unchanged for long enough, and the holder does not believe any more.
func (f *BeatFollower) Removed(at time.Duration, process, lock, owner string, did bool) error {
	if s := f.sights[[2]string{process, lock}]; s == nil || !s.gone[owner] {
		return fmt.Errorf("the model refuses that %s removes %s from %s at %v: it has seen %+v", process, owner, lock, at, s)
	}
	if h := f.holds[owner]; did && h != nil && h.until > at {
		return fmt.Errorf("the model refuses that %s removes %s from %s at %v: its process believes until %v", process, owner,
			lock, at, h.until)
	}
	if did {
		f.Taken++
	}
	return nil
}
