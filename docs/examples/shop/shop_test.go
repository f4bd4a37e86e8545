package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
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

// process is a process of the shop, of a mover, or of the operator. Its calls of the bank are steps, too.
type process struct {
	*redistest.Mortal
	*memoryBank
	sale *stock.Sale
}

func (p *process) Paid(ctx context.Context, order string) (lines []stock.Line, err error) {
	err = p.Step(func() error { lines, err = p.memoryBank.Paid(ctx, order); return err })
	return lines, err
}

func (p *process) RefundUpTo(ctx context.Context, order string, total []stock.Line) error {
	return p.Step(func() error { return p.memoryBank.RefundUpTo(ctx, order, total) })
}

// steps are how many each act takes, where nothing is in the way.
var steps = map[string]int{"reserve": 1, "cancel": 2, "paid": 3, "refund": 3, "move": 2, "restore": 6}

// world is what outlives the processes of the shop.
type world struct {
	t      *testing.T
	rnd    *rand.Rand
	srv    *redlatchtest.Server
	orders redlatchledger.Book
	bank   *memoryBank
	next   map[string]int          // by act: twice the step at which a process is killed next, and 1 if after it
	kills  map[string]map[int]bool // where processes were killed
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 49)), srv: redlatchtest.New(t), bank: newBank(),
		next: map[string]int{}, kills: map[string]map[int]bool{}}
	for act, n := range steps {
		w.next[act], w.kills[act] = int(seed)%(2*n), map[int]bool{}
	}
	var err error
	w.orders, err = openOrders(t.Context(), filepath.Join(t.TempDir(), "orders.db"), "sale")
	require.NoError(t, err)
	t.Cleanup(func() { w.orders.DB.Close() })
	require.NoError(t, w.run(redistest.Lives(), func(p *process) error { return p.sale.Open(t.Context(), spec) }))
	return w
}

// run has a process do an act. The error is nil if the process has lived, and has answered.
func (w *world) run(m *redistest.Mortal, act func(p *process) error) error {
	red, err := redlatch.Open(w.t.Context(), m.Option(w.srv.Option()), redlatch.Options{CallTimeout: time.Second,
		Sales: func(o *stock.Options) { o.Books = func(string) stock.Book { return w.orders } }})
	require.NoError(w.t, err)
	defer red.Close(context.WithoutCancel(w.t.Context()))
	err = act(&process{m, w.bank, red.Sales().Sale("sale")})
	if m.Killed() {
		return redistest.ErrKilled
	}
	return err
}

// do has processes do an act until one of them has done it. The first is killed, each time at another step, if
// it has so many; the second now and then meets another process that does the same.
func (w *world) do(name string, act func(p *process) error) {
	first, at := redistest.Lives(), w.next[name]
	first.DiesAt, first.After = at/2, at%2 == 1
	w.next[name] = (at + 1) % (2 * steps[name])
	err := w.run(first, act)
	if first.Killed() {
		w.kills[name][at] = true
	}
	if err == nil {
		return
	}
	second := redistest.Lives()
	if w.rnd.IntN(2) == 0 {
		second.MeetsAt, second.Other = w.rnd.IntN(4), func() { _ = w.run(redistest.Lives(), act) }
	}
	if w.run(second, act) != nil {
		require.NoError(w.t, w.run(redistest.Lives(), act), "%s: nobody is in the way any more", name)
	}
}

// ask sends a request to the shop. It is not answered if the status is not 200.
func (w *world) ask(path string, r request) func(p *process) error {
	return func(p *process) error {
		body, err := json.Marshal(r)
		require.NoError(w.t, err)
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		answer := httptest.NewRecorder()
		s := &shop{sale: p.sale, bank: p, ttl: 10 * time.Minute}
		s.handler().ServeHTTP(answer, httptest.NewRequestWithContext(ctx, "POST", path, bytes.NewReader(body)))
		if answer.Code != http.StatusOK {
			return fmt.Errorf("%s of %s: %d %s", path, r.Order, answer.Code, answer.Body)
		}
		return nil
	}
}

