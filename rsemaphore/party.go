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

// The statuses in the replies of barrier.lua.
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
	status     int64
	id         string
	generation int64
	arrived    int64
	leaseLeft  time.Duration
	serverTime int64
	parties    int64
}

// Clock implements script.Reply.
func (r barrierReply) Clock() (server int64, late bool) { return r.serverTime, r.status == barrierLate }

// barrierParty is one call of Await.
type barrierParty struct {
	barrier     *CyclicBarrier
	id          string // never used again
	leaseTime   time.Duration
	began       time.Time
	firstSentAt time.Time // when the first request was sent by which the party may have arrived
	// A request to arrive without a reply may run until unansweredUntil; zero if there is none.
	unansweredUntil time.Time
	arrival         barrierReply
	lease           lease.Lease
	end             context.CancelCauseFunc // ends the context of Await; set before the lease is registered
	finished        atomic.Bool             // Await has returned, or is about to
}

func (b *CyclicBarrier) newParty() *barrierParty {
	return &barrierParty{barrier: b, began: time.Now(), id: b.c.keeper.NewOwner(""), leaseTime: b.c.partyLease}
}

// Object is the barrier, for the debug page.
func (p *barrierParty) Object() any { return p.barrier }

// The methods below implement lease.Holder.
func (p *barrierParty) Ended(reason error) { p.end(reason) }
func (p *barrierParty) Renewed(err error) {
	p.barrier.c.keeper.TellOf(&p.lease, errs.EventRenewed, err)
}
func (*barrierParty) InUse() bool     { return true }
func (p *barrierParty) Shown() string { return p.id }
func (*barrierParty) Records() int    { return 0 }

// call returns the call for one verb of barrier.lua.
func (p *barrierParty) call(verb string, notAfter int64) script.Call {
	barrier, verbScript := p.barrier, barrierScript
	if verb == "state" {
		verbScript = barrierState
	}
	return script.Call{Script: verbScript, Keys: []string{barrier.key}, Args: []string{
		verb, p.id, p.arrival.id, decimal(p.arrival.generation), strconv.Itoa(barrier.parties), script.Millis(p.leaseTime),
		decimal(notAfter), script.Millis(barrierMemory), barrier.channel, barrier.c.session.Inner.PublishCommand(),
		p.mayStillArrive(),
	}}
}

// send sends one verb.
func (p *barrierParty) send(ctx context.Context, send sender, verb string) (barrierReply, error) {
	message, err := send(ctx, p.call(verb, 0))
	if err != nil {
		return barrierReply{}, err
	}
	return p.decode(message)
}

func (p *barrierParty) decode(message rueidis.RedisMessage) (reply barrierReply, err error) {
	err = read(message, "barrier", p.barrier.key, &reply.status, &reply.id, &reply.generation, &reply.arrived,
		&reply.leaseLeft, &reply.serverTime, &reply.parties)
	return reply, err
}

// mayStillArrive returns "1" while a request to arrive may still run, and would then be an arrival in a later
// generation; otherwise "0".
func (p *barrierParty) mayStillArrive() string {
	if time.Now().Before(p.unansweredUntil) {
		return "1"
	}
	return "0"
}

func (b *CyclicBarrier) await(ctx context.Context) (Arrival, error) {
	party := b.newParty()
	if err := party.arrive(ctx); err != nil {
		return Arrival{}, err
	}
	b.c.session.Answered()
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	party.end = cancel
	party.lease = lease.Lease{
		Name: b.name, Key: b.key,
		Owner: party.id + " " + party.arrival.id + " " + strconv.FormatInt(party.arrival.generation, 10),
		Renew: barrierRenewScript, Untracked: true, Ctx: ctx, Of: party,
	}
	if !b.c.engine.Add(&party.lease, party.firstSentAt, party.firstSentAt, party.leaseTime, true, 0) {
		// happens only if this process, or the network, stalled for as long as the lease
		party.leaveLater(time.Now())
		return party.brokenResult(errs.ErrLost)
	}
	if b.c.session.Closed() { // Close ran meanwhile, and did not find this lease
		cancel(errs.ErrClosed)
	}
	defer party.finish()
	if party.arrival.status == barrierLast {
		return party.runAction(own)
	}
	return party.await(own)
}

// finish ends the Await of a party that had arrived.
func (p *barrierParty) finish() {
	_ = p.barrier.c.engine.Remove(&p.lease) // the result of Await says how the party ended
	p.finished.Store(true)
	if !p.unansweredUntil.IsZero() {
		// A request to arrive may still be on its way, on another connection. It would arrive for a party whose Await has
		// returned.
		p.leaveLater(p.unansweredUntil)
	}
}

