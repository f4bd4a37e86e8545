// Command rpc-join lets another process join a held lock. A shop holds the lock of an order and calls a billing service
// in another process. It sends its owner along in an HTTP header. The service joins the hold instead of waiting for it,
// and may finish after the shop has released. The order is free for others when both have released.
//
//	go -C docs/examples run ./rpc-join                      embedded server, nothing else needed
//	go -C docs/examples run ./rpc-join -redis 127.0.0.1:6379
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// header carries the owner. Anybody that can send it can join the hold: treat it like a session id.
const header = "Redlatch-Owner"

func main() {
	addr := flag.String("redis", "", "`address` of a Redis or Valkey server; empty: one is embedded")
	billing := flag.Bool("billing", false, "be the billing service (started by the shop)")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if *billing {
		err = serveBilling(ctx, *addr)
	} else {
		err = runShop(ctx, *addr, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rpc-join:", err)
		os.Exit(1)
	}
}

func connect(addr string) (*rlock.Client, func(), error) {
	option := rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true}
	red, err := redlatch.Open(context.Background(), option, redlatch.Options{})
	if err != nil {
		return nil, nil, err
	}
	return red.Locks(), func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := red.Close(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "rpc-join:", err)
		}
	}, nil
}

// runShop is the caller's side.
func runShop(ctx context.Context, addr string, out io.Writer) error {
	if addr == "" {
		server, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer server.Close()
		addr = server.Addr()
	}
	locks, closeLocks, err := connect(addr)
	if err != nil {
		return err
	}
	defer closeLocks()
	service, stop, err := startBilling(ctx, addr)
	if err != nil {
		return err
	}
	defer stop()

	order := locks.Reentrant("order:7").WithLabel("shop")
	hold, err := order.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	fmt.Fprintln(out, "shop:    holds order:7")

	if err := post(ctx, service+"/bill", hold.Owner()); err != nil {
		return err
	}
	fmt.Fprintln(out, "billing: joined the hold and is at work")
	show(ctx, locks, out)

	if err := hold.Unlock(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, "shop:    done, has released")
	show(ctx, locks, out)
	if _, err := order.TryLock(ctx, 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
		//nolint:errorlint // err may be nil
		return fmt.Errorf("another process got the order while billing was at work: %v", err)
	}
	fmt.Fprintln(out, "others:  turned away")

	if err := post(ctx, service+"/finish", ""); err != nil {
		return err
	}
	fmt.Fprintln(out, "billing: done, has released")
	show(ctx, locks, out)
	next, err := order.TryLock(ctx, 0, 0)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "others:  order:7 acquired")
	if err := next.Unlock(ctx); err != nil {
		return err
	}

	err = post(ctx, service+"/bill", hold.Owner())
	fmt.Fprintln(out, "billing: asked with the old owner, says:", err)
	if err == nil {
		return errors.New("a released hold was joined")
	}
	return nil
}

func show(ctx context.Context, locks *rlock.Client, out io.Writer) {
	state, err := locks.Reentrant("order:7").Inspect(ctx)
	if err != nil {
		fmt.Fprintln(out, "         inspect:", err)
		return
	}
	if !state.Locked {
		fmt.Fprintln(out, "         order:7 is free")
		return
	}
	labels := make([]string, 0, len(state.Holders))
	for _, h := range state.Holders {
		labels = append(labels, h.Owner.Label())
	}
	fmt.Fprintf(out, "         order:7 held by %d: %s\n", len(labels), strings.Join(labels, ", "))
}

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

// startBilling runs this program again as the service and returns its URL.
func startBilling(ctx context.Context, addr string) (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-billing", "-redis", addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // its end tells the service that the shop has exited
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		in.Close()
		cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("the billing service did not start: %w", err)
	}
	return strings.TrimSpace(line), stop, nil
}

// serveBilling is the other side.
func serveBilling(ctx context.Context, addr string) error {
	locks, closeLocks, err := connect(addr)
	if err != nil {
		return err
	}
	defer closeLocks()
	order := locks.Reentrant("order:7").WithLabel("billing")
	finish, finished := make(chan struct{}), make(chan error, 1)

	mux := http.NewServeMux()
	mux.HandleFunc("POST /bill", func(w http.ResponseWriter, r *http.Request) {
		hold, err := order.Lock(order.WithOwner(r.Context(), rlock.Owner(r.Header.Get(header))))
		switch {
		case errors.Is(err, redlatch.ErrLost): // the caller's hold is over: do not act on its request
			http.Error(w, err.Error(), http.StatusConflict)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		go func() { // the work outlives the request, and so does the hold
			work := hold.Context(context.WithoutCancel(r.Context()))
			select {
			case <-finish:
			case <-work.Done():
			}
			finished <- hold.Unlock(work)
		}()
	})
	mux.HandleFunc("POST /finish", func(w http.ResponseWriter, r *http.Request) {
		close(finish)
		if err := <-finished; err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
