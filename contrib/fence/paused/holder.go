//go:build unix && !solaris && !aix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
)

// workers is how many trials of a process are under way at a time.
const workers = 32

// all calls fn for each of n, some at a time, and returns the first error.
func all(n int, fn func(i int) error) error {
	var wg sync.WaitGroup
	errs := make(chan error, workers)
	next := make(chan int)
	for range min(n, workers) {
		wg.Go(func() {
			var first error
			for i := range next {
				if first == nil {
					first = fn(i)
				}
			}
			errs <- first
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func open(addr string) (*redlatch.Client, error) {
	option := rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true}
	quiet := slog.New(slog.DiscardHandler) // each hold that is lost has a line
	return redlatch.Open(context.Background(), option, redlatch.Options{CallTimeout: 30 * time.Second, Logger: quiet})
}

// trial is one account, and what a holder knows of it.
type trial struct {
	account
	name  string
	token redlatchfence.Token
	value int64
}

func (t *trial) read(ctx context.Context) (err error) {
	t.value, err = t.account.read(ctx, t.name, t.token)
	return err
}

func (t *trial) add(ctx context.Context) error { return t.write(ctx, t.name, t.token, t.value+1) }

// beHolder acquires all locks and reads, says so, and writes when a line comes: it is stopped in between. Then it says
// of each name whether the write was taken.
func beHolder(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadString('\n')
	if err != nil {
		return err
	}
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	red, err := open(o.Sites.Redis)
	if err != nil {
		return err
	}
	accounts, end, err := o.Sites.open(red)
	if err != nil {
		return err
	}
	defer end()
	var trials []*trial
	for name, key := range o.each {
		trials = append(trials, &trial{account: accounts[key], name: name})
	}
	err = all(len(trials), func(i int) error {
		t := trials[i]
		hold, err := red.Locks().Fenced(t.name).WithLease(o.Lease).Lock(ctx)
		if err != nil {
			return err
		}
		if t.token, err = redlatchfence.Of(hold); err != nil {
			return err
		}
		return t.read(ctx)
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	if _, err := lines.ReadString('\n'); err != nil { // it is stopped here
		return err
	}
	taken := map[string]bool{}
	var mu sync.Mutex
	err = all(len(trials), func(i int) error {
		err := trials[i].add(ctx)
		if err != nil && !errors.Is(err, redlatchfence.ErrStale) {
			return fmt.Errorf("%s: %w", trials[i].name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		taken[trials[i].name] = err == nil
		return nil
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(taken)
}
