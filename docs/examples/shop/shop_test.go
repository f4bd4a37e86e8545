package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchtest"
)

const units = 1

// world is what outlives the processes of the shop.
type world struct {
	t      *testing.T
	srv    *redlatchtest.Server
	sale   *stock.Stock // the operator's
	orders *redlatchledger.Mover
	bank   *bank
	epoch  int64
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, srv: redlatchtest.New(t), bank: newBank()}
	w.sale = w.srv.Open().Stocks().Stock("sale")
	var err error
	w.orders, err = openOrders(t.Context(), filepath.Join(t.TempDir(), "orders.db"), "sale")
	require.NoError(t, err)
	t.Cleanup(func() { w.orders.DB.Close() })
	w.epoch, err = openSale(t.Context(), w.sale, w.orders, units)
	require.NoError(t, err)
	return w
}

// death says at which call a process of the shop is killed: the call is served, and the process does not learn of it.
// To be killed before a call is, to all others, to be killed at the call before.
type death struct {
	bank bool // a call of the bank, or a script call of Redis
	step int
}

var errKilled = errors.New("the process was killed")

// process is a process of the shop that serves one request.
type process struct {
	*world
	death  *death // nil: it lives
	kill   context.CancelFunc
	killed bool
	calls  int // of the bank
}

// RoundTrip calls the bank.
func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	n := p.calls
	p.calls++
	dies := p.death != nil && p.death.bank && n == p.death.step
	p.killed = p.killed || dies
	answer := httptest.NewRecorder()
	if !p.killed || dies {
		p.bank.ServeHTTP(answer, r)
	}
	if p.killed {
		p.kill()
		return nil, errKilled
	}
	return answer.Result(), nil
}

// strike loses the reply to the call at which p is killed, and all calls after it. The fault that it returns has struck
// if there was such a call.
func (p *process) strike() *redlatchtest.Injected {
	scripts := redlatchtest.Fault{Kind: redlatchtest.LostReply, Skip: p.death.step, Times: 1,
		Match: func(words []string) bool { return strings.HasPrefix(words[0], "EVAL") }}
	reply := p.srv.Break(scripts)
	scripts.Kind, scripts.Times = redlatchtest.LostRequest, 0
	p.srv.Break(scripts)
	return reply
}

// serve has a new process serve one request: of a customer or of the bank, or, as the verb move, of the mover. It is
// not answered if the process is killed, or decides nothing.
func (w *world) serve(verb, user string, d *death) (a answer, answered, killed bool) {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	red := w.srv.Open(redlatch.Options{CallTimeout: time.Second})
	defer red.Close(context.WithoutCancel(ctx))
	p := &process{world: w, death: d, kill: cancel}
	s := &shop{sale: red.Stocks().Stock("sale"), hold: 10 * time.Minute, bank: "http://bank",
		http: &http.Client{Transport: p}}
	if d != nil && !d.bank {
		injected := p.strike()
		defer w.srv.Heal()
		defer func() { killed = injected.Calls() > 0; answered = answered && !killed }()
	}
	if verb == "move" {
		_, err := s.sale.Ledger(ctx, 100, w.orders.Move)
		return a, err == nil, false
	}
	body, err := json.Marshal(form{user, user})
	require.NoError(w.t, err)
	rec := httptest.NewRecorder()
	s.handler().ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "POST", "/"+verb, strings.NewReader(string(body))))
	if answered = rec.Code == http.StatusOK && !p.killed; answered {
		require.NoError(w.t, json.NewDecoder(rec.Body).Decode(&a))
	}
	return a, answered, p.killed
}

// must serves a request by a process that lives; charge by the bank.
func (w *world) must(verb, user string) (a answer) {
	if verb == "charge" {
		a, err := post(w.t.Context(), &http.Client{Transport: &process{world: w}}, "http://bank/charge", form{Order: user})
		require.NoError(w.t, err)
		return a
	}
	a, answered, _ := w.serve(verb, user, nil)
	require.True(w.t, answered, "%s %s", verb, user)
	return a
}

