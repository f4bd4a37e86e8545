package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/interop"
)

// Redisson takes part when it is asked for: it needs a JDK and Maven, and every client is a JVM that has to start and
// to warm up, which takes as long as many measurements. Each call goes to the JVM over a pipe and comes back over
// another one; what that costs is the peer redissonDriver, whose lock is nothing but the way there and back, twice.
var redissonPeer = Peer{
	Name: "redisson", Module: "org.redisson:redisson", Renews: true, Wakes: "push", Optional: true,
	How: "RLock, a JVM for each client, warmed up for 6 s by two threads that want one lock; defaults but for the size " +
		"of its pools",
	Open: func(ctx context.Context, s Setup) (Locker, error) { return openRedisson(ctx, s, true) },
}

var redissonDriver = Peer{
	Name: "redisson's driver", Module: "org.redisson:redisson", Wakes: "-", Optional: true, AloneOnly: true,
	How:  "asks the JVM to do nothing, twice: what the way there and back adds to Redisson's figures",
	Open: func(ctx context.Context, s Setup) (Locker, error) { return openRedisson(ctx, s, false) },
}

type redissonLocker struct {
	jvm   *interop.JVM
	locks bool // or it only goes there and back

	mu    sync.Mutex
	idle  []string // Java threads that wait for work
	lanes int
}

var redissonClients atomic.Int64

func openRedisson(ctx context.Context, s Setup, locks bool) (Locker, error) {
	dir, err := interop.Build(ctx)
	if err != nil {
		return nil, err
	}
	jvm, err := interop.Start(dir, interop.Newest)
	if err != nil {
		return nil, err
	}
	l := &redissonLocker{jvm: jvm, locks: locks}
	if err := l.warm(ctx, s); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *redissonLocker) warm(ctx context.Context, s Setup) error {
	if _, err := l.jvm.Do(ctx, "opening", "c", "open", s.Lease.Milliseconds(), s.Redis); err != nil {
		return err
	}
	name := fmt.Sprintf("bench:warm:%d:%d", os.Getpid(), redissonClients.Add(1))
	a, b := l.jvm.Send("warm-1", "c", "loop", "lock", name, 0, s.Warm.Milliseconds(), "-", 0), l.jvm.Send("warm-2", "c",
		"loop", "lock", name, 0, s.Warm.Milliseconds(), "-", 0)
	for _, c := range []<-chan interop.Reply{a, b} {
		if r := <-c; r.Err != nil {
			return r.Err
		}
	}
	for range 1000 { // and the pipes
		if _, err := l.jvm.Do(ctx, "warm-1", "c", "nothing"); err != nil {
			return err
		}
	}
	return nil
}

// lane is a Java thread that does nothing now. A hold is a thread's, so it keeps it until its release.
func (l *redissonLocker) lane() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.idle); n > 0 {
		name := l.idle[n-1]
		l.idle = l.idle[:n-1]
		return name
	}
	l.lanes++
	return fmt.Sprint("bench-", l.lanes)
}

func (l *redissonLocker) done(lane string) {
	l.mu.Lock()
	l.idle = append(l.idle, lane)
	l.mu.Unlock()
}

func (l *redissonLocker) Lock(ctx context.Context, name string) (load.Release, error) {
	if !l.locks {
		return l.call(ctx, "nothing", nil, "nothing", func(string) []any { return nil })
	}
	return l.call(ctx, "lock", []any{"lock", name, -1}, "unlock", func(string) []any { return []any{"lock", name} })
}

// call has a thread of its own take something; the release has the same thread give it back, as given learns what the
// first call said.
func (l *redissonLocker) call(ctx context.Context, take string, taken []any, give string,
	given func(said string) []any) (load.Release, error) {
	lane := l.lane()
	asked := l.jvm.Send(lane, "c", take, taken...)
	var said string
	select {
	case r := <-asked:
		if r.Err != nil {
			return nil, r.Err
		}
		said = r.Value
	case <-ctx.Done():
		go func() { // the thread goes on waiting
			if r := <-asked; r.Err == nil {
				<-l.jvm.Send(lane, "c", give, given(r.Value)...)
				l.done(lane)
			}
		}()
		return nil, ctx.Err()
	}
	return func(context.Context) error {
		r := <-l.jvm.Send(lane, "c", give, given(said)...)
		l.done(lane)
		return r.Err
	}, nil
}

func (l *redissonLocker) Close() { l.jvm.Kill() }

// redissonVersion asks a JVM.
func redissonVersion(ctx context.Context) (string, error) {
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
}
