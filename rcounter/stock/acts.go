package stock

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// act is one act on a request or reservation: what acts.lua does, and with which arguments. Two acts that are equal
// want the same.
type act struct {
	verb         verb
	id, claimant string
	n            int64 // units; of actConfirm and actReturn those to keep
	ttl          time.Duration
}

// verb is a letter of acts.lua.
type verb string

const (
	actReserve     verb = "R"
	actReserveUpTo verb = "V"
	actOnce        verb = "O"
	actOnceUpTo    verb = "U"
	actConfirm     verb = "C"
	actExtend      verb = "E"
	actCancel      verb = "X"
	actReturn      verb = "B"
)

// args are the arguments of a, which may run until notAfter, the server's ms.
func (a *act) args(to []string, notAfter string) []string {
	to = append(to, string(a.verb), a.id, notAfter)
	switch a.verb {
	case actReserve, actReserveUpTo:
		return append(to, a.claimant, decimal(a.n), script.Millis(a.ttl))
	case actOnce, actOnceUpTo:
		return append(to, a.claimant, decimal(a.n))
	case actExtend:
		return append(to, script.Millis(a.ttl))
	case actConfirm, actReturn:
		return append(to, decimal(a.n))
	}
	return to
}

// done is how an act was answered: see acts.lua.
type done struct {
	front, second, third, asked, left int64
	epoch, remaining                  int64
	sent                              time.Time
}

// decides reports whether replicas must confirm the answer, because money moves upon it. A refusal for now needs no
// replica: a failover forgets no decision with it.
func (d done) decides(v verb) bool {
	return (v == actCancel || v == actReturn) && d.front == 0 || outcome(d.front).Final()
}

// again is what the second of two equal acts is answered in a call that has done the first: it has done nothing itself.
func (d done) again(v verb) done {
	switch {
	case v == actCancel || v == actReturn:
		d.second = min(d.second, 0)
	case outcome(d.front) == Granted:
		d.front = replayed
	}
	return d
}

// actTooLate is the front of the answer to an act that came too late: it was not done.
const actTooLate = -11

var actsScript = script.Load("acts", files, "acts")

const (
	// shareActsFrom is how many acts must be under way before they share calls. With fewer, a call by itself is as fast.
	shareActsFrom = 8
	// At most shareActsCalls shared calls are under way: with more, the same acts are spread over smaller calls. Two keep
	// a server busy that is near, and one more does for each tripPerActsCall that a call takes.
	shareActsCalls  = 4
	tripPerActsCall = 500 * time.Microsecond
)

// usefulCalls is how many shared calls are useful at the moment.
func (s *Stock) usefulCalls() int {
	return 2 + int(s.c.calls.Runner.Clock.Trip(s.keys[0])/tripPerActsCall)
}

// do does one act, in a call that it may share with others.
func (s *Stock) do(ctx context.Context, a act) (done, error) { return s.processState().acts.Do(ctx, a) }

// runActs makes the calls for some acts: one, unless an id is in several acts that differ. No id is twice in a call:
// see acts.lua.
func (s *Stock) runActs(ctx context.Context, requests []*batch.Request[act, done]) {
	if len(requests) == 1 {
		r := requests[0]
		ctx, stop := batch.Lone(ctx, requests)
		defer stop()
		r.Answer, r.Err = s.act(ctx, session.CallID(), r.Ask)
		return
	}
	for rest := requests; len(rest) > 0; {
		requests, rest = rest, nil
		acts, seats := make([]act, 0, len(requests)), make(map[string]int, len(requests))
		untils := make([]time.Time, 0, len(requests))
		took := make([]int, len(requests)) // which seat a request has, -1 for none in this call
		first := make([]bool, len(requests))
		for i, r := range requests {
			at, sits := seats[r.Ask.id]
			switch {
			case !sits:
				at, first[i] = len(acts), true
				acts, seats[r.Ask.id], untils = append(acts, r.Ask), at, append(untils, r.Until)
			case acts[at] != r.Ask:
				at, rest = -1, append(rest, r)
			case r.Until.After(untils[at]): // the one that waits longest still wants it
				untils[at] = r.Until
			}
			took[i] = at
		}
		answers, err := s.acts(ctx, session.CallID(), acts, untils)
		for i, r := range requests {
			at := took[i]
			switch {
			case at < 0:
			case answers == nil || err != nil && answers[at].decides(r.Ask.verb):
				r.Err = err
			case answers[at].front == actTooLate:
				r.Err = s.tooLate()
			case first[i]:
				r.Answer = answers[at]
			default:
				r.Answer = answers[at].again(r.Ask.verb)
			}
		}
	}
}

