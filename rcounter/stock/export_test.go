package stock

import (
	"cmp"
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// The scripts' Go functions, with the call's id given, so that tests can send one call twice.

func (s *Stock) OpenAs(ctx context.Context, id string, o Spec) (epoch int64, opened bool, err error) {
	if err := o.check(); err != nil {
		return 0, false, err
	}
	o.Remember = cmp.Or(o.Remember, defaultRemember)
	r, err := s.open(ctx, id, o)
	return r.epoch, r.opened, err
}

func (s *Stock) ClaimAs(ctx context.Context, id string, claimants ...string) ([]Grant, error) {
	return s.claim(ctx, id, claimants)
}

func (s *Stock) ReturnAs(ctx context.Context, id, claimant string, ordinal int64) (bool, error) {
	n, err := s.giveBack(ctx, id, claimant, ordinal)
	return n > 0, err
}

func (s *Stock) AnyAs(ctx context.Context, id string, n int64) (Grant, error) {
	return s.any(ctx, id, n)
}

func (s *Stock) OnceAs(ctx context.Context, id, request, claimant string, n int64) (Grant, error) {
	return s.actAs(ctx, id, act{verb: actOnce, id: request, claimant: claimant, n: n})
}

func (s *Stock) GiveUp(ctx context.Context, id string) (int64, error) {
	return s.giveBackAny(ctx, session.CallID(), id, 0, 0)
}

func (s *Stock) ReserveAs(ctx context.Context, call, id, claimant string, n int64) (Grant, error) {
	return s.actAs(ctx, call, act{verb: actReserve, id: id, claimant: claimant, n: n, ttl: time.Hour})
}

func (s *Stock) ConfirmAs(ctx context.Context, call, id string) (Grant, error) {
	return s.actAs(ctx, call, act{verb: actConfirm, id: id})
}

func (s *Stock) actAs(ctx context.Context, call string, a act) (Grant, error) {
	d, err := s.act(ctx, call, a)
	if err != nil {
		return Grant{}, err
	}
	return s.won(d, a.id)
}

// Deed is an act, and Answer what became of it.
type (
	Deed struct {
		Verb, ID, Claimant string
		N                  int64
		TTL                time.Duration
		Until              time.Time // when its caller's patience ends; zero: with the call's
	}
	Answer struct {
		Grant Grant
		Back  bool
		Err   error
	}
)

func (d Deed) act() act {
	return act{verb: verb(d.Verb), id: d.ID, claimant: d.Claimant, n: d.N, ttl: d.TTL}
}

func (s *Stock) answer(d Deed, v done) (a Answer) {
	if v.front == actTooLate {
		a.Err = s.tooLate()
	} else if v.front < 0 {
		a.Err = s.verdict([]int64{v.front, -1, 0})
	} else if a.Back = v.second > 0; d.Verb != "X" && d.Verb != "B" {
		a.Back = false
		if a.Grant, a.Err = s.won(v, d.ID); d.Verb == "C" {
			a.Grant = a.Grant.paid(d.N)
		}
	}
	return a
}

// ActsAs makes one call for deeds of different ids.
func (s *Stock) ActsAs(ctx context.Context, call string, deeds ...Deed) ([]Answer, error) {
	acts, untils := make([]act, len(deeds)), make([]time.Time, len(deeds))
	for i, d := range deeds {
		acts[i] = d.act()
		if untils[i] = d.Until; d.Until.IsZero() {
			untils[i] = time.Now().Add(s.c.calls.Wanted(ctx))
		}
	}
	v, err := s.acts(ctx, call, acts, untils)
	if v == nil {
		return nil, err
	}
	answers := make([]Answer, len(deeds))
	for i, d := range deeds {
		answers[i] = s.answer(d, v[i])
	}
	return answers, err
}

// ShareAs does what the callers of deeds do whose call is shared.
func (s *Stock) ShareAs(ctx context.Context, deeds ...Deed) []Answer {
	requests := make([]*batch.Request[act, done], len(deeds))
	for i, d := range deeds {
		requests[i] = &batch.Request[act, done]{Ctx: ctx, Ask: d.act(), Until: d.Until}
	}
	s.runActs(ctx, requests)
	answers := make([]Answer, len(deeds))
	for i, r := range requests {
		if answers[i] = (Answer{Err: r.Err}); r.Err == nil {
			answers[i] = s.answer(deeds[i], r.Answer)
		}
	}
	return answers
}

// Digest is that of a cart.
func Digest(g *Group, stocks ...string) string {
	t, err := g.named("id", stocks)
	if err != nil {
		panic(err)
	}
	return t.digest
}

// Source is the text of a script.
func Source(file string) string {
	text, err := script.Compose(files, file)
	if err != nil {
		panic(err)
	}
	return text
}
