package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

// Conn sends several commands in a row over one connection. It is a dedicated client, or a client if the commands are
// of one slot.
type Conn interface {
	B() rueidis.Builder
	DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult
}

// Runner runs scripts over one client.
type Runner struct {
	client  rueidis.Client
	cluster bool // client is one of a Cluster
	timeout time.Duration
	base    time.Time
	last    []lastAnswer // of a Cluster for each span of slots, because one of its nodes may be silent and the others not
	dials   *errs.Dials
	late    error     // of a call that got no reply within timeout
	timers  sync.Pool // of each runner: a timer that is made inside a synctest bubble may not leave it
	Clock   *Clock
	Lacks   *errs.Lacks // of the server: its own, which are not logged, unless they are set before the first call

	evictionAsked atomic.Bool
}

// NewRunner returns a runner whose single attempts last at most callTimeout.
func NewRunner(client rueidis.Client, callTimeout time.Duration) *Runner {
	r := &Runner{
		client: client, cluster: client.Mode() == rueidis.ClientModeCluster, timeout: callTimeout, base: time.Now(),
		dials: new(errs.Dials), late: errCallTimeout,
		Lacks: errs.NewLacks(slog.New(slog.DiscardHandler)),
		timers: sync.Pool{New: func() any {
			t := time.NewTimer(time.Hour)
			t.Stop()
			return t
		}}, last: make([]lastAnswer, spans(client)),
	}
	r.Clock = newClock(r.Apart)
	return r
}

// Late has the error of a call that got no reply in time wrap err, where the time is not that of Options.CallTimeout.
func (r *Runner) Late(err error) { r.late = err }

// HeedDials tells the runner of the connections that the client makes. It is called before the first call. Without it a
// connection that is lost and cannot be made anew may keep calls for rueidis' Dialer.Timeout that were made within
// freshFor of the last answer.
func (r *Runner) HeedDials(dials *errs.Dials) { r.dials = dials }

// Dials is how many connections the client has begun to make. If the number has grown, an earlier answer says nothing
// of the present connection.
func (r *Runner) Dials() int64 { return r.dials.Begun() }

// Call is one request: a script, its keys and its arguments. There is at least one key, which routes the call. Neither
// slice may be changed afterwards, because an attempt that was given up may still read them.
type Call struct {
	Script     *Script
	Keys, Args []string
	// Command, if set, makes a command that only reads, which is sent in place of the script; the script's name still
	// stands in errors (see Plain). It is called for every attempt, and its commands are never recycled (see exec).
	// rueidis repeats such a command by itself when its connection is lost, so it is not made in place.
	Command func(b rueidis.Builder) rueidis.Completed
	// Cached, if CachedFor is set, is a command that is read through the client's cache in place of the script, and kept
	// there for that long. It is pinned.
	Cached    rueidis.Cacheable
	CachedFor time.Duration
	// Tracked, if set, is a connection on which the server is to remember the keys that the script reads.
	Tracked Conn
	// Replicas > 0: WAIT follows the call on the same connection, for so many replicas and at most ReplicasWait. If they
	// do not confirm in time the attempt's error is errs.ErrNotReplicated, and its reply is returned with it.
	Replicas     int
	ReplicasWait time.Duration
	// Once: the script must not run twice, so an attempt of unknown outcome ends the call.
	Once bool
	// Patient: the reply is awaited until ctx ends, however much later than the call timeout that is. Such a call is never
	// made in place, where a reply that comes after its caller has left is dropped.
	Patient bool
	// Late, if set, gets the reply of an attempt that was given up and answered after all. It runs on a goroutine of the
	// runner.
	Late func(rueidis.RedisResult)
}

// repeats reports whether rueidis sends the call again, by itself, when its connection is lost.
func (c *Call) repeats() bool { return c.Command != nil || c.CachedFor > 0 }

// onlyReads reports whether the call has no outcome.
func (c *Call) onlyReads() bool { return c.repeats() || c.Script.reads }

