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

// acquireRequest is the data of one acquire request.
type acquireRequest struct {
	owner         string
	lease         time.Duration
	leaseMillis   string   // the lease as an argument
	notAfter      int64    // server ms; 0: any time
	entry         string   // the queue entry; "": the owner does not queue
	leavesAt      int64    // of a Fair lock: the caller gives up at this, server ms; 0: not known, or not soon
	writeOwner    string   // the owner of the write hold under which the caller reads; "": none
	sharedOwner   string   // the owner of this process whose read hold the new reader can share; "": none
	replacedOwner string   // the owner of this process whose hold the new owner takes over; "": none
	argsRoom      []string // memory for the arguments; nil: none
}

// baseArgs returns the first arguments of every acquire script, with room for more arguments.
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
	acquireLost     // the hold to join, or to read under, has ended; or the owner was released
	acquireYoung    // of a Quorum's member: the server started too recently to vote
	acquireShared   // of a reader: it shares the hold of another owner of this process
	acquireNotAlone // of a transfer: another owner holds the lock, too
	acquireAnswered // of a Once: there is an answer
)

type acquireReply struct {
	status    acquireStatus
	leaseLeft time.Duration // the rest of the holder's lease, or of the answer's time; negative: no expiry
	server    int64         // the server's clock, ms
	ticket    int64         // of the queue entry; 0: not queued
	holder    holder
	token     int64         // fencing token of a new hold; 0: none
	serverRun int64         // of a Quorum's member: a number made of the server's run_id; 0: not given
	unclaimed bool          // of a granted reader: no writer waits; of other grants: no process waits
	answer    string        // of a Once: the stored answer, if acquireAnswered, or the old answer, if granted; "": none
	answerFor time.Duration // how long the old answer is served
}

// holder says which holder refused a request, as a sum of 1, if the holder is not of this library, and 2, if its lock
// is of another kind: a string under the name of a hash, or the reverse.
type holder int64

func (h holder) isForeign() bool   { return h&1 != 0 }
func (h holder) isOtherKind() bool { return h&2 != 0 }

// Clock implements script.Reply.
func (r acquireReply) Clock() (server int64, late bool) { return r.server, r.status == acquireLate }

func decodeAcquire(message rueidis.RedisMessage) (acquireReply, error) {
	if message.IsInt64() { // the lock was free
		server, err := message.AsInt64()
		return acquireReply{status: acquireGranted, server: server, unclaimed: true}, err
	}
	ints, answer, err := acquireParts(message)
	if err != nil || len(ints) < 3 {
		return acquireReply{}, script.Unexpected("acquire", ints, err)
	}
	reply := acquireReply{status: acquireStatus(ints[0]), leaseLeft: script.Duration(ints[1]),
		server: ints[2], answer: answer}
	switch {
	case len(ints) > 4 && (reply.status == acquireGranted || reply.status == acquireShared):
		reply.unclaimed = ints[3] == 1
	case len(ints) > 4:
		reply.ticket, reply.holder = ints[3], holder(ints[4])
	}
	if len(ints) > 5 {
		reply.token = ints[5]
	}
	if len(ints) > 6 && answer != "" {
		reply.answerFor = script.Duration(ints[6])
	} else if len(ints) > 6 {
		reply.serverRun = ints[6]
	}
	return reply, nil
}

// acquireParts returns the integers of a reply, and the answer of a Once that follows them; "": none.
func acquireParts(message rueidis.RedisMessage) (ints []int64, answer string, err error) {
	parts, err := message.ToArray()
	if last := len(parts) - 1; err == nil && last >= 3 && parts[last].IsString() {
		answer, err = parts[last].ToString()
		parts = parts[:last]
	}
	ints = make([]int64, len(parts))
	for i := range parts {
		if err == nil {
			ints[i], err = parts[i].AsInt64()
		}
	}
	return ints, answer, err
}

// acquireCall requests the lock, and with an entry also a place in the queue.
func acquireCall(lock *single, request acquireRequest) script.Call {
	return script.Call{Script: acquireScript, Keys: lock.keys, Args: lock.queueArgs(request)}
}

// queueArgs returns the arguments of a script that acquires and queues: the base arguments, the kind's own arguments,
// and the arguments of publishArgs.
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

// publishArgs appends the arguments with which a script publishes, and the queue entry. Most calls publish no grant and
// have no entry. Outside a Cluster the script knows the other arguments itself, so they are not sent.
func (l *single) publishArgs(args []string, entry string) []string {
	if entry == "" && !l.c.clustered {
		return args
	}
	return append(args, l.c.publish, l.grants, entry)
}

// fencedCall requests a Fenced lock.
func fencedCall(lock *single, request acquireRequest) script.Call {
	args := append(request.baseArgs(5), lock.c.publish, lock.grants, request.entry,
		script.Millis(lock.c.lockOptions.TokenRetention))
	if request.replacedOwner != "" {
		args = append(args, request.replacedOwner)
	}
	return script.Call{Script: fencedScript, Keys: lock.fencedKeys(), Args: args}
}

// fencedKeys returns the keys of a Fenced lock: the lock's keys, and the key of the last token.
func (l *single) fencedKeys() []string {
	return slices.Concat(l.keys, []string{keyname.Prefix("redisson_lock_token", l.key)})
}

// voteCall requests the vote of a Quorum's member. A vote has no queue.
//
// The server must have been up for the watchdog's lease even if the request has a shorter one: the forgotten vote may
// be that of another process, with the longer lease (TestQuorum_VoteForgottenInARestart_IsNotGivenTwice).
func voteCall(lock *single, request acquireRequest) script.Call {
	args := append(request.baseArgs(3), lock.c.publish, lock.grants,
		lock.c.millis(max(request.lease, lock.c.opts.WatchdogTimeout)))
	return script.Call{Script: voteScript, Keys: lock.keys, Args: args}
}
