package rcounter_test

import (
	"context"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
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
		sum := redistest.NoError(k.Add(ctx, 1))(t)
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
	v := redistest.NoError(k.Incr(ctx))(t)
	require.EqualValues(t, 1, v)
	v = redistest.NoError(k.Decr(ctx))(t)
	require.EqualValues(t, 0, v)
	v = redistest.NoError(k.Add(ctx, -7))(t)
	require.EqualValues(t, -7, v)
	v = redistest.NoError(k.Get(ctx))(t)
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

func TestCounterOptions_BoundsChanged_AreCopies(t *testing.T) {
	t.Parallel()
	c := on(t, redistest.Embedded(t).Client(t), patient)
	limit := bound(1)
	k := c.Counter("k", rcounter.CounterOptions{Max: limit})
	*limit = 100
	redistest.NoError(k.Incr(ctx))(t)
	_, err := k.Incr(ctx)
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

func TestCounter_TTLOver_StartsAtInitial(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	k := on(t, s.Client(t), patient).Counter("k", rcounter.CounterOptions{Initial: 10, Min: bound(0), TTL: time.Minute})
	v := redistest.NoError(k.Decr(ctx))(t)
	require.EqualValues(t, 9, v)
	s.Embedded.FastForward(time.Minute)
	v = redistest.NoError(k.Get(ctx))(t)
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