// lose has Redis come back empty, and the operator restore the sale. Until that is done, no request is answered. What
// is sold and in no database is lost for good: so the ledger is moved before.
func (w *world) lose(verb, user string) {
	_, err := w.sale.Ledger(w.t.Context(), 100, w.orders.Move)
	require.NoError(w.t, err)
	w.srv.Redis().FlushAll()
	time.Sleep(time.Second) // an opening is named by the time
	undecided := func(when string) {
		for _, v := range []string{verb, "reserve", "pay", "look"} {
			if _, answered, _ := w.serve(v, user, nil); v != "move" {
				require.False(w.t, answered, "%s of a sale that is %s", v, when)
			}
		}
	}
	undecided("lost")
	to, err := suspend(w.t.Context(), w.sale, units)
	require.NoError(w.t, err)
	undecided("suspended")
	require.NoError(w.t, restore(w.t.Context(), w.sale, w.orders, w.epoch, to))
	w.epoch = to
}

// rival buys the unit if it is left.
func (w *world) rival() {
	if w.must("reserve", "rival").State == held && w.must("charge", "rival").State == paid {
		w.must("pay", "rival")
	}
}

// stories are what a customer does, and what others do meanwhile. The bank calls pay.
var stories = map[string]string{
	"pays":    "reserve move charge pay move look pay",
	"late":    "reserve late charge pay look pay",
	"missed":  "reserve late rival charge pay returns pay look",
	"regrets": "reserve charge pay refund pay move refund look",
	"repents": "reserve charge pay refund move refund look",
	"cancels": "reserve move cancel charge pay cancel look",
	"loses":   "rival reserve returns look reserve charge pay",
}

// A process of the shop is killed at any step of an order. Its caller asks again. In the end the customer has a unit,
// the database the sale, and the bank the money; or the customer has none, and the money. The same if Redis comes back
// without its data at that moment, and the operator restores them; and if somebody else buys the unit then.
func TestOrder_KilledAtAnyStep_IsPaidAndSoldOrNeither(t *testing.T) {
	for name, story := range stories {
		for _, then := range redistest.Sized([]string{"lost, rival"}, []string{"", "lost", "lost, rival"},
			[]string{"", "lost", "rival", "lost, rival"}) {
			t.Run(name+", "+then, func(t *testing.T) {
				t.Parallel()
				deaths := 0
				for i, verb := range strings.Fields(story) {
					if slices.Contains([]string{"charge", "late", "rival", "returns"}, verb) {
						continue // no request of the shop
					}
					for _, d := range []death{{}, {bank: true}} {
						for reached := true; reached; d.step++ {
							reached = play(t, strings.Fields(story), i, d, then)
							if t.Failed() {
								t.Fatalf("request %d, %s, killed at %+v", i, verb, d)
							}
							if reached {
								deaths++
							}
						}
					}
				}
				require.Greater(t, deaths, 3)
			})
		}
	}
}

// play plays a story, in which the process that serves request dies is killed. It reports whether it was.
func play(t *testing.T, story []string, dies int, d death, then string) (reached bool) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var last answer
		for i, verb := range story {
			switch verb {
			case "late":
				time.Sleep(11 * time.Minute)
				continue
			case "rival":
				w.rival()
				continue
			case "returns":
				w.must("refund", "rival")
				continue
			}
			if i == dies {
				_, _, reached = w.serve(verb, "ann", &d)
				if strings.Contains(then, "lost") {
					w.lose(verb, "ann")
				}
				if strings.Contains(then, "rival") {
					w.rival()
				}
			}
			last = w.must(verb, "ann")
		}
		if kept := w.bank.kept(); verb(story) == "look" {
			require.Equal(t, kept["ann"], last.State == sold, "the customer is answered %q", last.State)
		}
		require.NoError(t, compare(t.Context(), w.sale, w.orders, w.bank))
	})
	return reached
}

// verb is the last request of a story.
func verb(story []string) string { return story[len(story)-1] }