// Attempt sends the call once and waits for its reply until ctx ends, and for no longer than the call timeout unless it
// is Patient. It outlasts neither, whatever rueidis and the server do.
func (r *Runner) Attempt(ctx context.Context, c Call) (rueidis.RedisMessage, error) {
	return r.attemptAt(ctx, c, time.Since(r.base))
}

// attemptAt is Attempt at the time now, after base. The clock is read seldom, because that costs as much as the rest of
// a call that is made in place.
func (r *Runner) attemptAt(ctx context.Context, c Call, now time.Duration) (rueidis.RedisMessage, error) {
	res, err := r.attempt(ctx, c, now)
	if err != nil {
		err = r.refusedSlots(c.Keys, err, wrap(c, err))
	}
	if c.Once {
		err = errs.Once(err)
	}
	return res, err
}

// Do repeats the call until it is answered, with growing pauses, while that is safe and ctx lasts; each attempt gets
// at most the call timeout. ctx should have a deadline. The error is ErrUnknownOutcome if any attempt may have run.
func (r *Runner) Do(ctx context.Context, c Call) (m rueidis.RedisMessage, err error) {
	return r.DoWithin(ctx, c, 0, nil)
}

// DoWithin is Do that ends after bound, with cause why, if bound is not 0. bound is no shorter than the call timeout.
// So the first attempt, which is the only one of nearly every call, needs no context of its own.
func (r *Runner) DoWithin(ctx context.Context, c Call, bound time.Duration, why error) (rueidis.RedisMessage, error) {
	now := time.Since(r.base)
	m, err := r.attemptAt(ctx, c, now)
	if err == nil || !NotAnswered(err) {
		return m, err
	}
	if bound > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, r.base.Add(now+bound), why)
		defer cancel()
	}
	return r.repeat(ctx, c, err)
}

// repeat is what Do does after a first attempt that failed.
func (r *Runner) repeat(ctx context.Context, c Call, first error) (m rueidis.RedisMessage, err error) {
	_, err = Repeat(ctx, c.Once, func() (err error) {
		if err, first = first, nil; err == nil {
			m, err = r.Attempt(ctx, c)
		}
		return err
	})
	return m, err
}

// Repeat calls try until it is answered, which may be by an error, with growing pauses while ctx lasts; once: not after
// an ErrUnknownOutcome. unsure: a try of unknown outcome came before the answer, so what the answer speaks of may be
// that try's work. Without an answer the error is ErrUnknownOutcome if any try may have run. A last try that only ran
// out of time says nothing of the server, so the error is that of the try before.
func Repeat(ctx context.Context, once bool, try func() error) (unsure bool, err error) {
	var before error
	for n := 0; ; n++ {
		if err = try(); err == nil || !NotAnswered(err) {
			return unsure, err
		}
		unknown := errors.Is(err, errs.ErrUnknownOutcome)
		unsure = unsure || unknown
		if before != nil && errs.IsCut(err) && errors.Is(err, context.DeadlineExceeded) {
			err = before
		}
		before = err
		if unknown && once || ctx.Err() != nil || !Pause(ctx, Backoff(n)) {
			if unsure {
				err = Unsure(err)
			}
			return unsure, err
		}
	}
}

// Backoff is the pause after the n-th failed attempt in a row: 2 ms doubled to 256 ms, half of it random, so that
// the clients of a server that comes back do not arrive together.
func Backoff(n int) time.Duration {
	d := 2 * time.Millisecond << min(n, 7)
	return d/2 + rand.N(d/2)
}

