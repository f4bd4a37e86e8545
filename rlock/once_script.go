package rlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

var (
	onceScript       = load("once", "once_acquire")
	onceStoreScript  = load("store an answer", "once_store")
	onceLookScript   = load("look at an answer", "once_look").Reads()
	onceCachedScript = script.Plain("hmget")
)

// kindOnce is the lock of a key of a Once: a Fenced lock, with an answer.
var kindOnce = kindFenced.derive(func(kind *kind) {
	kind.title, kind.reentry = "Once", reentryNever
	kind.acquire = func(lock *single, request acquireRequest) script.Call {
		call := fencedCall(lock, request)
		call.Script, call.Keys = onceScript, append(call.Keys, lock.answerKey())
		return call
	}
})

// onceEnding ends the key of the lock of a Once, which no lock of the user has. The answer has an ending of its own.
const onceEnding = "once"

// answerKey returns the key of the answer next to the lock of a Once.
func (l *single) answerKey() string {
	return strings.TrimSuffix(l.key, onceEnding) + "answer"
}

// onceRun is the part of an owner that a Once needs.
type onceRun struct {
	oldAnswer string                     // the answer that this owner renews, set before the first handle; "": none
	oldUntil  time.Time                  // the old answer is served until then
	answer    atomic.Pointer[onceAnswer] // the release stores it; nil: the release stores nothing
	isStored  atomic.Bool                // the server has stored the answer
}

func (r *onceRun) hasOldAnswer() bool {
	return r != nil && r.oldAnswer != "" && time.Now().Before(r.oldUntil)
}
func (r *onceRun) hasAnswer() bool { return r != nil && r.answer.Load() != nil }

// onceAnswer is an answer that is to be stored.
type onceAnswer struct {
	fingerprint, answer string
	keep, stale         time.Duration // how long it is served, and for how much of that time it is old
}

// text returns the answer as the scripts do: see answer.lua.
func (a *onceAnswer) text() string {
	return strconv.Itoa(len(a.fingerprint)) + " " + a.fingerprint + a.answer
}

// cutAnswer returns the parts of a text that a script has returned.
func cutAnswer(text string) (fingerprint, answer string, ok bool) {
	lengthText, rest, _ := strings.Cut(text, " ")
	length, err := strconv.Atoi(lengthText)
	if err != nil || length < 0 || length > len(rest) {
		return "", "", false
	}
	return rest[:length], rest[length:], true
}

// sendAnswer is Send of an owner whose release stores an answer. All waiting callers of the process get the answer. If
// it was not stored, they request the lock: the server knows whether there is an answer.
func (o *owner) sendAnswer(ctx context.Context) (gone bool, err error) {
	lock, client, answer := o.lock, o.lock.c, o.once.answer.Load()
	args := []string{o.Lease.Owner, lock.channel, client.publish, lock.grants, o.Entry(), script.Millis(answer.keep),
		script.Millis(answer.stale), answer.fingerprint, answer.answer}
	sentAt := time.Now()
	message, err := client.runner.Attempt(ctx, script.Call{Script: onceStoreScript,
		Keys: slices.Concat(lock.keys, []string{lock.answerKey()}), Args: args,
		Replicas: client.opts.MinReplicas, ReplicasWait: client.opts.ReplicaTimeout})
	status := int64(releaseGone)
	if err == nil || script.IsUnreplicated(err) {
		var badReply error
		if status, badReply = script.Integer("store an answer", message); badReply != nil {
			err = badReply
		}
	}
	if releaseStatus(status) == releaseDone {
		o.once.isStored.Store(true)
		client.cohorts.answerCallersOf(o, wait.Published{Result: answer.text(), Since: sentAt})
	}
	o.Gone()
	if err == nil {
		client.waiters.Wake(lock.key)
	}
	return releaseStatus(status) == releaseGone, err
}

// answerCallersOf ends the waits of the callers of a tenure with an answer.
func (cohorts *lockCohorts) answerCallersOf(o *owner, answer wait.Published) {
	cohorts.mu.Lock()
	defer cohorts.mu.Unlock()
	if cohort := cohorts.cohortOfTenure(o); cohort != nil {
		cohort.answerCallers(answer, nil)
	}
}

// answerCallers ends the waits of all callers but one with an answer. Called with mu held.
func (cohort *lockCohort) answerCallers(answer wait.Published, except *queuedCaller) {
	for caller := cohort.callers.First(); caller != nil; {
		behind := caller.Behind()
		if caller != except {
			caller.endWait(nil, 0, &answer)
		}
		caller = behind
	}
}

