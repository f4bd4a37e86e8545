package stock_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// sale is a group of two stocks with one id, one claimant and one cart in some state: what a call can be about.
type sale struct {
	g    *stock.Group
	a, b *stock.Stock
}

func saleOf(c *stock.Client, name string) sale {
	g := c.Group(name)
	return sale{g, g.Stock("a"), g.Stock("b")}
}

// soon is a reservation that is over when the next call comes.
const soon = time.Millisecond

// told is an answer, for comparison: whether units are had, and not by which call.
type told struct {
	text  string
	final bool // a decision, and not the answer of this moment
	back  bool // units came back by this call
	err   error
}

func toldGrant(g stock.Grant, err error) told {
	o := g.Outcome
	if g.Won() {
		o = "has units"
	}
	return told{fmt.Sprintf("%s %d+%d missing %d", o, g.Ordinal, g.N, g.Missing), g.Outcome.Final(), false, err}
}

func toldBack(n int64, err error) told { return told{"nothing to do", true, n > 0, err} }

func toldCart(c stock.Cart, err error) (all told) {
	all.err = err
	for _, l := range c.Lines {
		line := toldGrant(l.Grant, nil)
		all.text, all.final = all.text+l.Stock+": "+line.text+"; ", all.final || line.final
	}
	return all
}

