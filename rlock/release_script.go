package rlock

import (
	"context"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

var releaseScript = load("release", "release")

// releaseRequest is the data of one release.
type releaseRequest struct {
	owner       string
	entry       string           // the owner's queue entry, if it may still be queued
	alsoLeaving []string         // of a Fair lock: owners that leave the queue in the same call
	next        *wait.QueueEntry // the entry of this process's next tenure; nil: none
	notAfter    int64            // server ms; the next tenure is not granted later
	turnCount   int32            // the number of turns that the owner's tenure had
}

type releaseStatus int64

const (
	releaseGone releaseStatus = iota
	releaseDone
	releaseNeedsTrim // done, and the expiry of the read-write lock needs a check: see trim
)

type releaseReply struct {
	status  releaseStatus
	outcome int64 // of the next tenure's owner: 1 it holds the lock now, 2 it is queued, 0 neither
	ticket  int64 // of the queued owner; if the owner holds the lock, 1: others are queued
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

func decodeRelease(message rueidis.RedisMessage, hasNext bool) (releaseReply, error) {
	if !hasNext {
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
	call := l.kind.layout.release(l, request)
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

// runRelease ends the owner's hold. entry is the owner's queue entry, if it may still be queued; "": none.
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
