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

// Coalescer makes shared calls of one script that does for each request what a call of its own would, or nothing at
// all: then its caller asks alone. What many goroutines of a process do at once with what is free is the same few
// commands on keys of their own, and most of its price is that of the call around them: the system calls of its
// packets, the server's parsing, the script's start. So from coalesceFrom calls under way on they share calls. Below
// that a call by itself is as fast, and nothing here costs it more than two atomic additions.
//
//	                                shared                           then
//	done                            1                                nothing: one call
//	anything but the common case    0, nothing is done               a call of its own, which queues, waits, says what is wrong
//	the whole call was refused      nothing is done                  a call of its own; if it was for its slots, no call
//	                                                                 is shared from then on
//	no reply                        unknown                          as after a lone call without a reply
//
// Some interleavings:
//
//   - A request whose caller leaves before its call is sent is not sent, and its caller learns so (Batcher).
//   - A request that is granted after its caller has left is given back: by Batcher.Abandoned if the reply comes in
//     time for the call, by Call.Late if that was given up, and by the pending release of an acquisition with a try of
//     unknown outcome.
//   - Between "0, ask alone" and the lone call the state may change any number of times. The lone call is sent with an
//     instant of its own after which it is refused, and its lease counts from its own send.
//   - A call that broke off half way, which no state can cause because each is looked at with pcall, counts as unknown
//     for all: had one been released, its lone call would find nothing and report a loss that was none.
type Coalescer[Q any] struct {
	calls   Batcher[Q, bool]
	options Options
	tally   Tally
	with    CoalescerConfig[Q]
	base    time.Time
	until   atomic.Int64 // no calls are shared until then, after base: see cooldown
	trip    atomic.Int64 // how long a shared call takes, one of the quickest of late, ns
}

// CoalescerConfig is what a Coalescer needs. All of it is set.
type CoalescerConfig[Q any] struct {
	Runner  *script.Runner
	Timeout time.Duration // of a call
	// Spawn runs what is sent for callers that may have left.
	Spawn func(func())
	// Call is the call for the requests. It replies with the server's ms, and then 1 or 0 for each: done, or nothing is
	// done.
	Call func(requests []*Request[Q, bool]) script.Call
	// Late is called with what was done, or may have been, for a caller that had left.
	Late func(Q)
	// What and Key are the words of errors.
	What, Key string
}

const (
	// coalesceFrom is how many calls must be under way: with fewer, waiting for others to share with costs more than it
	// saves.
	coalesceFrom = 14
	// coalescedCalls is how many shared calls are under way at most. With more, the same requests are spread over smaller
	// calls, which costs both sides more for each; with one alone, a server a millisecond away would be idle most of the
	// time. So there are two, and one more for each tripPerCall that a call takes.
	coalescedCalls = 4
	tripPerCall    = 200 * time.Microsecond
	// windowPerCall is for how long a shared call waits for more requests, for each that is under way, up to
	// defaultWindow. The window is to be over when most of those have come that the last reply has set free: with 64
	// callers 30 us gave a sixth more than 100 us, and with 256 the other way round a twentieth.
	windowPerCall = 500 * time.Nanosecond
	// cooldown is for how long no calls are shared after one of which at least half had to ask alone: each of those
	// makes two calls in place of one.
	cooldown = 50 * time.Millisecond
)

// errCoalescedTimeout: those before it took the time, or its own call did. What is granted later is refused by the
// server (see Call), or given back (Abandoned).
var errCoalescedTimeout = errors.New("no reply to a shared call within the call timeout")

// NewCoalescer returns a Coalescer without requests.
func NewCoalescer[Q any](with CoalescerConfig[Q]) *Coalescer[Q] {
	l := &Coalescer[Q]{options: Options{MaxCalls: coalescedCalls}, with: with, base: time.Now()}
	if err := l.options.Check(); err != nil {
		panic(err) // the defaults
	}
	l.calls = Batcher[Q, bool]{
		Options: &l.options, MinInFlight: coalesceFrom, Tally: &l.tally, Spawn: with.Spawn, Bound: with.Timeout,
		ErrTimeout: errCoalescedTimeout,
		What:       with.What, Key: with.Key,
		Run: l.run, Calls: func() int { return 2 + int(l.trip.Load()/int64(tripPerCall)) },
		Window: func() time.Duration { return min(time.Duration(l.calls.inFlight.Load())*windowPerCall, defaultWindow) },
		Abandoned: func(requests []*Request[Q, bool]) {
			for _, r := range requests {
				if r.Answer {
					with.Late(r.Ask)
				}
			}
		},
	}
	return l
}

