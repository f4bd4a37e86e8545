package batch

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Coalescer makes shared calls of one script that does for each request the work of a lone call, or nothing at all. In
// the second case the caller sends a lone call. Sharing pays because the few commands on free locks or permits cost
// less than the call around them: the system calls of its packets, the server's parsing, the start of the script.
// Sharing begins at coalesceFrom calls under way. Below that a lone call is as fast, and pays two atomic additions
// here.
//
//	                              shared                   then
//	done                          1                        no lone call
//	anything but the common case  0, nothing is done       a lone call, which queues, waits, returns the refusal
//	the whole call was refused    nothing is done          a lone call; if the refusal was for several slots, no call
//	                                                       is shared from then on
//	no reply                      unknown                  as after a lone call without a reply
//
// docs/design/protocols.md has the interleavings ("Shared calls").
type Coalescer[Q any] struct {
	batcher Batcher[Q, bool]
	options Options
	config  CoalescerConfig[Q]

	base        time.Time
	pausedUntil atomic.Int64 // no calls are shared before this, in ns after base: see cooldown
}

// CoalescerConfig are the settings of a Coalescer. All fields are required.
type CoalescerConfig[Q any] struct {
	Runner  *script.Runner
	Timeout time.Duration // the time limit of a call
	// Spawn runs a function that sends calls whose callers may have left.
	Spawn func(func())
	// Call returns the call for the requests. Its reply is the server's ms, and then for each request 1 (done) or 0
	// (nothing is done).
	Call func(requests []*Request[Q, bool]) script.Call
	// Shared is called before each shared call, with the number of its requests.
	Shared func(ctx context.Context, requests int)
	// Late is called with the request of a caller that had left, if the request was granted.
	Late func(Q)
	// Errors name the operation What and the key Key.
	What, Key string
}

const (
	// coalesceFrom is the number of calls under way from which on calls are shared. With fewer calls, the wait for others
	// to share with costs more than it saves.
	coalesceFrom = 8
	// coalescedCalls is the maximum number of shared calls under way. With more, the same requests are spread over smaller
	// calls, and each costs both sides more. If the server is near, one call is best: two calls would split a crowd of 8
	// to 16 callers in halves, and lose a sixth of its rate. With one alone, a server a millisecond away would be idle
	// most of the time, so there is one more for each tripPerCall that a call takes.
	coalescedCalls = 4
	tripPerCall    = 200 * time.Microsecond
	// windowPerCall is how long a shared call waits for more requests, per request under way, up to defaultWindow. The
	// window should end when most callers that the last reply has set free have sent their next request. With 64 callers
	// 30 us gave a sixth more than 100 us, and with 256 callers 100 us gave a twentieth more than 30 us.
	windowPerCall = 500 * time.Nanosecond
	// cooldown is the time without shared calls after a call of which at least half of the requests needed lone calls:
	// each of these makes two calls in place of one.
	cooldown = 50 * time.Millisecond
)

// errCoalescedTimeout is returned if the calls before a request took its time, or its own call did. A later grant is
// refused by the server (see Call), or released (Abandoned).
var errCoalescedTimeout = errors.New("no reply to a shared call within the call timeout")

// NewCoalescer returns a Coalescer without requests.
func NewCoalescer[Q any](config CoalescerConfig[Q]) *Coalescer[Q] {
	l := &Coalescer[Q]{config: config, base: time.Now()}
	l.options = Options{
		MaxBatch: maxBatch, MaxCalls: coalescedCalls, MinInFlight: coalesceFrom, Near: tripPerCall,
		Window: defaultWindow, WindowPerRequest: windowPerCall,
		Bound: config.Timeout, ErrTimeout: errCoalescedTimeout, Spawn: config.Spawn,
	}
	l.batcher = Batcher[Q, bool]{
		Options: &l.options, Shared: config.Shared, What: config.What, Key: config.Key, Run: l.run,
		Abandoned: func(requests []*Request[Q, bool]) {
			for _, request := range requests {
				if request.Answer {
					config.Late(request.Ask)
				}
			}
		},
	}
	return l
}

// Enter counts in a call that could be shared, and reports whether it should be. The caller calls Leave afterwards.
func (l *Coalescer[Q]) Enter() (shares bool) {
	if !l.batcher.enter() || l.config.Runner.Apart() {
		return false
	}
	pausedUntil := l.pausedUntil.Load()
	return pausedUntil == 0 || int64(time.Since(l.base)) >= pausedUntil
}

// Leave counts a call out.
func (l *Coalescer[Q]) Leave() { l.batcher.leave() }

// Do makes a request in a shared call. If done is false, without an error, nothing was done and the caller should send
// a lone call. It waits for a call timeout at most, including the end of another call. The error is ErrUnavailable or
// ErrUnknownOutcome.
func (l *Coalescer[Q]) Do(ctx context.Context, ask Q) (done bool, err error) {
	return l.batcher.do(ctx, ask, true)
}

// run makes one shared call.
func (l *Coalescer[Q]) run(ctx context.Context, requests []*Request[Q, bool]) {
	call := l.config.Call(requests)
	call.Late = func(res rueidis.RedisResult) {
		if reply, err := res.ToMessage(); err == nil {
			l.onLateReply(reply, requests)
		}
	}
	sent := time.Now()
	reply, err := l.config.Runner.Attempt(ctx, call)
	received := time.Now()
	var server int64
	var outcomes []int64
	if err == nil {
		server, outcomes, err = l.decode(reply, len(requests))
	}
	switch {
	case err == nil:
		l.config.Runner.Clock.Learn(call.Keys[0], server, sent, received)
	case script.NotAnswered(err):
		for _, request := range requests {
			request.Err = err
		}
		return
	case errors.Is(err, errs.ErrDenied) && !script.BrokenOff(err), script.AcrossSlots(err):
		// The script did not begin: the user has no right to scripts or to these keys, or the keys are of several slots. In
		// the last case no call is shared from now on. Each request gets its own error from a lone call.
		outcomes = make([]int64, len(requests))
	default:
		for _, request := range requests {
			request.Err = fmt.Errorf("%w: a shared call broke off: %w", errs.ErrUnknownOutcome, err)
		}
		return
	}
	alone := 0
	for i, request := range requests {
		if request.Answer = outcomes[i] == 1; !request.Answer {
			alone++
		}
	}
	if 2*alone >= len(requests) {
		l.pausedUntil.Store(int64(time.Since(l.base) + cooldown))
	}
}

// onLateReply calls Late with the granted requests of a shared call whose reply came after their callers had left.
func (l *Coalescer[Q]) onLateReply(reply rueidis.RedisMessage, requests []*Request[Q, bool]) {
	_, outcomes, err := l.decode(reply, len(requests))
	if err != nil {
		return
	}
	for i, request := range requests {
		if outcomes[i] == 1 {
			l.config.Late(request.Ask)
		}
	}
}

// decode decodes the reply for count requests.
func (l *Coalescer[Q]) decode(reply rueidis.RedisMessage, count int) (server int64, outcomes []int64, err error) {
	values, err := reply.AsIntSlice()
	if err != nil || len(values) != count+1 {
		return 0, nil, script.Unexpected("shared "+l.config.What, values, err)
	}
	return values[0], values[1:], nil
}
