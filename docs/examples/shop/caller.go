package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"
)

// caller sends requests to a service of several processes until one of them has answered. A request that got no answer
// may have been served, or may be served yet; so it goes out again word for word, with the ids it had, to the next
// process.
type caller struct {
	urls    []string
	client  *http.Client
	waits   *waits // nil: they are not counted
	next    atomic.Uint64
	retries atomic.Int64
}

// oneTry is how long one process has for its answer.
const oneTry = 5 * time.Second

func newCaller(waits *waits, urls ...string) *caller {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	t.Proxy = nil
	return &caller{urls: urls, client: &http.Client{Transport: t}, waits: waits}
}

// refusedError is an answer that asking again does not change.
type refusedError struct {
	status int
	text   string
}

func (r *refusedError) Error() string { return fmt.Sprintf("%d: %s", r.status, r.text) }

// do sends body and reads the answer, trying until ctx ends. verb is what its time is counted under.
func (c *caller) do(ctx context.Context, verb, method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	begun, tries := time.Now(), 0
	for ctx.Err() == nil {
		tries++
		err = c.try(ctx, c.urls[c.next.Add(1)%uint64(len(c.urls))]+path, method, text, into)
		var refused *refusedError
		if err == nil || errors.As(err, &refused) {
			if c.waits != nil {
				c.waits.add(verb, time.Since(begun), tries)
			}
			return err
		}
		c.retries.Add(1)
		pause(ctx, time.Duration(min(tries, 10)*(5+rand.IntN(20)))*time.Millisecond)
	}
	return errors.Join(ctx.Err(), err)
}

func (c *caller) try(ctx context.Context, url, method string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= 500:
		return fmt.Errorf("%d: %s", resp.StatusCode, bytes.TrimSpace(text))
	case resp.StatusCode >= 300:
		return &refusedError{resp.StatusCode, string(bytes.TrimSpace(text))}
	}
	return json.Unmarshal(text, into)
}

// pause waits, and reports whether ctx lasted so long.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