// localAnswer returns the answer of a key, if the process knows it without a request, or by a cached read. The cache is
// used for keys that were asked for before: a key that is new costs no read besides the request.
func (o *Once) localAnswer(ctx context.Context, lock *single) (text string, ok bool) {
	client := o.c
	renewing := client.engine.First(lock.key, func(candidate *lease.Lease) bool {
		own, isOwner := candidate.Of.(*owner)
		return isOwner && own.once.hasOldAnswer() && own.Lasts()
	})
	if renewing != nil { // this process renews it
		text, ok = renewing.Of.(*owner).once.oldAnswer, true
	} else if client.answered.has(lock.key) {
		text, ok = lock.cachedAnswer(ctx, o.opts.Keep+o.opts.Stale)
	}
	if ok {
		client.session.Tell(ctx, errs.Event{Kind: errs.EventAnsweredLocally, Name: lock.name, Outcome: "answered"})
	}
	return text, ok
}

// cachedAnswer reads the answer through the client-side cache. longest is how long the answer may be served; the cached
// reply has the rest of that time, or of the key's. cachedAnswer returns no answer if the answer is old, or if the
// client has no cache; then the key is not read this way again until its answer was returned once more.
func (l *single) cachedAnswer(ctx context.Context, longest time.Duration) (text string, ok bool) {
	client, key := l.c, l.answerKey()
	ctx, cancel := client.session.Bounded(ctx)
	defer cancel()
	read := client.session.Hub.Client().B().Hmget().Key(key).Field("stale", "fingerprint", "answer").Cache().Pin()
	message, err := client.runner.Attempt(ctx, script.Call{Script: onceCachedScript, Keys: []string{key}, Cached: read,
		CachedFor: longest})
	if err == nil {
		text, ok = freshAnswer(message)
	}
	if !ok {
		client.answered.remove(l.key)
	}
	return text, ok
}

// freshAnswer returns the answer in a cached reply, unless it is old.
func freshAnswer(message rueidis.RedisMessage) (text string, ok bool) {
	fields, err := message.ToArray()
	if err != nil || len(fields) != 3 {
		return "", false
	}
	staleText, err1 := fields[0].ToString()
	fingerprint, err2 := fields[1].ToString()
	answer, err3 := fields[2].ToString()
	stale, err4 := strconv.ParseInt(staleText, 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || message.CachePTTL() <= stale {
		return "", false
	}
	return (&onceAnswer{fingerprint: fingerprint, answer: answer}).text(), true
}

// isAnswered reports whether a wait ended with an answer.
func isAnswered(err error) bool {
	_, ok := err.(*wait.Published) //nolint:errorlint // the error of this wait, which nothing wraps
	return ok
}

// answeredKeys is the keys of a client whose answers are worth a cached read. It forgets all when it is full.
type answeredKeys struct {
	mu   sync.Mutex
	keys map[string]struct{}
}

const maxAnsweredKeys = 4096

func (k *answeredKeys) has(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.keys[key]
	return ok
}

func (k *answeredKeys) add(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil || len(k.keys) >= maxAnsweredKeys {
		k.keys = map[string]struct{}{}
	}
	k.keys[key] = struct{}{}
}

func (k *answeredKeys) remove(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.keys, key)
}

// readAnswerState reads what is known of a stored answer.
func (l *single) readAnswerState(ctx context.Context, state *OnceState) error {
	message, err := l.c.runner.Do(ctx, script.Call{Script: onceLookScript, Keys: []string{l.answerKey()}})
	if err != nil {
		return err
	}
	parts, err := message.ToArray()
	if err != nil || len(parts) != 4 {
		return script.Unexpected("look at an answer", fmt.Sprintf("of %d parts", len(parts)), err)
	}
	left, err1 := parts[0].AsInt64()
	stale, err2 := parts[1].AsInt64()
	bytes, err3 := parts[2].AsInt64()
	fingerprint, err4 := parts[3].ToString()
	if err := errors.Join(err1, err2, err3, err4); err != nil || left == -2 {
		return err
	}
	state.Answered, state.Bytes, state.Fingerprint = true, bytes, fingerprint
	state.Left, state.Fresh = noEnd, noEnd
	if left >= 0 {
		state.Left, state.Fresh = script.Duration(left), script.Duration(max(0, left-stale))
	}
	return nil
}
