package rcounter_test

import (
	"context"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

const (
	maxInt = math.MaxInt64
	minInt = math.MinInt64
	p53    = int64(1) << 53
)

var bound = rcounter.Bound

// state of a counter's key in the tables: its string, or missing, or a list.
const (
	missing = "(nil)"
	aList   = "(list)"
)

func TestAdd_EveryState_AnswersAsItsTable(t *testing.T) {
	t.Parallel()
	none := rcounter.CounterOptions{Initial: 1} // no bounds, and yet the script: Redis' own INCRBY knows no initial value
	max := func(v int64) rcounter.CounterOptions { return rcounter.CounterOptions{Max: bound(v)} }
	min := func(v int64) rcounter.CounterOptions { return rcounter.CounterOptions{Min: bound(v)} }
	from := func(initial, lo, hi int64) rcounter.CounterOptions {
		return rcounter.CounterOptions{Initial: initial, Min: bound(lo), Max: bound(hi)}
	}
	full := from(0, minInt, maxInt)
	huge := strconv.FormatUint(1<<63, 10) // 2^63, one more than there is
	cases := []struct {
		name  string
		state string
		o     rcounter.CounterOptions
		d     int64
		err   error
		after string // the result too, if err is nil
	}{
		{"first of N", missing, max(3), 1, nil, "1"},
		{"last of N", "2", max(3), 1, nil, "3"},
		{"beyond N", "3", max(3), 1, errs.ErrOutOfRange, "3"},
		{"beyond N by more", "2", max(3), 2, errs.ErrOutOfRange, "2"},
		{"missing and beyond at once", missing, max(3), 4, errs.ErrOutOfRange, missing},
		{"down is not held to Max", "3", max(3), -1, nil, "2"},
		{"back towards a Max that was passed", "9", max(3), -1, nil, "8"},
		{"on from a Max that was passed", "9", max(3), 1, errs.ErrOutOfRange, "9"},
		{"stock of 2, first", missing, from(2, 0, 2), -1, nil, "1"},
		{"stock of 2, last", "1", from(2, 0, 2), -1, nil, "0"},
		{"stock of 2, none left", "0", from(2, 0, 2), -1, errs.ErrOutOfRange, "0"},
		{"stock of 2, more than there are", missing, from(2, 0, 2), -3, errs.ErrOutOfRange, missing},
		{"up is not held to Min", "-5", min(0), 1, nil, "-4"},
		{"negative bounds", "-8", from(-5, -9, -5), -1, nil, "-9"},
		{"negative bounds, beyond", "-9", from(-5, -9, -5), -1, errs.ErrOutOfRange, "-9"},
		{"through zero", "-1", from(0, -3, 3), 2, nil, "1"},
		{"nothing added to nothing", missing, from(5, 0, 9), 0, nil, "5"},
		{"nothing added beyond a bound", "11", from(5, 0, 9), 0, nil, "11"},
		{"initial alone", missing, none, 1, nil, "2"},

		{"up to 2^63-1", dec(maxInt - 1), none, 1, nil, dec(maxInt)},
		{"beyond 2^63-1", dec(maxInt), none, 1, errs.ErrOverflow, dec(maxInt)},
		{"beyond a Max of 2^63-1", dec(maxInt), full, 1, errs.ErrOutOfRange, dec(maxInt)},
		{"down to -2^63", dec(minInt + 1), none, -1, nil, dec(minInt)},
		{"beyond -2^63", dec(minInt), none, -1, errs.ErrOverflow, dec(minInt)},
		{"adding -2^63", "0", none, minInt, nil, dec(minInt)},
		{"adding -2^63 to less than 0", "-1", none, minInt, errs.ErrOverflow, "-1"},
		{"from end to end", dec(minInt), none, maxInt, nil, "-1"},
		{"a limit beyond 64 bits", "-7", from(-5, -9, -5), maxInt, errs.ErrOutOfRange, "-7"},
		{"the other limit beyond 64 bits", "7", from(5, 5, 9), minInt, errs.ErrOutOfRange, "7"},
		{"an initial value that overflows", missing, rcounter.CounterOptions{Initial: maxInt}, 1, errs.ErrOverflow,
			missing},

		{"empty", "", full, 1, errs.ErrWrongType, ""},
		{"space after", "10 ", full, 1, errs.ErrWrongType, "10 "},
		{"space before", " 10", full, 1, errs.ErrWrongType, " 10"},
		{"newline after", "10\n", full, 1, errs.ErrWrongType, "10\n"},
		{"leading zero", "010", full, 1, errs.ErrWrongType, "010"},
		{"plus", "+10", full, 1, errs.ErrWrongType, "+10"},
		{"fraction", "1.0", full, 1, errs.ErrWrongType, "1.0"},
		{"exponent", "1e3", full, 1, errs.ErrWrongType, "1e3"},
		{"hexadecimal", "0x10", full, 1, errs.ErrWrongType, "0x10"},
		{"minus zero", "-0", full, 1, errs.ErrWrongType, "-0"},
		{"minus", "-", full, 1, errs.ErrWrongType, "-"},
		{"2^63", huge, full, -1, errs.ErrWrongType, huge},
		{"-2^63-1", "-9223372036854775809", full, 1, errs.ErrWrongType, "-9223372036854775809"},
		{"30 digits", "123456789012345678901234567890", full, 1, errs.ErrWrongType, "123456789012345678901234567890"},
		{"text", "abc", full, 1, errs.ErrWrongType, "abc"},
		{"a list", aList, full, 1, errs.ErrWrongType, aList},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		raw := s.Client(t)
		c := on(t, raw, patient)
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) {
				put(t, s, "k", tc.state)
				v, err := c.Counter("k", tc.o).Add(ctx, tc.d)
				require.ErrorIs(t, err, tc.err)
				if tc.err == nil {
					require.Equal(t, tc.after, dec(v))
				} else if errors.Is(tc.err, errs.ErrOutOfRange) {
					stands := tc.state
					if stands == missing {
						stands = dec(tc.o.Initial)
					}
					require.Equal(t, stands, dec(v), "where it stands")
				} else {
					require.Zero(t, v)
				}
				require.Equal(t, tc.after, got(t, s, "k"))
			})
		}
	})
}

