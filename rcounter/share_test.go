package rcounter_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
)

// What each Add of a call is answered is what it would have been answered by a call of its own, one after the other.
func TestAdds_OneCall_AreAnsweredOneAfterTheOther(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	plain, top := rcounter.CounterOptions{}, rcounter.CounterOptions{Max: bound(10), Min: bound(-10)}
	full := rcounter.CounterOptions{Initial: 7, Min: bound(minInt), Max: bound(maxInt)}
	type add struct {
		key string
		o   rcounter.CounterOptions
		d   int64
	}
	for name, tc := range map[string]struct {
		before map[string]string
		adds   []add
		calls  int64 // to the server
	}{
		"one counter":          {nil, []add{{"a", plain, 1}, {"a", plain, 1}, {"a", plain, 5}}, 1},
		"one counter, down":    {nil, []add{{"a", plain, -1}, {"a", plain, -4}}, 1},
		"nothing among others": {nil, []add{{"a", plain, 0}, {"a", plain, 2}, {"a", plain, 0}}, 1},
		"up and down":          {nil, []add{{"a", plain, 1}, {"a", plain, -1}, {"a", plain, 1}}, 1},
		"two counters": {nil,
			[]add{{"a", plain, 1}, {"b", plain, 1}, {"a", plain, 1}, {"b", plain, 3}}, 1},
		"below Max": {nil, []add{{"a", top, 3}, {"a", top, 3}, {"a", top, 4}}, 1},
		"at Max": {map[string]string{"a": "10"},
			[]add{{"a", top, 1}, {"a", top, 2}, {"a", top, 1}}, 1},
		"the last before Max": {map[string]string{"a": "9"},
			[]add{{"a", top, 1}, {"a", top, 1}, {"a", top, 1}}, 2},
		"large ones do not pass": {map[string]string{"a": "5"},
			[]add{{"a", top, 6}, {"a", top, 3}, {"a", top, 2}, {"a", top, 1}}, 2},
		"nothing beyond Max": {map[string]string{"a": "30"},
			[]add{{"a", top, 0}, {"a", top, 1}, {"a", top, 2}}, 2},
		"at Min": {map[string]string{"a": "-9"}, []add{{"a", top, -1}, {"a", top, -1}}, 2},
		"other options of one key": {map[string]string{"a": "9"},
			[]add{{"a", top, 1}, {"a", plain, 1}, {"a", top, 1}, {"a", top, -1}}, 1},
		"64 bits": {map[string]string{"a": dec(maxInt - 3)},
			[]add{{"a", plain, 1}, {"a", plain, 1}, {"a", plain, 1}, {"a", plain, 1}}, 2},
		"more than 64 bits together": {nil, []add{{"a", plain, maxInt}, {"a", plain, maxInt}, {"a", plain, 1}}, 1},
		"from end to end": {nil,
			[]add{{"a", full, minInt}, {"a", full, maxInt}, {"a", full, maxInt}, {"a", full, maxInt}}, 2},
		"beyond 2^53": {map[string]string{"a": dec(p53 - 1), "b": "1"},
			[]add{{"a", plain, 1}, {"b", plain, 1}, {"a", plain, 1}, {"a", plain, -3}}, 1},
		"a key of another type": {map[string]string{"a": aList},
			[]add{{"a", plain, 1}, {"b", plain, 1}, {"a", plain, 1}, {"c", top, 1}}, 1},
		"a text": {map[string]string{"a": "x"},
			[]add{{"a", top, 1}, {"a", top, 1}, {"b", plain, 1}}, 1},
		"only keys of another type": {map[string]string{"a": aList}, []add{{"a", plain, 1}, {"a", plain, 1}}, 1},
		"an initial value that is at end": {nil,
			[]add{{"a", rcounter.CounterOptions{Initial: 10, Max: bound(10)}, 1},
				{"a", rcounter.CounterOptions{Initial: 10, Max: bound(10)}, 1}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				wire := &counting{Client: s.Client(t)}
				c, alone := on(t, wire, patient), on(t, s.Client(t), patient)
				reset := func() {
					must(t, s.Client(t), "FLUSHALL")
					for key, state := range tc.before {
						put(t, s, key, state)
					}
				}
				states := func() (all []string) {
					for _, key := range []string{"a", "b", "c"} {
						all = append(all, got(t, s, key))
					}
					return all
				}
				var adds []rcounter.Adding
				var want []rcounter.Added
				reset()
				for _, a := range tc.adds {
					adds = append(adds, rcounter.Adding{K: c.Counter(a.key, a.o), D: a.d})
					v, err := alone.Counter(a.key, a.o).Add(ctx, a.d)
					want = append(want, rcounter.Added{Value: v, Err: err})
				}
				after := states()
				reset()
				wire.Sent.Store(0)
				for i, a := range c.AddTogether(ctx, adds...) {
					for _, e := range []error{errs.ErrOutOfRange, errs.ErrOverflow, errs.ErrWrongType} {
						require.Equal(t, errors.Is(want[i].Err, e), errors.Is(a.Err, e), "%d: %v, not %v", i, a.Err, want[i].Err)
					}
					require.Equal(t, want[i].Err == nil, a.Err == nil, "%d: %v, not %v", i, a.Err, want[i].Err)
					if a.Err == nil || errors.Is(a.Err, errs.ErrOutOfRange) {
						require.Equal(t, want[i].Value, a.Value, "%d", i)
					}
				}
				require.Equal(t, after, states())
				require.LessOrEqual(t, wire.Sent.Load(), tc.calls+1, "EVALSHA, which may be followed by the text")
			})
		})
	}
}

