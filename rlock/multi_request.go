package rlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// multiRequest acquires all members of a Multi by one script. Each member has an acquisition, which sends no request of
// its own.
type multiRequest struct {
	*multiAcquisition
	c            *Client
	acquisitions []*acquisition // by member
	entered      int            // the number of acquisitions that Close waits for
	blocking     *single        // the member that another owner held at the last reply; nil: none
}

// errOneByOne ends a multiRequest if the call has to wait for a member, or if one script cannot acquire all members.
var errOneByOne = errors.New("to be acquired one after the other")

// isPossible reports whether one script can acquire all members. All of these must be true:
//
//   - All members are of one client and, where the keys of a call must be in one slot, of one slot.
//   - All members are of a kind that a Quorum allows, too: Reentrant, NonReentrant or Spin.
//   - No member is re-entered.
//   - No caller of this process waits for a member, or the call does not wait. Otherwise the script would be refused,
//     or would overtake these callers.
func (r *multiRequest) isPossible(ctx context.Context) bool {
	slot := keyname.Slot(r.of.members[0].key)
	for _, member := range r.of.members {
		if member.c != r.c || voteKinds[member.kind] == nil {
			return false
		}
		if r.c.runner.Apart() && keyname.Slot(member.key) != slot {
			return false
		}
		if ctx.Value(member.ownKey) != nil || r.terms.wait != 0 && (r.c.waiters.Members(member.key) > 0 ||
			r.c.cohorts.hasCallers(member)) {
			return false
		}
	}
	return true
}

// acquire acquires all members by one script. It returns errOneByOne if the members have to be acquired one by one.
func (r *multiRequest) acquire(ctx context.Context) (*heldParts, error) {
	defer func() {
		for range r.entered {
			r.c.session.Leave()
		}
	}()
	err := r.await(ctx)
	if errors.Is(err, errOneByOne) {
		return nil, err
	}
	waited := time.Since(r.began)
	parts, granted := newHeldParts(r.of), err == nil
	err = r.explain(err, waited)
	for i, member := range r.acquisitions {
		// The observer is told only now that the acquisition begins, because the members may also be acquired one by one,
		// and then report it themselves.
		member.ctx = r.c.session.Tell(ctx, errs.Event{Kind: errs.EventAcquiring, Name: member.lock.name})
		end := errs.Event{Kind: errs.EventAcquired, Name: member.lock.name, Took: waited}
		if err == nil {
			err = r.explain(r.register(member, i, parts), waited)
		} else if granted {
			member.own.Abandon(time.Now(), "")
		}
		if err != nil {
			end.Kind, end.Err = errs.EventNotAcquired, err
		}
		r.c.session.Tell(member.ctx, end)
	}
	if err != nil {
		parts.releaseAll(ctx, r.releaseUntil())
		return nil, err
	}
	r.c.session.Answered()
	return parts, nil
}

// register makes the hold of a member that was granted, and adds it to parts.
func (r *multiRequest) register(member *acquisition, i int, parts *heldParts) error {
	member.own.Lease.Ctx = member.ctx
	hold, err := member.makeHold()
	if err != nil {
		return err
	}
	r.entered-- // from now on Close waits for the hold
	hold.follow(member.ctx, r.c)
	parts.add(member.ctx, i, hold)
	return nil
}

// explain returns the error that the caller gets for err; nil for nil.
func (r *multiRequest) explain(err error, waited time.Duration) error {
	name := r.of.name
	if r.blocking != nil {
		name = r.blocking.name
	}
	return errorContext(name, waited, !r.acquisitions[0].times.unansweredUntil.IsZero()).Explain(err)
}

// await sends the script until it is granted, or until an error ends the wait.
func (r *multiRequest) await(ctx context.Context) (err error) {
	for i, lock := range r.of.members {
		member := &acquisition{lock: lock, ctx: ctx, began: r.began,
			wanted: r.c.holdTerms(terms{lease: r.terms.lease, label: r.of.labels[i]})}
		member.own = member.newOwner()
		r.acquisitions = append(r.acquisitions, member)
	}
	for range r.acquisitions {
		if err = r.c.session.Inflight.Enter(); err != nil {
			return err
		}
		r.entered++
	}
	err = r.c.waiters.Wait(ctx, wait.Request{Name: r.of.name, Object: r.of, Began: r.began, Until: r.until,
		Mode: wait.Alone, Try: r.request, Backoff: script.Backoff})
	if err != nil {
		for _, member := range r.acquisitions {
			err = member.giveUp(err)
		}
	}
	return err
}

