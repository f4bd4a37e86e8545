// Package leasemodel is a model of deadlines and renewals: of what internal/lease does with one lock, and of what the
// scripts acquire, renew, release and the hand-over in rlock do with its lease. It is for tests.
//
// Two processes ask for a lock, wait in its queue, hold it, renew it, make it last longer, release it. Requests and
// replies come in any order, late, never or twice; processes are paused, or sleep so that their clocks stand still;
// their clocks are slow; the server forgets the lock. Time is in ticks, and every instant is kept as a countdown, or as
// what has passed since, so that states repeat.
//
// What must hold in every state: no two processes believe at once that they hold the lock; who believes it is the one
// that the server has, and the server's lease lasts at least as long as it believes; and the server has no owner that
// its process has done with. A process whose lock the server has forgotten may believe until a renewal that it sends
// afterwards is answered.
//
// Each [Rule] is one thing that the library does for this, and can be left out.
//
// What is not modelled: what callers share of a tenure (internal/tenuremodel), several owners of one lock, MinReplicas,
// looks in place of renewals, and heartbeats (internal/takeovermodel).
package leasemodel

// Rule is one thing that the library does.
type Rule uint8

// The rules.
const (
	Whole       Rule = iota // Whole: nothing is left out
	FromSend                // a deadline counts from before the send; without it, from the reply
	OwnSend                 // a reply counts from the send of its own request; without it, of the last one
	Confirmed               // only a confirmed renewal moves the deadline; without it, one that is sent
	AtDeadline              // at the deadline it is over; without it, once no renewal is under way
	Margin                  // something is taken off a lease for clocks that are slow
	Durations               // the server gets durations; without it, instants of the process's clock
	RenewsOwn               // a renewal asks whose the lock is
	RenewsHeld              // a renewal makes no holder of an owner that holds nothing
	Raises                  // a renewal shortens no lease
	AsksAgain               // nor does an acquire that runs a second time
	ReleasesOwn             // a release asks whose the lock is
	NotAfter                // the server refuses a request that comes after its caller has given up
	LastRelease             // a release is repeated until no acquire of its owner can run after it
	FromRefusal             // a grant's lease counts from the question that was refused; without it, from the message
	LastTicket              // a grant is used if it answers the last refusal; without it, any
	FirstLease              // who is handed the lock counts the lease that it has asked for that; without it, the full one
	Jump                    // after a sleep it believes for so much less; without it, its clock is believed
	BeforeJump              // and what was sent before the sleep counts for so much less
	Rules                   // Rules is how many there are.
)

func (r Rule) String() string {
	return [Rules]string{"whole", "counts from the send", "counts from its own send", "moves on confirmation",
		"ends at the deadline", "has a margin", "sends durations", "renews its own", "renews what is held",
		"shortens nothing by a renewal", "shortens nothing by a second acquire", "releases its own", "refuses what is late",
		"releases last", "counts a grant from the refusal", "takes the last grant", "counts the first lease",
		"believes less after a sleep", "believes answers from before a sleep less"}[r]
}

// Owner is one acquisition's, never used again; 0: none. In the search a number that nothing refers to any more stands
// for a new owner.
type Owner uint16

// Lock is what the server has.
type Lock struct {
	Holder Owner
	Left   int32 // of its lease
}

// Pass has time pass. In its last tick a lease is still there.
func (l *Lock) Pass(d int32) {
	if l.Left -= d; l.Left <= 0 {
		*l = Lock{}
	}
}

// Acquire takes a lock that is free, or one that the owner has, and reports whether the owner has it now.
func (l *Lock) Acquire(o Owner, lease int32, without Rule) bool {
	switch {
	case l.Holder == 0, l.Holder == o && without == AsksAgain:
		*l = Lock{o, lease}
	case l.Holder == o:
		l.Left = max(l.Left, lease)
	}
	return l.Holder == o
}