// onLateArrival removes the party again if a request to arrive got its reply after the party's end. Its caller had
// given up on the request.
func (p *barrierParty) onLateArrival(result rueidis.RedisResult) {
	message, err := result.ToMessage()
	if err != nil || !p.finished.Load() {
		return
	}
	if reply, err := p.decode(message); err == nil && (reply.status == barrierWaiting || reply.status == barrierLast) {
		p.leaveLater(time.Time{})
	}
}

// brokenResult is the result of a generation that broke. cause is the reason of this party if it broke the generation.
func (p *barrierParty) brokenResult(cause error) (Arrival, error) {
	err := fmt.Errorf("rsemaphore: %w: %q in generation %d", ErrBrokenBarrier, p.barrier.name, p.arrival.generation)
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return Arrival{Generation: p.arrival.generation}, err
}

// arrive sends requests until the party has arrived.
func (p *barrierParty) arrive(ctx context.Context) error {
	barrier := p.barrier
	err := barrier.c.waiters.Wait(ctx,
		wait.Request{Name: barrier.name, Object: barrier, Began: p.began, Channel: barrier.channel, Mode: wait.Alone,
			Try: p.tryArrive})
	if err == nil {
		return nil
	}
	p.finished.Store(true)
	if !p.unansweredUntil.IsZero() {
		p.leaveLater(p.unansweredUntil)
	}
	return wait.Ending{Package: "rsemaphore", Name: barrier.name, Unsure: !p.unansweredUntil.IsZero(),
		Contended: func(gaveUp *wait.GaveUp) error {
			return fmt.Errorf("rsemaphore: barrier %q is full: %w: %w", barrier.name, errs.ErrNotAcquired, gaveUp.Cause)
		}}.Explain(err)
}

// tryArrive sends one request to arrive.
func (p *barrierParty) tryArrive(ctx context.Context) (wait.Answer, error) {
	barrier, client := p.barrier, p.barrier.c
	if err := p.learnServerTime(ctx); err != nil {
		return wait.Answer{}, err
	}
	arrival := script.Timed[barrierReply]{Key: barrier.key, Beyond: session.ReplyGrace, Send: p.sendArrival,
		Decode: p.decode}
	reply, err := arrival.Run(ctx, client.runner)
	if err != nil {
		return wait.Answer{}, err
	}
	switch reply.status {
	case barrierWaiting, barrierLast:
		p.arrival = reply
		return wait.Answer{Granted: true}, nil
	case barrierFull:
		return wait.Answer{Left: reply.leaseLeft}, nil
	case barrierMismatch:
		return wait.Answer{}, capacityMismatch(barrier.name, reply.parties, barrier.parties)
	}
	return wait.Answer{}, malformed("arrive", barrier.key, reply)
}

// learnServerTime asks for the server's time if this client does not know it. A request to arrive that names no instant
// may run whenever it comes. After its party is gone, it would arrive for a party that left, and the leave that removes
// the party again would break the current generation (TestArrival_FirstOfAClientAndLate_IsRefused).
func (p *barrierParty) learnServerTime(ctx context.Context) error {
	client, key := p.barrier.c, p.barrier.key
	if client.runner.Clock.At(key, time.Now()) != 0 {
		return nil
	}
	sent := time.Now()
	reply, err := p.send(ctx, client.runner.Attempt, "state")
	if err == nil {
		client.runner.Clock.Learn(key, reply.serverTime, sent, time.Now())
	}
	return err
}

// sendArrival sends one request to arrive, and records a request without a reply.
func (p *barrierParty) sendArrival(ctx context.Context, sent time.Time, notAfter int64) (rueidis.RedisMessage, error) {
	client := p.barrier.c
	if !p.unansweredUntil.IsZero() && !sent.Before(p.firstSentAt.Add(p.leaseTime-lease.Margin(p.leaseTime))) {
		// A request without a reply may have arrived, and from now on the server may forget that arrival. Another request
		// would then arrive a second time.
		return rueidis.RedisMessage{},
			wait.Final(fmt.Errorf("%w: arrive at %q: no reply for a whole lease", errs.ErrUnknownOutcome, p.barrier.name))
	}
	if p.unansweredUntil.IsZero() {
		p.firstSentAt = sent
	}
	call := p.call("arrive", notAfter)
	call.Late = p.onLateArrival
	message, err := client.session.AttemptOnce(ctx, call)
	if errors.Is(err, errs.ErrUnknownOutcome) {
		p.unansweredUntil = script.LastRun(sent.Add(client.opts.CallTimeout))
	}
	return message, err
}