// request sends the script once. It does for several locks what acquisition.Ask does for one.
func (r *multiRequest) request(ctx context.Context) (wait.Answer, error) {
	first := r.acquisitions[0]
	timed := script.Timed[acquireReply]{
		Key: first.lock.key,
		Send: func(ctx context.Context, sent time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			for _, member := range r.acquisitions {
				member.times.sent(sent)
			}
			return r.c.runner.Attempt(ctx, r.call(notAfter))
		},
		Decode: decodeAcquire,
	}
	reply, err := timed.Run(ctx, r.c.runner)
	received := time.Now()
	unmet := script.IsUnreplicated(err)
	switch {
	case unmet:
		var releases sync.WaitGroup
		for _, member := range r.acquisitions {
			releases.Go(func() { _ = member.releaseUnreplicated(ctx, err) })
		}
		releases.Wait()
		return wait.Answer{}, err
	case err != nil:
		return wait.Answer{}, r.requestFailed(err, first.times.sentAt.Add(timed.Runs), received)
	case reply.status == acquireHeld && r.terms.wait != 0:
		return wait.Answer{}, errOneByOne
	case reply.status == acquireHeld:
		if i := reply.ticket; i >= 0 && i < int64(len(r.of.members)) {
			r.blocking = r.of.members[i]
		}
		return wait.Answer{Left: reply.leaseLeft}, nil
	}
	untrusted := slices.ContainsFunc(r.acquisitions, func(member *acquisition) bool {
		return !r.c.engine.Trusted(member.lock.key, member.times.possibleSince)
	})
	if untrusted || !received.Before(first.times.sentAt.Add(first.wanted.lease-lease.Margin(first.wanted.lease))) {
		for _, member := range r.acquisitions {
			member.replaceOwner(received)
		}
		return wait.Answer{}, fmt.Errorf("%w: %q: the grant took longer than its lease of %v, or than heartbeats are trusted",
			errs.ErrUnavailable, r.of.name, first.wanted.lease)
	}
	return wait.Answer{Granted: true}, nil
}

// requestFailed records until when a request without a reply may run. It returns the error of the request.
func (r *multiRequest) requestFailed(err error, lastRun, received time.Time) error {
	var redisErr *rueidis.RedisError
	var mayRun time.Time
	switch {
	case errors.As(err, &redisErr) && redisErr.IsTryAgain(), script.AcrossSlots(err):
		return errOneByOne
	case errors.Is(err, errs.ErrUnknownOutcome):
		mayRun = lastRun
	case script.BrokenOff(err):
		mayRun = received
	default:
		return err
	}
	for _, member := range r.acquisitions {
		member.ReleaseLater(mayRun)
	}
	return err
}

var severalScript = load("acquire several", "several_acquire")

// call returns the request as a script call. If the call was given up, a late reply with a grant releases the grant.
func (r *multiRequest) call(notAfter int64) script.Call {
	call := script.Call{Script: severalScript, Replicas: r.c.opts.MinReplicas, ReplicasWait: r.c.opts.ReplicaTimeout}
	call.Args = []string{r.c.millis(r.acquisitions[0].wanted.lease), strconv.FormatInt(notAfter, 10), r.c.publish}
	var late []func(rueidis.RedisResult)
	for _, member := range r.acquisitions {
		call.Keys = append(call.Keys, member.lock.key, queueKey(member.lock.key))
		call.Args = append(call.Args, member.own.Lease.Owner, member.lock.grants)
		late = append(late, member.onLateReply(nil))
	}
	call.Late = func(reply rueidis.RedisResult) {
		for _, release := range late {
			release(reply)
		}
	}
	return call
}