// put makes key what state says; got is the reverse.
func put(t testing.TB, s *redistest.Server, key, state string) {
	t.Helper()
	c := s.Client(t)
	must(t, c, "DEL", key)
	switch state {
	case missing:
	case aList:
		must(t, c, "RPUSH", key, "x")
	default:
		must(t, c, "SET", key, state)
	}
}

func got(t testing.TB, s *redistest.Server, key string) string {
	t.Helper()
	c := s.Client(t)
	switch text(t, c, "TYPE", key) {
	case "none":
		return missing
	case "list":
		require.EqualValues(t, 1, number(t, c, "LLEN", key))
		return aList
	}
	return text(t, c, "GET", key)
}

// Counters without options are Redis' own commands. The embedded server reads numbers as Go does ("010" is ten
// there), so the plain verbs' strictness is a real server's only.
func TestPlainCounter_OddValues_KeepsTheRulesOfINCR(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	k := on(t, s.Client(t), patient).Counter("k", rcounter.CounterOptions{})
	for _, bad := range []string{"", "10 ", " 10", "010", "+10", "1.0", "1e3", "-0", "abc", "9223372036854775808", aList} {
		put(t, s, "k", bad)
		_, err := k.Incr(ctx)
		require.ErrorIs(t, err, errs.ErrWrongType, "%q", bad)
		_, err = k.Decr(ctx)
		require.ErrorIs(t, err, errs.ErrWrongType, "%q", bad)
		_, err = k.Add(ctx, 5)
		require.ErrorIs(t, err, errs.ErrWrongType, "%q", bad)
		_, err = k.Get(ctx)
		require.ErrorIs(t, err, errs.ErrWrongType, "%q", bad)
		_, err = k.CompareAndSet(ctx, 10, 11)
		require.ErrorIs(t, err, errs.ErrWrongType, "%q", bad)
		require.Equal(t, bad, got(t, s, "k"), "left as it was")
	}
	put(t, s, "k", dec(maxInt))
	_, err := k.Incr(ctx)
	require.ErrorIs(t, err, errs.ErrOverflow)
	put(t, s, "k", dec(minInt))
	_, err = k.Decr(ctx)
	require.ErrorIs(t, err, errs.ErrOverflow)
	put(t, s, "k", "-1")
	_, err = k.Add(ctx, minInt)
	require.ErrorIs(t, err, errs.ErrOverflow)
	require.Equal(t, "-1", got(t, s, "k"))
	for _, v := range []int64{p53 - 1, p53, p53 + 1, maxInt - 1, minInt} {
		put(t, s, "k", dec(v))
		sum, err := k.Add(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, v+1, sum)
	}
}

func TestPlainCounter_Verbs_AreRedissonsAtomicLong(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	k := on(t, c, rcounter.Options{KeyPrefix: "p:", CallTimeout: patient.CallTimeout}).Counter("hits",
		rcounter.CounterOptions{})
	before := redistest.CommandCalls(t, c)
	v, err := k.Incr(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, v)
	v, err = k.Decr(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 0, v)
	v, err = k.Add(ctx, -7)
	require.NoError(t, err)
	require.EqualValues(t, -7, v)
	v, err = k.Get(ctx)
	require.NoError(t, err)
	require.EqualValues(t, -7, v)
	after := redistest.CommandCalls(t, c)
	for cmd, n := range map[string]int{"incr": 1, "decr": 1, "incrby": 1, "get": 1, "evalsha": 0, "eval": 0} {
		require.Equal(t, n, after[cmd]-before[cmd], cmd)
	}
	require.Equal(t, "-7", text(t, c, "GET", "p:hits"))
	require.EqualValues(t, -1, number(t, c, "PTTL", "p:hits"), "RAtomicLong has no end")
}

