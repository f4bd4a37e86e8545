package rsemaphore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
)

// The statuses that barrier.lua replies.
const (
	barrierWaiting int64 = iota
	barrierLast
	barrierLate
	barrierFull
	barrierMismatch
	barrierTripped
	barrierBroken
	barrierUnknown
)

type barrierReply struct {
	status  int64
	id      string
	gen     int64
	arrived int64
	left    time.Duration
	server  int64
	parties int64
}

// Clock implements script.Reply.
func (r barrierReply) Clock() (server int64, late bool) { return r.server, r.status == barrierLate }

// party is one call of Await.
type party struct {
	b     *CyclicBarrier
	id    string // never used again
	term  time.Duration
	began time.Time
	sent  time.Time // when the first request was sent by which it may have arrived
	// unanswered: a request to arrive got no reply, and may run until this instant
	unanswered time.Time
	joined     barrierReply
	lease      lease.Lease
	over       atomic.Bool // Await has returned, or is about to
}

func (b *CyclicBarrier) newParty() *party {
	return &party{b: b, began: time.Now(), id: b.c.session.NewOwner(""), term: b.c.live.party}
}

// Object is the barrier, and Shown is what logs call the party.
func (p *party) Object() any   { return p.b }
func (p *party) Shown() string { return p.id }

// exchange is one verb of barrier.lua.
func (p *party) exchange(verb string, notAfter int64) exchange[barrierReply] {
	b, s := p.b, barrierScript
	if verb == "state" {
		s = barrierState
	}
	return exchange[barrierReply]{script.Call{Script: s, Keys: []string{b.key}, Args: []string{
		verb, p.id, p.joined.id, decimal(p.joined.gen), strconv.Itoa(b.parties), script.Millis(p.term),
		decimal(notAfter), script.Millis(barrierMemory), b.channel, b.c.session.Inner.PublishCommand(), p.pending(),
	}}, func(m rueidis.RedisMessage) (r barrierReply, err error) {
		err = read(m, verb, b.key, &r.status, &r.id, &r.gen, &r.arrived, &r.left, &r.server, &r.parties)
		return r, err
	}}
}

// pending is "1" while a request to arrive may still come, and be taken for an arrival in the generation that gathers
// then.
func (p *party) pending() string {
	if time.Now().Before(p.unanswered) {
		return "1"
	}
	return "0"
}

func (b *CyclicBarrier) await(ctx context.Context) (Arrival, error) {
	p := b.newParty()
	if err := p.arrive(ctx); err != nil {
		return Arrival{}, err
	}
	b.c.session.Answered()
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.lease = lease.Lease{
		Name: b.name, Key: b.key, Owner: p.id + " " + p.joined.id + " " + strconv.FormatInt(p.joined.gen, 10),
		Renew: barrierRenewScript, Untracked: true, Ctx: ctx, Of: p, Ended: func(why error) { cancel(why) },
	}
	if !b.c.engine.Add(&p.lease, p.sent, p.sent, p.term, true, 0) {
		// happens only if this machine, or the network, stalled for as long as the lease
		p.leaveLater(time.Now())
		return p.broken(errs.ErrLost)
	}
	if b.c.session.Closed() { // Close ran meanwhile, and has not seen this lease
		cancel(errs.ErrClosed)
	}
	defer p.finish()
	if p.joined.status == barrierLast {
		return p.act(own)
	}
	return p.await(own)
}

// finish ends Await for a party that had arrived.
func (p *party) finish() {
	_ = p.b.c.engine.Remove(&p.lease) // Await has returned what became of it
	p.over.Store(true)
	if !p.unanswered.IsZero() {
		// A request to arrive may still be on its way, on another connection. It would arrive for a party whose Await has
		// returned.
		p.leaveLater(p.unanswered)
	}
}

// late removes the party again if a request to arrive, on which the caller had given up, was answered after the party's
// end.
func (p *party) late(r barrierReply) {
	if p.over.Load() && (r.status == barrierWaiting || r.status == barrierLast) {
		p.leaveLater(time.Time{})
	}
}

// broken is the result of a generation that broke. cause is this party's own reason, if it broke the generation.
func (p *party) broken(cause error) (Arrival, error) {
	err := fmt.Errorf("rsemaphore: %w: %q in generation %d", ErrBrokenBarrier, p.b.name, p.joined.gen)
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return Arrival{Generation: p.joined.gen}, err
}

