package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// bank stands for the payment provider: another company, which the shop meets over HTTP only. It takes a customer's
// money at once, and tells the shop later (POST /pay), again and again until that is answered with 200. A call may come
// twice, and may come when the order's time is over.
type bank struct {
	seed  uint64
	hold  time.Duration // what the shop gives a customer to pay: late calls come later than that
	shop  *caller
	calls sync.WaitGroup

	mu      sync.Mutex
	charges map[string]*charge
}

// charge is one payment in the bank's books.
type charge struct {
	paymentForm
	Refunded bool `json:"refunded"`
}

func newBank(seed uint64, hold time.Duration, shop *caller) *bank {
	return &bank{seed: seed, hold: hold, shop: shop, charges: map[string]*charge{}}
}

// handler is the bank's API. The calls to the shop end with ctx.
func (b *bank) handler(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charge", func(w http.ResponseWriter, r *http.Request) {
		var p paymentForm
		if err := readJSON(r, &p); err != nil || p.Payment == "" || p.Cents <= 0 {
			http.Error(w, "want a payment, with an amount", http.StatusBadRequest)
			return
		}
		if err := b.charge(ctx, p); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		writeJSON(w, http.StatusAccepted, p)
	})
	mux.HandleFunc("POST /refund", func(w http.ResponseWriter, r *http.Request) {
		var p paymentForm
		if err := readJSON(r, &p); err != nil || !b.refund(p.Payment) {
			http.Error(w, "no such payment", http.StatusNotFound)
			return
		}
		writeJSON(w, http.StatusOK, p)
	})
	mux.HandleFunc("GET /payment/{order}/pay", func(w http.ResponseWriter, r *http.Request) {
		c, ok := b.look(paymentID(r.PathValue("order")))
		if !ok {
			http.Error(w, "no such payment", http.StatusNotFound)
			return
		}
		writeJSON(w, http.StatusOK, c)
	})
	return mux
}

// charge takes the money of a payment, once, and starts the call that reports it to the shop.
func (b *bank) charge(ctx context.Context, p paymentForm) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c, ok := b.charges[p.Payment]; ok {
		if c.paymentForm != p {
			return fmt.Errorf("payment %q was made before, and was another one", p.Payment)
		}
		return nil
	}
	c := &charge{paymentForm: p}
	b.charges[p.Payment] = c
	rnd := rand.New(rand.NewPCG(b.seed, hash(p.Payment)))
	delay := time.Duration(20+rnd.IntN(200)) * time.Millisecond
	if rnd.IntN(8) == 0 {
		delay += b.hold + time.Duration(rnd.IntN(500))*time.Millisecond
	}
	times := 1
	if rnd.IntN(5) == 0 {
		times = 2
	}
	apart := time.Duration(rnd.IntN(2)*rnd.IntN(300)) * time.Millisecond // half of the second calls come at the same time
	for i := range times {
		b.calls.Go(func() { b.call(ctx, p, delay+time.Duration(i)*apart) })
	}
	return nil
}

// call tells the shop of a payment, until it has answered.
func (b *bank) call(ctx context.Context, p paymentForm, delay time.Duration) {
	if !pause(ctx, delay) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var a orderAnswer
	_ = b.shop.do(ctx, "pay", http.MethodPost, "/pay", p, &a) // if no worker answers until then, the final check says so
}

// refund gives a payment back, once, and reports whether there is one.
func (b *bank) refund(payment string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, ok := b.charges[payment]
	if ok {
		c.Refunded = true
	}
	return ok
}

func (b *bank) look(payment string) (charge, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, ok := b.charges[payment]
	if !ok {
		return charge{}, false
	}
	return *c, true
}

// statement is all payments, by order.
func (b *bank) statement() (all []charge) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.charges {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(x, y charge) int { return cmp.Compare(x.Order, y.Order) })
	return all
}

// hash is the same in every run.
func hash(s string) (h uint64) {
	h = 14695981039346656037 // FNV-1a
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