func TestAdd_RandomNumbers_AgreesWithBigIntegers(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	points := []int64{0, 1, -1, 9, -10, p53, p53 + 1, -p53 - 1, 1e10, 1e11 - 1, -1e10, maxInt, maxInt - 1, minInt,
		minInt + 1}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		seed := redistest.Seeds(t, 1)[0]
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 0))
		pick := func() int64 {
			if rnd.IntN(3) == 0 {
				return int64(rnd.Uint64()) >> rnd.IntN(64)
			}
			return points[rnd.IntN(len(points))]
		}
		raw := s.Client(t)
		c := on(t, raw, patient)
		for range 400 {
			v, d := pick(), pick()
			o := rcounter.CounterOptions{TTL: time.Hour}
			lo, hi := int64(minInt), int64(maxInt)
			if rnd.IntN(2) == 0 {
				lo = min(pick(), 0) // Initial is 0
				o.Min = bound(lo)
			}
			if rnd.IntN(2) == 0 {
				hi = max(pick(), 0)
				o.Max = bound(hi)
			}
			must(t, raw, "SET", "k", dec(v))
			sum := new(big.Int).Add(big.NewInt(v), big.NewInt(d))
			refused := d > 0 && sum.Cmp(big.NewInt(hi)) > 0 || d < 0 && sum.Cmp(big.NewInt(lo)) < 0
			got, err := c.Counter("k", o).Add(ctx, d)
			if refused {
				require.True(t, errors.Is(err, errs.ErrOutOfRange) || errors.Is(err, errs.ErrOverflow),
					"%d + %d in [%d, %d]: %v", v, d, lo, hi, err)
				require.Equal(t, dec(v), text(t, raw, "GET", "k"))
			} else {
				require.NoError(t, err, "%d + %d in [%d, %d]", v, d, lo, hi)
				require.Equal(t, sum.String(), dec(got))
				require.Equal(t, sum.String(), text(t, raw, "GET", "k"))
			}
			requireEnds(t, raw)
		}
	})
}

func TestSetAndCompareAndSet_EveryState_AnswersAsItsTable(t *testing.T) {
	t.Parallel()
	o := rcounter.CounterOptions{Initial: 5, Min: bound(0), Max: bound(maxInt)}
	zero := rcounter.CounterOptions{}
	type result struct {
		ok  bool
		err error
	}
	set := func(v int64) func(*rcounter.Counter) result {
		return func(k *rcounter.Counter) result { err := k.Set(ctx, v); return result{err == nil, err} }
	}
	cas := func(old, next int64) func(*rcounter.Counter) result {
		return func(k *rcounter.Counter) result { ok, err := k.CompareAndSet(ctx, old, next); return result{ok, err} }
	}
	cases := []struct {
		name  string
		state string
		o     rcounter.CounterOptions
		act   func(*rcounter.Counter) result
		ok    bool
		err   error
		after string
	}{
		{"set what is missing", missing, o, set(7), true, nil, "7"},
		{"set again", "7", o, set(8), true, nil, "8"},
		{"set exactly", "7", o, set(p53 + 1), true, nil, dec(p53 + 1)},
		{"set text", "abc", o, set(8), true, nil, "8"},
		{"set beyond Min", "7", o, set(-1), false, errs.ErrOutOfRange, "7"},
		{"set a list", aList, o, set(8), false, errs.ErrWrongType, aList},
		{"set a list, plain", aList, zero, set(8), false, errs.ErrWrongType, aList},
		{"expected", "7", o, cas(7, 8), true, nil, "8"},
		{"not expected", "7", o, cas(6, 8), false, nil, "7"},
		{"missing is Initial", missing, o, cas(5, 8), true, nil, "8"},
		{"missing is not 0 with Initial 5", missing, o, cas(0, 8), false, nil, missing},
		{"missing is 0", missing, zero, cas(0, 8), true, nil, "8"},
		{"missing is not 1", missing, zero, cas(1, 8), false, nil, missing},
		{"one bit above 2^53", dec(p53 + 1), o, cas(p53, 8), false, nil, dec(p53 + 1)},
		{"exactly above 2^53", dec(p53 + 1), o, cas(p53+1, maxInt), true, nil, dec(maxInt)},
		{"next beyond Min", "7", o, cas(7, -1), false, errs.ErrOutOfRange, "7"},
		{"compare with 010", "010", o, cas(10, 8), false, errs.ErrWrongType, "010"},
		{"compare with -0", "-0", zero, cas(0, 8), false, errs.ErrWrongType, "-0"},
		{"compare with 2^63", "9223372036854775808", zero, cas(0, 8), false, errs.ErrWrongType, "9223372036854775808"},
		{"compare with a list", aList, o, cas(5, 8), false, errs.ErrWrongType, aList},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := on(t, s.Client(t), patient)
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) {
				put(t, s, "k", tc.state)
				r := tc.act(c.Counter("k", tc.o))
				require.ErrorIs(t, r.err, tc.err)
				require.Equal(t, tc.ok, r.ok)
				require.Equal(t, tc.after, got(t, s, "k"))
			})
		}
	})
}

