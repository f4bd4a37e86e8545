package stock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/script"
)

// processState is the state of a sale in this process: the calls that orders share, and the cache of items that are
// sold out. All Sale values of a name have the same one. The client's map refers to it weakly, so it goes when no such
// value is left and no call is under way.
type processState struct {
	buys   batch.Batcher[string, decided] // by user
	acts   batch.Batcher[act, decided]
	anyone batch.Batcher[units, share]
	cache  soldOutCache
}

// processState is what this process keeps of the sale.
func (s *Sale) processState() *processState {
	if p := s.known.Load(); p != nil {
		return p
	}
	p := s.c.sales.Of(s.keys[0], func() *processState { return newProcessState(s) })
	s.known.Store(p)
	return p
}

const (
	// shareActsFrom is how many acts must be under way before they share calls. With fewer, a call by itself is as fast.
	shareActsFrom = 8
	// Two shared calls keep a server busy that is near, and one more does for each tripPerCall that a call takes. With
	// more, the same orders are spread over smaller calls. Of acts at most maxActCalls are under way.
	tripPerCall = 500 * time.Microsecond
	maxActCalls = 4
)

func newProcessState(of *Sale) *processState {
	c := of.c
	s := &Sale{c: c, name: of.name, keys: of.keys} // not the caller's, which refers to what is made here
	p := &processState{cache: soldOutCache{c: c, flags: s.keys[3]}}
	shared := c.calls.TellShared(s.name)
	useful := func() int { return 2 + int(c.calls.Runner.Clock.Trip(s.keys[0])/tripPerCall) }
	p.buys = batch.Batcher[string, decided]{Options: &c.batch, Shared: shared, What: "buy", Key: s.keys[0],
		Run: s.runBuys, Calls: useful}
	p.acts = batch.Batcher[act, decided]{Options: &c.acts, Shared: shared, What: "act", Key: s.keys[0], Run: s.runActs,
		Calls: useful}
	p.anyone = batch.Batcher[units, share]{Options: &c.batch, Shared: shared, What: "buy", Key: s.keys[0],
		Run: s.runAnyone, Abandoned: s.takeBack, Calls: useful}
	return p
}

// act is one act of act.lua. Two acts that are equal want the same.
type act struct {
	verb, id, user string
	of             string // lines
	ttl            time.Duration
	first, n       int64 // of a part of an order of Anyone
	forbids        bool  // an id that the sale does not know is closed
}

// The letters of act.lua.
const (
	actBuy      = "B"
	actReserve  = "R"
	actExtend   = "E"
	actPay      = "P"
	actCancel   = "C"
	actReturn   = "G"
	actGiveBack = "A"
	actStatus   = "S"
)

// args are the arguments of a, which may run until notAfter, the server's ms.
func (a *act) args(to []string, notAfter string) []string {
	to = append(to, a.verb, a.id, notAfter)
	forbids := "0"
	if a.forbids {
		forbids = "1"
	}
	switch a.verb {
	case actBuy:
		return append(to, a.user, a.of)
	case actReserve:
		return append(to, a.user, a.of, script.Millis(a.ttl))
	case actExtend:
		return append(to, script.Millis(a.ttl))
	case actPay, actReturn:
		return append(to, a.of, forbids)
	case actCancel:
		return append(to, forbids)
	case actGiveBack:
		return append(to, decimal(a.first), decimal(a.n))
	}
	return to
}

// decided is how the server answered an act: see act.lua. at is of the call.
type decided struct {
	code  int64
	text  string
	again bool
	at    *moment
}

// needsReplicas reports whether replicas must confirm the answer. A failover forgets no decision with a refusal.
func (d *decided) needsReplicas() bool { return d.code == codeOK && d.text != "" }

// decode reads the answers to n acts.
func (r *reply) decode(n int, sent time.Time) (all []decided, ok bool) {
	if len(r.rest) != 3*n {
		return nil, false
	}
	all = make([]decided, n)
	at := &moment{epoch: r.head[1], now: r.head[2], sent: sent}
	for i := range all {
		code, err1 := r.rest[3*i].AsInt64()
		text, err2 := r.rest[3*i+1].ToString()
		again, err3 := r.rest[3*i+2].AsInt64()
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, false
		}
		all[i] = decided{code: code, text: text, again: again == 1, at: at}
	}
	return all, true
}

var (
	actScript = script.Load("act", files, "act")
	buyScript = script.Load("buy", files, "buy")
)

// do does one act, in a call that it may share with others.
func (s *Sale) do(ctx context.Context, a act) (decided, error) {
	return s.processState().acts.Do(ctx, a)
}

