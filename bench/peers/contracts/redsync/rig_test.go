package redsync

import (
	"context"
	"errors"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/peers/contracts/rig"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// The peer's tests find these in place of those of its redsync_test.go, which starts forty-eight servers on fixed ports
// and reaches them through six drivers.
var _ = makeCases

type testCase struct {
	poolCount int
	pools     []redis.Pool
}

// makeCases are so many servers in this process. They say that they have been up for a day, or a Quorum would not have
// their votes: see rlock.Quorum.
func makeCases(n int) map[string]*testCase {
	c := &testCase{poolCount: n}
	for range n {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		addr, err := redistest.FreeAddr()
		if err == nil {
			err = m.StartAddr(addr)
		}
		if err != nil {
			panic(err)
		}
		redistest.Describe(m, 24*time.Hour)
		at := rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true}
		ours, err := rig.OpenAt(at)
		if err != nil {
			panic(err)
		}
		others, err := rig.OpenAt(at)
		if err != nil {
			panic(err)
		}
		c.pools = append(c.pools, &pool{locks: ours.Locks(), others: others.Locks()})
	}
	return map[string]*testCase{"redlatch": c}
}

// pool is a server: to the peer's tests a redis.Pool and its connection, which they look through.
type pool struct{ locks, others *rlock.Client }

func (p *pool) client() *rlock.Client { return p.locks }

func (p *pool) Get(context.Context) (redis.Conn, error) { return conn{p}, nil }

// conn shows a lock as the string that the peer would have there: the label of its owner.
type conn struct{ *pool }

func (c conn) Get(name string) (string, error) {
	state, err := c.others.Reentrant(name).Inspect(context.Background())
	if err != nil || len(state.Holders) == 0 {
		return "", err
	}
	return state.Holders[0].Label, nil
}

// Set has somebody else hold the lock there.
func (c conn) Set(name, value string) (bool, error) {
	_, err := c.others.Reentrant(name).WithLabel(value).TryLock(context.Background(), 0, time.Hour)
	return err == nil, err
}

func (c conn) PTTL(name string) (time.Duration, error) {
	state, err := c.others.Reentrant(name).Inspect(context.Background())
	return state.Lease, err
}

func (c conn) Close() error { return nil }

var errNoCommand = errors.New("redsync: the tests send no such command")

func (c conn) SetNX(string, string, time.Duration) (bool, error) { return false, errNoCommand }
func (c conn) Eval(*redis.Script, ...any) (any, error)           { return nil, errNoCommand }
func (c conn) ScriptLoad(*redis.Script) error                    { return errNoCommand }
