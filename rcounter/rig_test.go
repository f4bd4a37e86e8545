package rcounter_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

// patient are options for tests that are not about time: a busy machine may take its while.
var patient = rcounter.Options{CallTimeout: 10 * time.Second}

// exact are options for tests whose clock jumps, or that count what is sent: every claim asks the server.
var exact = rcounter.Options{CallTimeout: patient.CallTimeout, SoldOut: rcounter.SoldOutOptions{Off: true}}

// on makes a client of the library on c.
func on(t testing.TB, c rueidis.Client, o rcounter.Options) *rcounter.Client {
	t.Helper()
	h, err := pubsub.New(c, pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { h.Close(context.Background()) })
	rc, err := rcounter.New(h, o)
	require.NoError(t, err)
	t.Cleanup(func() { rc.Close() })
	return rc
}

// raw sends one command past the library.
func raw(c rueidis.Client, args ...string) rueidis.RedisResult {
	return c.Do(ctx, c.B().Arbitrary(args...).Build())
}

// must is raw for commands that a test needs to succeed.
func must(t testing.TB, c rueidis.Client, args ...string) {
	t.Helper()
	if err := raw(c, args...).Error(); err != nil && !rueidis.IsRedisNil(err) {
		require.NoError(t, err, args)
	}
}

func text(t testing.TB, c rueidis.Client, args ...string) string {
	t.Helper()
	v, err := raw(c, args...).ToString()
	if rueidis.IsRedisNil(err) {
		return "(nil)"
	}
	require.NoError(t, err, args)
	return v
}

func number(t testing.TB, c rueidis.Client, args ...string) int64 {
	t.Helper()
	v, err := raw(c, args...).AsInt64()
	require.NoError(t, err, args)
	return v
}

func hash(t testing.TB, c rueidis.Client, key string) map[string]string {
	t.Helper()
	v, err := raw(c, "HGETALL", key).AsStrMap()
	require.NoError(t, err)
	return v
}

// keys are all keys of a single server.
func keys(t testing.TB, c rueidis.Client) []string {
	t.Helper()
	v, err := raw(c, "KEYS", "*").AsStrSlice()
	require.NoError(t, err)
	return v
}

// requireEnds fails if any key of the server has no TTL.
func requireEnds(t testing.TB, c rueidis.Client) {
	t.Helper()
	for _, k := range keys(t, c) {
		require.Positive(t, number(t, c, "PTTL", k), "%q has no end", k)
	}
}

// serverNow is the server's time in ms.
func serverNow(t testing.TB, c rueidis.Client) int64 {
	t.Helper()
	v, err := raw(c, "TIME").AsStrSlice()
	require.NoError(t, err)
	s, _ := strconv.ParseInt(v[0], 10, 64)
	us, _ := strconv.ParseInt(v[1], 10, 64)
	return s*1000 + us/1000
}

// counting counts what is sent.
type counting struct {
	rueidis.Client
	sent atomic.Int64
}

func (c *counting) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	c.sent.Add(1)
	return c.Client.Do(ctx, cmd)
}

// twice sends everything two times, as a network may, and hands out the second reply.
type twice struct{ rueidis.Client }

func (c twice) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	cmd = cmd.Pin()
	c.Client.Do(ctx, cmd)
	return c.Client.Do(ctx, cmd)
}

// lossy runs everything and loses the reply where lose says so: the caller sees a closed connection.
type lossy struct {
	rueidis.Client
	lost rueidis.RedisResult // the error of a connection that was closed
	lose func() bool
}

func newLossy(t testing.TB, s *redistest.Server, lose func() bool) *lossy {
	dead, err := rueidis.NewClient(s.Option())
	require.NoError(t, err)
	dead.Close()
	lost := dead.Do(ctx, dead.B().Ping().Build())
	require.Error(t, lost.Error()) // asked once: one that is asked by many at a time connects again
	return &lossy{s.Client(t), lost, lose}
}

func (c *lossy) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	r := c.Client.Do(ctx, cmd)
	if c.lose() {
		return c.lost
	}
	return r
}

// recording notes everything that is sent; before, if set, is called first.
type recording struct {
	rueidis.Client
	before func(args []string)

	mu   sync.Mutex
	sent [][]string
}

func (c *recording) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	args := slices.Clone(cmd.Commands())
	if c.before != nil {
		c.before(args)
	}
	c.mu.Lock()
	c.sent = append(c.sent, args)
	c.mu.Unlock()
	return c.Client.Do(ctx, cmd)
}

// late keeps every request that match likes to itself: its sender sees a closed connection, and the server the request
// when deliver is called.
type late struct {
	*lossy
	match func(args []string) bool

	mu   sync.Mutex
	held [][]string
}

func newLate(t testing.TB, s *redistest.Server, match func(args []string) bool) *late {
	return &late{lossy: newLossy(t, s, func() bool { return false }), match: match}
}

func (c *late) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
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

func (c *late) deliver(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.NotEmpty(t, c.held)
	for _, args := range c.held {
		require.NoError(t, raw(c.Client, args...).Error())
	}
}

// once is match the first time only.
func once(match func(args []string) bool) func(args []string) bool {
	done := false
	return func(args []string) bool {
		if done || !match(args) {
			return false
		}
		done = true
		return true
	}
}

// has matches requests with this argument.
func has(arg string) func(args []string) bool {
	return func(args []string) bool { return slices.Contains(args, arg) }
}

// spec is an opening that is open for as long as a test may last.
func spec(limit int64) rcounter.OpenSpec {
	return rcounter.OpenSpec{Limit: limit, OpenFor: time.Hour, Retain: time.Hour}
}

// opened is a fresh stock of limit units.
func opened(t testing.TB, c *rcounter.Client, name string, limit int64) *rcounter.Stock {
	t.Helper()
	s := c.Stock(name)
	_, err := s.Open(ctx, spec(limit))
	require.NoError(t, err)
	return s
}
