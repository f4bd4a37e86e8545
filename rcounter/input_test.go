package rcounter_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

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

func stockVerbs(s *rcounter.Stock) map[string]func() error {
	return map[string]func() error{
		"Open":   func() error { _, err := s.Open(ctx, spec(1)); return err },
		"Claim":  func() error { _, err := s.Claim(ctx, "u"); return err },
		"Lookup": func() error { _, _, err := s.Lookup(ctx, "u"); return err },
		"Return": func() error { _, err := s.Return(ctx, "u", 1); return err },
		"Status": func() error { _, err := s.Status(ctx); return err },
		"Close":  func() error { return s.Close(ctx) },

		"ClaimAny":   func() error { _, err := s.ClaimAny(ctx, 1); return err },
		"ClaimOnce":  func() error { _, err := s.ClaimOnce(ctx, "r", "u", 1); return err },
		"ReturnOnce": func() error { _, err := s.ReturnOnce(ctx, "r"); return err },
		"ReturnAny": func() error {
			_, err := s.ReturnAny(ctx, rcounter.Grant{Outcome: rcounter.Granted, Ordinal: 1, N: 1, Request: "a"})
			return err
		},
		"Reserve": func() error {
			_, err := s.Reserve(ctx, "h", "u", 1, time.Minute)
			return inSomeOrder(err)
		},
		"Confirm": func() error {
			_, err := s.Confirm(ctx, "h")
			return inSomeOrder(err)
		},
		"Cancel": func() error { _, err := s.Cancel(ctx, "h"); return err },
		"Reap":   func() error { _, err := s.Reap(ctx); return err },
		"Resize": func() error { return s.Resize(ctx, 100) },
		"Ledger": func() error {
			_, err := s.Ledger(ctx, 1, func(context.Context, []rcounter.Entry) error { return nil })
			return err
		},
		"Restore": func() error {
			_, err := s.Restore(ctx, func(func(rcounter.Entry, error) bool) {})
			return err
		},
	}
}

