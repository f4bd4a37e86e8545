package beliefmodel

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/proof/models/model"
)

// Passage is where a Step was seen.
type Passage uint8

// The passages.
const (
	Ran     Passage = iota // Ran: the server ran a request.
	Reached                // Reached: its reply reached the process.
	Heard                  // Heard: a grant reached it.
	Says                   // Says: a holder of the process says until when it believes.
	Forgot                 // Forgot: the server forgets the lock.
)

// Verb is what a request asks for.
type Verb uint8

// The verbs.
const (
	Acquire Verb = iota // Acquire: to have the lock.
	Renew               // Renew: to have it for longer; with a lease of 0, for how long it is had.
	Release             // Release: to have it no more.
	Remove              // Remove: that another has it no more.
	Look                // Look: who has it.
)

// Said is what a reply says.
type Said uint8

// The replies.
const (
	No      Said = iota // No: it is another's; there was nothing to renew or to release; no one has it.
	Yes                 // Yes: granted, renewed, released.
	TooLate             // TooLate: nothing was done.
)

// Step is what was seen of a lock. Instants are durations since any moment, the same in all steps.
type Step struct {
	At, Server, Sent time.Duration // by a true clock; by the server's; and when the request was sent, by a true one
	Passage          Passage
	Verb             Verb
	Process, Owner   string
	Lease            time.Duration // that is asked for; of a grant, that it names
	Said             Said
	Left             time.Duration // that the reply says is left; below 0: it does not say so
	NotAfter         time.Duration // by the server's clock; 0: it may come at any time
	First            time.Duration // of an acquire that queues: the lease of a hand-over
	Ticket           int64         // of a refusal or a grant; 0: none
	Next             string        // a release: the owner that has the lock then, or queues
	NextLease        time.Duration
	NextSaid         Said // Yes: it has the lock
	Until            time.Duration
}

// belief is what an owner's process may believe by what has reached it.
type belief struct {
	process  string
	until    time.Duration // by a true clock
	excused  bool          // the server has forgotten the lock since that was sent
	refused  time.Duration // when the question was sent that was refused last
	ticket   int64         // and what it got
	grants   map[int64]time.Duration
	released bool
	counts   time.Duration // when what moved it last was sent
}

// LeaseFollower follows what is seen of one lock.
type LeaseFollower struct {
	ways    model.Ways[Lock]
	names   map[string]Owner
	queued  map[Owner]time.Duration // who may be handed the lock, and for how long
	beliefs map[Owner]*belief
	server  time.Duration
	forgot  time.Duration // when the server has forgotten the lock last
}

// NewLeaseFollower makes one of a lock that is free.
func NewLeaseFollower() *LeaseFollower {
	return &LeaseFollower{ways: model.From(Lock{}), names: map[string]Owner{}, queued: map[Owner]time.Duration{},
		beliefs: map[Owner]*belief{}, forgot: -1}
}

func (f *LeaseFollower) owner(name string) Owner {
	if name == "" {
		return 0
	}
	if f.names[name] == 0 {
		f.names[name] = Owner(len(f.names) + 1)
	}
	return f.names[name]
}

func (f *LeaseFollower) belief(s Step, o Owner) *belief {
	b := f.beliefs[o]
	if b == nil {
		b = &belief{grants: map[int64]time.Duration{}}
		f.beliefs[o] = b
	}
	if s.Process != "" && s.Passage != Ran && s.Verb < Remove {
		b.process = s.Process
	}
	return b
}

// See takes in a step, or says why the model does not do it. To whom a lock is handed that is free is not seen, nor
// that a lease ends: the model may be in several states, until what is seen leaves one of them.
//
// After each step, the server's owner is the one that any process believes in, and its lease lasts for as long.
func (f *LeaseFollower) See(s Step) error {
	before := f.ways
	d := s.Server - f.server
	f.server = s.Server
	f.ways = f.ways.See(func(l Lock, emit func(Lock)) {
		left := time.Duration(l.Left)*time.Microsecond - d
		if l.Holder != 0 && left <= slack {
			emit(Lock{})
		}
		if l.Holder != 0 {
			l.Left = micros(max(left, -time.Minute))
		}
		if l.Holder == 0 || left > -slack { // for the rest of its millisecond
			emit(l)
		}
	})
	if s.Passage == Ran && s.Verb == Acquire && s.NotAfter > 0 {
		if over := s.Server > s.NotAfter+slack; over != (s.Said == TooLate) && (over || s.Server < s.NotAfter-slack) {
			return f.refuse(s, before, "a request is refused after its not-after, and not before")
		}
	}
	o := f.owner(s.Owner)
	switch s.Passage {
	case Ran:
		f.ways = f.ways.See(func(l Lock, emit func(Lock)) { f.run(l, o, s, emit) })
		f.ran(o, s)
	case Forgot:
		f.ways, f.forgot = model.From(Lock{}), s.At
		for _, b := range f.beliefs {
			b.excused = true
		}
	case Says:
		if until := f.until(s.Process); s.Until > until+slack/2 {
			return fmt.Errorf("the model refuses %+v: by what has reached %s it may believe until %v", s, s.Process, until)
		}
	default:
		f.heard(o, s)
	}
	for o, b := range f.beliefs {
		if b.excused || b.released || b.until <= s.At {
			continue
		}
		f.ways = f.ways.See(func(l Lock, emit func(Lock)) {
			if l.Holder == o && l.Left+micros(slack) >= micros(b.until-s.At) {
				emit(l)
			}
		})
		if len(f.ways) == 0 {
			return f.refuse(s, before, fmt.Sprintf("%d believes for %v more", o, b.until-s.At))
		}
	}
	if len(f.ways) == 0 {
		return f.refuse(s, before, "")
	}
	return nil
}

