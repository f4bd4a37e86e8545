package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rsemaphore"
)

// callers is how many goroutines of a worker want to call the service all the time.
const callers = 3

// work is a worker process: it calls the service, each call under a slot, until its stdin ends.
func work(ctx context.Context, c config) error {
	slots, closeSlots, err := connect(c, label(c.worker))
	if err != nil {
		return err
	}
	defer closeSlots()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println("ready")
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = callOnce(ctx, slots, c.service)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// callOnce calls the service under one slot. ctx bounds only the waiting for the slot. The call itself ends if the slot
// is lost. It does not end when the worker is asked to stop: the service would still be at work, and the slot would be
// free too early.
func callOnce(ctx context.Context, slots *rsemaphore.Semaphore, url string) error {
	slot, err := slots.Acquire(ctx, 1)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	err = call(slot.Context(context.WithoutCancel(ctx)), url)
	err = errors.Join(err, slot.Release(ctx))
	if errors.Is(err, redlatch.ErrLost) {
		return nil // no reason to stop: the call has ended, and there are other slots
	}
	return err
}

func call(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the service says %s", res.Status)
	}
	return nil
}
