package rcounter_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

func TestAddOnce_EveryState_AnswersAsItsTable(t *testing.T) {
	t.Parallel()
	none := rcounter.CounterOptions{}
	few := rcounter.CounterOptions{Initial: 1, Max: bound(9)}
	cases := []struct {
		name     string
		o        rcounter.CounterOptions
		value    string
		ids      map[string]string // of the later hash, without from
		before   map[string]string // of the earlier one
		call, id string
		d        int64
		want     int64
		replayed bool
		err      error
		after    string
		added    map[string]string // to ids
	}{
		{"a counter that is not there", none, missing, nil, nil, "C", "x", 5, 5, false, nil, "5",
			map[string]string{":x": "C;5;5"}},
		{"its initial value", few, missing, nil, nil, "C", "x", 5, 6, false, nil, "6", map[string]string{":x": "C;5;6"}},
		{"one that is", none, "-7", nil, nil, "C", "x", -5, -12, false, nil, "-12", map[string]string{":x": "C;-5;-12"}},
		{"another id", none, "5", map[string]string{":x": "C;5;5"}, nil, "D", "y", 5, 10, false, nil, "10",
			map[string]string{":y": "D;5;10"}},
		{"an id that looks like a field", none, "5", nil, nil, "D", "from", 5, 10, false, nil, "10",
			map[string]string{":from": "D;5;10"}},
		{"nothing", none, "5", nil, nil, "D", "y", 0, 5, false, nil, "5", map[string]string{":y": "D;0;5"}},
		{"the same id", none, "8", map[string]string{":x": "C;5;5"}, nil, "D", "x", 5, 5, true, nil, "8", nil},
		{"the same id, of before", none, "8", nil, map[string]string{":x": "C;5;5"}, "D", "x", 5, 5, true, nil, "8", nil},
		{"the same call", none, "8", map[string]string{":x": "C;5;5"}, nil, "C", "x", 5, 5, false, nil, "8", nil},
		{"the same id and another number", none, "8", map[string]string{":x": "C;5;5"}, nil, "D", "x", 6, 0, false,
			errs.ErrMismatch, "8", nil},
		{"the same call and another number", none, "8", map[string]string{":x": "C;5;5"}, nil, "C", "x", -5, 0, false,
			errs.ErrMismatch, "8", nil},
		{"no record", none, "8", map[string]string{":x": "?"}, nil, "D", "x", 5, 0, false, errs.ErrWrongType, "8", nil},
		{"beyond Max", few, "8", nil, nil, "C", "x", 2, 0, false, errs.ErrOutOfRange, "8", nil},
		{"the same id, beyond Max by now", few, "9", map[string]string{":x": "C;5;8"}, nil, "D", "x", 5, 8, true, nil, "9",
			nil},
		{"beyond 64 bits", none, dec(maxInt), nil, nil, "C", "x", 1, 0, false, errs.ErrOverflow, dec(maxInt), nil},
		{"up to 64 bits", none, dec(maxInt - 1), nil, nil, "C", "x", 1, maxInt, false, nil, dec(maxInt),
			map[string]string{":x": "C;1;" + dec(maxInt)}},
		{"down to 64 bits", none, "0", nil, nil, "C", "x", minInt, minInt, false, nil, dec(minInt),
			map[string]string{":x": "C;" + dec(minInt) + ";" + dec(minInt)}},
		{"beyond 2^53", none, dec(p53), nil, nil, "C", "x", 1, p53 + 1, false, nil, dec(p53 + 1),
			map[string]string{":x": "C;1;" + dec(p53+1)}},
		{"no number", none, "1e3", nil, nil, "C", "x", 1, 0, false, errs.ErrWrongType, "1e3", nil},
		{"the same id, and the counter is no number any more", none, "1e3", map[string]string{":x": "C;5;5"}, nil, "D", "x",
			5, 5, true, nil, "1e3", nil},
		{"the same id, and the counter is gone", none, missing, map[string]string{":x": "C;5;5"}, nil, "D", "x", 5, 5, true,
			nil, missing, nil},
	}
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		client := on(t, c, patient)
		for _, second := range []bool{false, true} {
			for _, tc := range cases {
				t.Run(tc.name, func(t *testing.T) {
					later, earlier := client.Counter("k", none).IDKeys(tc.id)
					if second {
						later, earlier = earlier, later
					}
					must(t, c, "FLUSHALL")
					now := serverNow(t, c)
					put := func(key string, age time.Duration, ids map[string]string) {
						must(t, c, "HSET", key, "from", dec(now-age.Milliseconds()))
						for id, record := range ids {
							must(t, c, "HSET", key, id, record)
						}
						must(t, c, "PEXPIRE", key, dec((2*time.Hour - age).Milliseconds()))
					}
					put(later, 10*time.Minute, tc.ids)
					put(earlier, 100*time.Minute, tc.before)
					if tc.value != missing {
						must(t, c, "SET", "k", tc.value, "PX", "3600000")
					}
					k := client.Counter("k", tc.o)
					want := map[string]string{}
					maps.Copy(want, tc.ids)
					maps.Copy(want, tc.added)
					for range 2 { // and again: the script may run twice
						v, replayed, err := k.AddOnceAs(ctx, tc.call, tc.id, tc.d)
						require.ErrorIs(t, err, tc.err)
						if errors.Is(tc.err, errs.ErrOutOfRange) {
							require.Equal(t, tc.value, dec(v), "where it stands")
						} else {
							require.Equal(t, tc.want, v)
						}
						require.Equal(t, tc.replayed, replayed)
						require.Equal(t, tc.after, text(t, c, "GET", "k"))
						ids := hash(t, c, later)
						delete(ids, "from")
						require.Equal(t, want, ids)
						require.Len(t, hash(t, c, earlier), 1+len(tc.before))
					}
				})
			}
		}
	})
}