// runActs makes the calls for some acts.
func (s *Sale) runActs(ctx context.Context, requests []*batch.Request[act, decided]) {
	runShared(ctx, requests, func(a act) string { return a.id }, s.act)
}

// runBuys makes the call for some users.
func (s *Sale) runBuys(ctx context.Context, requests []*batch.Request[string, decided]) {
	runShared(ctx, requests, func(user string) string { return user },
		func(ctx context.Context, users []string, _ []time.Time) ([]decided, error) { return s.buy(ctx, users) })
}

// runShared makes the calls for some requests: one, unless an id is in several requests that differ, or the server had
// to end more reservations first. No id is twice in a call: see act.lua. Requests that are equal have one answer.
func runShared[Q comparable](ctx context.Context, requests []*batch.Request[Q, decided], id func(Q) string,
	call func(ctx context.Context, asks []Q, untils []time.Time) ([]decided, error)) {
	ctx, stop := batch.Lone(ctx, requests)
	defer stop()
	for len(requests) > 0 {
		asks, untils := make([]Q, 0, len(requests)), make([]time.Time, 0, len(requests))
		places := make(map[string]int, len(requests)) // in asks, by id
		var seated, rest []*batch.Request[Q, decided]
		at := make([]int, 0, len(requests)) // the place of each that is seated
		for _, r := range requests {
			place, taken := places[id(r.Ask)]
			switch {
			case !taken:
				place = len(asks)
				asks, untils, places[id(r.Ask)] = append(asks, r.Ask), append(untils, r.Until), place
			case asks[place] != r.Ask:
				rest = append(rest, r)
				continue
			case r.Until.After(untils[place]): // the one that waits longest still wants it
				untils[place] = r.Until
			}
			seated, at = append(seated, r), append(at, place)
		}
		answers, err := call(ctx, asks, untils)
		for i, r := range seated {
			switch {
			case answers == nil || err != nil && answers[at[i]].needsReplicas():
				r.Err = err
			case answers[at[i]].code == codeMore:
				rest = append(rest, r)
			default:
				r.Answer = answers[at[i]]
				answers[at[i]].again = true // of equal requests, one has made the order
			}
		}
		requests = rest
	}
}

// buy runs buy.lua for at most 128 different users. With ErrNotReplicated the answers are there too.
func (s *Sale) buy(ctx context.Context, users []string) ([]decided, error) {
	sent := time.Now()
	args := append(make([]string, 0, 1+len(users)), s.c.calls.Mark())
	r, answered, unconfirmed := s.run(ctx, s.c.calls.Confirmed(s.call(buyScript, append(args, users...)...)))
	if !answered {
		return nil, unconfirmed
	}
	if err := s.verdict(r.head); err != nil {
		return nil, err
	}
	s.c.calls.Runner.Clock.Learn(s.keys[0], r.head[2], sent, time.Now())
	all, ok := r.decode(len(users), sent)
	if !ok {
		return nil, malformed("buy", s.keys[0])
	}
	return all, unconfirmed
}

// act runs act.lua for at most 128 acts of different ids. With ErrNotReplicated the answers are there too. untils, if
// not nil, are when the patience of each act's caller ends; zero: with the call's.
func (s *Sale) act(ctx context.Context, acts []act, untils []time.Time) ([]decided, error) {
	r, sent, unconfirmed := s.timely(ctx, actScript, func(notAfter string) []string {
		args := append(make([]string, 0, 2+6*len(acts)), s.c.calls.Mark(), notAfter)
		own, last := notAfter, time.Time{}
		for i := range acts {
			if untils != nil && !untils[i].Equal(last) { // several callers without a deadline have the same
				if own, last = notAfter, untils[i]; !last.IsZero() {
					own = decimal(s.c.calls.Runner.Clock.At(s.keys[0], last))
				}
			}
			args = acts[i].args(args, own)
		}
		return args
	})
	if r.rest == nil {
		return nil, unconfirmed
	}
	all, ok := r.decode(len(acts), sent)
	if !ok {
		return nil, malformed("act", s.keys[0])
	}
	for i := range acts {
		if acts[i].givesBack() && all[i].code == codeOK {
			s.processState().cache.forget()
		}
	}
	return all, unconfirmed
}

// givesBack reports whether units may come back by a.
func (a *act) givesBack() bool {
	switch a.verb {
	case actCancel, actReturn, actGiveBack:
		return true
	}
	return a.verb == actPay && a.of != ""
}
