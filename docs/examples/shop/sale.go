package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long a customer goes on asking, after the last one has come. Only what has broken for good takes so
// long.
const patience = 2 * time.Minute

// sale is one run, as the parent process sees it.
type sale struct {
	options
	*premises
	console *console
	news    *news
	waits   *waits
	tamper  func(*evidence)

	left    atomic.Int64 // customers who have
	answers atomic.Int64 // to customers
	faults  atomic.Int64

	mu       sync.Mutex
	most     int64 // units sold and held at one time
	receipts []receipt
}

// run opens the doors, lets the crowd in, closes, and checks.
func (s *sale) run(ctx context.Context) (r report, err error) {
	r.opening = s.opening()
	s.news.open(r.opening)
	begun := time.Now()
	watching, stop := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { s.watch(watching) })
	defer watchers.Wait()
	defer stop()

	if r.faults, err = s.shopping(ctx); err != nil {
		return r, err
	}
	s.news.tell(event{Phase: "closing: what was reserved and never paid goes back"})
	if err := s.settle(ctx); err != nil {
		return r, err
	}
	r.took = time.Since(begun)
	s.news.tell(event{Phase: "checking"})
	s.dismiss()
	stop()
	watchers.Wait()
	e, err := s.evidence(ctx)
	if err != nil {
		return r, err
	}
	if s.tamper != nil {
		s.tamper(&e)
	}
	r.findings = reconcile(e)
	r.receipts, r.retries = e.receipts, s.shop.retries.Load()
	r.waits = s.waits.rows("reserve", "charge", "look", "cancel", "refund", "pay")
	r.restarts = map[string]int{"worker": restarts(s.sellers), "mover": restarts(s.keepers)}
	s.news.tell(event{Check: r.findings})
	return r, nil
}

func (s *sale) opening() opening {
	o := opening{Units: int64(s.units), Customers: s.customers, Cents: s.cents, Seconds: int(s.duration.Seconds()),
		Workers: s.workers, Movers: s.movers, Server: "an embedded server", Chaos: s.chaos}
	if s.redisServer {
		o.Server = "a redis-server of its own"
	}
	return o
}

// shopping lets the crowd in, with the chaos if that is wanted, and returns when all customers have left and the bank
// has called about every payment. It returns how many faults of each kind there were.
func (s *sale) shopping(ctx context.Context) (faults map[string]int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.duration+s.hold+patience, errors.New("the customers' patience is over"))
	defer cancel()
	broken := make(chan error, 1)
	if !s.chaos {
		broken <- nil
	} else {
		c := &chaos{server: s.server, net: s.way, direct: s.red.Hub().Client(), workers: s.sellers, movers: s.keepers,
			counts: map[string]int{}}
		c.happened = func(what string) { s.faults.Add(1); s.news.tell(event{Fault: what}) }
		faults = c.counts
		go func() { broken <- c.run(ctx, planFaults(s.options)) }()
	}
	m := &market{shop: s.shop, bank: newCaller(s.waits, s.bankAt), hold: s.hold}
	m.heard = func(r receipt) { s.news.tell(event{Order: &r, Answers: s.answers.Add(1)}) }
	var all sync.WaitGroup
	for _, c := range crowd(s.seed, s.customers, s.duration*8/10) {
		all.Go(func() {
			if !pause(ctx, c.arrives) {
				return
			}
			r := m.visit(ctx, c)
			s.mu.Lock()
			s.receipts = append(s.receipts, r)
			s.mu.Unlock()
			s.left.Add(1)
		})
	}
	all.Wait()
	err = <-broken
	s.bank.calls.Wait()
	return faults, errors.Join(err, context.Cause(ctx))
}

// settle ends the reservations that were not paid.
func (s *sale) settle(ctx context.Context) error {
	for {
		if _, err := s.stock.Reap(ctx); err != nil {
			return err
		}
		st, err := s.stock.Inspect(ctx)
		if err != nil || st.Held == 0 {
			return err
		}
		if !pause(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// evidence reads what the sides know, when nothing moves any more.
func (s *sale) evidence(ctx context.Context) (e evidence, err error) {
	for n := 1; n > 0; { // what the movers have left in the ledger
		if n, err = s.stock.Ledger(ctx, 1000, s.orders.mover.Move); err != nil {
			return e, err
		}
	}
	st, err := s.stock.Inspect(ctx)
	if err != nil {
		return e, err
	}
	last := level{Left: st.Remaining, Held: st.Held, Sold: st.Sold}
	s.news.tell(event{Stock: &last})
	e = evidence{limit: st.Limit, cents: s.cents, receipts: s.receipts, stock: last, charges: s.bank.statement(),
		most: s.most}
	if e.orders, err = s.orders.orders(ctx); err != nil {
		return e, err
	}
	late := map[string]bool{}
	for _, o := range e.orders {
		late[o.Order] = o.Late
	}
	for i, r := range e.receipts {
		e.receipts[i].Late = late[r.Order]
	}
	e.peak, err = s.orders.peak(ctx)
	return e, err
}

func restarts(slots []*slot) (n int) {
	for _, s := range slots {
		n += s.restarts()
	}
	return n
}