// An id is remembered for as long as it must be, and not much longer.
// age has the ids that AddOnce remembers for the counter k as if d had passed.
func age(t *testing.T, c rueidis.Client, d time.Duration) {
	for _, key := range slices.DeleteFunc(keys(t, c), func(key string) bool { return key == "k" }) {
		left := number(t, c, "PTTL", key) - d.Milliseconds()
		if left <= 0 {
			must(t, c, "DEL", key)
			continue
		}
		must(t, c, "HINCRBY", key, "from", dec(-d.Milliseconds()))
		must(t, c, "PEXPIRE", key, dec(left))
	}
}

func TestAddOnce_TimeOver_ForgetsTheID(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		k := on(t, c, patient).Counter("k", rcounter.CounterOptions{})
		added := map[string]time.Duration{} // id -> age
		sum, n := int64(0), 0
		for range redistest.Sized(80, 80, 300) {
			d := rand.N(25 * time.Minute)
			age(t, c, d)
			for id := range added {
				added[id] += d
			}
			n++
			fresh := strconv.Itoa(n)
			v, replayed, err := k.AddOnce(ctx, fresh, 3)
			require.NoError(t, err)
			require.False(t, replayed)
			sum += 3
			require.Equal(t, sum, v)
			added[fresh] = 0
			remembered := 0
			for _, key := range slices.DeleteFunc(keys(t, c), func(key string) bool { return key == "k" }) {
				if left := number(t, c, "PTTL", key); left != -2 {
					require.Positive(t, left)
					require.LessOrEqual(t, left, (2*time.Hour + 64*time.Second).Milliseconds())
				}
				for f := range hash(t, c, key) {
					if f == "from" {
						continue
					}
					remembered++
					require.LessOrEqual(t, added[f[1:]], 2*time.Hour+25*time.Minute)
				}
			}
			for id, age := range added {
				if age > time.Hour-time.Minute { // a minute for a busy machine
					if age > 3*time.Hour {
						delete(added, id)
					}
					continue
				}
				_, replayed, err := k.AddOnce(ctx, id, 3)
				require.NoError(t, err)
				require.True(t, replayed, "%s after %v", id, age)
			}
			require.Equal(t, dec(sum), text(t, c, "GET", "k"))
		}
	})
}