// queueKey names the queue in which this process's parties of one generation wait. They never wait behind parties of
// another generation, which may be waiting for them.
func (p *barrierParty) queueKey() string {
	return "barrier:" + p.barrier.key + " " + p.arrival.id + " " + strconv.FormatInt(p.arrival.generation, 10)
}

// awaitGeneration waits until the generation is over, or this party is not in it any more, and returns the server's
// reply. ctx ends when the caller's context, the lease or the client ends.
func (p *barrierParty) awaitGeneration(ctx context.Context) (result barrierReply, err error) {
	client := p.barrier.c
	key, answered := p.queueKey(), false
	look := func(ctx context.Context) (wait.Answer, error) {
		sent := time.Now()
		if result, err = p.send(ctx, client.runner.Attempt, "look"); err != nil {
			return wait.Answer{}, err
		}
		answered = true
		if result.status == barrierWaiting {
			return wait.Answer{Left: result.leaseLeft}, nil
		}
		if result.status != barrierUnknown { // barrierUnknown is about this party alone
			client.waiters.Serve(key, sent, &generationEnd{result})
		}
		return wait.Answer{Granted: true}, nil
	}
	onMessage := func(payload string) bool {
		end, ok := p.readEnd(payload)
		if ok {
			result = end
			client.waiters.Serve(key, time.Now(), &generationEnd{end})
		}
		return ok && answered
	}
	// Each party sends a look of its own until it is answered, because the look tells the server that the reply to the
	// arrival has come (see barrier.lua). After that the looks of other parties serve it, and the message of the
	// generation's end.
	answer, err := look(ctx)
	if err == nil && answer.Granted {
		return result, nil
	}
	for {
		err = client.waiters.Wait(ctx, wait.Request{Name: p.barrier.name, Object: p.barrier, Began: p.began, QueueKey: key,
			Channel: p.barrier.channel, OnMessage: onMessage, Try: look})
		var end *generationEnd
		if !errors.As(err, &end) {
			return result, err
		}
		if answered {
			return end.barrierReply, nil
		}
	}
}

// generationEnd ends the wait of a party that another party's reply serves.
type generationEnd struct{ barrierReply }

func (*generationEnd) Error() string { return "the generation is over" }

// readEnd reads a message of the barrier's channel. ok reports that the message is about this party's generation, and
// end is that generation's end. The message counts as the reply to a look, whenever it comes, because a generation ends
// once, and an id of a barrier's life is never used again:
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
// A party that is not subscribed yet looks after the confirmation. A lost message is replaced by the look after
// PollCap.
func (p *barrierParty) readEnd(payload string) (end barrierReply, ok bool) {
	ending, ok := strings.CutPrefix(payload, p.arrival.id+" "+strconv.FormatInt(p.arrival.generation, 10)+" ")
	end = barrierReply{status: barrierTripped, id: p.arrival.id, generation: p.arrival.generation}
	if ending == "broken" {
		end.status = barrierBroken
	}
	return end, ok && (ending == "tripped" || ending == "broken")
}

// await waits for the end of the generation. It is for a party that is not the last.
func (p *barrierParty) await(ctx context.Context) (Arrival, error) {
	client := p.barrier.c
	result, err := p.awaitGeneration(ctx)
	if err == nil && time.Now().Before(client.engine.Until(&p.lease)) {
		return p.resultOf(result, nil)
	}
	if errors.Is(err, errs.ErrWrongType) { // the watchdog would have found it, too
		p.leaveLater(time.Now())
		return p.brokenResult(fmt.Errorf("%w: %w", errs.ErrLost, err))
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
		return p.brokenResult(why)
	}
	if client.session.Closed() {
		why = errs.ErrClosed
	} else if ended := errs.Ended(ctx); ended != nil {
		why = ended
	}
	return p.leave(ctx, why)
}

func isGaveUp(err error) bool {
	var gaveUp *wait.GaveUp
	return errors.As(err, &gaveUp)
}

// resultOf translates a reply about the party's generation into a result of Await. cause is the reason of this party if
// it broke the generation.
func (p *barrierParty) resultOf(reply barrierReply, cause error) (Arrival, error) {
	switch reply.status {
	case barrierTripped:
		return Arrival{Generation: p.arrival.generation, Last: p.arrival.status == barrierLast}, nil
	case barrierBroken:
		return p.brokenResult(cause)
	}
	if cause != nil {
		cause = fmt.Errorf("%w: %w", errs.ErrLost, cause)
	} else {
		cause = errs.ErrLost
	}
	return p.brokenResult(cause)
}