// arrive tries until the party has arrived.
func (p *party) arrive(ctx context.Context) error {
	b := p.b
	err := b.c.waiters.Wait(ctx,
		wait.Request{Name: b.name, Of: b, Began: p.began, Channel: b.channel, Mode: wait.Alone, Try: p.tryArrive})
	if err == nil {
		return nil
	}
	p.over.Store(true)
	if !p.unanswered.IsZero() {
		p.leaveLater(p.unanswered)
	}
	return wait.Ending{Package: "rsemaphore", Name: b.name, Unsure: !p.unanswered.IsZero(),
		Contended: func(g *wait.GaveUp) error {
			return fmt.Errorf("rsemaphore: barrier %q is full: %w: %w", b.name, errs.ErrNotAcquired, g.Cause)
		}}.Explain(err)
}

// tryArrive asks once.
func (p *party) tryArrive(ctx context.Context) (wait.Answer, error) {
	b, c := p.b, p.b.c
	if err := p.askTime(ctx); err != nil {
		return wait.Answer{}, err
	}
	var sent time.Time
	arrival := timed(b.key, func(ctx context.Context, call script.Call) (rueidis.RedisMessage, error) {
		return p.sendArrival(ctx, sent, call)
	}, func(now time.Time, notAfter int64) exchange[barrierReply] {
		sent = now
		return p.exchange("arrive", notAfter).late(p.late)
	})
	arrival.Beyond = session.ReplyGrace
	r, err := arrival.Run(ctx, c.runner)
	if err != nil {
		return wait.Answer{}, err
	}
	switch r.status {
	case barrierWaiting, barrierLast:
		p.joined = r
		return wait.Answer{Granted: true}, nil
	case barrierFull:
		return wait.Answer{Left: r.left}, nil
	case barrierMismatch:
		return wait.Answer{}, capacityMismatch(b.name, r.parties, b.parties)
	}
	return wait.Answer{}, malformed("arrive", b.key, r)
}

// askTime asks for the server's time if this client knows nothing of it. A request to arrive that names no instant may
// run whenever it comes: after its party is gone, it would arrive for a party that left, and the leave that takes it
// back would break the generation of those who gather then
// (TestArrival_FirstOfAClientAndLate_IsRefused).
func (p *party) askTime(ctx context.Context) error {
	c, key := p.b.c, p.b.key
	if c.runner.Clock.At(key, time.Now()) != 0 {
		return nil
	}
	sent := time.Now()
	r, err := p.exchange("state", 0).by(ctx, c.runner.Attempt)
	if err == nil {
		c.runner.Clock.Learn(key, r.server, sent, time.Now())
	}
	return err
}

func (p *party) sendArrival(ctx context.Context, sent time.Time, call script.Call) (rueidis.RedisMessage, error) {
	c := p.b.c
	if !p.unanswered.IsZero() && !sent.Before(p.sent.Add(p.term-lease.Margin(p.term))) {
		// A request without a reply may have arrived, and from here on the server may forget that it did. Another
		// request would then arrive a second time.
		return rueidis.RedisMessage{},
			wait.Final(fmt.Errorf("%w: arrive at %q: no reply for a whole lease", errs.ErrUnknownOutcome, p.b.name))
	}
	if p.unanswered.IsZero() {
		p.sent = sent
	}
	m, err := c.session.AttemptOnce(ctx, call)
	if errors.Is(err, errs.ErrUnknownOutcome) {
		p.unanswered = script.LastRun(sent.Add(c.opts.CallTimeout))
	}
	return m, err
}

// queueKey names the queue in which this process's parties of one generation wait. They never wait behind those of
// another generation, which may be waiting for them.
func (p *party) queueKey() string {
	return "barrier:" + p.b.key + " " + p.joined.id + " " + strconv.FormatInt(p.joined.gen, 10)
}