// Every number is given out once, whoever shares a call with whom.
func TestSharedIncrs_Crowd_CountEachCallerOnce(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		const callers, each = 48, 25
		var shares redistest.Shares
		observed := patient
		observed.Observer = shares.Observe
		clients := []*rcounter.Client{on(t, s.Client(t), observed), on(t, s.Client(t), patient)}
		for name, o := range map[string]rcounter.CounterOptions{"plain": {}, "bounded": {Max: bound(callers*each - 100)}} {
			var mu sync.Mutex
			var values []int64
			refused := 0
			crowd(callers, each, func(caller, _ int) {
				v, err := clients[caller%2].Counter(name, o).Incr(ctx)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					values = append(values, v)
				case errors.Is(err, errs.ErrOutOfRange) && v == *o.Max:
					refused++
				default:
					t.Error(v, err)
				}
			})
			slices.Sort(values)
			require.Len(t, values, callers*each-refused)
			for i, v := range values {
				require.EqualValues(t, i+1, v)
			}
			if o.Max != nil {
				require.Equal(t, 100, refused)
			}
		}
		calls, adds := shares.Calls.Load(), shares.Requests.Load()
		require.Positive(t, calls)
		require.Greater(t, adds, 2*calls, "shared")
	})
}

func TestSharedIncr_ReplyLost_IsUnknownToAllAndCountsOnce(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		lose := atomic.Bool{}
		c := on(t, newLossy(t, s, lose.Load), patient)
		k, b := c.Counter("k", rcounter.CounterOptions{}), c.Counter("b", rcounter.CounterOptions{Max: bound(100)})
		two := []rcounter.Adding{{K: k, D: 1}, {K: b, D: 1}}
		for _, a := range c.AddTogether(ctx, two...) { // the server knows the script from here on
			require.NoError(t, a.Err)
		}
		lose.Store(true)
		for _, a := range c.AddTogether(ctx, rcounter.Adding{K: k, D: 1}, rcounter.Adding{K: k, D: 2},
			rcounter.Adding{K: b, D: 3}) {
			require.ErrorIs(t, a.Err, errs.ErrUnknownOutcome)
		}
		_, err := k.Incr(ctx) // alone
		require.ErrorIs(t, err, errs.ErrUnknownOutcome)
		require.Equal(t, "5", got(t, s, "k"))
		require.Equal(t, "4", got(t, s, "b"))
	})
}

// Adds of a Cluster share calls in their slots, and the ids of AddOnce are in the slot of their counter, whatever its
// name is: braces are the caller's.
func TestCounters_Cluster_ShareCallsInTheirSlots(t *testing.T) {
	t.Parallel()
	var shares redistest.Shares
	c := on(t, redistest.Cluster(t).Client(t), rcounter.Options{KeyPrefix: "shop:", CallTimeout: patient.CallTimeout,
		Observer: shares.Observe})
	const callers, each = 32, 12
	crowd(callers, each, func(caller, _ int) {
		for _, name := range []string{"all", "{tag}:" + dec(int64(caller%4)), dec(int64(caller % 8))} {
			if _, err := c.Counter(name, rcounter.CounterOptions{}).Incr(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	for name, want := range map[string]int64{"all": callers * each, "{tag}:1": callers / 4 * each,
		"5": callers / 8 * each} {
		v := redistest.NoError(c.Counter(name, rcounter.CounterOptions{}).Get(ctx))(t)
		require.Equal(t, want, v, name)
	}
	require.Positive(t, shares.Calls.Load())
	for _, name := range []string{"a{b}", "{a}b", "1", "2", "3", "4", "6"} {
		k := c.Counter(name, rcounter.CounterOptions{Max: bound(1000), TTL: time.Hour})
		want := redistest.NoError(k.Get(ctx))(t)
		for range 2 {
			v, _, err := k.AddOnce(ctx, "order", 4)
			require.NoError(t, err)
			require.Equal(t, want+4, v)
			v = redistest.NoError(k.Cached(ctx, time.Minute))(t)
			require.Equal(t, want+4, v)
		}
	}
}
