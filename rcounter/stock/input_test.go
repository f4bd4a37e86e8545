package stock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

func stockVerbs(s *stock.Stock) map[string]func() error {
	return map[string]func() error{
		"Open":    func() error { _, err := s.Open(ctx, spec(1)); return err },
		"Claim":   func() error { _, err := s.Claim(ctx, "u"); return err },
		"Lookup":  func() error { _, _, err := lookup(s, "u"); return err },
		"Return":  func() error { _, err := s.Return(ctx, stock.Units{Claimant: "u", Ordinal: 1}); return err },
		"Inspect": func() error { _, err := s.Inspect(ctx); return err },
		"EndSale": func() error { return s.EndSale(ctx) },

		"ClaimAny":   func() error { _, err := s.ClaimAny(ctx, 1); return err },
		"ClaimOnce":  func() error { _, err := s.Claim(ctx, "u", stock.Request{ID: "r", N: 1}); return err },
		"ReturnOnce": func() error { _, err := s.Return(ctx, stock.Units{Request: "r"}); return err },
		"ReturnAny":  func() error { _, err := s.Return(ctx, stock.Units{Request: "a", Ordinal: 1, N: 1}); return err },
		"Reserve": func() error {
			_, err := s.Reserve(ctx, "u", stock.Request{ID: "h", N: 1}, time.Minute)
			return inSomeOrder(err)
		},
		"ClaimUpTo":  func() error { _, err := s.Claim(ctx, "u", stock.Request{ID: "up to", N: 1, UpTo: true}); return err },
		"ReturnPart": func() error { _, err := s.Return(ctx, stock.Units{Request: "r", Keep: 1}); return err },
		"ReserveUpTo": func() error {
			_, err := s.Reserve(ctx, "u", stock.Request{ID: "h2", N: 1, UpTo: true}, time.Minute)
			return inSomeOrder(err)
		},
		"Confirm": func() error {
			_, err := s.Confirm(ctx, "h")
			return inSomeOrder(err)
		},
		"Confirm a part": func() error {
			_, err := s.Confirm(ctx, "h", stock.Paid(1))
			return inSomeOrder(err)
		},
		"Extend": func() error {
			_, err := s.Extend(ctx, "h", time.Minute)
			return inSomeOrder(err)
		},
		"Cancel": func() error { _, err := s.Cancel(ctx, "h"); return err },
		"Reap":   func() error { _, err := s.Reap(ctx); return err },
		"Resize": func() error { return s.Change(ctx, stock.Change{Limit: 100}) },
		"OpenOrJoin": func() error {
			_, err := s.OpenOrJoin(ctx, spec(1))
			if errors.Is(err, errs.ErrMismatch) { // an earlier one has resized it
				err = nil
			}
			return err
		},
		"Pause":    func() error { return s.Change(ctx, stock.Change{Pause: true}) },
		"Resume":   func() error { return s.Change(ctx, stock.Change{Resume: true}) },
		"SetEnd":   func() error { return s.Change(ctx, stock.Change{EndIn: stock.In(time.Hour)}) },
		"LookupID": func() error { _, err := s.Lookup(ctx, stock.Units{Request: "r"}); return err },
		"Units":    func() error { _, err := unitsOf(s, "u"); return err },
		"Holders": func() error {
			for _, err := range s.Holders(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"Ledger": func() error {
			_, err := s.Ledger(ctx, 1, func(context.Context, []stock.Entry) error { return nil })
			return err
		},
		"Restore": func() error {
			_, err := s.Restore(ctx, func(func(stock.Entry, error) bool) {})
			return err
		},
	}
}

// inSomeOrder is err, unless it is how a reservation answers when these verbs come in another order.
func inSomeOrder(err error) error {
	if errors.Is(err, stock.ErrNotFound) {
		return nil
	}
	return err
}

func TestBadInputIsRefusedByNameAndValueAndNothingIsSent(t *testing.T) {
	t.Parallel()
	wire := &counting{Client: redistest.Embedded(t).Client(t)}
	c := on(t, wire, patient)
	prefixed := on(t, wire, stock.Options{KeyPrefix: "shop{1}:"})
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
		for verb, call := range stockVerbs(c.Stock(name)) {
			refused(what+" "+verb, call(), errs.ErrInvalidName)
		}
	}
	for verb, call := range stockVerbs(c.Stock("a{b}")) {
		refused(verb, call(), errs.ErrInvalidName, `"a{b}"`)
	}
	for verb, call := range stockVerbs(prefixed.Stock("a")) {
		refused(verb, call(), errs.ErrInvalidName, `"shop{1}:a"`)
	}
	s := c.Stock("s")
	var err error
	for _, tc := range []struct {
		o    stock.Spec
		says []string
	}{
		{stock.Spec{}, []string{"Limit", "0"}},
		{stock.Spec{Limit: -1, OpenFor: time.Hour}, []string{"Limit", "-1"}},
		{stock.Spec{Limit: 1 << 53, OpenFor: time.Hour}, []string{"Limit", "9007199254740992", "9007199254740991"}},
		{stock.Spec{Limit: 1, PerUser: 1 << 53, OpenFor: time.Hour}, []string{"PerUser", "9007199254740992"}},
		{stock.Spec{Limit: 1, PerUser: -1, OpenFor: time.Hour}, []string{"PerUser", "-1"}},
		{stock.Spec{Limit: 1, StartIn: -time.Second, OpenFor: time.Hour}, []string{"StartIn", "-1s"}},
		{stock.Spec{Limit: 1}, []string{"OpenFor", "0s"}},
		{stock.Spec{Limit: 1, OpenFor: -time.Hour}, []string{"OpenFor", "-1h0m0s"}},
		{stock.Spec{Limit: 1, OpenFor: time.Microsecond}, []string{"OpenFor", "1µs"}},
		{stock.Spec{Limit: 1, OpenFor: time.Hour, Retain: -time.Second}, []string{"Retain", "-1s"}},
		{stock.Spec{Limit: 1, OpenFor: time.Hour, Retain: time.Microsecond}, []string{"Retain", "1µs"}},
		{stock.Spec{Limit: 1, StartIn: 1<<63 - 1, OpenFor: time.Hour}, []string{"StartIn"}},
		{stock.Spec{Limit: 1, OpenFor: 1<<63 - 1}, []string{"OpenFor"}},
		{stock.Spec{Limit: 1, OpenFor: time.Hour, Retain: 1<<63 - 1}, []string{"Retain"}},
		{stock.Spec{Limit: 1, StartIn: lifetime, OpenFor: lifetime}, []string{"StartIn + OpenFor + Retain"}},
		{stock.Spec{Limit: 1, StartIn: lifetime / 2, OpenFor: lifetime / 2}, []string{"StartIn + OpenFor + Retain"}},
	} {
		_, err := s.Open(ctx, tc.o)
		refused("Open", err, errs.ErrInvalidOption, tc.says...)
	}
	for what, tag := range map[string]string{"empty": "", "too long": long, "open brace": "a{b", "closing brace": "a}b",
		"a NUL byte": "a\x00b"} {
		for verb, call := range stockVerbs(c.Group(tag).Stock("a")) {
			refused(what+" "+verb, call(), errs.ErrInvalidName)
		}
		for verb, call := range stockVerbs(c.Group("sale").Stock(tag)) {
			refused(what+" "+verb, call(), errs.ErrInvalidName)
		}
		for verb, call := range cartVerbs(c.Group(tag), lines(1, "a", "b")) {
			refused(what+" "+verb, call("id"), errs.ErrInvalidName)
		}
		for verb, call := range cartVerbs(c.Group("sale"), lines(1, "a", tag)) {
			refused(what+" "+verb, call("id"), errs.ErrInvalidName)
		}
	}
	g := c.Group("sale")
	var many []stock.Line
	for i := range 17 {
		many = append(many, stock.Line{Stock: strconv.Itoa(i), N: 1})
	}
	for verb, call := range cartVerbs(g, many) {
		refused(verb, call("id"), errs.ErrInvalidOption, "17", "16")
	}
	for verb, call := range cartVerbs(g, lines(1, "b", "a", "b")) {
		refused(verb, call("id"), errs.ErrInvalidOption, `"b"`, "each of another stock")
	}
	for verb, call := range cartVerbs(g, lines(1, "a")) {
		refused(verb, call(""), errs.ErrInvalidName, "id")
	}
	for what, err := range map[string]error{
		`line "a": invalid option: N is 0`: second(g.Reserve(ctx, "u", stock.CartRequest{ID: "id", Lines: lines(0, "a")},
			time.Minute)),
		"lines is 0": second(g.Reserve(ctx, "u", stock.CartRequest{ID: "id", Lines: nil}, time.Minute)),
		"ttl is 0s":  second(g.Reserve(ctx, "u", stock.CartRequest{ID: "id", Lines: lines(1, "a")}, 0)),
	} {
		refused(what, err, errs.ErrInvalidOption, strings.Split(what, " is ")...)
	}
	refused("claimant", second(g.Reserve(ctx, "", stock.CartRequest{ID: "id", Lines: lines(1, "a")}, time.Minute)),
		errs.ErrInvalidName, "claimant")
	for what, claimant := range map[string]string{"empty": "", "1025": strings.Repeat("x", 1024+1), "UTF-8": "a\xff",
		`claimant "a\x00b" has a NUL`: "a\x00b"} {
		_, err := s.Claim(ctx, claimant)
		refused(what, err, errs.ErrInvalidName, what)
		_, _, err = lookup(s, claimant)
		refused(what, err, errs.ErrInvalidName, what)
		_, err = s.Return(ctx, stock.Units{Claimant: claimant, Ordinal: 1})
		refused(what, err, errs.ErrInvalidName, what)
	}
	long = strings.Repeat("x", 1024+1)
	for what, id := range map[string]string{"empty": "", "1025": long, "UTF-8": "a\xff", `"a\x00b" has a NUL`: "a\x00b"} {
		for verb, call := range map[string]func() error{
			"ClaimOnce":            func() error { _, err := s.Claim(ctx, "u", stock.Request{ID: id, N: 1}); return err },
			"ClaimOnce's claimant": func() error { _, err := s.Claim(ctx, id, stock.Request{ID: "r", N: 1}); return err },
			"ReturnOnce":           func() error { _, err := s.Return(ctx, stock.Units{Request: id}); return err },
			"Reserve": func() error {
				_, err := s.Reserve(ctx, "u", stock.Request{ID: id, N: 1}, time.Minute)
				return err
			},
			"Reserve's claimant": func() error {
				_, err := s.Reserve(ctx, id, stock.Request{ID: "h", N: 1}, time.Minute)
				return err
			},
			"LookupID": func() error { _, err := s.Lookup(ctx, stock.Units{Request: id}); return err },
			"Units":    func() error { _, err := unitsOf(s, id); return err },
			"ClaimUpTo": func() error {
				_, err := s.Claim(ctx, "u", stock.Request{ID: id, N: 1, UpTo: true})
				return err
			},
			"ReserveUpTo": func() error {
				_, err := s.Reserve(ctx, "u", stock.Request{ID: id, N: 1, UpTo: true}, time.Minute)
				return err
			},
			"Confirm":        func() error { _, err := s.Confirm(ctx, id); return err },
			"Confirm a part": func() error { _, err := s.Confirm(ctx, id, stock.Paid(1)); return err },
			"Extend":         func() error { _, err := s.Extend(ctx, id, time.Minute); return err },
			"ReturnPart":     func() error { _, err := s.Return(ctx, stock.Units{Request: id, Keep: 1}); return err },
			"Cancel":         func() error { _, err := s.Cancel(ctx, id); return err },
		} {
			refused(verb+" "+what, call(), errs.ErrInvalidName, what)
		}
	}
	for _, n := range []int64{0, -1, 1 << 53} {
		_, err := s.ClaimAny(ctx, n)
		refused("ClaimAny", err, errs.ErrInvalidOption, "n is", dec(n))
		_, err = s.Claim(ctx, "u", stock.Request{ID: "r", N: n})
		refused("ClaimOnce", err, errs.ErrInvalidOption, "N is", dec(n))
		_, err = s.Reserve(ctx, "u", stock.Request{ID: "h", N: n}, time.Minute)
		refused("Reserve", err, errs.ErrInvalidOption, "N is", dec(n))
		_, err = s.Claim(ctx, "u", stock.Request{ID: "r", N: n, UpTo: true})
		refused("ClaimUpTo", err, errs.ErrInvalidOption, "N is", dec(n))
		_, err = s.Reserve(ctx, "u", stock.Request{ID: "h", N: n, UpTo: true}, time.Minute)
		refused("ReserveUpTo", err, errs.ErrInvalidOption, "N is", dec(n))
		_, err = s.Confirm(ctx, "h", stock.Paid(n))
		refused("Confirm a part", err, errs.ErrInvalidOption, "paid is", dec(n))
		if n != 0 {
			_, err = s.Return(ctx, stock.Units{Request: "h", Keep: n})
			refused("Return", err, errs.ErrInvalidOption, "Keep is", dec(n))
			refused("Change", s.Change(ctx, stock.Change{Limit: n}), errs.ErrInvalidOption, "Limit is", dec(n))
			refused("Change", s.Change(ctx, stock.Change{PerUser: n}), errs.ErrInvalidOption, "PerUser is", dec(n))
		}
		_, err = s.Return(ctx, stock.Units{Request: "a", Ordinal: 5, N: n})
		refused("ReturnAny", err, errs.ErrInvalidOption, "N is", dec(n))
		_, err = s.Return(ctx, stock.Units{Request: "a", Ordinal: n, N: 1})
		refused("ReturnAny", err, errs.ErrInvalidOption, "Ordinal", dec(n))
	}
	for field, u := range map[string]stock.Units{
		"Claimant": {Claimant: "u", Request: "r"},
		"Keep":     {Claimant: "u", Ordinal: 1, Keep: 1},
		"Keep is":  {Request: "a", Ordinal: 1, N: 1, Keep: 1},
		"N is 2":   {Claimant: "u", Ordinal: 1, N: 2},
	} {
		_, err = s.Return(ctx, u)
		refused("Return", err, errs.ErrInvalidOption, field)
	}
	_, err = s.Return(ctx, stock.Units{})
	refused("Return", err, errs.ErrInvalidName, "claimant")
	for _, u := range []stock.Units{{Claimant: "u", Ordinal: 1}, {Request: "r", Keep: 1}, {Request: "r", N: 1}} {
		_, err = s.Lookup(ctx, u)
		refused("Lookup", err, errs.ErrInvalidOption, "units")
	}
	two := []stock.Request{{ID: "r", N: 1}, {ID: "q", N: 1}}
	_, err = s.Claim(ctx, "u", two...)
	refused("Claim", err, errs.ErrInvalidOption, "request is 2")
	_, err = s.Confirm(ctx, "h", 1, 2)
	refused("Confirm", err, errs.ErrInvalidOption, "paid is 2")
	refused("Change", s.Change(ctx, stock.Change{}), errs.ErrInvalidOption, "change")
	refused("Change", s.Change(ctx, stock.Change{Pause: true, Resume: true}), errs.ErrInvalidOption, "Resume")
	for _, ttl := range []time.Duration{0, -time.Second, time.Microsecond, lifetime + 1} {
		_, err = s.Reserve(ctx, "u", stock.Request{ID: "h", N: 1}, ttl)
		refused("Reserve", err, errs.ErrInvalidOption, "ttl", ttl.String())
		_, err = s.Reserve(ctx, "u", stock.Request{ID: "h", N: 1, UpTo: true}, ttl)
		refused("ReserveUpTo", err, errs.ErrInvalidOption, "ttl", ttl.String())
		_, err = s.Extend(ctx, "h", ttl)
		refused("Extend", err, errs.ErrInvalidOption, "ttl", ttl.String())
	}
	for _, in := range []time.Duration{-1, lifetime + 1} {
		refused("Change", s.Change(ctx, stock.Change{EndIn: stock.In(in)}), errs.ErrInvalidOption, "EndIn is", in.String())
		refused("Change", s.Change(ctx, stock.Change{StartIn: stock.In(in)}), errs.ErrInvalidOption, "StartIn is",
			in.String())
	}
	_, err = s.OpenOrJoin(ctx, stock.Spec{OpenFor: time.Hour})
	refused("OpenOrJoin", err, errs.ErrInvalidOption, "Limit", "0")
	nothing := func(context.Context, []stock.Entry) error { return nil }
	for _, n := range []int{0, -1, 10_000 + 1} {
		_, err = s.Ledger(ctx, n, nothing)
		refused("Ledger", err, errs.ErrInvalidOption, "n", strconv.Itoa(n))
	}
	_, err = s.Ledger(ctx, 1, nil)
	refused("Ledger", err, errs.ErrInvalidOption, "fn")
	refused("KeepLedger", s.KeepLedger(ctx, time.Second, 1, nil), errs.ErrInvalidOption, "fn")
	refused("KeepLedger", s.KeepLedger(ctx, 0, 1, nothing), errs.ErrInvalidOption, "every", "0s")
	refused("KeepReaped", s.KeepReaped(ctx, time.Microsecond), errs.ErrInvalidOption, "every", "1µs")
	for field, e := range map[string]stock.Entry{
		"Serial is 0":   {Epoch: 1, Kind: stock.KindGrant},
		"Epoch is -1":   {Epoch: -1, Serial: 1, Kind: stock.KindGrant},
		`Kind is ""`:    {Epoch: 1, Serial: 1},
		`Kind is "odd"`: {Epoch: 1, Serial: 1, Kind: "odd"},
	} {
		refused("Publish", s.Publish(ctx, []stock.Entry{{Epoch: 1, Serial: 1, Kind: stock.KindGrant}, e}),
			errs.ErrInvalidOption, field, "entry 1")
	}
	refused("Publish", s.Publish(ctx, make([]stock.Entry, 10_001)), errs.ErrInvalidOption, "entries is 10001")
	refused("Publish", s.Publish(ctx, []stock.Entry{{Epoch: 1, Serial: 1, Kind: stock.KindGrant, Claimant: "\xff"}}),
		errs.ErrInvalidName, "claimant")
	refused("Publish", s.Publish(ctx, []stock.Entry{{Epoch: 1, Serial: 1, Kind: stock.KindGrant, Request: "\x00"}}),
		errs.ErrInvalidName, "request")
	for _, err := range s.Events(ctx, 0) {
		refused("Events", err, errs.ErrInvalidOption, "every", "0s")
	}
	for _, err := range c.Stock("{s}").Events(ctx, time.Second) {
		refused("Events", err, errs.ErrInvalidName)
	}
	_, err = s.Restore(ctx, nil)
	refused("Restore", err, errs.ErrInvalidOption, "winners")
	for _, o := range []int64{0, -1, 1 << 53} {
		_, err := s.Return(ctx, stock.Units{Claimant: "u", Ordinal: o})
		refused("Return", err, errs.ErrInvalidOption, "Ordinal", dec(o))
	}

	require.NoError(t, c.Close(ctx))
	for verb, call := range stockVerbs(s) {
		refused(verb, call(), errs.ErrClosed)
	}
	_, err = c.Stock("x").Claim(ctx, "u")
	refused("a stock made afterwards", err, errs.ErrClosed)
	require.NoError(t, c.Close(ctx), "again")
}

// requirePrefix fails if the error does not begin with the package's name, once.
func requirePrefix(t testing.TB, err error) {
	t.Helper()
	require.True(t, strings.HasPrefix(err.Error(), "stock: "), err)
	require.Equal(t, 1, strings.Count(err.Error(), "stock: "), err)
}

// Whatever kind of error it is, and wherever it comes from.
func TestEveryErrorBeginsWithThePackagesNameOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), patient)
	for verb, call := range stockVerbs(c.Stock("a{b}")) {
		err := call()
		require.ErrorIs(t, err, errs.ErrInvalidName, verb)
		requirePrefix(t, err)
	}
	must(t, srv.Client(t), "SET", "rc:{s}", "another type")
	for verb, call := range stockVerbs(c.Stock("s")) {
		if verb == "Ledger" {
			continue // its key is another
		}
		err := call()
		require.ErrorIs(t, err, errs.ErrWrongType, verb)
		requirePrefix(t, err)
	}
	_, err := c.Stock("none").Confirm(ctx, "r")
	requirePrefix(t, err)
	sure := on(t, srv.Client(t),
		stock.Options{CallTimeout: patient.CallTimeout, MinReplicas: 1, ReplicaTimeout: time.Millisecond})
	_, err = opened(t, sure, "unsure", 1).Claim(ctx, "ann")
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	requirePrefix(t, err)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = c.Stock("other").Claim(ended, "ann")
	require.ErrorIs(t, err, context.Canceled)
	requirePrefix(t, err)

	mine := errors.New("mine")
	s := opened(t, c, "fresh", 1)
	_, err = s.Restore(ctx, func(yield func(stock.Entry, error) bool) { yield(stock.Entry{}, mine) })
	require.Same(t, mine, err, "the caller's own, as it is")
}

func TestNewRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	_, err := stock.New(nil, stock.Options{})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "hub is nil")

	h, err := pubsub.New(redistest.Embedded(t).Client(t), pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { h.Close(context.Background()) })
	for _, tc := range []struct {
		o    stock.Options
		says []string
	}{
		{stock.Options{CallTimeout: -time.Second}, []string{"CallTimeout", "-1s"}},
		{stock.Options{CallTimeout: time.Microsecond}, []string{"CallTimeout", "1µs"}},
		{stock.Options{MinReplicas: -1}, []string{"MinReplicas", "-1"}},
		{stock.Options{ReplicaTimeout: -time.Second}, []string{"ReplicaTimeout", "-1s"}},
		{stock.Options{MinReplicas: 1, ReplicaTimeout: time.Microsecond}, []string{"ReplicaTimeout", "1µs"}},
		{stock.Options{CallTimeout: time.Second, ReplicaTimeout: time.Second}, []string{"ReplicaTimeout", "1s"}},
		{stock.Options{MaxBatch: 129}, []string{"MaxBatch", "129", "128"}},
		{stock.Options{MaxCalls: -1}, []string{"MaxCalls", "-1"}},
		{stock.Options{BatchWindow: -time.Second}, []string{"BatchWindow", "-1s"}},
		{stock.Options{SoldOutTrust: time.Millisecond}, []string{"SoldOutTrust", "1ms"}},
		{stock.Options{SoldOutTrust: 101 * 365 * 24 * time.Hour}, []string{"SoldOutTrust", "884760h"}},
		{stock.Options{KeyPrefix: "a\xff"}, []string{"KeyPrefix", `"a\xff"`}},
		{stock.Options{KeyPrefix: "a\x00"}, []string{"KeyPrefix", `"a\x00"`}},
		{stock.Options{KeyPrefix: "shop{}:"}, []string{"KeyPrefix", `"shop{}:"`}},
		{stock.Options{KeyPrefix: "{}"}, []string{"KeyPrefix", `"{}"`}},
		{stock.Options{KeyPrefix: strings.Repeat("x", 64<<10)}, []string{"KeyPrefix", `"xxx`}},
	} {
		_, err := stock.New(h, tc.o)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
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
		s := opened(t, c, longest, 1)
		for _, claimant := range []string{strings.Repeat("x", 1024), "\x01;0;\u00ff"} {
			_, err := s.Claim(ctx, claimant)
			require.NoError(t, err)
			_, _, err = lookup(s, claimant)
			require.NoError(t, err)
		}
	})
}

func second[A any](_ A, err error) error { return err }

// cartVerbs are the verbs of a cart with an id.
func cartVerbs(g *stock.Group, lines []stock.Line) map[string]func(id string) error {
	names := namesOf(lines)
	return map[string]func(id string) error{
		"Reserve": func(id string) error {
			return second(g.Reserve(ctx, "u", stock.CartRequest{ID: id, Lines: lines}, time.Minute))
		},
		"Confirm": func(id string) error { return second(g.Confirm(ctx, id, lines...)) },
		"Extend":  func(id string) error { return second(g.Extend(ctx, id, time.Minute, names...)) },
		"Lookup":  func(id string) error { return second(g.Lookup(ctx, id, names...)) },
		"Cancel":  func(id string) error { return second(g.Cancel(ctx, id, names...)) },
		"Return":  func(id string) error { return second(g.Return(ctx, id, names...)) },
	}
}
