package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redlatch/redlatch/internal/chaos/cells"
	"github.com/redlatch/redlatch/internal/interop"
)

var redissonLibrary = cells.Library{
	Name: "redisson", Module: "org.redisson:redisson",
	How: "a JVM for each client, `getLock(name).lock()` with its watchdog (`lockWatchdogTimeout`), `unlock()`; " +
		"`useSingleServer`, or behind Sentinel its default that a replica confirms",
	Reports: "nothing; `isHeldByCurrentThread` asks the server",
	Version: redissonVersion,
	Open:    openRedisson,
}

// redissonVersion asks a JVM. It fails if there is no JDK, or no Maven.
var redissonVersion = onceOK(func(ctx context.Context) (string, error) {
	dir, err := interop.Build(ctx)
	if err != nil {
		return "", err
	}
	jvm, err := interop.Start(dir, interop.Newest)
	if err != nil {
		return "", err
	}
	defer jvm.Kill()
	return jvm.Version, nil
})

// onceOK is f, but for what it has answered before.
func onceOK(f func(ctx context.Context) (string, error)) func(ctx context.Context) (string, error) {
	var mu sync.Mutex
	said := ""
	return func(ctx context.Context) (_ string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if said == "" {
			said, err = f(ctx)
		}
		return said, err
	}
}

type redissonLocker struct {
	jvm    *interop.JVM
	fenced bool // getFencedLock

	mu    sync.Mutex
	idle  []string // Java threads that do nothing now: a hold is its thread's
	lanes int
}

func openRedisson(ctx context.Context, s cells.Setup) (cells.Locker, error) {
	dir, err := interop.Build(ctx)
	if err != nil {
		return nil, err
	}
	jvm, err := interop.Start(dir, interop.Newest, "-XX:TieredStopAtLevel=1")
	if err != nil {
		return nil, err
	}
	args := []any{s.Lease.Milliseconds(), s.By(s.Addrs[0])}
	verb := "open"
	if s.Set != "" {
		var by []string
		for a, b := range s.Through {
			by = append(by, a+"="+b)
		}
		verb, args = "sentinel", []any{s.Lease.Milliseconds(), s.Set, strings.Join(append(by, "-=-"), ",")}
		for _, a := range s.Addrs {
			args = append(args, a)
		}
	}
	if _, err := jvm.Do(ctx, "opening", "c", verb, args...); err != nil {
		jvm.Kill()
		return nil, err
	}
	return &redissonLocker{jvm: jvm, fenced: s.Token}, nil
}

func (l *redissonLocker) Close() { l.jvm.Kill() }

func (l *redissonLocker) lane() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.idle); n > 0 {
		name := l.idle[n-1]
		l.idle = l.idle[:n-1]
		return name
	}
	l.lanes++
	return fmt.Sprint("lane-", l.lanes)
}

func (l *redissonLocker) done(lane string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, lane)
}

func (l *redissonLocker) Lock(ctx context.Context, name string) (cells.Held, error) {
	lane := l.lane()
	h := &redissonHold{locker: l, lane: lane, kind: "lock", name: name}
	verb, args := "lock", []any{h.kind, name, -1}
	if l.fenced {
		h.kind, verb, args = "fenced", "locktoken", []any{name}
	}
	answer := l.jvm.Send(lane, "c", verb, args...)
	select {
	case r := <-answer:
		if r.Err == nil && l.fenced {
			h.token, r.Err = strconv.ParseInt(r.Value, 10, 64)
		}
		if r.Err != nil {
			l.done(lane)
			return nil, r.Err
		}
		return h, nil
	case <-ctx.Done():
		go func() { // lock() knows no end: what it acquires later, if the process lives so long, is given back
			if r := <-answer; r.Err == nil {
				_ = h.Release(context.WithoutCancel(ctx))
			}
		}()
		return nil, ctx.Err()
	}
}

type redissonHold struct {
	locker           *redissonLocker
	lane, kind, name string
	token            int64
}

// Token is that of an RFencedLock.
func (h *redissonHold) Token() (token int64, ok bool) { return h.token, h.kind == "fenced" }

func (h *redissonHold) Held() bool            { return true }
func (h *redissonHold) Lost() <-chan struct{} { return nil }

func (h *redissonHold) Release(context.Context) error {
	r := <-h.locker.jvm.Send(h.lane, "c", "unlock", h.kind, h.name)
	h.locker.done(h.lane)
	var java *interop.JavaError
	if errors.As(r.Err, &java) && java.Class == "IllegalMonitorStateException" {
		return errors.Join(cells.ErrGone, r.Err)
	}
	return r.Err
}
