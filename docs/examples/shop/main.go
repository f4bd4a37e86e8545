package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/docs/examples/internal/stage"
	"github.com/redlatch/redlatch/rcounter/stock"
)

func main() {
	option := stage.Redis()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, option); err != nil {
		log.Fatal("shop: ", err)
	}
}

// run sells five shirts and three caps. Units are reserved for a second.
func run(ctx context.Context, option rueidis.ClientOption) error {
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	name := fmt.Sprintf("shop-%d", time.Now().UnixNano())
	orders, err := openOrders(ctx, filepath.Join(dir, "orders.db"), name)
	if err != nil {
		return err
	}
	defer orders.DB.Close()
	red, err := redlatch.Open(ctx, option, redlatch.Options{
		Sales: func(o *stock.Options) { o.Books = func(string) stock.Book { return orders } }})
	if err != nil {
		return err
	}
	defer red.Close(ctx)
	sale := red.Sales().Sale(name)
	if err := sale.Open(ctx, spec); err != nil {
		return err
	}
	defer func() { _ = sale.Delete(ctx) }()                         // so that nothing is left on your server
	go func() { _ = orders.Keep(ctx, sale, 50*time.Millisecond) }() // what it leaves is moved at the end
	bank := newBank()
	server := httptest.NewServer((&shop{sale: sale, bank: bank, ttl: time.Second}).handler())
	defer server.Close()
	if err := customers(bank, server.URL); err != nil {
		return err
	}
	if err := compare(ctx, sale, orders, bank); err != nil {
		return err
	}
	fmt.Println("the sale, the database and the bank agree:", bank.kept())
	return nil
}

// customers are what some customers do, and what the bank calls for them.
func customers(bank *memoryBank, url string) (failed error) {
	ask := func(path, user string, lines ...stock.Line) {
		a, err := post(url+path, request{"order of " + user, user, lines})
		failed = cmp.Or(failed, err)
		fmt.Println(path, user, a.State, a.Why, a.Lines)
	}
	pay := func(user string, lines ...stock.Line) {
		bank.charge("order of "+user, lines...)
		ask("/paid", user) // the bank calls
	}
	shirt, shirts, aCap := stock.Line{Item: "shirt", N: 1}, stock.Line{Item: "shirt", N: 2}, stock.Line{Item: "cap", N: 1}
	ask("/reserve", "ann", shirts, aCap)
	ask("/reserve", "bob", shirts, aCap)
	ask("/reserve", "cid", shirts)
	ask("/reserve", "cid", shirt)
	pay("ann", shirts, aCap)
	pay("ann", shirts, aCap) // twice: it goes back
	ask("/cancel", "bob")
	pay("bob", shirts) // all of it goes back
	fmt.Println("(the time of cid is over)")
	time.Sleep(1100 * time.Millisecond)
	ask("/reserve", "dan", shirts)
	pay("cid", shirt)
	pay("dan", shirt)            // one of two: the other is for others
	ask("/refund", "ann", shirt) // keeps a shirt, and gives a shirt and the cap back
	for _, user := range []string{"ann", "bob", "cid", "dan"} {
		ask("/status", user)
	}
	return failed
}

// post sends a request. A browser, or a bank, would send it again after an error.
func post(url string, r request) (a stock.Answer, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	res, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s: %s", url, res.Status)
	}
	return a, json.NewDecoder(res.Body).Decode(&a)
}