// Pause waits for d and reports whether ctx lasted that long.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// attempt sends the call once.
//
// In general the call gets a goroutine of its own (a flight), and the caller waits for it. rueidis does not heed the
// caller's ctx everywhere: it ignores ctx while its ring is full (its issue 858), and on a connection that is not
// pipelining it looks at the deadline and never at cancellation. The caller would wait too long. rueidis also drops a
// reply that comes late, so that a grant which arrives after the caller has left would never be released. So the flight
// gets a deadline far away, and the caller leaves when its own patience ends
// (TestAttempt_RingFull_LeavesInTime, TestAttempt_NotPipelining_ObeysCancellation).
//
// That costs two switches of goroutines, more than all else that is added to a call. A server that answered a moment
// ago has no full ring, so then the call is made in place if ctx allows it (see patient).
func (r *Runner) attempt(ctx context.Context, c Call, now time.Duration) (rueidis.RedisMessage, error) {
	if ctx.Err() != nil {
		return rueidis.RedisMessage{}, errNotSent{r.explained(c, errs.Cut(errs.Ended(ctx)))}
	}
	last, dials := r.lastOf(c.Keys[0]), r.dials.Begun()
	if c.CachedFor == 0 && c.Tracked == nil && c.Replicas == 0 && !c.Patient && c.Command == nil &&
		last.fresh(now, dials) {
		if limit := r.base.Add(now + r.timeout); patient(ctx, limit) {
			return r.inline(ctx, c, limit, last, dials)
		}
	}
	f := &flight{r: r, values: ctx, call: c, done: make(chan struct{})}
	go f.run()
	t := r.timers.Get().(*time.Timer)
	if !c.Patient {
		t.Reset(r.timeout)
	}
	var gaveUp error
	select {
	case <-f.done:
	case <-ctx.Done():
		gaveUp = errs.Cut(errs.Ended(ctx))
	case <-t.C:
		gaveUp = r.late
	}
	t.Stop()
	r.timers.Put(t)
	if gaveUp != nil {
		gaveUp = r.explained(c, gaveUp)
		if f.state.CompareAndSwap(boarding, abandoned) {
			return rueidis.RedisMessage{}, errNotSent{gaveUp}
		}
		if f.state.CompareAndSwap(flying, abandoned) {
			return rueidis.RedisMessage{}, errInFlight{gaveUp}
		}
	}
	<-f.done
	m, err := f.res.ToMessage()
	if classify(err) == answered {
		r.answered(last, dials)
	}
	if err == nil {
		err = f.unmet
	}
	return m, err
}

// explained is gaveUp with the reason why no connection could be made. rueidis repeats a read by itself, without a
// word, for as long as it may.
func (r *Runner) explained(c Call, gaveUp error) error {
	if why := r.dials.Failure(); why != nil && c.repeats() {
		return fmt.Errorf("%w: %w", gaveUp, why)
	}
	return gaveUp
}

var errCallTimeout = errors.New("no reply within the call timeout")

// errNotSent: the context had ended before anything was sent. errInFlight: it ended while a reply was awaited.
type (
	errNotSent  struct{ error }
	errInFlight struct{ error }
)

func (e errNotSent) Unwrap() error  { return e.error }
func (e errInFlight) Unwrap() error { return e.error }

const (
	boarding int32 = iota // its goroutine has yet to run
	flying
	landed
	abandoned
)

// flight is one attempt on its own goroutine. One whose caller has left by the time that goroutine runs is not sent any
// more: it would run on the server after what that caller sends to take it back, and on a busy machine many would
// (TestAttempt_SaysNotSent_IsNeverSent).
type flight struct {
	r      *Runner
	values context.Context
	call   Call
	state  atomic.Int32
	done   chan struct{}
	res    rueidis.RedisResult
	unmet  error
}

func (f *flight) run() {
	if !f.state.CompareAndSwap(boarding, flying) {
		return
	}
	// Without the caller's end, but with its values: a hook around the client finds its span there.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.values), flightLimit)
	res, unmet := f.r.exec(ctx, f.call)
	cancel()
	if f.state.CompareAndSwap(flying, landed) {
		f.res, f.unmet = res, unmet
		close(f.done)
	} else if f.call.Late != nil {
		f.call.Late(res)
	}
}

// freshFor is how long after an answer the server counts as answering. To fill rueidis' rings (4 x 1024 calls by
// default) within it, the program would have to send 160,000 calls a second into a server that has just stopped.
const freshFor = 25 * time.Millisecond

