// Package rig is what tests send past the library, and clients that lose, repeat, record or hold back what it sends.
package rig

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

// Hub is a hub on c that ends with the test.
func Hub(t testing.TB, c rueidis.Client) *pubsub.Hub {
	t.Helper()
	return HubOn(t, c, nil)
}

// Process is what a process has on a server: a client of rueidis, and a hub that logs to log. Both end with the test.
func Process(t testing.TB, s *redistest.Server, log *slog.Logger,
	change ...func(*rueidis.ClientOption)) (rueidis.Client, *pubsub.Hub) {
	t.Helper()
	o := s.Option()
	for _, fn := range change {
		fn(&o)
	}
	c, err := rueidis.NewClient(o)
	for n := 0; err != nil && o.ConnLifetime > 0 && n < 100; n++ { // its connection may expire while it is made
		c, err = rueidis.NewClient(o)
	}
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, HubOn(t, c, log)
}

// HubOn is a hub on c that logs to log, and ends with the test.
func HubOn(t testing.TB, c rueidis.Client, log *slog.Logger) *pubsub.Hub {
	t.Helper()
	h, err := pubsub.New(c, pubsub.Options{Logger: log})
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close(context.Background()) }) // a test that cares closes it itself
	return h
}

// CloseUnwaited closes c with the test, and waits for nothing that it holds.
func CloseUnwaited(t testing.TB, c interface {
	Close(ctx context.Context) error
}) {
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ended)
	})
}

// Role is a client of the server that a process of redistest.Spawn was started for, and a hub on it.
func Role() (rueidis.Client, *pubsub.Hub, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{os.Args[1]}})
	if err != nil {
		return nil, nil, err
	}
	hub, err := pubsub.New(c, pubsub.Options{})
	return c, hub, err
}

// Raw sends one command past the library.
func Raw(c rueidis.Client, args ...string) rueidis.RedisResult {
	return c.Do(ctx, c.B().Arbitrary(args...).Build())
}

// Must is Raw for commands that a test needs to succeed.
func Must(t testing.TB, c rueidis.Client, args ...string) {
	t.Helper()
	if err := Raw(c, args...).Error(); err != nil && !rueidis.IsRedisNil(err) {
		require.NoError(t, err, args)
	}
}

// Text is a reply that is a text, (nil) for none.
func Text(t testing.TB, c rueidis.Client, args ...string) string {
	t.Helper()
	v, err := Raw(c, args...).ToString()
	if rueidis.IsRedisNil(err) {
		return "(nil)"
	}
	require.NoError(t, err, args)
	return v
}

// Number is a reply that is a number.
func Number(t testing.TB, c rueidis.Client, args ...string) int64 {
	t.Helper()
	v, err := Raw(c, args...).AsInt64()
	require.NoError(t, err, args)
	return v
}

// Hash is a hash.
func Hash(t testing.TB, c rueidis.Client, key string) map[string]string {
	t.Helper()
	v, err := Raw(c, "HGETALL", key).AsStrMap()
	require.NoError(t, err)
	return v
}

// Keys are all keys of a single server.
func Keys(t testing.TB, c rueidis.Client) []string {
	t.Helper()
	v, err := Raw(c, "KEYS", "*").AsStrSlice()
	require.NoError(t, err)
	return v
}

// SubscribedTo waits until a client is subscribed to channel.
func SubscribedTo(t testing.TB, c rueidis.Client, channel string) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, "a subscription to "+channel, func() bool {
		n, err := Raw(c, "PUBSUB", "NUMSUB", channel).ToArray()
		require.NoError(t, err)
		got, _ := n[1].AsInt64()
		return got > 0
	})
}

// RequireEnds fails if any key of the server has no TTL.
func RequireEnds(t testing.TB, c rueidis.Client) {
	t.Helper()
	for _, k := range Keys(t, c) {
		require.Positive(t, Number(t, c, "PTTL", k), "%q has no end", k)
	}
}

// ServerNow is the server's time in ms.
func ServerNow(t testing.TB, c rueidis.Client) int64 {
	t.Helper()
	v, err := Raw(c, "TIME").AsStrSlice()
	require.NoError(t, err)
	s, _ := strconv.ParseInt(v[0], 10, 64)
	us, _ := strconv.ParseInt(v[1], 10, 64)
	return s*1000 + us/1000
}