// watch waits until the generation is over, or this party is not in it any more, and returns the server's answer. ctx
// ends when the caller's context, the lease or the client ends.
func (p *party) watch(ctx context.Context) (result barrierReply, err error) {
	c := p.b.c
	key, answered := p.queueKey(), false
	ask := func(ctx context.Context) (wait.Answer, error) {
		sent := time.Now()
		if result, err = p.exchange("look", 0).by(ctx, c.runner.Attempt); err != nil {
			return wait.Answer{}, err
		}
		answered = true
		if result.status == barrierWaiting {
			return wait.Answer{Left: result.left}, nil
		}
		if result.status != barrierUnknown { // which is about this party alone
			c.waiters.Serve(key, sent, &generationEnd{result})
		}
		return wait.Answer{Granted: true}, nil
	}
	onMessage := func(payload string) bool {
		end, ok := p.ended(payload)
		if ok {
			result = end
			c.waiters.Serve(key, time.Now(), &generationEnd{end})
		}
		return ok && answered
	}
	// Each party looks for itself until it is answered, because its look tells the server that the reply to the arrival
	// has come (see barrier.lua). After that it is served by others' looks, and by the message of the generation's end.
	answer, err := ask(ctx)
	if err == nil && answer.Granted {
		return result, nil
	}
	for {
		err = c.waiters.Wait(ctx, wait.Request{Name: p.b.name, Of: p.b, Began: p.began, QueueKey: key,
			Channel: p.b.channel, OnMessage: onMessage, Try: ask})
		var end *generationEnd
		if !errors.As(err, &end) {
			return result, err
		}
		if answered {
			return end.barrierReply, nil
		}
	}
}

// generationEnd is the end of a wait that another party's answer has served.
type generationEnd struct{ barrierReply }

func (*generationEnd) Error() string { return "the generation is over" }

// ended reads a message of the barrier's channel: how this party's generation ended, if it is about that one. It counts
// as the answer to a look, whenever it comes, because a generation ends once and stays as it ended, and no id of a
// barrier's life is used again:
//
//	party                            another process           the channel
//	arrives in generation 4
//	                                 trips 3 (long ago)        "x 3 tripped" (is late)
//	subscribes, looks: waiting
//	                                                           "x 3 tripped": not this party's, so it looks again
//	                                 deletes the key
//	                                 arrives, as the first,
//	                                 four generations
//	                                                           "y 4 tripped": another life's, so it looks: not known
//	                                                           (TestBarrier_MessageOfAnotherGeneration_EndsNothing)
//
// A party that is not subscribed yet looks after the confirmation. A lost message is found by the look after PollCap.
func (p *party) ended(payload string) (end barrierReply, ok bool) {
	how, ok := strings.CutPrefix(payload, p.joined.id+" "+strconv.FormatInt(p.joined.gen, 10)+" ")
	end = barrierReply{status: barrierTripped, id: p.joined.id, gen: p.joined.gen}
	if how == "broken" {
		end.status = barrierBroken
	}
	return end, ok && (how == "tripped" || how == "broken")
}

// await is what a party does that is not the last.
func (p *party) await(ctx context.Context) (Arrival, error) {
	c := p.b.c
	result, err := p.watch(ctx)
	if err == nil && time.Now().Before(c.engine.Until(&p.lease)) {
		return p.outcome(result, nil)
	}
	if errors.Is(err, errs.ErrWrongType) { // the watchdog would have found it, too
		p.leaveLater(time.Now())
		return p.broken(fmt.Errorf("%w: %w", errs.ErrLost, err))
	}
	// the server refuses for good, for example because a right is missing
	if err != nil && ctx.Err() == nil && !isGaveUp(err) {
		return p.leave(ctx, err)
	}
	why := context.Cause(ctx)
	if err == nil || errors.Is(why, errs.ErrLost) {
		if !errors.Is(why, errs.ErrLost) {
			why = errs.ErrLost
		}
		p.leaveLater(time.Now())
		return p.broken(why)
	}
	if c.session.Closed() {
		why = errs.ErrClosed
	} else if ended := errs.Ended(ctx); ended != nil {
		why = ended
	}
	return p.leave(ctx, why)
}

func isGaveUp(err error) bool {
	var g *wait.GaveUp
	return errors.As(err, &g)
}

// outcome translates an answer about the party's generation into its result. cause is this party's own reason, if it
// broke the generation.
func (p *party) outcome(r barrierReply, cause error) (Arrival, error) {
	switch r.status {
	case barrierTripped:
		return Arrival{Generation: p.joined.gen, Last: p.joined.status == barrierLast}, nil
	case barrierBroken:
		return p.broken(cause)
	}
	if cause != nil {
		cause = fmt.Errorf("%w: %w", errs.ErrLost, cause)
	} else {
		cause = errs.ErrLost
	}
	return p.broken(cause)
}