// fresh reports whether the server was answering a moment ago, over a connection that is there. While rueidis makes
// one, which takes it Dialer.Timeout, 5 s, if nothing answers there, all other callers wait for that whatever their
// contexts say:
//
//	a flight                         a call in place                 connection
//	                                                                 lost within freshFor of the last answer
//	makes another, for up to 5 s                                     silent
//	                                 waits for that, for 5 s
//
// So no call is made in place from the moment on in which a connection is begun, until a later call is answered
// (TestInPlace_AnotherCallDials_DoesNotWait). The one that makes it in place is bounded by its own context.
func (l *lastAnswer) fresh(now time.Duration, dials int64) bool {
	at := l.at.Load()
	return at != 0 && now-time.Duration(at) < freshFor && dials == l.dials.Load()
}

// lastAnswer is when a server last answered a call, after the runner's base, and what dials was when that call was
// made.
type lastAnswer struct{ at, dials atomic.Int64 }

// answered notes an answer to a call that was made when dials was so.
func (r *Runner) answered(last *lastAnswer, dials int64) {
	last.dials.Store(dials)
	last.at.Store(int64(time.Since(r.base)))
}

// slotsOfSpan is how many slots of a Cluster count as one server. Nodes have long ranges of slots.
const slotsOfSpan = 64

func spans(client rueidis.Client) int {
	if client.Mode() == rueidis.ClientModeCluster {
		return keyname.Slots / slotsOfSpan
	}
	return 1
}

func (r *Runner) lastOf(key string) *lastAnswer {
	if len(r.last) == 1 {
		return &r.last[0]
	}
	return &r.last[keyname.Slot(key)/slotsOfSpan]
}

// patient reports whether ctx leaves the call as much time as limit does. A nearer deadline would be set on the
// connection itself, and break it for everybody when it passes. A cancellation during the call may go unnoticed until
// limit, if the server falls silent in that very call and the connection is not pipelining.
func patient(ctx context.Context, limit time.Time) bool {
	d, ok := ctx.Deadline()
	return !ok || !d.Before(limit)
}

func (r *Runner) exec(ctx context.Context, c Call) (rueidis.RedisResult, error) {
	if c.CachedFor > 0 {
		return r.client.DoCache(ctx, c.Cached, c.CachedFor), nil
	}
	if c.Command != nil {
		// A command that only reads is pinned, so that rueidis (1.0.79) does not recycle it: it is sent again by rueidis
		// itself, on another connection, when its own ends. It is recycled when that one answers, while the writer of the
		// connection that has ended may still be reading its words: they would be those of the next command that is built, in
		// part (TestRead_RepeatedByRueidis_IsNotRecycled). Other commands and scripts are never sent again
		// so.
		return r.client.Do(ctx, c.Command(r.client.B()).Pin()), nil
	}
	// EVALSHA, and the text itself only after an error that proves that nothing ran: an EVAL after any other would be a
	// second run (TestRunner_ScriptFlushed_SendsTheTextOnce).
	text := r.Lacks.Has(errs.LackEvalsha)
	res, unmet := r.send(ctx, c, text)
	switch re, ok := rueidis.IsRedisErr(res.Error()); {
	case !ok || text || c.Script.plain != "":
	case re.IsNoScript():
		res, unmet = r.send(ctx, c, true)
	case noEvalsha(re): // and EVAL is perhaps allowed
		again, unconfirmed := r.send(ctx, c, true)
		if Unsupported(again.Error()) {
			break // the first says what is to be allowed
		}
		r.Lacks.Add(errs.LackEvalsha, re)
		res, unmet = again, unconfirmed
	}
	if res.Error() != nil {
		unmet = nil
	}
	return res, unmet
}

// command is the script by its hash, or its text, or the plain command.
func (c *Call) command(b rueidis.Builder, text bool) rueidis.Completed {
	if c.Script.plain != "" {
		return b.Arbitrary(c.Script.plain).Keys(c.Keys...).Args(c.Args...).Build()
	}
	n, sent := int64(len(c.Keys)), c.Script.sent()
	if text {
		return b.Eval().Script(sent.src).Numkeys(n).Key(c.Keys...).Arg(c.Args...).Build()
	}
	return b.Evalsha().Sha1(sent.sha).Numkeys(n).Key(c.Keys...).Arg(c.Args...).Build()
}