// Renew makes a lease longer, and reports whether the owner holds the lock.
func (l *Lock) Renew(o Owner, lease int32, without Rule) bool {
	switch {
	case l.Holder == 0 && without == RenewsHeld:
		*l = Lock{o, lease}
	case l.Holder == 0 || l.Holder != o && without != RenewsOwn:
		return false
	case without == Raises:
		l.Left = lease
	default:
		l.Left = max(l.Left, lease)
	}
	return true
}

// Release ends a hold, and reports whether there was one.
func (l *Lock) Release(o Owner, without Rule) bool {
	if l.Holder == 0 || l.Holder != o && without != ReleasesOwn {
		return false
	}
	*l = Lock{}
	return true
}

// Trust is for how long a process may believe in a lease, of which it hears when its request is so old.
func Trust(lease, margin, age int32) int32 { return max(lease-margin-age, 0) }

// Ticks of the search.
const (
	lease  = 4 // what is asked for, and renewed
	longer = 6 // what Extend asks for
	first  = 2 // what is asked for if the lock is handed over
	margin = 1
	call   = 1 // after so many a reply is awaited no more
	behind = 2 // of the first process's wall clock
)

const (
	clients  = 2
	each     = 3 // owners of a process that anything refers to
	messages = 4
	tickets  = 4
)

type phase uint8

const (
	idle phase = iota
	asking
	holding
	releasing // until an answer is final
)

// client is a process.
type client struct {
	is      phase
	own     Owner
	trust   int32 // ticks left
	asked   int32 // 1 + ticks since the question or release was sent that awaits its reply; 0: there is none
	renews  int32 // the same of a renewal
	last    int32 // ticks since the last question was sent
	runs    int32 // for so many ticks a question may run
	since   int32 // ticks since the question was sent that was refused last
	ticket  uint8 // and what it got; 0: there is none
	slept   int32
	short   bool // it was handed the first lease, which is to be raised
	excused bool // the server has forgotten the lock
	paused  bool
	asleep  bool // its clock stands still
}

type kind uint8

const (
	none kind = iota
	ask
	renew
	release
	askReply
	renewReply
	releaseReply
	grant
)

func (k kind) String() string {
	return [...]string{"", "acquire", "renewal", "release", "reply to an acquire", "reply to a renewal",
		"reply to a release", "grant"}[k]
}

// message is one that is under way.
type message struct {
	kind   kind
	own    Owner
	ok     bool
	lease  int32
	age    int32 // by its process's clock
	rest   int32 // for so many ticks it may still be under way
	runs   int32 // the not-after of a question
	ticket uint8
	copy   bool // its reply is lost
	last   bool // a release: no question of the owner runs after it
	knows  bool // a reply to what ran after the server had forgotten the lock
}

// Faults are how often each may happen.
type Faults struct {
	Lost, Late, Doubled, Pauses, Sleeps, Slow, Forgets uint8
	Renewals, Extends                                  uint8
	Acquires                                           [clients]uint8
}

// place is one in the queue.
type place struct {
	own    Owner
	ticket uint8
}

// state is all there is.
type state struct {
	lock  Lock
	queue [clients]place
	next  [clients]uint8 // the last ticket of each process
	c     [clients]client
	net   [messages]message
	left  Faults
	full  bool // a message had no room
}

func process(o Owner) int { return int(o-1) / each }

// believes reports whether a process acts, and believes that it alone does.
func (c *client) believes(without Rule) bool {
	return c.is == holding && !c.asleep && (c.trust > 0 || without == AtDeadline && c.renews > 0)
}

// What a search finds.
const (
	Two       = "two processes believe that they hold the lock"
	Uncovered = "a process believes for longer than the server's lease lasts"
	Orphan    = "the server has an owner that its process has done with"
)

// wrong says what does not hold.
func (s *state) wrong(without Rule, covered bool) string {
	n := 0
	for i := range s.c {
		c := &s.c[i]
		if !c.believes(without) || c.excused {
			continue
		}
		if n++; covered && (s.lock.Holder != c.own || s.lock.Left < c.trust) {
			return Uncovered
		}
	}
	if n > 1 {
		return Two
	}
	if o := s.lock.Holder; o != 0 && s.c[process(o)].own != o {
		return Orphan
	}
	return ""
}
