package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
)

// rawScripts is the floor under redlatch: the very script calls that it sends for a lock and an unlock, sent again by a
// program that does nothing else. It locks, but never waits.
var rawScripts = Peer{
	Name: floor, Module: "github.com/redis/rueidis", AloneOnly: true, Wakes: "spin",
	How:  "redlatch's own two EVALSHA calls, recorded and sent again through rueidis; nothing around them",
	Open: openRawScripts,
}

const recordedName = "bench-recorded-name"

type rawScriptsLocker struct {
	client rueidis.Client
	calls  [][]string
	names  sync.Map // name -> func(ctx, i) error
}

func openRawScripts(ctx context.Context, s Setup) (Locker, error) {
	return openRecorded(ctx, s, func(o rueidis.ClientOption) (Locker, error) { return openRedlatch(o, s) },
		func(ctx context.Context, c rueidis.Client, name string) (bool, error) {
			return c.Do(ctx, c.B().Exists().Key(name).Build()).AsBool()
		})
}

// openRecorded has of acquire and release once, and sends again what it sent. taken looks whether a name is: a floor
// that is refused would be a very low one.
func openRecorded(ctx context.Context, s Setup, of func(o rueidis.ClientOption) (Locker, error),
	taken func(ctx context.Context, c rueidis.Client, name string) (bool, error)) (Locker, error) {
	o := rueidis.ClientOption{InitAddress: []string{s.Redis}}
	cycle := func(o rueidis.ClientOption) error {
		l, err := of(o)
		if err != nil {
			return err
		}
		defer l.Close()
		release, err := l.Lock(ctx, recordedName)
		if err != nil {
			return err
		}
		return release(ctx)
	}
	if err := cycle(o); err != nil { // has the server know the scripts
		return nil, err
	}
	var rec load.Recorder
	if err := cycle(rec.Option(o)); err != nil {
		return nil, err
	}
	calls, err := rec.Calls("EVALSHA", "EVAL")
	if err != nil {
		return nil, err
	}
	if len(calls) != 2 {
		return nil, fmt.Errorf("to acquire and to release were %d script calls, not 2: %q", len(calls), calls)
	}
	c, err := rueidis.NewClient(o)
	if err != nil {
		return nil, err
	}
	l := &rawScriptsLocker{client: c, calls: calls}
	for range 2 { // the recording must work again, and on another name
		if err := l.try(ctx, taken); err != nil {
			c.Close()
			return nil, err
		}
	}
	return l, nil
}

// try replays on another name, and looks whether that was taken, and free then.
func (l *rawScriptsLocker) try(ctx context.Context,
	taken func(ctx context.Context, c rueidis.Client, name string) (bool, error)) error {
	const name = "bench-other-name"
	for i, want := range []bool{true, false} {
		if err := l.replay(name)(ctx, i); err != nil {
			return err
		}
		is, err := taken(ctx, l.client, name)
		if err != nil {
			return err
		}
		if is != want {
			return fmt.Errorf("sent again, %q left the name taken: %t, want %t", l.calls[i], is, want)
		}
	}
	return nil
}

func (l *rawScriptsLocker) replay(name string) func(context.Context, int) error {
	if f, ok := l.names.Load(name); ok {
		return f.(func(context.Context, int) error)
	}
	f := load.Replay(l.client, l.calls, recordedName, name)
	l.names.Store(name, f)
	return f
}

func (l *rawScriptsLocker) Lock(ctx context.Context, name string) (load.Release, error) {
	f := l.replay(name)
	if err := f(ctx, 0); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return f(ctx, 1) }, nil
}

func (l *rawScriptsLocker) Close() { l.client.Close() }

// rawSetNX is the floor under everybody: the smallest two scripts that lock and unlock safely. It waits by asking again
// at once.
var rawSetNX = Peer{
	Name: "raw SET NX", Module: "github.com/redis/rueidis", Wakes: "spin",
	How:  "EVALSHA of SET NX PX, EVALSHA of compare-and-delete, through rueidis; a waiter asks again at once",
	Open: openRawSetNX,
}

var (
	takeScript = rueidis.NewLuaScript("return redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2])")
	dropScript = rueidis.NewLuaScript("if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end " +
		"return 0")
)

type rawSetNXLocker struct {
	client rueidis.Client
	lease  string
	id     string
	n      atomic.Int64
}

func openRawSetNX(ctx context.Context, s Setup) (Locker, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Redis}})
	if err != nil {
		return nil, err
	}
	id, err := c.Do(ctx, c.B().ClientId().Build()).AsInt64()
	if err != nil {
		c.Close()
		return nil, err
	}
	return &rawSetNXLocker{client: c, lease: strconv.FormatInt(s.Lease.Milliseconds(), 10),
		id: strconv.FormatInt(id, 10)}, nil
}

func (l *rawSetNXLocker) Lock(ctx context.Context, name string) (load.Release, error) {
	keys, owner := []string{name}, l.id+":"+strconv.FormatInt(l.n.Add(1), 10)
	for {
		err := takeScript.Exec(ctx, l.client, keys, []string{owner, l.lease}).Error()
		if err == nil {
			break
		}
		if !rueidis.IsRedisNil(err) {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return func(ctx context.Context) error {
		n, err := dropScript.Exec(ctx, l.client, keys, []string{owner}).AsInt64()
		if err == nil && n != 1 {
			err = fmt.Errorf("the lock was not ours any more")
		}
		return err
	}, nil
}

func (l *rawSetNXLocker) Close() { l.client.Close() }