func count01(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// states are what an id, a claimant or a cart can be in, and how it comes there.
var idStates = map[string]func(sale) error{
	"none":      func(sale) error { return nil },
	"held":      func(s sale) error { return s.reserve(time.Hour) },
	"over":      func(s sale) error { return s.reserve(soon) },
	"sold":      func(s sale) error { return errors.Join(s.reserve(time.Hour), second(s.a.Confirm(ctx, "id"))) },
	"claimed":   func(s sale) error { return second(s.a.Claim(ctx, "ann", stock.Request{ID: "id", N: 2})) },
	"cancelled": func(s sale) error { return errors.Join(s.reserve(time.Hour), second(s.a.Cancel(ctx, "id"))) },
	"forbidden": func(s sale) error { return second(s.a.Cancel(ctx, "id")) },
	"returned": func(s sale) error {
		return errors.Join(s.reserve(time.Hour), second(s.a.Confirm(ctx, "id")),
			second(s.a.Return(ctx, stock.Units{Request: "id"})))
	},
	"vain": func(s sale) error {
		err := errors.Join(s.reserve(soon), s.sellOut(s.a))
		time.Sleep(5 * time.Millisecond)
		return errors.Join(err, second(s.a.Confirm(ctx, "id")))
	},
	"over, sold out": func(s sale) error { return errors.Join(s.reserve(soon), s.sellOut(s.a)) },
}

func (s sale) reserve(ttl time.Duration) error {
	return second(s.a.Reserve(ctx, "ann", stock.Request{ID: "id", N: 2}, ttl))
}

// sellOut sells what is left, once all that is over has gone back.
func (s sale) sellOut(of *stock.Stock) error {
	time.Sleep(5 * time.Millisecond)
	return second(of.Claim(ctx, "bob", stock.Request{ID: "rest", N: 9, UpTo: true}))
}

var idCalls = map[string]func(sale) told{
	"Reserve": func(s sale) told {
		return toldGrant(s.a.Reserve(ctx, "ann", stock.Request{ID: "id", N: 2}, time.Hour))
	},
	"Claim":        func(s sale) told { return toldGrant(s.a.Claim(ctx, "ann", stock.Request{ID: "id", N: 2})) },
	"Confirm":      func(s sale) told { return toldGrant(s.a.Confirm(ctx, "id")) },
	"Confirm Paid": func(s sale) told { return toldGrant(s.a.Confirm(ctx, "id", 1)) },
	"Extend":       func(s sale) told { return toldGrant(s.a.Extend(ctx, "id", 2*time.Hour)) },
	"Cancel": func(s sale) told {
		done, err := s.a.Cancel(ctx, "id")
		return toldBack(count01(done), err)
	},
	"Return":      func(s sale) told { return toldBack(s.a.Return(ctx, stock.Units{Request: "id"})) },
	"Return Keep": func(s sale) told { return toldBack(s.a.Return(ctx, stock.Units{Request: "id", Keep: 1})) },
}

var unitStates = map[string]func(sale) error{
	"none": func(sale) error { return nil },
	"has":  func(s sale) error { return second(s.a.Claim(ctx, "ann")) },
	"returned": func(s sale) error {
		return errors.Join(second(s.a.Claim(ctx, "ann")), second(s.a.Return(ctx, stock.Units{Claimant: "ann", Ordinal: 1})))
	},
	"sold out": func(s sale) error { return s.sellOut(s.a) },
	"any":      func(s sale) error { return second(s.a.AnyAs(ctx, "any", 3)) },
}

var unitCalls = map[string]func(sale) told{
	"Claim":  func(s sale) told { return toldGrant(s.a.Claim(ctx, "ann")) },
	"Return": func(s sale) told { return toldBack(s.a.Return(ctx, stock.Units{Claimant: "ann", Ordinal: 1})) },
	"Return of any": func(s sale) told {
		return toldBack(s.a.Return(ctx, stock.Units{Request: "any", Ordinal: 2, N: 1}))
	},
}

var cartLines = []stock.Line{{Stock: "a", N: 2}, {Stock: "b", N: 1}}

func (s sale) cart(ttl time.Duration) error {
	return second(s.g.Reserve(ctx, "ann", stock.CartRequest{ID: "id", Lines: cartLines}, ttl))
}

var cartStates = map[string]func(sale) error{
	"none": func(sale) error { return nil },
	"held": func(s sale) error { return s.cart(time.Hour) },
	"over": func(s sale) error { return s.cart(soon) },
	"sold": func(s sale) error {
		return errors.Join(s.cart(time.Hour), second(s.g.Confirm(ctx, "id", cartLines...)))
	},
	"cancelled": func(s sale) error { return errors.Join(s.cart(time.Hour), second(s.g.Cancel(ctx, "id", "a", "b"))) },
	"returned": func(s sale) error {
		return errors.Join(s.cart(time.Hour), second(s.g.Confirm(ctx, "id", cartLines...)),
			second(s.g.Return(ctx, "id", "a", "b")))
	},
	"over, one sold out": func(s sale) error { return errors.Join(s.cart(soon), s.sellOut(s.b)) },
	"over, sold out":     func(s sale) error { return errors.Join(s.cart(soon), s.sellOut(s.a), s.sellOut(s.b)) },
	"a line sold":        func(s sale) error { return errors.Join(s.cart(time.Hour), second(s.a.Confirm(ctx, "id"))) },
	"a line cancelled":   func(s sale) error { return errors.Join(s.cart(time.Hour), second(s.a.Cancel(ctx, "id"))) },
}

var cartCalls = map[string]func(sale) told{
	"Reserve": func(s sale) told {
		return toldCart(s.g.Reserve(ctx, "ann", stock.CartRequest{ID: "id", Lines: cartLines}, time.Hour))
	},
	"Confirm": func(s sale) told { return toldCart(s.g.Confirm(ctx, "id", cartLines...)) },
	"Extend":  func(s sale) told { return toldCart(s.g.Extend(ctx, "id", 2*time.Hour, "a", "b")) },
	"Cancel": func(s sale) told {
		done, err := s.g.Cancel(ctx, "id", "a", "b")
		return toldBack(count01(done), err)
	},
	"Return": func(s sale) told { return toldBack(s.g.Return(ctx, "id", "a", "b")) },
}

// answered are all verbs about all states: of ids, of claimants and of carts.
var answered = []struct {
	what   string
	states map[string]func(sale) error
	verbs  map[string]func(sale) told
}{{"id", idStates, idCalls}, {"unit", unitStates, unitCalls}, {"cart", cartStates, cartCalls}}

// cutCase is one or two calls about one state.
type cutCase struct {
	name    string
	prepare func(sale) error
	calls   []func(sale) told
}

func cutCases(pairs bool) (cases []cutCase) {
	for _, of := range answered {
		for state, prepare := range of.states {
			for verb, call := range of.verbs {
				name := of.what + " " + state + ": " + verb
				cases = append(cases, cutCase{name, prepare, []func(sale) told{call}})
				if !pairs {
					continue
				}
				for before, first := range of.verbs {
					cases = append(cases, cutCase{name + " after " + before, prepare, []func(sale) told{first, call}})
				}
			}
		}
	}
	return cases
}

// Every verb is called about every state while the only replica is cut off, alone and after every other verb; then the
// replica is promoted, units come, others get some, and the last call is made again. Either the replica did not confirm
// the call, and the call says so, or both calls are answered alike. Only answers of the moment (sold out) may differ:
// no money moves upon them.
func TestFailover_EveryAnswer_StandsOrIsNotReplicated(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	plain := on(t, p.primary.Client(t), exact)
	careful := on(t, p.primary.Client(t),
		stock.Options{CallTimeout: 20 * time.Second, MinReplicas: 1, ReplicaTimeout: time.Millisecond, SoldOutTrust: -1})
	cases := cutCases(!testing.Short())
	name := func(i int) string { return "g" + dec(int64(i)) }
	each := func(do func(i int, c cutCase)) {
		var all sync.WaitGroup
		next := make(chan int)
		for range 32 {
			all.Go(func() {
				for i := range next {
					do(i, cases[i])
				}
			})
		}
		for i := range cases {
			next <- i
		}
		close(next)
		all.Wait()
	}
	each(func(i int, c cutCase) {
		s := saleOf(plain, name(i))
		for _, of := range []*stock.Stock{s.a, s.b} {
			if _, err := of.Open(ctx, stock.Spec{Limit: 5, PerUser: 9, OpenFor: time.Hour, Ledger: true}); err != nil {
				t.Error(err)
			}
		}
		if err := c.prepare(s); err != nil {
			t.Error(c.name, err)
		}
	})
	time.Sleep(5 * soon)
	must(t, p.admin, "SET", "prepared", "1")
	redistest.Eventually(t, time.Minute, "the replica is in step", func() bool {
		return number(t, p.heir, "EXISTS", "prepared") == 1
	})
	p.link.Lead("")

	first, unconfirmed := make([]told, len(cases)), 0
	each(func(i int, c cutCase) {
		for n, call := range c.calls {
			first[i] = call(saleOf(careful, name(i)))
			if n == len(c.calls)-1 && len(c.calls) == 1 && first[i].err != nil {
				if again := call(saleOf(careful, name(i))); again.err == nil && isUnconfirmed(first[i].err) {
					first[i] = again // a repeat must not confirm what its first call could not
				}
			}
		}
	})
	p.promote(t)
	heir := on(t, p.replica.Client(t), exact)
	var mu sync.Mutex
	var wrong []string
	each(func(i int, c cutCase) {
		s := saleOf(heir, name(i))
		for _, of := range []*stock.Stock{s.a, s.b} { // meanwhile units come, and others get some
			if err := errors.Join(of.Change(ctx, stock.Change{Limit: 50}), second(of.Claim(ctx, "eve"))); err != nil {
				t.Error(err)
			}
		}
		was, is := first[i], c.calls[len(c.calls)-1](s)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case isUnconfirmed(was.err):
			unconfirmed++
		case was.err == nil && !was.final, was.err != nil && len(c.calls) > 1:
		case errors.Is(was.err, errs.ErrMismatch) && errors.Is(is.err, errs.ErrMismatch):
		case errors.Is(was.err, stock.ErrNotFound) && errors.Is(is.err, stock.ErrNotFound):
		case was.err != nil || is.err != nil || was.text != is.text || is.back:
			wrong = append(wrong, fmt.Sprintf("%s: %+v, and after the failover %+v", c.name, was, is))
		}
	})
	t.Logf("%d cases, %d not replicated", len(cases), unconfirmed)
	require.Empty(t, wrong, "%d of %d:\n%s", len(wrong), len(cases), strings.Join(wrong, "\n"))
	require.Positive(t, unconfirmed)
}
