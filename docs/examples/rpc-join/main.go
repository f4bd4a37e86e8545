// Command rpc-join lets another process join a held lock. A shop holds the lock of an order and calls a billing service
// in another process. It sends its owner along in an HTTP header. The service joins the hold instead of waiting for it,
// and may finish after the shop has released. The order is free for others when both have released.
//
//	go -C docs/examples run ./rpc-join                      embedded server, nothing else needed
//	go -C docs/examples run ./rpc-join -redis 127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/docs/examples/internal/stage"
	"github.com/redlatch/redlatch/rlock"
)

// header carries the owner. Any program that can send it can join the hold: treat it like a session id.
const header = "Redlatch-Owner"

func main() {
	option := stage.Redis()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	red, err := redlatch.Open(ctx, option, redlatch.Options{})
	if err != nil {
		log.Fatal("rpc-join: ", err)
	}
	defer red.Close(ctx)
	order := red.Locks().Reentrant("example-order:7")
	if stage.Role() == "billing" {
		err = bill(order.WithLabel("billing"))
	} else {
		err = shop(ctx, order.WithLabel("shop"))
	}
	if err != nil {
		log.Fatal("rpc-join: ", err)
	}
}

// shop is the caller's side.
func shop(ctx context.Context, order *rlock.Lock) error {
	billing := stage.Start("billing")
	defer billing.Stop()
	service, _ := billing.Line()

	hold, err := order.Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("shop:    holds the order")
	if err := post(ctx, service+"/bill", hold.Owner()); err != nil {
		return err
	}
	show(ctx, "billing: joined the hold and is at work;", order)

	if err := hold.Unlock(ctx); err != nil {
		return err
	}
	show(ctx, "shop:    has released;", order)
	if _, err := order.TryLock(ctx, 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
		return fmt.Errorf("another caller got the order while billing was at work, or: %w", err)
	}
	fmt.Println("others:  turned away")

	if err := post(ctx, service+"/finish", ""); err != nil {
		return err
	}
	show(ctx, "billing: has released;", order)
	next, err := order.TryLock(ctx, 0, 0)
	if err != nil {
		return err
	}
	fmt.Println("others:  have the order")
	if err := next.Unlock(ctx); err != nil {
		return err
	}
	if err = post(ctx, service+"/bill", hold.Owner()); err == nil {
		return errors.New("a released hold was joined")
	}
	fmt.Println("billing: asked with the old owner, says:", err)
	return nil
}

// show prints who holds the order.
func show(ctx context.Context, what string, order *rlock.Lock) {
	state, err := order.Inspect(ctx)
	var labels []string
	for _, holder := range state.Holders {
		labels = append(labels, holder.Label)
	}
	slices.Sort(labels)
	switch {
	case err != nil:
		fmt.Println(what, err)
	case len(labels) == 0:
		fmt.Println(what, "the order is free")
	default:
		fmt.Println(what, "the order is held by", strings.Join(labels, " and "))
	}
}

// post calls the service, on behalf of an owner.
func post(ctx context.Context, url string, owner rlock.Owner) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set(header, string(owner))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", res.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

// bill is the service. It prints its address, and ends with its standard input.
func bill(order *rlock.Lock) error {
	joined := make(chan *rlock.Hold, 1)
	http.HandleFunc("POST /bill", func(w http.ResponseWriter, r *http.Request) {
		hold, err := order.Lock(order.WithOwner(r.Context(), rlock.Owner(r.Header.Get(header))))
		switch {
		case errors.Is(err, redlatch.ErrLost): // the caller's hold is over: do not act on its request
			http.Error(w, err.Error(), http.StatusConflict)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			joined <- hold // the work outlives the request, and so does the hold
		}
	})
	http.HandleFunc("POST /finish", func(w http.ResponseWriter, r *http.Request) {
		if err := (<-joined).Unlock(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	go http.Serve(listener, nil) //nolint:gosec // it lasts as long as the example
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