func (f *LeaseFollower) refuse(s Step, before model.Ways[Lock], why string) error {
	return fmt.Errorf("the model refuses %+v (owner %d; %s): it can be in %v before", s, f.names[s.Owner], why, before)
}

// Counts is when the last question was sent by which an owner's process believes, or the one that its grant answers; 0:
// there is none.
func (f *LeaseFollower) Counts(owner string) time.Duration {
	if b := f.beliefs[f.names[owner]]; b != nil {
		return b.counts
	}
	return 0
}

// until is until when a process may believe.
func (f *LeaseFollower) until(process string) (until time.Duration) {
	for _, b := range f.beliefs {
		if b.process == process {
			until = max(until, b.until)
		}
	}
	return until
}

// agrees reports whether a reply says what is left of a lock.
func agrees(l Lock, s Step) bool {
	return s.Left < 0 || l.Left >= micros(s.Left-slack) && l.Left <= micros(s.Left+slack)
}

// handed calls emit with what can become of a lock that a script has found or made free.
func (f *LeaseFollower) handed(emit func(Lock)) {
	emit(Lock{})
	for o, lease := range f.queued {
		emit(Lock{o, micros(lease)})
	}
}

// cut takes off what is no whole millisecond where a lease is written again without making it longer: the embedded
// server keeps durations, in nanoseconds, of which it says the milliseconds. A real one keeps ends, in milliseconds.
func (l *Lock) cut(o Owner, lease time.Duration) {
	if l.Holder == o && lease > 0 && l.Left > micros(lease) {
		l.Left -= l.Left % micros(time.Millisecond)
	}
}

// run calls emit with what can become of a lock by a request, if that is what was replied.
func (f *LeaseFollower) run(l Lock, o Owner, s Step, emit func(Lock)) {
	switch s.Verb {
	case Acquire:
		switch s.Said {
		case TooLate:
			emit(l)
		case Yes:
			l.cut(o, s.Lease)
			if l.Acquire(o, micros(s.Lease), Whole) && agrees(l, s) {
				emit(l)
			}
		case No:
			if l.Holder == 0 {
				f.handed(func(l Lock) {
					if l.Holder != 0 && l.Holder != o && agrees(l, s) {
						emit(l)
					}
				})
			} else if l.Holder != o && agrees(l, s) {
				emit(l)
			}
		}
	case Renew:
		l.cut(o, s.Lease)
		if said := l.Renew(o, micros(s.Lease), Whole); said == (s.Said == Yes) && (!said || agrees(l, s)) {
			emit(l)
		}
	case Release, Remove:
		released := l.Release(o, Whole)
		if released != (s.Said == Yes) {
			return
		}
		switch {
		case l.Holder != 0:
			emit(l)
		case s.NextSaid == Yes:
			l.Acquire(f.owner(s.Next), micros(s.NextLease), Whole)
			emit(l)
		default:
			f.handed(emit)
		}
	case Look:
		if (l.Holder != 0) == (s.Said == Yes) && (l.Holder == 0 || l.Holder == o && agrees(l, s)) {
			emit(l)
		}
	}
}

// ran notes who queues, and who is done.
func (f *LeaseFollower) ran(o Owner, s Step) {
	switch {
	case s.Verb == Acquire && s.Said == No && s.Ticket != 0:
		f.queued[o] = s.First
	case s.Verb == Acquire && s.Said == Yes:
		delete(f.queued, o)
	case s.Verb == Remove && s.Said == Yes: // its process stopped to believe before: see BeatFollower
		f.belief(s, o).released = true
	case s.Verb == Release:
		delete(f.queued, o)
		f.belief(s, o).released = true
		if s.Next != "" && s.NextSaid == No && s.Ticket != 0 {
			f.queued[f.owner(s.Next)] = s.First
		}
	}
}

// heard moves what a process may believe: by a reply it counts from the send of its own request, and by a grant from
// that of the question that was refused last, whose ticket it has.
func (f *LeaseFollower) heard(o Owner, s Step) {
	b := f.belief(s, o)
	moves := func(b *belief, lease, sent time.Duration) {
		b.counts, b.excused = sent, sent <= f.forgot
		b.until = max(b.until, trustUntil(s.At, sent, lease))
	}
	switch {
	case s.Verb == Look:
	case s.Passage == Heard:
		b.grants[s.Ticket] = s.Lease
	case s.Verb == Acquire && s.Said == Yes, s.Verb == Renew && s.Said == Yes && s.Lease > 0:
		moves(b, s.Lease, s.Sent)
	case s.Verb == Acquire && s.Said == No && s.Ticket != 0:
		b.refused, b.ticket = s.Sent, s.Ticket
	case s.Verb == Renew && s.Said == No:
		b.until = 0
	case s.Verb == Release && s.Next != "":
		next := f.belief(s, f.owner(s.Next))
		if s.NextSaid == Yes {
			moves(next, s.NextLease, s.Sent)
		} else if s.Ticket != 0 {
			next.refused, next.ticket = s.Sent, s.Ticket
			b = next
		}
	}
	if lease, ok := b.grants[b.ticket]; ok && b.ticket != 0 {
		moves(b, lease, b.refused) // a later refusal with that ticket may still come: the grant was after it, too
	}
}
