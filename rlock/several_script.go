package rlock

import (
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

var severalScript = load("acquire several", "several_acquire")

// severalRequest is one try to take several locks of a client.
type severalRequest struct {
	owners   []*owner // one of each lock
	lease    time.Duration
	notAfter int64 // server ms; 0: any time
}

func severalCall(c *Client, r severalRequest) script.Call {
	keys := make([]string, 0, 2*len(r.owners))
	args := make([]string, 3, 3+2*len(r.owners))
	args[0], args[1], args[2] = c.millis(r.lease), strconv.FormatInt(r.notAfter, 10), c.publish
	for _, own := range r.owners {
		keys = append(keys, own.lock.key, queueKey(own.lock.key))
		args = append(args, own.Lease.Owner, own.lock.grants)
	}
	return script.Call{Script: severalScript, Keys: keys, Args: args}
}

type severalReply struct {
	status acquireStatus
	left   time.Duration // of the lock that is held; negative: without end
	server int64         // its clock, ms
	which  int64         // is held, from 1
}

// Clock implements script.Reply.
func (r severalReply) Clock() (server int64, late bool) { return r.server, r.status == acquireLate }

func decodeSeveral(m rueidis.RedisMessage, n int) (severalReply, error) {
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 4 || acquireStatus(v[0]) == acquireHeld && (v[3] < 1 || v[3] > int64(n)) {
		return severalReply{}, script.Unexpected("acquire several", v, err)
	}
	return severalReply{acquireStatus(v[0]), time.Duration(v[1]) * time.Millisecond, v[2], v[3]}, nil
}