func TestCounterOptions_BoundsChanged_AreCopies(t *testing.T) {
	t.Parallel()
	c := on(t, redistest.Embedded(t).Client(t), patient)
	limit := bound(1)
	k := c.Counter("k", rcounter.CounterOptions{Max: limit})
	*limit = 100
	_, err := k.Incr(ctx)
	require.NoError(t, err)
	_, err = k.Incr(ctx)
	require.ErrorIs(t, err, errs.ErrOutOfRange)
}

func TestCounter_TTL_IsSetOnceAndRepaired(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		raw := s.Client(t)
		c := on(t, raw, patient)
		k := c.Counter("k", rcounter.CounterOptions{Max: bound(3), TTL: time.Hour})
		ttl := func() int64 { return number(t, raw, "PTTL", "k") }
		verbs := map[string]func() error{
			"Incr":          func() error { _, err := k.Incr(ctx); return err },
			"Decr":          func() error { _, err := k.Decr(ctx); return err },
			"Add 0":         func() error { _, err := k.Add(ctx, 0); return err },
			"Set":           func() error { return k.Set(ctx, 2) },
			"CompareAndSet": func() error { _, err := k.CompareAndSet(ctx, 0, 2); return err },
		}
		for name, verb := range verbs {
			must(t, raw, "DEL", "k")
			require.NoError(t, verb(), name)
			require.Greater(t, ttl(), int64(30*60*1000), "%s creates with the TTL", name)

			must(t, raw, "PEXPIRE", "k", "600000")
			must(t, raw, "SET", "k", "0", "KEEPTTL")
			require.NoError(t, verb(), name)
			require.LessOrEqual(t, ttl(), int64(600000), "%s does not prolong", name)
			require.Positive(t, ttl(), "%s keeps the TTL", name)

			must(t, raw, "SET", "k", "0")
			require.NoError(t, verb(), name)
			require.Greater(t, ttl(), int64(30*60*1000), "%s repairs", name)
		}
		// A counter at its bound and without an end would refuse everybody forever.
		must(t, raw, "SET", "k", "3")
		require.ErrorIs(t, verbs["Incr"](), errs.ErrOutOfRange)
		require.Positive(t, ttl(), "a refusal repairs too")
		require.Equal(t, "3", text(t, raw, "GET", "k"))
	})
}

func TestCounter_NoTTL_KeepsTheExpiryItFinds(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		raw := s.Client(t)
		for _, o := range []rcounter.CounterOptions{{}, {Max: bound(100)}} {
			k := on(t, raw, patient).Counter("k", o)
			must(t, raw, "SET", "k", "1", "PX", "600000")
			_, err := k.Incr(ctx)
			require.NoError(t, err)
			require.NoError(t, k.Set(ctx, 5))
			ok, err := k.CompareAndSet(ctx, 5, 6)
			require.NoError(t, err)
			require.True(t, ok)
			require.Positive(t, number(t, raw, "PTTL", "k"))
		}
	})
}

func TestCounter_TTLOver_StartsAtInitial(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	k := on(t, s.Client(t), patient).Counter("k", rcounter.CounterOptions{Initial: 10, Min: bound(0), TTL: time.Minute})
	v, err := k.Decr(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 9, v)
	s.Embedded.FastForward(time.Minute)
	v, err = k.Get(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 10, v)
}

func TestCounter_ServerFull_CountsNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	control := srv.Client(t)
	k := on(t, srv.Client(t), patient).Counter("k", rcounter.CounterOptions{Initial: 3, Min: bound(0), TTL: time.Hour})
	must(t, control, "CONFIG", "SET", "maxmemory", "1")
	// refused again and again until ctx ends; if it ends while an answer is awaited, that is all that is known
	redistest.Eventually(t, 10*time.Second, "Decr is ErrUnavailable", func() bool {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err := k.Decr(short)
		require.Error(t, err)
		return errors.Is(err, errs.ErrUnavailable)
	})
	require.Equal(t, "(nil)", text(t, control, "GET", "k"))
}
