package rcounter_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

func counterVerbs(k *rcounter.Counter) map[string]func() error {
	return map[string]func() error{
		"Incr":          func() error { _, err := k.Incr(ctx); return err },
		"Decr":          func() error { _, err := k.Decr(ctx); return err },
		"Add":           func() error { _, err := k.Add(ctx, 2); return err },
		"Get":           func() error { _, err := k.Get(ctx); return err },
		"Set":           func() error { return k.Set(ctx, 0) },
		"CompareAndSet": func() error { _, err := k.CompareAndSet(ctx, 0, 0); return err },
		"AddOnce":       func() error { _, _, err := k.AddOnce(ctx, "order", 2); return err },
		"Cached":        func() error { _, err := k.Cached(ctx, time.Hour); return err },
	}
}

func TestBadInputIsRefusedByNameAndValueAndNothingIsSent(t *testing.T) {
	t.Parallel()
	wire := &counting{Client: redistest.Embedded(t).Client(t)}
	c := on(t, wire, patient)
	prefixed := on(t, wire, rcounter.Options{KeyPrefix: "shop{1}:"})
	wire.Sent.Store(0)
	refused := func(what string, err, want error, says ...string) {
		t.Helper()
		require.ErrorIs(t, err, want, what)
		requirePrefix(t, err)
		for _, s := range says {
			require.ErrorContains(t, err, s, what)
		}
		require.Zero(t, wire.Sent.Load(), what)
	}
	long := strings.Repeat("x", 64<<10+1)

	for what, name := range map[string]string{"empty": "", "too long": long, "not UTF-8": "a\xff", "a NUL byte": "a\x00b",
		"open brace": "a{b", "empty braces": "a{}b", "closing brace": "a}b"} {
		k := c.Counter(name, rcounter.CounterOptions{})
		for verb, call := range counterVerbs(k) {
			err := call()
			refused(what+" "+verb, err, errs.ErrInvalidName)
			require.Same(t, err, call(), "the same value every time")
		}
	}
	refused("a prefix alone", prefixed.Counter("", rcounter.CounterOptions{}).Set(ctx, 1), errs.ErrInvalidName)

	for _, tc := range []struct {
		o    rcounter.CounterOptions
		says []string
	}{
		{rcounter.CounterOptions{TTL: -time.Second}, []string{"TTL", "-1s"}},
		{rcounter.CounterOptions{TTL: time.Microsecond}, []string{"TTL", "1µs"}},
		{rcounter.CounterOptions{Remember: -time.Second}, []string{"Remember", "-1s"}},
		{rcounter.CounterOptions{Remember: time.Microsecond}, []string{"Remember", "1µs"}},
		{rcounter.CounterOptions{Remember: 100*365*24*time.Hour + 1}, []string{"Remember"}},
		{rcounter.CounterOptions{Min: bound(3), Max: bound(2)}, []string{"Min", "3", "2"}},
		{rcounter.CounterOptions{Min: bound(3)}, []string{"Initial", "0"}},
		{rcounter.CounterOptions{Initial: 8, Max: bound(7)}, []string{"Initial", "8"}},
	} {
		k := c.Counter("k", tc.o)
		for verb, call := range counterVerbs(k) {
			err := call()
			refused(verb, err, errs.ErrInvalidOption, tc.says...)
			require.Same(t, err, call(), "the same value every time")
		}
	}
	k := c.Counter("k", rcounter.CounterOptions{Min: bound(0), Max: bound(9)})
	refused("Set", k.Set(ctx, 10), errs.ErrOutOfRange, "10", "9", `"k"`)
	_, err := k.CompareAndSet(ctx, 1, -1)
	refused("CompareAndSet", err, errs.ErrOutOfRange, "-1", "0", `"k"`)

	for _, age := range []time.Duration{0, -time.Second, time.Microsecond} {
		_, err := k.Cached(ctx, age)
		refused("Cached", err, errs.ErrInvalidOption, "maxStale", age.String())
	}

	long = strings.Repeat("x", 1025)
	for what, id := range map[string]string{"empty": "", "1025": long, "UTF-8": "a\xff", `"a\x00b" has a NUL`: "a\x00b"} {
		_, _, err := k.AddOnce(ctx, id, 1)
		refused(what, err, errs.ErrInvalidName, what)
	}

	require.NoError(t, c.Close(ctx))
	for verb, call := range counterVerbs(k) {
		refused(verb, call(), errs.ErrClosed)
	}
	refused("a counter made afterwards", c.Counter("x", rcounter.CounterOptions{}).Set(ctx, 1), errs.ErrClosed)
	require.NoError(t, c.Close(ctx), "again")
}

// requirePrefix fails if the error does not begin with the package's name, once.
func requirePrefix(t testing.TB, err error) {
	t.Helper()
	require.True(t, strings.HasPrefix(err.Error(), "rcounter: "), err)
	require.Equal(t, 1, strings.Count(err.Error(), "rcounter: "), err)
}

// Whatever kind of error it is, and wherever it comes from.
func TestEveryErrorBeginsWithThePackagesNameOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), patient)
	must(t, srv.Client(t), "RPUSH", "k", "another type")
	for verb, call := range counterVerbs(c.Counter("k", rcounter.CounterOptions{})) {
		err := call()
		require.ErrorIs(t, err, errs.ErrWrongType, verb)
		requirePrefix(t, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := c.Counter("other", rcounter.CounterOptions{}).Incr(ended)
	require.ErrorIs(t, err, context.Canceled)
	requirePrefix(t, err)
}

func TestNewRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	_, err := rcounter.New(nil, rcounter.Options{})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "hub is nil")

	h, err := pubsub.New(redistest.Embedded(t).Client(t), pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { h.Close(context.Background()) })
	for _, tc := range []struct {
		o    rcounter.Options
		says []string
	}{
		{rcounter.Options{CallTimeout: -time.Second}, []string{"CallTimeout", "-1s"}},
		{rcounter.Options{CallTimeout: time.Microsecond}, []string{"CallTimeout", "1µs"}},
		{rcounter.Options{KeyPrefix: "a\xff"}, []string{"KeyPrefix", `"a\xff"`}},
		{rcounter.Options{KeyPrefix: "a\x00"}, []string{"KeyPrefix", `"a\x00"`}},
		{rcounter.Options{KeyPrefix: "shop{}:"}, []string{"KeyPrefix", `"shop{}:"`}},
		{rcounter.Options{KeyPrefix: "{}"}, []string{"KeyPrefix", `"{}"`}},
		{rcounter.Options{KeyPrefix: strings.Repeat("x", 64<<10)}, []string{"KeyPrefix", `"xxx`}},
	} {
		_, err := rcounter.New(h, tc.o)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		requirePrefix(t, err)
		for _, s := range tc.says {
			require.ErrorContains(t, err, s)
		}
	}
}

func TestTheLongestNamesWork(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		_, err := on(t, srv.Client(t), patient).Counter(strings.Repeat("é", 32<<10), rcounter.CounterOptions{}).Incr(ctx)
		require.NoError(t, err)
	})
}

func TestClosingTheClientLeavesHubAndServerAlone(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	h, err := pubsub.New(raw, pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { h.Close(context.Background()) })
	c, err := rcounter.New(h, rcounter.Options{})
	require.NoError(t, err)
	_, err = c.Counter("k", rcounter.CounterOptions{}).Incr(ctx)
	require.NoError(t, err)
	require.NoError(t, c.Close(ctx))
	c, err = rcounter.New(h, rcounter.Options{})
	require.NoError(t, err)
	v, err := c.Counter("k", rcounter.CounterOptions{}).Incr(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, v)
}