// inSomeOrder is err, unless it is how a reservation answers when these verbs come in another order.
func inSomeOrder(err error) error {
	for _, e := range []error{rcounter.ErrReservationCancelled, rcounter.ErrReservationReturned, rcounter.ErrNoReservation} {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

func TestBadInputIsRefusedByNameAndValueAndNothingIsSent(t *testing.T) {
	t.Parallel()
	wire := &counting{Client: redistest.Embedded(t).Client(t)}
	c := on(t, wire, patient)
	prefixed := on(t, wire, rcounter.Options{KeyPrefix: "shop{1}:"})
	wire.sent.Store(0)
	refused := func(what string, err, want error, says ...string) {
		t.Helper()
		require.ErrorIs(t, err, want, what)
		requirePrefix(t, err)
		for _, s := range says {
			require.ErrorContains(t, err, s, what)
		}
		require.Zero(t, wire.sent.Load(), what)
	}
	long := strings.Repeat("x", 64<<10+1)

	for what, name := range map[string]string{"empty": "", "too long": long, "not UTF-8": "a\xff", "a NUL byte": "a\x00b", "open brace": "a{b", "empty braces": "a{}b", "closing brace": "a}b"} {
		k := c.Counter(name, rcounter.CounterOptions{})
		for verb, call := range counterVerbs(k) {
			err := call()
			refused(what+" "+verb, err, rcounter.ErrInvalidName)
			require.Same(t, err, call(), "the same value every time")
		}
		for verb, call := range stockVerbs(c.Stock(name)) {
			refused(what+" "+verb, call(), rcounter.ErrInvalidName)
		}
	}
	for verb, call := range stockVerbs(c.Stock("a{b}")) {
		refused(verb, call(), rcounter.ErrInvalidName, `"a{b}"`)
	}
	for verb, call := range stockVerbs(prefixed.Stock("a")) {
		refused(verb, call(), rcounter.ErrInvalidName, `"shop{1}:a"`)
	}
	refused("a prefix alone", prefixed.Counter("", rcounter.CounterOptions{}).Set(ctx, 1), rcounter.ErrInvalidName)

	for _, tc := range []struct {
		o    rcounter.CounterOptions
		says []string
	}{
		{rcounter.CounterOptions{TTL: -time.Second}, []string{"TTL", "-1s"}},
		{rcounter.CounterOptions{TTL: time.Microsecond}, []string{"TTL", "1µs"}},
		{rcounter.CounterOptions{Remember: -time.Second}, []string{"Remember", "-1s"}},
		{rcounter.CounterOptions{Remember: time.Microsecond}, []string{"Remember", "1µs"}},
		{rcounter.CounterOptions{Remember: rcounter.MaxLifetime + 1}, []string{"Remember"}},
		{rcounter.CounterOptions{Min: bound(3), Max: bound(2)}, []string{"Min", "3", "2"}},
		{rcounter.CounterOptions{Min: bound(3)}, []string{"Initial", "0"}},
		{rcounter.CounterOptions{Initial: 8, Max: bound(7)}, []string{"Initial", "8"}},
	} {
		k := c.Counter("k", tc.o)
		for verb, call := range counterVerbs(k) {
			err := call()
			refused(verb, err, rcounter.ErrInvalidOption, tc.says...)
			require.Same(t, err, call(), "the same value every time")
		}
	}
	k := c.Counter("k", rcounter.CounterOptions{Min: bound(0), Max: bound(9)})
	refused("Set", k.Set(ctx, 10), rcounter.ErrOutOfRange, "10", "9", `"k"`)
	_, err := k.CompareAndSet(ctx, 1, -1)
	refused("CompareAndSet", err, rcounter.ErrOutOfRange, "-1", "0", `"k"`)

	for _, age := range []time.Duration{0, -time.Second, time.Microsecond} {
		_, err := k.Cached(ctx, age)
		refused("Cached", err, rcounter.ErrInvalidOption, "maxStale", age.String())
	}

	s := c.Stock("s")
	for _, tc := range []struct {
		o    rcounter.OpenSpec
		says []string
	}{
		{rcounter.OpenSpec{}, []string{"Limit", "0"}},
		{rcounter.OpenSpec{Limit: -1, OpenFor: time.Hour}, []string{"Limit", "-1"}},
		{rcounter.OpenSpec{Limit: 1 << 53, OpenFor: time.Hour}, []string{"Limit", "9007199254740992", "9007199254740991"}},
		{rcounter.OpenSpec{Limit: 1, PerUser: 1 << 53, OpenFor: time.Hour}, []string{"PerUser", "9007199254740992"}},
		{rcounter.OpenSpec{Limit: 1, PerUser: -1, OpenFor: time.Hour}, []string{"PerUser", "-1"}},
		{rcounter.OpenSpec{Limit: 1, StartIn: -time.Second, OpenFor: time.Hour}, []string{"StartIn", "-1s"}},
		{rcounter.OpenSpec{Limit: 1}, []string{"OpenFor", "0s"}},
		{rcounter.OpenSpec{Limit: 1, OpenFor: -time.Hour}, []string{"OpenFor", "-1h0m0s"}},
		{rcounter.OpenSpec{Limit: 1, OpenFor: time.Microsecond}, []string{"OpenFor", "1µs"}},
		{rcounter.OpenSpec{Limit: 1, OpenFor: time.Hour, Retain: -time.Second}, []string{"Retain", "-1s"}},
		{rcounter.OpenSpec{Limit: 1, OpenFor: time.Hour, Retain: time.Microsecond}, []string{"Retain", "1µs"}},
		{rcounter.OpenSpec{Limit: 1, StartIn: 1<<63 - 1, OpenFor: time.Hour}, []string{"StartIn"}},
		{rcounter.OpenSpec{Limit: 1, OpenFor: 1<<63 - 1}, []string{"OpenFor"}},
		{rcounter.OpenSpec{Limit: 1, OpenFor: time.Hour, Retain: 1<<63 - 1}, []string{"Retain"}},
		{rcounter.OpenSpec{Limit: 1, StartIn: rcounter.MaxLifetime, OpenFor: rcounter.MaxLifetime}, []string{"StartIn + OpenFor + Retain"}},
		{rcounter.OpenSpec{Limit: 1, StartIn: rcounter.MaxLifetime / 2, OpenFor: rcounter.MaxLifetime / 2}, []string{"StartIn + OpenFor + Retain"}},
	} {
		_, err := s.Open(ctx, tc.o)
		refused("Open", err, rcounter.ErrInvalidOption, tc.says...)
	}
	for what, claimant := range map[string]string{"empty": "", "1025": strings.Repeat("x", rcounter.MaxClaimantLen+1), "UTF-8": "a\xff", `claimant "a\x00b" has a NUL`: "a\x00b"} {
		_, err := s.Claim(ctx, claimant)
		refused(what, err, rcounter.ErrInvalidName, what)
		_, _, err = s.Lookup(ctx, claimant)
		refused(what, err, rcounter.ErrInvalidName, what)
		_, err = s.Return(ctx, claimant, 1)
		refused(what, err, rcounter.ErrInvalidName, what)
	}
	long = strings.Repeat("x", rcounter.MaxClaimantLen+1)
	for what, id := range map[string]string{"empty": "", "1025": long, "UTF-8": "a\xff", `"a\x00b" has a NUL`: "a\x00b"} {
		for verb, call := range map[string]func() error{
			"AddOnce":              func() error { _, _, err := k.AddOnce(ctx, id, 1); return err },
			"ClaimOnce":            func() error { _, err := s.ClaimOnce(ctx, id, "u", 1); return err },
			"ClaimOnce's claimant": func() error { _, err := s.ClaimOnce(ctx, "r", id, 1); return err },
			"ReturnOnce":           func() error { _, err := s.ReturnOnce(ctx, id); return err },
			"Reserve":              func() error { _, err := s.Reserve(ctx, id, "u", 1, time.Minute); return err },
			"Reserve's claimant":   func() error { _, err := s.Reserve(ctx, "h", id, 1, time.Minute); return err },
			"Confirm":              func() error { _, err := s.Confirm(ctx, id); return err },
			"Cancel":               func() error { _, err := s.Cancel(ctx, id); return err },
			"SettleBlock":          func() error { _, err := s.SettleBlock(ctx, id, 1); return err },
			"Grab":                 func() error { _, err := c.RedPacket("p").Grab(ctx, id); return err },
		} {
			refused(verb+" "+what, call(), rcounter.ErrInvalidName, what)
		}
	}
	for _, n := range []int64{0, -1, 1 << 53} {
		_, err := s.ClaimAny(ctx, n)
		refused("ClaimAny", err, rcounter.ErrInvalidOption, "n is", dec(n))
		_, err = s.ClaimOnce(ctx, "r", "u", n)
		refused("ClaimOnce", err, rcounter.ErrInvalidOption, "n is", dec(n))
		_, err = s.Reserve(ctx, "h", "u", n, time.Minute)
		refused("Reserve", err, rcounter.ErrInvalidOption, "n is", dec(n))
		refused("Resize", s.Resize(ctx, n), rcounter.ErrInvalidOption, "limit", dec(n))
		_, err = s.ReturnAny(ctx, rcounter.Grant{Outcome: rcounter.Granted, Ordinal: 5, N: n, Request: "a"})
		refused("ReturnAny", err, rcounter.ErrInvalidOption, "N is", dec(n))
		_, err = s.ReturnAny(ctx, rcounter.Grant{Outcome: rcounter.Granted, Ordinal: n, N: 1, Request: "a"})
		refused("ReturnAny", err, rcounter.ErrInvalidOption, "Ordinal", dec(n))
	}
	_, err = s.ReturnAny(ctx, rcounter.Grant{Outcome: rcounter.SoldOut, Ordinal: 5, N: 1, Request: "a"})
	refused("ReturnAny", err, rcounter.ErrInvalidOption, "grant", "sold out")
	_, err = s.ReturnAny(ctx, rcounter.Grant{Outcome: rcounter.Granted, Ordinal: 5, N: 1})
	refused("ReturnAny", err, rcounter.ErrInvalidOption, "Request")
	for _, ttl := range []time.Duration{0, -time.Second, time.Microsecond, rcounter.MaxLifetime + 1} {
		_, err = s.Reserve(ctx, "h", "u", 1, ttl)
		refused("Reserve", err, rcounter.ErrInvalidOption, "ttl", ttl.String())
	}
	nothing := func(context.Context, []rcounter.Entry) error { return nil }
	for _, max := range []int{0, -1, rcounter.MaxLedgerBatch + 1} {
		_, err = s.Ledger(ctx, max, nothing)
		refused("Ledger", err, rcounter.ErrInvalidOption, "max", strconv.Itoa(max))
	}
	_, err = s.Ledger(ctx, 1, nil)
	refused("Ledger", err, rcounter.ErrInvalidOption, "fn")
	refused("KeepLedger", s.KeepLedger(ctx, time.Second, 1, nil), rcounter.ErrInvalidOption, "fn")
	refused("KeepLedger", s.KeepLedger(ctx, 0, 1, nothing), rcounter.ErrInvalidOption, "every", "0s")
	refused("KeepReaped", s.KeepReaped(ctx, time.Microsecond), rcounter.ErrInvalidOption, "every", "1µs")
	_, err = s.Restore(ctx, nil)
	refused("Restore", err, rcounter.ErrInvalidOption, "winners")
	for _, o := range []int64{0, -1, 1 << 53} {
		_, err := s.Return(ctx, "u", o)
		refused("Return", err, rcounter.ErrInvalidOption, "ordinal", dec(o))
	}

	require.NoError(t, c.Close())
	for verb, call := range counterVerbs(k) {
		refused(verb, call(), rcounter.ErrClosed)
	}
	for verb, call := range stockVerbs(s) {
		refused(verb, call(), rcounter.ErrClosed)
	}
	refused("a counter made afterwards", c.Counter("x", rcounter.CounterOptions{}).Set(ctx, 1), rcounter.ErrClosed)
	require.NoError(t, c.Close(), "again")
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
	for verb, call := range shardedVerbs(c.Sharded("a{b}", 2)) {
		err := call()
		require.ErrorIs(t, err, rcounter.ErrInvalidName, verb)
		requirePrefix(t, err)
	}
	must(t, srv.Client(t), "SET", "rc:{s}", "another type")
	must(t, srv.Client(t), "RPUSH", "k", "another type")
	for verb, call := range stockVerbs(c.Stock("s")) {
		if verb == "Ledger" {
			continue // its key is another
		}
		err := call()
		require.ErrorIs(t, err, rcounter.ErrWrongType, verb)
		requirePrefix(t, err)
	}
	for verb, call := range counterVerbs(c.Counter("k", rcounter.CounterOptions{})) {
		err := call()
		require.ErrorIs(t, err, rcounter.ErrWrongType, verb)
		requirePrefix(t, err)
	}
	for _, err := range c.RedPacket("a{b}").Shares(ctx) {
		requirePrefix(t, err)
	}
	_, err := c.Stock("none").Confirm(ctx, "r")
	requirePrefix(t, err)
	sure := on(t, srv.Client(t), rcounter.Options{CallTimeout: patient.CallTimeout, MinReplicas: 1, ReplicaTimeout: time.Millisecond})
	_, err = opened(t, sure, "unsure", 1).Claim(ctx, "ann")
	require.ErrorIs(t, err, rcounter.ErrUnconfirmed)
	requirePrefix(t, err)
	l := c.RateLimiter("l", rcounter.RateLimiterOptions{Rate: 1, Per: time.Hour})
	require.NoError(t, l.Wait(ctx, "", 1))
	brief, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = l.Wait(brief, "", 1)
	require.ErrorIs(t, err, rcounter.ErrRateLimited)
	requirePrefix(t, err)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = c.Stock("other").Claim(ended, "ann")
	require.ErrorIs(t, err, context.Canceled)
	requirePrefix(t, err)

	mine := errors.New("mine")
	s := opened(t, c, "fresh", 1)
	_, err = s.Restore(ctx, func(yield func(rcounter.Entry, error) bool) { yield(rcounter.Entry{}, mine) })
	require.Same(t, mine, err, "the caller's own, as it is")
}

func TestNewRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	_, err := rcounter.New(nil, rcounter.Options{})
	require.ErrorIs(t, err, rcounter.ErrInvalidOption)
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
		{rcounter.Options{MinReplicas: -1}, []string{"MinReplicas", "-1"}},
		{rcounter.Options{ReplicaTimeout: -time.Second}, []string{"ReplicaTimeout", "-1s"}},
		{rcounter.Options{MinReplicas: 1, ReplicaTimeout: time.Microsecond}, []string{"ReplicaTimeout", "1µs"}},
		{rcounter.Options{CallTimeout: time.Second, ReplicaTimeout: time.Second}, []string{"ReplicaTimeout", "1s"}},
		{rcounter.Options{Combine: rcounter.Combine{MaxBatch: 129}}, []string{"MaxBatch", "129", "128"}},
		{rcounter.Options{Combine: rcounter.Combine{MaxBatch: -1}}, []string{"MaxBatch", "-1"}},
		{rcounter.Options{Combine: rcounter.Combine{MaxFlights: -1}}, []string{"MaxFlights", "-1"}},
		{rcounter.Options{Combine: rcounter.Combine{Window: -time.Second}}, []string{"Window", "-1s"}},
		{rcounter.Options{SoldOut: rcounter.SoldOutOptions{Trust: time.Millisecond}}, []string{"SoldOut.Trust", "1ms"}},
		{rcounter.Options{SoldOut: rcounter.SoldOutOptions{Trust: -time.Second}}, []string{"SoldOut.Trust", "-1s"}},
		{rcounter.Options{KeyPrefix: "a\xff"}, []string{"KeyPrefix", `"a\xff"`}},
		{rcounter.Options{KeyPrefix: "a\x00"}, []string{"KeyPrefix", `"a\x00"`}},
		{rcounter.Options{KeyPrefix: "shop{}:"}, []string{"KeyPrefix", `"shop{}:"`}},
		{rcounter.Options{KeyPrefix: "{}"}, []string{"KeyPrefix", `"{}"`}},
		{rcounter.Options{KeyPrefix: strings.Repeat("x", 64<<10)}, []string{"KeyPrefix", `"xxx`}},
	} {
		_, err := rcounter.New(h, tc.o)
		require.ErrorIs(t, err, rcounter.ErrInvalidOption)
		requirePrefix(t, err)
		for _, s := range tc.says {
			require.ErrorContains(t, err, s)
		}
	}
}

func TestTheLongestNamesAndClaimantsWork(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		longest := strings.Repeat("é", 32<<10)
		_, err := c.Counter(longest, rcounter.CounterOptions{}).Incr(ctx)
		require.NoError(t, err)
		s := opened(t, c, longest, 1)
		for _, claimant := range []string{strings.Repeat("x", rcounter.MaxClaimantLen), "\x01;0;\u00ff"} {
			_, err := s.Claim(ctx, claimant)
			require.NoError(t, err)
			_, _, err = s.Lookup(ctx, claimant)
			require.NoError(t, err)
		}
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
	require.NoError(t, c.Close())
	c, err = rcounter.New(h, rcounter.Options{})
	require.NoError(t, err)
	v, err := c.Counter("k", rcounter.CounterOptions{}).Incr(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, v)
}