// leave removes the party from its generation, which breaks the generation unless it is over.
func (p *party) leave(ctx context.Context, cause error) (Arrival, error) {
	c := p.b.c
	_ = c.engine.Remove(&p.lease) // before it is sent: see package lease; the reply says how the party ended
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.CallTimeout)
	defer cancel()
	r, err := p.end(ctx, "leave")
	if err != nil {
		p.leaveLater(time.Now())
		// That the server could not be asked does not mean that nothing was done: the party has arrived, and the others may
		// have gone on with it.
		return Arrival{}, fmt.Errorf("rsemaphore: leave barrier %q: %w", p.b.name,
			errors.Join(script.Unsure(err), script.Unsure(cause)))
	}
	return p.outcome(r, cause)
}

// end runs one of the verbs that end a generation, until it is answered.
func (p *party) end(ctx context.Context, verb string) (barrierReply, error) {
	c, send := p.b.c, p.b.c.runner.Do
	if c.session.Inner.Context().Err() != nil { // the hub is closed, and perhaps its client, which refuses every try
		send = c.runner.Attempt
	}
	r, err := p.exchange(verb, 0).by(ctx, send)
	if err == nil {
		c.waiters.Wake(p.queueKey())
	}
	return r, err
}

// watched returns a child of ctx for the action. It ends when the generation breaks. stop ends the watching.
//
// The watchdog cannot tell that the generation broke: a party whose generation is over counts as renewed (see
// barrier_renew.lua), because only a look says how it ended. A generation that broke before the first look is found by
// that look. One that breaks later is found by the message or the poll for which every party waits. It trips only by
// the caller's own request, after the action. If it breaks after the action has returned and before the trip, the
// answer to the trip says so.
func (p *party) watched(ctx context.Context) (actx context.Context, stop func()) {
	actx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err := p.watch(actx)
		switch {
		case err == nil:
			_, err = p.outcome(r, nil)
		case errors.Is(err, errs.ErrWrongType): // as in await
			_, err = p.broken(fmt.Errorf("%w: %w", errs.ErrLost, err))
		default: // the caller's context ended, or a right to look is missing: renewals go on without the look
			return
		}
		if err != nil {
			cancel(err)
		}
	}()
	return actx, func() {
		cancel(nil)
		<-done
	}
}

// act is what the last arriver does.
func (p *party) act(ctx context.Context) (_ Arrival, err error) {
	if p.b.action != nil {
		actx, stop := p.watched(ctx)
		returned := false
		defer func() {
			if !returned { // a panic, or runtime.Goexit
				stop()
				_, _ = p.leave(ctx, nil) // Await returns nothing then
			}
		}()
		err = p.b.action(actx)
		returned = true
		stop()
		if err != nil {
			return p.leave(ctx, err)
		}
	}
	c := p.b.c
	until, tctx := c.engine.Until(&p.lease), ctx
	if ctx.Err() != nil { // but the action is done
		until, tctx = time.Now().Add(c.opts.CallTimeout), context.WithoutCancel(ctx)
	}
	tctx, cancel := context.WithDeadline(tctx, until)
	defer cancel()
	r, err := p.end(tctx, "trip")
	if err == nil {
		return p.outcome(r, nil)
	}
	if why := context.Cause(ctx); errors.Is(why, errs.ErrLost) || !time.Now().Before(c.engine.Until(&p.lease)) {
		p.leaveLater(time.Now())
		return p.broken(errs.ErrLost)
	} else if why != nil {
		err = errors.Join(err, why)
	}
	return p.leave(ctx, err) // whose answer also says whether the trip ran
}

// leaveLater removes the party in the background, from whichever generation it may be in. It goes on until its lease is
// over. The answer to what was sent before after is not final.
func (p *party) leaveLater(after time.Time) {
	c := p.b.c
	_ = c.engine.Remove(&p.lease) // lost or not, the party is removed
	anywhere := &party{b: p.b, id: p.id, term: p.term, unanswered: p.unanswered}
	c.session.ReleaseLater(p.b.name, after, p.term, func(ctx context.Context) error {
		_, err := anywhere.exchange("leave", 0).by(ctx, c.runner.Attempt)
		return err
	})
}
