package rlock

import (
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

var (
	acquireScript = load("acquire", "acquire")
	fencedScript  = load("acquire", "fenced_acquire")
	voteScript    = load("acquire a vote", "vote_acquire")
)

// acquireRequest is one try.
type acquireRequest struct {
	owner    string
	lease    time.Duration
	ms       string   // the lease, as an argument
	notAfter int64    // server ms; 0: any time
	entry    string   // to queue with; "": do not
	leaves   int64    // of a Fair lock: when the caller gives up, server ms; 0: not known, or not soon
	under    string   // owner of a write hold under which it reads
	joined   string   // owner of this process whose read hold would do as well; "": none
	from     string   // owner of this process whose hold this one takes over; "": none
	room     []string // for the arguments; nil: they get their own
}

// asked are the arguments with which the scripts that acquire begin, with room for more.
func (r acquireRequest) asked(more int) []string {
	args := r.room
	if cap(args) < 3+more {
		args = make([]string, 0, 3+more)
	}
	return append(args, r.owner, r.ms, strconv.FormatInt(r.notAfter, 10))
}

type acquireStatus int64

const (
	acquireHeld acquireStatus = iota
	acquireGranted
	acquireLate
	acquireLost     // what is joined, or read under, is not held; or the owner is done with the lock
	acquireYoung    // of a Quorum's member: the server has been up for too short a time
	acquireShared   // of a reader: the hold of another owner of this process will do
	acquireNotAlone // of one that takes over: others are in with the owner
)

type acquireReply struct {
	status acquireStatus
	left   time.Duration // of what is held; negative: without end
	server int64         // its clock, ms
	ticket int64         // in the queue; 0: not in it
	holder holder
	token  int64 // fencing token of a new hold; 0: none
	run    int64 // of a Quorum's member: which run of the server it is, of its run_id; 0: not said
	clear  bool  // of a reader that was granted: no writer waits; of a writer: no one waits
	alone  bool  // granted, and the queue was empty
}

// holder is what a script says of who keeps it out: 1 that it is not one of ours, and 2 more that its lock is of
// another kind, a string under the name of a hash or the reverse.
type holder int64

func (h holder) foreign() bool { return h&1 != 0 }
func (h holder) other() bool   { return h&2 != 0 }

// Clock implements script.Reply.
func (r acquireReply) Clock() (server int64, late bool) { return r.server, r.status == acquireLate }

func decodeAcquire(m rueidis.RedisMessage) (acquireReply, error) {
	if m.IsInt64() { // it was free
		server, err := m.AsInt64()
		return acquireReply{status: acquireGranted, server: server, alone: true, clear: true}, err
	}
	v, err := m.AsIntSlice()
	if err != nil || len(v) < 3 {
		return acquireReply{}, script.Unexpected("acquire", v, err)
	}
	r := acquireReply{status: acquireStatus(v[0]), left: time.Duration(v[1]) * time.Millisecond, server: v[2]}
	switch {
	case len(v) > 4 && (r.status == acquireGranted || r.status == acquireShared):
		r.clear = v[3] == 1
	case len(v) > 4:
		r.ticket, r.holder = v[3], holder(v[4])
	}
	if len(v) > 5 {
		r.token = v[5]
	}
	if len(v) > 6 {
		r.run = v[6]
	}
	return r, nil
}

// acquireCall asks for the lock; with an entry also for a place in the queue.
func acquireCall(l *single, r acquireRequest) script.Call {
	return script.Call{Script: acquireScript, Keys: l.keys, Args: l.asking(r)}
}

// asking are the arguments of a script that acquires and queues: those with which all begin, its own, and what
// publishing adds.
func (l *single) asking(r acquireRequest, own ...string) []string {
	more := len(own)
	if r.entry != "" || l.c.clustered {
		more += 3
	}
	if r.from != "" {
		return append(r.asked(more+4), append(own, l.c.publish, l.grants, "", r.from)...)
	}
	return l.publishing(append(r.asked(more), own...), r.entry)
}

// publishing are the arguments of a script, and behind them where it publishes and with which entry an owner queues.
// Most calls publish no grant, and have no entry: outside a Cluster the script knows the rest by itself, and what is
// not sent costs nothing.
func (l *single) publishing(args []string, entry string) []string {
	if entry == "" && !l.c.clustered {
		return args
	}
	return append(args, l.c.publish, l.grants, entry)
}

// fencedCall asks for a fenced lock.
func fencedCall(l *single, r acquireRequest) script.Call {
	args := append(r.asked(5), l.c.publish, l.grants, r.entry, script.Millis(l.c.tokenRetention))
	if r.from != "" {
		args = append(args, r.from)
	}
	return script.Call{Script: fencedScript, Keys: l.fencedKeys(), Args: args}
}

// fencedKeys are those of a fenced lock, and the last token's.
func (l *single) fencedKeys() []string {
	return slices.Concat(l.keys, []string{keyname.Prefix("redisson_lock_token", l.key)})
}

// voteCall asks a member of a Quorum for its vote. It has no queue.
//
// The server must have been up for the watchdog's lease even if a shorter one is asked for: the vote that it forgot may
// be that of another process, with the longer lease (TestQuorum_VoteForgottenInARestart_IsNotGivenTwice).
func voteCall(l *single, r acquireRequest) script.Call {
	args := append(r.asked(3), l.c.publish, l.grants, l.c.millis(max(r.lease, l.c.opts.WatchdogTimeout)))
	return script.Call{Script: voteScript, Keys: l.keys, Args: args}
}
