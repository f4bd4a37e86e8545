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
	owner       string
	entry       string           // of this owner, if it may still be in the queue
	alsoLeaving []string         // of a Fair lock: those that leave with it
	next        *wait.QueueEntry // of the next tenure of this process; nil: none
	notAfter    int64            // server ms until which that is asked for
	turnCount   int32            // so many callers had it
}

type releaseStatus int64

const (
	releaseGone releaseStatus = iota
	releaseDone
	releaseNeedsTrim // done, and a read-write lock's end is to be looked at: see trim
)

type releaseReply struct {
	status  releaseStatus
	outcome int64 // of the next tenure: 1 it holds the lock now, 2 it is in the queue, 0 neither
	ticket  int64 // in the queue; if it holds the lock, 1: others queue
}

func releaseCall(lock *single, request releaseRequest) script.Call {
	args := []string{request.owner, lock.channel}
	if next := request.next; next == nil {
		args = lock.publishArgs(args, request.entry)
	} else {
		args = append(args, lock.c.publish, lock.grants, request.entry, next.Owner, next.Entry, lock.c.millis(next.Lease),
			strconv.FormatInt(request.notAfter, 10), strconv.Itoa(int(request.turnCount)))
	}
	return script.Call{Script: releaseScript, Keys: lock.keys, Args: args}
}

func decodeRelease(message rueidis.RedisMessage, named bool) (releaseReply, error) {
	if !named {
		status, err := script.Integer("release", message)
		return releaseReply{status: releaseStatus(status)}, err
	}
	ints, err := message.AsIntSlice()
	if err != nil || len(ints) != 3 {
		return releaseReply{}, script.Unexpected("release", ints, err)
	}
	return releaseReply{releaseStatus(ints[0]), ints[1], ints[2]}, nil
}

func (l *single) sendRelease(ctx context.Context, request releaseRequest) (releaseReply, error) {
	call := l.kind.release(l, request)
	message, err := l.c.callWithQueue(ctx, &call)
	if err != nil {
		return releaseReply{}, err
	}
	reply, err := decodeRelease(message, request.next != nil)
	if reply.status == releaseNeedsTrim {
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
	reply, err := l.sendRelease(ctx, releaseRequest{owner: owner, entry: entry})
	return reply.status, err
}
