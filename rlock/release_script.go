package rlock

import (
	"context"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

var releaseScript = load("release", "release")

// releaseRequest is one release.
type releaseRequest struct {
	owner    string
	entry    string           // of this owner, if it may still be in the queue
	others   []string         // of a Fair lock: those that leave with it
	next     *wait.QueueEntry // of the next tenure of this process; nil: none
	notAfter int64            // server ms until which that is asked for
	turns    int32            // so many callers had it
}

type releaseStatus int64

const (
	releaseGone releaseStatus = iota
	releaseDone
	releaseLook // done, and a read-write lock's end is to be looked at: see trim
)

type releaseReply struct {
	status  releaseStatus
	outcome int64 // of the next tenure: 1 it holds the lock now, 2 it is in the queue, 0 neither
	ticket  int64 // in the queue; if it holds the lock, 1: others queue
}

func releaseCall(l *single, r releaseRequest) script.Call {
	args := []string{r.owner, l.channel}
	if n := r.next; n == nil {
		args = l.publishing(args, r.entry)
	} else {
		args = append(args, l.c.publish, l.grants, r.entry, n.Owner, n.Entry, l.c.millis(n.Lease),
			strconv.FormatInt(r.notAfter, 10), strconv.Itoa(int(r.turns)))
	}
	return script.Call{Script: releaseScript, Keys: l.keys, Args: args}
}

func decodeRelease(m rueidis.RedisMessage, named bool) (releaseReply, error) {
	if !named {
		v, err := script.Integer("release", m)
		return releaseReply{status: releaseStatus(v)}, err
	}
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 3 {
		return releaseReply{}, script.Unexpected("release", v, err)
	}
	return releaseReply{releaseStatus(v[0]), v[1], v[2]}, nil
}

func (l *single) sendRelease(ctx context.Context, r releaseRequest) (releaseReply, error) {
	call := l.kind.release(l, r)
	m, err := l.c.queued(ctx, &call)
	if err != nil {
		return releaseReply{}, err
	}
	reply, err := decodeRelease(m, r.next != nil)
	if reply.status == releaseLook {
		l.trim(ctx)
		reply.status = releaseDone
	}
	return reply, err
}

// runRelease ends the hold; entry: of this owner, if it may still be in the queue.
func (l *single) runRelease(ctx context.Context, owner, entry string) (releaseStatus, error) {
	if entry == "" {
		coalesce := l.c.enterCoalescer(l.kind)
		defer l.c.leaveCoalescer(l.kind)
		if coalesce {
			if done, err := l.c.coalescer.Do(ctx, l.shareable(owner, "", l.channel)); done || err != nil {
				return releaseDone, err
			}
		}
	}
	r, err := l.sendRelease(ctx, releaseRequest{owner: owner, entry: entry})
	return r.status, err
}