// act makes a call for one act.
func (s *Stock) act(ctx context.Context, call string, a act) (done, error) {
	answers, err := s.acts(ctx, call, []act{a}, nil)
	if answers == nil || err != nil && answers[0].decides(a.verb) {
		return done{}, err
	}
	return answers[0], nil
}

// acts makes the call with the given id for at most 128 acts of different ids; the answers are in their order. With
// ErrNotReplicated they are there too. untils, if not nil, are when the patience of each act's caller ends; zero: with
// the call's. See timely.
func (s *Stock) acts(ctx context.Context, call string, acts []act, untils []time.Time) ([]done, error) {
	v, sent, unconfirmed := s.timely(ctx, 4+5*len(acts), actsScript, func(notAfter string) []string {
		args := append(make([]string, 0, 3+6*len(acts)), call, s.c.calls.Mark(), notAfter)
		var last time.Time // several callers without a deadline have the same
		own := notAfter
		for i := range acts {
			if untils != nil && !untils[i].Equal(last) {
				last, own = untils[i], notAfter
				if !last.IsZero() {
					own = decimal(s.c.calls.Runner.Clock.At(s.keys[0], last))
				}
			}
			args = acts[i].args(args, own)
		}
		return args
	})
	if v == nil {
		return nil, unconfirmed
	}
	if err := s.verdict(v); err != nil {
		return nil, err
	}
	answers := make([]done, len(acts))
	for i := range answers {
		d := v[4+5*i:]
		answers[i] = done{front: d[0], second: d[1], third: d[2], asked: d[3], left: d[4], epoch: v[1], remaining: v[2],
			sent: sent}
		if v := acts[i].verb; v == actCancel || v == actReturn || v == actConfirm && acts[i].n > 0 {
			s.processState().cache.forget()
		}
	}
	return answers, unconfirmed
}

// timely makes a call that names the instant, in the server's time, at which its caller's patience ends: the time that
// the server said in its last reply, and what has passed since. A client that has heard nothing yet asks for the time
// first, by the same script. If the reply has n numbers, the fourth is the server's time. With ErrNotReplicated it is
// there too.
func (s *Stock) timely(ctx context.Context, n int, sc *script.Script,
	args func(notAfter string) []string) (v []int64, sent time.Time, unconfirmed error) {
	clock, key := s.c.calls.Runner.Clock, s.keys[0]
	until := time.Now().Add(s.c.calls.Wanted(ctx))
	for again := false; ; again = true {
		if again { // the first call needs no context of its own
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadlineCause(ctx, until, session.ErrPatience)
			defer cancel()
		}
		sent = time.Now()
		v, unconfirmed = s.confirmed(ctx, n, sc, args(decimal(clock.At(key, until)))...)
		switch {
		case v == nil:
			return nil, sent, unconfirmed
		case v[0] == stockOK:
			clock.Learn(key, v[3], sent, time.Now())
			return v, sent, unconfirmed
		case v[0] != stockChanged:
			return v, sent, unconfirmed
		}
		received := time.Now() // too late, or it only asked
		clock.Relearn(key, v[1], sent, received)
		if received.After(until) {
			return nil, sent, s.tooLate()
		}
	}
}

func (s *Stock) tooLate() error {
	return fmt.Errorf("%w: %q: the request reached the server too late, and an earlier copy may have run",
		errs.ErrUnknownOutcome, s.keys[0])
}

// won is the answer to an act that grants units under id.
func (s *Stock) won(d done, id string) (Grant, error) {
	if d.front < 0 {
		return Grant{}, s.verdict([]int64{d.front, -1, 0})
	}
	g := Grant{Outcome: outcome(d.front), Ordinal: d.second, N: d.third, Remaining: d.remaining, Epoch: d.epoch}
	g.Missing = max(0, d.asked-d.third)
	if g.Won() {
		g.Request = id
	}
	if g.Won() && g.Ordinal == 0 {
		g.Until = d.sent.Add(script.Duration(d.left))
	}
	return g, nil
}

// granted does an act that grants units under its id.
func (s *Stock) granted(ctx context.Context, a act) (Grant, error) {
	d, err := s.do(ctx, a)
	if err != nil {
		return Grant{}, err
	}
	return s.won(d, a.id)
}

// undo does an act that gives units back, and returns how many this call gave back.
func (s *Stock) undo(ctx context.Context, a act) (int64, error) {
	d, err := s.do(ctx, a)
	if err == nil && d.front < 0 {
		err = s.verdict([]int64{d.front, -1, 0})
	}
	if err != nil {
		return 0, err
	}
	return d.second, nil
}
