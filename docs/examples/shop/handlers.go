// Command shop is a flash sale with payment, as a shop would run it. Customers reserve over HTTP, pay at a bank,
// cancel, pay too late, and want their money back. Every sale is written into an order database (SQLite).
//
//	go -C docs/examples run ./shop                      embedded Redis and SQLite, nothing else needed
//	go -C docs/examples run ./shop -redis 127.0.0.1:6379
//
// It has three files:
//
//   - handlers.go: the HTTP handlers. A process of the shop has no state of its own, and may be killed between any two
//     lines. Its caller then sends the same request to another one.
//   - payment.go: what a payment has bought, and the money that goes back.
//   - mover.go: the order database, which follows the stock's ledger, and from which a lost stock is restored.
//
// The customer's client makes the id of an order before its first request. It is the id of the reservation, and of the
// payment at the bank. So every request may be repeated, at any time, at any process: the stock and the bank know the
// id, and give the answer that they gave.
//
//	killed                                     leaves                            mended by
//	before it answers /reserve                 a unit that is perhaps held       the customer, who asks again; else its time ends
//	after Confirm and before the answer        a unit sold                       the bank, which calls again: the same answer
//	between that decision and the repayment    money that is not paid back yet   the bank, which calls again: the same decision
//	between a returned unit and its repayment  money that is not paid back yet   the customer, who asks again
//	a mover, before or after its commit        entries in the ledger             the next mover: an entry counts once
//	Redis, with its data                       orders that it does not know      the operator, who restores: until then no
//	                                                                             request is answered
//
// shop_test.go kills the shop at each of these steps.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/docs/examples/internal/stage"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// form is the body of every request, to the shop and to the bank.
type form struct {
	Order string `json:"order"`
	User  string `json:"user,omitempty"`
}

// answer is the answer to every request on an order.
type answer struct {
	Order string `json:"order"`
	State state  `json:"state"`
	Unit  int64  `json:"unit,omitempty"`      // its number, once it is sold
	PayIn int64  `json:"pay_in_ms,omitempty"` // how long it is held yet
}

// shop is a process of the shop.
type shop struct {
	sale *stock.Stock
	hold time.Duration // how long a unit is held for its payment
	bank string        // its URL
	http *http.Client
}

func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	for path, serve := range map[string]func(context.Context, form) (answer, error){
		"POST /reserve": s.reserve, "POST /cancel": s.cancel, "POST /pay": s.pay, "POST /refund": s.refund,
		"POST /look": s.look,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			var f form
			if err := json.NewDecoder(r.Body).Decode(&f); err != nil || f.Order == "" {
				http.Error(w, "want an order", http.StatusBadRequest)
				return
			}
			a, err := serve(r.Context(), f)
			if err != nil { // nothing is decided, or it is not known: the same request is to be sent again
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			_ = json.NewEncoder(w).Encode(a) // it fails if the caller is gone, who asks again
		})
	}
	return mux
}

// post sends a request until it is answered, or ctx ends.
func post(ctx context.Context, client *http.Client, url string, f form) (a answer, err error) {
	for {
		a, again, err := send(ctx, client, url, f)
		if !again {
			return a, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
}

// send sends a request. again: it was not answered, and is to be sent again as it is.
func send(ctx context.Context, client *http.Client, url string, f form) (a answer, again bool, err error) {
	body, err := json.Marshal(f)
	if err != nil {
		return a, false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return a, false, err
	}
	res, err := client.Do(req)
	if err != nil {
		return a, true, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return a, res.StatusCode >= http.StatusInternalServerError, fmt.Errorf("%s: %s", url, res.Status)
	}
	err = json.NewDecoder(res.Body).Decode(&a)
	return a, err != nil, err
}

// main sells two units, each held for a second, to four customers.
func main() {
	option := stage.Redis()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	red, err := redlatch.Open(ctx, option, redlatch.Options{})
	if err != nil {
		log.Fatal("shop: ", err)
	}
	defer red.Close(ctx)
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal("shop: ", err)
	}
	defer os.RemoveAll(dir)
	name := fmt.Sprintf("shop-%d", time.Now().UnixNano())
	orders, err := openOrders(ctx, dir+"/orders.db", name)
	if err != nil {
		log.Fatal("shop: ", err)
	}
	defer orders.DB.Close()
	sale := red.Stocks().Stock(name)
	if _, err := openSale(ctx, sale, orders, 2); err != nil {
		log.Fatal("shop: ", err)
	}
	defer func() { _ = sale.Delete(ctx) }()                         // so that nothing is left on your server
	go func() { _ = orders.Keep(ctx, sale, 50*time.Millisecond) }() // what it leaves is moved at the end
	bank := newBank()
	bankAt := httptest.NewServer(bank)
	s := &shop{sale: sale, hold: time.Second, bank: bankAt.URL, http: http.DefaultClient}
	shopAt := httptest.NewServer(s.handler())
	ask := func(verb, user string) {
		url := shopAt.URL
		if verb == "charge" {
			url = bankAt.URL
		}
		a, err := post(ctx, http.DefaultClient, url+"/"+verb, form{"order of " + user, user})
		if err != nil {
			log.Fatal("shop: ", err)
		}
		fmt.Printf("%-8s %-4s %s\n", verb, user, a.State)
	}
	for _, user := range []string{"ann", "bob", "cid"} {
		ask("reserve", user)
	}
	ask("cancel", "bob")
	ask("reserve", "cid")
	ask("charge", "ann")
	ask("pay", "ann") // the bank calls
	fmt.Println("(the time of cid is over)")
	time.Sleep(1100 * time.Millisecond)
	ask("reserve", "dan")
	for _, user := range []string{"cid", "dan"} {
		ask("charge", user)
		ask("pay", user)
	}
	ask("refund", "ann")
	ask("pay", "cid") // the bank calls again: a unit has come back, and its money has gone back
	for _, user := range []string{"ann", "bob", "cid", "dan"} {
		ask("look", user)
	}
	if err := compare(ctx, sale, orders, bank); err != nil {
		log.Fatal("shop: ", err)
	}
	fmt.Println("the stock, the database and the bank agree: one unit is sold")
}