func (r *Runner) send(ctx context.Context, c Call, text bool) (res rueidis.RedisResult, unmet error) {
	switch {
	case c.Tracked == nil && c.Replicas == 0:
		return r.client.Do(ctx, c.command(r.client.B(), text)), nil
	case c.Replicas > 0 && r.cluster:
		return r.sendConfirmed(ctx, c, text)
	case c.Tracked != nil:
		return r.sendOn(ctx, c.Tracked, c, text, c.Tracked.B().ClientCaching().Yes())
	}
	return r.sendOn(ctx, r.client, c, text, nil)
}

// redirects is how many redirections of a Cluster's nodes are followed.
const redirects = 3

// sendConfirmed is send for a call that replicas are to confirm, in a Cluster. There rueidis follows MOVED and ASK with
// the script alone: the WAIT is answered by the node where nothing was written. (At an ASK rueidis panics.) So the
// redirections are followed here, each time with both.
func (r *Runner) sendConfirmed(ctx context.Context, c Call, text bool) (res rueidis.RedisResult, unmet error) {
	conn, release := r.client.Dedicate() // which follows none
	busy := false
	defer func() {
		if busy { // rueidis (1.0.79) would unsubscribe on it, and panic when that is refused, too: see pubsub
			conn.Close()
		}
		release()
	}()
	var before interface{ Build() rueidis.Completed }
	if c.Tracked != nil {
		before = conn.B().ClientCaching().Yes()
	}
	res, unmet = r.sendOn(ctx, conn, c, text, before)
	busy = saysBusy(res.Error()) || saysBusy(unmet)
	for range redirects {
		re, refused := rueidis.IsRedisErr(res.Error())
		if !refused {
			break
		}
		addr, moved := re.IsMoved()
		asked := false
		if !moved {
			addr, asked = re.IsAsk()
		}
		node, known := r.client.Nodes()[addr]
		if !known {
			break
		}
		before = nil
		if asked {
			before = node.B().Asking()
		}
		res, unmet = r.sendOn(ctx, node, c, text, before)
	}
	return res, unmet
}

// sendOn sends the script on one connection, after a command on which it depends, if there is one, and before WAIT, if
// replicas are to confirm it: WAIT counts what its own connection wrote.
func (r *Runner) sendOn(ctx context.Context, conn Conn, c Call, text bool,
	before interface{ Build() rueidis.Completed }) (res rueidis.RedisResult, unmet error) {
	cmds := make([]rueidis.Completed, 0, 3)
	if before != nil {
		cmds = append(cmds, before.Build())
	}
	at := len(cmds)
	cmds = append(cmds, c.command(conn.B(), text))
	if c.Replicas > 0 {
		cmds = append(cmds, conn.B().Wait().Numreplicas(int64(c.Replicas)).Timeout(millis(c.ReplicasWait)).Build())
	}
	results := conn.DoMulti(ctx, cmds...)
	if at > 0 && c.Tracked != nil && Unsupported(results[0].Error()) { // CLIENT CACHING
		r.Lacks.Add(errs.LackTracking, results[0].Error())
	}
	if c.Replicas > 0 {
		if n, err := results[at+1].AsInt64(); Unsupported(err) {
			r.Lacks.Add(errs.LackWait, err)
			unmet = fmt.Errorf("%w: %w", errs.ErrNotReplicated, NotConfirmed(c.Replicas, err))
		} else if err != nil {
			unmet = fmt.Errorf("%w: WAIT: %w", errs.ErrNotReplicated, err)
		} else if n < int64(c.Replicas) {
			unmet = fmt.Errorf("%w: %d of %d replicas confirmed within %v", errs.ErrNotReplicated, n, c.Replicas, c.ReplicasWait)
		}
	}
	return results[at], unmet
}

// flightLimit ends a flight that rueidis itself does not end (its redirections in a Cluster are unbounded).
const flightLimit = 15 * time.Second