// leave removes the party from its generation, which breaks the generation unless it is over.
func (p *barrierParty) leave(ctx context.Context, cause error) (Arrival, error) {
	client := p.barrier.c
	_ = client.engine.Remove(&p.lease) // before it is sent: see package lease; the reply says how the party ended
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), client.opts.CallTimeout)
	defer cancel()
	reply, err := p.endGeneration(ctx, "leave")
	if err != nil {
		p.leaveLater(time.Now())
		// The server may have run a request without a reply: the party has arrived, and the others may have gone on with it.
		return Arrival{}, fmt.Errorf("rsemaphore: leave barrier %q: %w", p.barrier.name,
			errors.Join(script.Unsure(err), script.Unsure(cause)))
	}
	return p.resultOf(reply, cause)
}

// endGeneration sends a verb that ends a generation, until it is answered.
func (p *barrierParty) endGeneration(ctx context.Context, verb string) (barrierReply, error) {
	client, send := p.barrier.c, p.barrier.c.runner.Do
	if client.session.Inner.Context().Err() != nil { // the hub is closed, and perhaps its client, which refuses every try
		send = client.runner.Attempt
	}
	reply, err := p.send(ctx, send, verb)
	if err == nil {
		client.waiters.Wake(p.queueKey())
	}
	return reply, err
}

// watchDuringAction returns a child of ctx for the action. It ends when the generation breaks. stop ends the watch.
//
// The watchdog cannot report a broken generation: a party whose generation is over counts as renewed (see
// barrier_renew.lua), because only a look returns the end. These find a break:
//
//   - before the first look, that look;
//   - later, the message or the poll for which every party waits;
//   - after the action has returned, the reply to the trip. The generation trips only by the caller's own request,
//     after the action.
func (p *barrierParty) watchDuringAction(ctx context.Context) (actionCtx context.Context, stop func()) {
	actionCtx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		reply, err := p.awaitGeneration(actionCtx)
		switch {
		case err == nil:
			_, err = p.resultOf(reply, nil)
		case errors.Is(err, errs.ErrWrongType): // as in await
			_, err = p.brokenResult(fmt.Errorf("%w: %w", errs.ErrLost, err))
		default: // the caller's context ended, or the user lacks the right to look: renewals go on without it
			return
		}
		if err != nil {
			cancel(err)
		}
	}()
	return actionCtx, func() {
		cancel(nil)
		<-done
	}
}

// runAction runs the action and trips the generation. It is for the party that arrived last.
func (p *barrierParty) runAction(ctx context.Context) (_ Arrival, err error) {
	if p.barrier.action != nil {
		actionCtx, stop := p.watchDuringAction(ctx)
		returned := false
		defer func() {
			if !returned { // a panic, or runtime.Goexit
				stop()
				_, _ = p.leave(ctx, nil) // Await returns nothing then
			}
		}()
		err = p.barrier.action(actionCtx)
		returned = true
		stop()
		if err != nil {
			return p.leave(ctx, err)
		}
	}
	client := p.barrier.c
	until, tripCtx := client.engine.Until(&p.lease), ctx
	if ctx.Err() != nil { // the action is done all the same
		until, tripCtx = time.Now().Add(client.opts.CallTimeout), context.WithoutCancel(ctx)
	}
	tripCtx, cancel := context.WithDeadline(tripCtx, until)
	defer cancel()
	reply, err := p.endGeneration(tripCtx, "trip")
	if err == nil {
		return p.resultOf(reply, nil)
	}
	if why := context.Cause(ctx); errors.Is(why, errs.ErrLost) || !time.Now().Before(client.engine.Until(&p.lease)) {
		p.leaveLater(time.Now())
		return p.brokenResult(errs.ErrLost)
	} else if why != nil {
		err = errors.Join(err, why)
	}
	return p.leave(ctx, err) // the reply to the leave also says whether the trip ran
}

// leaveLater removes the party in the background, from any generation. It goes on until the party's lease is over. A
// reply to a leave that was sent before finalFrom is not final, because a request to arrive may still run.
func (p *barrierParty) leaveLater(finalFrom time.Time) {
	client := p.barrier.c
	_ = client.engine.Remove(&p.lease) // lost or not, the party is removed
	anywhere := &barrierParty{barrier: p.barrier, id: p.id, leaseTime: p.leaseTime, unansweredUntil: p.unansweredUntil}
	client.keeper.ReleaseLater(p.barrier.name, finalFrom, p.leaseTime, func(ctx context.Context) error {
		_, err := anywhere.send(ctx, client.runner.Attempt, "leave")
		return err
	})
}
