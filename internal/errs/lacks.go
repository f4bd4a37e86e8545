package errs

import (
	"log/slog"
	"sync"
	"sync/atomic"
)

// Lack is a command that a server, or a proxy in front of the server, may refuse. The client goes on without the
// command.
type Lack uint8

// The lacks, in the order of Lacks.All.
const (
	LackTracking Lack = iota
	LackEvalsha
	LackSubscribe
	LackNumsub
	LackWait
	LackInfo
	LackSlots
	allLacks
)

// suffers has each lack's command, and the effect of its refusal.
var suffers = [allLacks]struct{ command, effect string }{
	LackTracking: {"CLIENT TRACKING",
		"a deleted key is noticed only at the next renewal, and neither counters " +
			"nor sold-out sales are cached"},
	LackEvalsha:   {"EVALSHA", "every call sends the whole text of its script"},
	LackSubscribe: {"SUBSCRIBE", "waiters poll every PollCap, without a place in the queue, and Hub.Subscribe fails"},
	LackNumsub:    {"PUBSUB NUMSUB", "a release may hand over to a waiter that is gone, and Redisson's waiters come last"},
	LackWait:      {"WAIT", "MinReplicas cannot be kept: grants return ErrNotReplicated"},
	LackSlots: {"keys of several slots",
		"calls for several objects, such as renewals, are sent slot by slot, and Multi and AllowAll are atomic only " +
			"in one slot"},
	LackInfo: {"INFO", "version and eviction policy are not checked, and after a failover waiters may poll"},
}

// About returns the command, and the effect of its refusal.
func (k Lack) About() (command, effect string) { return suffers[k].command, suffers[k].effect }

// Lacks are the commands that one server is known to refuse. A hub has one Lacks for all its clients. Each lack is
// logged once, when it is added. Lacks is safe for concurrent use.
type Lacks struct {
	log   *slog.Logger
	known atomic.Uint32 // a bit for each lack, read by every call

	mu  sync.Mutex
	why [allLacks]error
}

// Lacking is one refused command, with the effect and the error of the refusal.
type Lacking struct {
	Command, Effect string
	Err             error
}

// NewLacks returns an empty Lacks.
func NewLacks(log *slog.Logger) *Lacks { return &Lacks{log: log} }

// Has reports whether k is known to be lacking.
func (l *Lacks) Has(k Lack) bool { return l.known.Load()&(1<<k) != 0 }

// Add records that the server refused k with err, and logs the refusal, unless k is known already.
func (l *Lacks) Add(k Lack, err error) {
	if l.Note(k, err) {
		l.log.Warn("redlatch: the server refuses a command; continuing without it",
			"command", suffers[k].command, "effect", suffers[k].effect, "error", err)
	}
}

// Note is Add without the log line, for a caller that logs the refusal. The result says whether k was unknown before.
func (l *Lacks) Note(k Lack, err error) bool {
	if l.Has(k) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why[k] != nil {
		return false
	}
	l.why[k] = err
	l.known.Or(1 << k)
	return true
}

// Drop records that the server ran k after all.
func (l *Lacks) Drop(k Lack) {
	if !l.Has(k) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why[k] = nil
	l.known.And(^uint32(1 << k))
}

// All returns the known lacks.
func (l *Lacks) All() (all []Lacking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, err := range l.why {
		if err != nil {
			all = append(all, Lacking{suffers[k].command, suffers[k].effect, err})
		}
	}
	return all
}

// LackedCommands returns the commands of all possible lacks.
func LackedCommands() (all []string) {
	for _, l := range suffers {
		all = append(all, l.command)
	}
	return all
}
