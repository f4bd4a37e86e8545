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
	owner         string
	lease         time.Duration
	leaseMillis   string   // the lease, as an argument
	notAfter      int64    // server ms; 0: any time
	entry         string   // to queue with; "": do not
	leavesAt      int64    // of a Fair lock: when the caller gives up, server ms; 0: not known, or not soon
	writeOwner    string   // owner of a write hold under which it reads
	sharedOwner   string   // owner of this process whose read hold would do as well; "": none
	replacedOwner string   // owner of this process whose hold this one takes over; "": none
	argsRoom      []string // for the arguments; nil: they get their own
}

// baseArgs are the arguments with which the scripts that acquire begin, with room for more.
func (r acquireRequest) baseArgs(more int) []string {
	args := r.argsRoom
	if cap(args) < 3+more {
		args = make([]string, 0, 3+more)
	}
	return append(args, r.owner, r.leaseMillis, strconv.FormatInt(r.notAfter, 10))
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
	status     acquireStatus
	leaseLeft  time.Duration // of what is held; negative: without end
	server     int64         // its clock, ms
	ticket     int64         // in the queue; 0: not in it
	holder     holder
	token      int64 // fencing token of a new hold; 0: none
	serverRun  int64 // of a Quorum's member: which run of the server it is, of its run_id; 0: not said
	unclaimed  bool  // of a reader that was granted: no writer waits; of a writer: no one waits
	queueEmpty bool  // granted, and the queue was empty
}

// holder is what a script says of who keeps it out: 1 that it is not one of ours, and 2 more that its lock is of
// another kind, a string under the name of a hash or the reverse.
type holder int64

func (h holder) isForeign() bool   { return h&1 != 0 }
func (h holder) isOtherKind() bool { return h&2 != 0 }

// Clock implements script.Reply.
func (r acquireReply) Clock() (server int64, late bool) { return r.server, r.status == acquireLate }

func decodeAcquire(message rueidis.RedisMessage) (acquireReply, error) {
	if message.IsInt64() { // it was free
		server, err := message.AsInt64()
		return acquireReply{status: acquireGranted, server: server, queueEmpty: true, unclaimed: true}, err
	}
	ints, err := message.AsIntSlice()
	if err != nil || len(ints) < 3 {
		return acquireReply{}, script.Unexpected("acquire", ints, err)
	}
	reply := acquireReply{status: acquireStatus(ints[0]), leaseLeft: time.Duration(ints[1]) * time.Millisecond,
		server: ints[2]}
	switch {
	case len(ints) > 4 && (reply.status == acquireGranted || reply.status == acquireShared):
		reply.unclaimed = ints[3] == 1
	case len(ints) > 4:
		reply.ticket, reply.holder = ints[3], holder(ints[4])
	}
	if len(ints) > 5 {
		reply.token = ints[5]
	}
	if len(ints) > 6 {
		reply.serverRun = ints[6]
	}
	return reply, nil
}

// acquireCall asks for the lock; with an entry also for a place in the queue.
func acquireCall(lock *single, request acquireRequest) script.Call {
	return script.Call{Script: acquireScript, Keys: lock.keys, Args: lock.queueArgs(request)}
}

// queueArgs are the arguments of a script that acquires and queues: those with which all begin, its own, and what
// publishing adds.
func (l *single) queueArgs(request acquireRequest, own ...string) []string {
	more := len(own)
	if request.entry != "" || l.c.clustered {
		more += 3
	}
	if request.replacedOwner != "" {
		return append(request.baseArgs(more+4), append(own, l.c.publish, l.grants, "", request.replacedOwner)...)
	}
	return l.publishArgs(append(request.baseArgs(more), own...), request.entry)
}

// publishArgs are the arguments of a script, and behind them where it publishes and with which entry an owner queues.
// Most calls publish no grant, and have no entry: outside a Cluster the script knows the rest by itself, and what is
// not sent costs nothing.
func (l *single) publishArgs(args []string, entry string) []string {
	if entry == "" && !l.c.clustered {
		return args
	}
	return append(args, l.c.publish, l.grants, entry)
}

// fencedCall asks for a fenced lock.
func fencedCall(lock *single, request acquireRequest) script.Call {
	args := append(request.baseArgs(5), lock.c.publish, lock.grants, request.entry, script.Millis(lock.c.tokenRetention))
	if request.replacedOwner != "" {
		args = append(args, request.replacedOwner)
	}
	return script.Call{Script: fencedScript, Keys: lock.fencedKeys(), Args: args}
}

// fencedKeys are those of a fenced lock, and the last token's.
func (l *single) fencedKeys() []string {
	return slices.Concat(l.keys, []string{keyname.Prefix("redisson_lock_token", l.key)})
}

// voteCall asks a member of a Quorum for its vote. It has no queue.
//
// The server must have been up for the watchdog's lease even if a shorter one is asked for: the vote that it forgot may
// be that of another process, with the longer lease (TestQuorum_VoteForgottenInARestart_IsNotGivenTwice).
func voteCall(lock *single, request acquireRequest) script.Call {
	args := append(request.baseArgs(3), lock.c.publish, lock.grants,
		lock.c.millis(max(request.lease, lock.c.opts.WatchdogTimeout)))
	return script.Call{Script: voteScript, Keys: lock.keys, Args: args}
}