func (w *world) move(p *process) error {
	_, err := p.sale.Ledger(w.t.Context(), 100, w.orders.Move)
	return err
}

func (w *world) restore(p *process) error {
	_, err := p.sale.Restore(w.t.Context(), spec)
	return err
}

// lose has Redis come back empty, or with a part of what it had. Until the operator has restored the sale no request is
// answered. What is in no database is lost for good, so the ledger is moved before.
func (w *world) lose(r request) {
	w.do("move", w.move)
	if w.rnd.IntN(2) == 0 {
		w.srv.Redis().FlushAll()
	} else {
		w.srv.Redis().Del("rc:{sale}:orders")
	}
	paths := []string{"/reserve", "/cancel", "/status"}
	if lines, _ := w.bank.Paid(w.t.Context(), r.Order); len(lines) > 0 {
		paths = append(paths, "/paid", "/refund")
	}
	for _, path := range paths {
		require.ErrorContains(w.t, w.run(redistest.Lives(), w.ask(path, r)), "503", "the sale is lost")
	}
	w.do("restore", w.restore)
}

// customer is what one customer does, and the bank. Some pay late, twice, for a part, after they gave up, or never, and
// some return a part, or all.
func (w *world) customer(n int) {
	r := request{Order: fmt.Sprint("order ", n), User: fmt.Sprint("user ", w.rnd.IntN(5))}
	r.Lines = []stock.Line{{Item: "shirt", N: 1 + w.rnd.Int64N(2)}, {Item: "cap", N: 1}}[:1+w.rnd.IntN(2)]
	all := request{Order: r.Order}
	part := request{Order: r.Order, Lines: []stock.Line{{Item: "shirt", N: 1}}}
	acts := map[string]func(){
		"reserve": func() { w.do("reserve", w.ask("/reserve", r)) },
		"late":    func() { time.Sleep(11 * time.Minute) },
		"cancel":  func() { w.do("cancel", w.ask("/cancel", all)) },
		"pay": func() {
			w.bank.charge(r.Order, r.Lines[:1+w.rnd.IntN(len(r.Lines))]...)
			w.do("paid", w.ask("/paid", all))
		},
		"again":       func() { w.do("paid", w.ask("/paid", request{Order: fmt.Sprint("order ", w.rnd.IntN(n+1))})) },
		"move":        func() { w.do("move", w.move) },
		"lose":        func() { w.lose(r) },
		"return part": func() { w.do("refund", w.ask("/refund", part)) },
		"return":      func() { w.do("refund", w.ask("/refund", all)) },
	}
	acts["reserve"]()
	for range 2 + w.rnd.IntN(4) {
		acts[[]string{"reserve", "late", "cancel", "pay", "pay", "again", "move", "lose", "return part",
			"return"}[w.rnd.IntN(10)]]()
	}
}

// Processes are killed at each of their steps, and their callers ask others. Now and then Redis loses what it has. In
// the end every customer has what was paid for, or the money, and the sale, the database and the bank say the same.
func TestShop_KilledAtEveryStep_BooksAreExact(t *testing.T) {
	var mu sync.Mutex
	kills := map[string]map[int]bool{}
	seeds := redistest.Seeds(t, redistest.Sized(2, 16, 200))
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, seed)
					for n := range 10 {
						w.customer(n)
					}
					for n := range 10 {
						w.do("paid", w.ask("/paid", request{Order: fmt.Sprint("order ", n)}))
					}
					require.NoError(t, w.run(redistest.Lives(), func(p *process) error {
						return compare(t.Context(), p.sale, w.orders, w.bank)
					}))
					mu.Lock()
					defer mu.Unlock()
					for act, steps := range w.kills {
						if kills[act] == nil {
							kills[act] = map[int]bool{}
						}
						maps.Copy(kills[act], steps)
					}
				})
			})
		}
	})
	for act, n := range steps {
		if len(seeds) >= 16 {
			require.Len(t, kills[act], 2*n, "each step of %s, before and after it: %v", act, kills[act])
		}
	}
}