// Enter counts a call in that could be shared. shares: it is to be. The caller calls Leave afterwards.
func (l *Coalescer[Q]) Enter() (shares bool) {
	if !l.calls.enter() || l.with.Runner.Apart() {
		return false
	}
	rest := l.until.Load()
	return rest == 0 || int64(time.Since(l.base)) >= rest
}

// Leave counts a call out.
func (l *Coalescer[Q]) Leave() { l.calls.leave() }

// Counts returns how many calls were shared, and how many requests were in them. A nil Coalescer has none.
func (l *Coalescer[Q]) Counts() (calls, requests int64) {
	if l == nil {
		return 0, 0
	}
	return l.tally.Counts()
}

// Do makes a request in a shared call. done is false, without an error, if nothing was done and the caller is to ask
// alone. It waits for a call timeout at most: for a call under way to end, and for its own. The error is ErrUnavailable
// or ErrUnknownOutcome.
func (l *Coalescer[Q]) Do(ctx context.Context, ask Q) (done bool, err error) {
	return l.calls.do(ctx, ask, true)
}

// run makes one shared call.
func (l *Coalescer[Q]) run(ctx context.Context, requests []*Request[Q, bool]) {
	call := l.with.Call(requests)
	call.Late = func(res rueidis.RedisResult) {
		if m, err := res.ToMessage(); err == nil {
			l.late(m, requests)
		}
	}
	sent := time.Now()
	m, err := l.with.Runner.Attempt(ctx, call)
	received := time.Now()
	var server int64
	var done []int64
	if err == nil {
		server, done, err = l.decode(m, len(requests))
	}
	switch {
	case err == nil:
		l.with.Runner.Clock.Learn(call.Keys[0], server, sent, received)
		l.took(int64(received.Sub(sent)))
	case script.NotAnswered(err):
		for _, r := range requests {
			r.Err = err
		}
		return
	case errors.Is(err, errs.ErrDenied) && !script.BrokenOff(err), script.AcrossSlots(err):
		// it did not begin: no right to scripts, or to these keys; or they are of several slots, and no call is shared any
		// more
		done = make([]int64, len(requests)) // each learns alone what is wrong
	default:
		for _, r := range requests {
			r.Err = fmt.Errorf("%w: a shared call broke off: %w", errs.ErrUnknownOutcome, err)
		}
		return
	}
	alone := 0
	for i, r := range requests {
		if r.Answer = done[i] == 1; !r.Answer {
			alone++
		}
	}
	if 2*alone >= len(requests) {
		l.until.Store(int64(time.Since(l.base) + cooldown))
	}
}

// late passes on the requests that a shared call carried out whose reply came after their callers had left.
func (l *Coalescer[Q]) late(m rueidis.RedisMessage, requests []*Request[Q, bool]) {
	_, done, err := l.decode(m, len(requests))
	if err != nil {
		return
	}
	for i, r := range requests {
		if done[i] == 1 {
			l.with.Late(r.Ask)
		}
	}
}

// took notes how long a call took. A slow one counts little: it may have waited for a processor. Two that end at once
// may lose one of the notes.
func (l *Coalescer[Q]) took(d int64) {
	if t := l.trip.Load(); t > 0 && d > t {
		d = t + (d-t)/128
	}
	l.trip.Store(d)
}

// decode reads the reply for n requests.
func (l *Coalescer[Q]) decode(m rueidis.RedisMessage, n int) (server int64, done []int64, err error) {
	v, err := m.AsIntSlice()
	if err != nil || len(v) != n+1 {
		return 0, nil, script.Unexpected("shared "+l.with.What, v, err)
	}
	return v[0], v[1:], nil
}