// Counting counts what is sent.
type Counting struct {
	rueidis.Client
	Sent atomic.Int64
}

// Do counts cmd.
func (c *Counting) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	c.Sent.Add(1)
	return c.Client.Do(ctx, cmd)
}

// Twice sends everything two times, as a network may, and hands out the second reply.
type Twice struct{ rueidis.Client }

// Do sends cmd twice.
func (c Twice) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	cmd = cmd.Pin()
	c.Client.Do(ctx, cmd)
	return c.Client.Do(ctx, cmd)
}

// Lossy runs everything and loses the reply where lose says so: the caller sees a closed connection.
type Lossy struct {
	rueidis.Client
	lost rueidis.RedisResult // the error of a connection that was closed

	mu   sync.Mutex // an attempt that was given up may end while the next runs
	lose func() bool
}

// NewLossy is one on s. lose is called by one call at a time.
func NewLossy(t testing.TB, s *redistest.Server, lose func() bool) *Lossy {
	dead, err := rueidis.NewClient(s.Option())
	require.NoError(t, err)
	dead.Close()
	lost := dead.Do(ctx, dead.B().Ping().Build())
	require.Error(t, lost.Error()) // asked once: one that is asked by many at a time connects again
	return &Lossy{Client: s.Client(t), lost: lost, lose: lose}
}

// Do sends cmd, and may lose its reply.
func (c *Lossy) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	r := c.Client.Do(ctx, cmd)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lose() {
		return c.lost
	}
	return r
}

// Recording notes everything that is sent; Before, if set, is called first.
type Recording struct {
	rueidis.Client
	Before func(args []string)

	Mu   sync.Mutex
	Sent [][]string
}

// Do notes and sends cmd.
func (c *Recording) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	args := slices.Clone(cmd.Commands())
	if c.Before != nil {
		c.Before(args)
	}
	c.Mu.Lock()
	c.Sent = append(c.Sent, args)
	c.Mu.Unlock()
	return c.Client.Do(ctx, cmd)
}

// Late keeps every request that match likes to itself: its sender sees a closed connection, and the server the request
// when Deliver is called.
type Late struct {
	*Lossy
	match func(args []string) bool

	mu   sync.Mutex
	held [][]string
}

// NewLate is one on s.
func NewLate(t testing.TB, s *redistest.Server, match func(args []string) bool) *Late {
	return &Late{Lossy: NewLossy(t, s, func() bool { return false }), match: match}
}

// Do sends cmd, or keeps it.
func (c *Late) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	args := slices.Clone(cmd.Commands())
	c.mu.Lock()
	mine := c.match(args)
	if mine {
		c.held = append(c.held, args)
	}
	c.mu.Unlock()
	if mine {
		return c.lost
	}
	return c.Client.Do(ctx, cmd)
}

// Deliver sends what was kept.
func (c *Late) Deliver(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.NotEmpty(t, c.held)
	for _, args := range c.held {
		require.NoError(t, Raw(c.Client, args...).Error())
	}
}

// Once is match the first time only.
func Once(match func(args []string) bool) func(args []string) bool {
	done := false
	return func(args []string) bool {
		if done || !match(args) {
			return false
		}
		done = true
		return true
	}
}

// Has matches requests with this argument.
func Has(arg string) func(args []string) bool {
	return func(args []string) bool { return slices.Contains(args, arg) }
}

// OverWires runs a walk over a network as it is, one that runs everything twice, and one that loses a third of the
// replies, each so many times, with an embedded server and other seeds.
func OverWires(t *testing.T, times int, walk func(t *testing.T, s *redistest.Server, c rueidis.Client, rnd *rand.Rand,
	wire string)) {
	for _, wire := range []string{"once", "twice", "lossy"} {
		for _, seed := range redistest.Seeds(t, times) {
			t.Run(fmt.Sprintf("%s/%d", wire, seed), func(t *testing.T) {
				s := redistest.Embedded(t)
				c := s.Client(t)
				switch lose := rand.New(rand.NewPCG(seed, 2)); wire {
				case "twice":
					c = Twice{c}
				case "lossy":
					c = NewLossy(t, s, func() bool { return lose.IntN(3) == 0 })
				}
				walk(t, s, c, rand.New(rand.NewPCG(seed, 1)), wire)
			})
		}
	}
}
