package rlock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

var releaseScript = load("release", "release")

// releaseRequest is one release.
type releaseRequest struct {
	owner     string
	remaining int         // the count
	entry     string      // of this owner, if it may still be in the queue
	others    []string    // of a Fair lock: those that leave with it
	offer     *wait.Offer // a waiter of this process that may be the next holder; nil: none
	notAfter  int64       // server ms until which it may
}

type releaseStatus int64

const (
	releaseGone releaseStatus = iota
	releaseKept
	releaseDone
)

type releaseReply struct {
	status  releaseStatus
	outcome int64 // for the waiter named: 1 it holds the lock now, 2 it is in the queue, 0 neither
	ticket  int64 // in the queue
}

func releaseCall(l *single, r releaseRequest) script.Call {
	args := []string{r.owner, strconv.Itoa(r.remaining), l.channel, l.c.publish, l.grants, r.entry}
	if o := r.offer; o != nil {
		local := "0"
		if o.Local {
			local = "1"
		}
		args = append(args, o.Owner, o.Entry, script.Millis(o.Lease), strconv.FormatInt(r.notAfter, 10), local)
	}
	return script.Call{Script: releaseScript, Keys: l.keys, Args: args}
}

func decodeRelease(m rueidis.RedisMessage, named bool) (releaseReply, error) {
	if !named {
		v, err := m.AsInt64()
		return releaseReply{status: releaseStatus(v)}, err
	}
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 3 {
		return releaseReply{}, fmt.Errorf("release: unexpected reply %v, error %v", v, err)
	}
	return releaseReply{releaseStatus(v[0]), v[1], v[2]}, nil
}

func (l *single) sendRelease(ctx context.Context, r releaseRequest) (releaseReply, error) {
	call := l.kind.release(l, r)
	m, err := l.c.queued(ctx, &call)
	if err != nil {
		return releaseReply{}, err
	}
	return decodeRelease(m, r.offer != nil)
}

// runRelease lowers the count, or ends the hold; entry: of this owner, if it may still be in the queue.
func (l *single) runRelease(ctx context.Context, owner string, remaining int, entry string) (releaseStatus, error) {
	if remaining == 0 && entry == "" {
		shares := l.c.enterLane(l.kind)
		defer l.c.leaveLane(l.kind)
		if shares {
			if done, err := l.c.lane.Do(ctx, l.shareable(owner, "", l.channel)); done || err != nil {
				return releaseDone, err
			}
		}
	}
	r, err := l.sendRelease(ctx, releaseRequest{owner: owner, remaining: remaining, entry: entry})
	return r.status, err
}

// runPass ends a hold and may make the waiter named the next holder.
func (l *single) runPass(ctx context.Context, owner, entry string, o *wait.Offer) (releaseStatus, error) {
	notAfter := l.c.runner.Clock.At(l.key, o.NotAfter)
	if notAfter == 0 {
		o.Refused()
		return l.runRelease(ctx, owner, 0, entry)
	}
	sent := time.Now()
	r, err := l.sendRelease(ctx, releaseRequest{owner: owner, entry: entry, offer: o, notAfter: notAfter})
	switch {
	case err != nil:
		o.Failed()
	case r.outcome == 1:
		o.Granted(sent)
	case r.outcome == 2:
		o.Queued(r.ticket, sent)
	default:
		o.Refused()
	}
	return r.status, err
}
