package script_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// asked returns what an expression of clock.lua is where the server's clock stands at an instant.
func asked(t *testing.T, s *redistest.Server, at time.Time, expression string) string {
	t.Helper()
	libraries := "clock"
	if strings.Contains(expression, "renewal_reply") {
		libraries = "clock, renewal"
	}
	text := redistest.NoError(script.Compose(lua(map[string]string{"ask": "-- uses: " + libraries +
		"\nlocal now = clock()\nreturn tostring(" + expression + ")\n"}), "ask"))(t)
	s.Embedded.SetTime(at)
	c := s.Client(t)
	got := redistest.NoError(c.Do(within(t), c.B().Eval().Script(text).Numkeys(1).Key("z").Build()).ToString())(t)
	return got
}

func TestClockLua_Instant_HasItsMillisecondWholly(t *testing.T) {
	s := redistest.Embedded(t)
	at := time.Now().Truncate(time.Millisecond)
	ms := at.UnixMilli()
	for _, c := range []struct {
		after                time.Duration
		expired, begun, late bool
		ttl                  string
	}{
		{-time.Microsecond, false, false, false, "1"},
		{0, false, true, false, "1"}, // a TTL of 0 would remove the key at once
		{time.Millisecond - time.Microsecond, false, true, false, "1"},
		{time.Millisecond, true, true, true, "1"},
	} {
		at := at.Add(c.after)
		require.Equal(t, c.expired, script.Left(ms, at.UnixMilli()) == 0, "%v", c.after)
		require.Equal(t, fmt.Sprint(c.expired), asked(t, s, at, fmt.Sprintf("expired('%d', now)", ms)), "%v", c.after)
		require.Equal(t, fmt.Sprint(c.begun), asked(t, s, at, fmt.Sprintf("begun(%d, now)", ms)), "%v", c.after)
		require.Equal(t, fmt.Sprint(c.late), asked(t, s, at, fmt.Sprintf("late('%d', now)", ms)), "%v", c.after)
		require.Equal(t, "false", asked(t, s, at, "late('0', now)"), "it waits for any time")
		require.Equal(t, c.ttl, asked(t, s, at, fmt.Sprintf("ttl_until(%d, now)", ms)), "%v", c.after)
		in := asked(t, s, at,
			fmt.Sprintf("redis.call('ZADD', 'z', %d, 'x') and redis.call('ZCOUNT', 'z', '-inf', elapsed(now))", ms))
		require.Equal(t, map[bool]string{false: "0", true: "1"}[c.expired], in, "%v", c.after)
	}
}

// What lasts by a key's own end lasts as long as what lasts by an instant that is written down: to the end of its
// millisecond.
func TestServer_KeysMillisecondNotOver_KeepsIt(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	micros := func(text string) (there, at int64) {
		v := redistest.NoError(c.Do(within(t), c.B().Eval().Script(text).Numkeys(1).Key("k").Build()).AsIntSlice())(t)
		return v[0], v[1]*1_000_000 + v[2]
	}
	const set = "local t = redis.call('TIME') redis.call('SET', KEYS[1], 'x', 'PX', 2) return {1, tonumber(t[1]), " +
		"tonumber(t[2])}"
	look := "local there, t = redis.call('EXISTS', KEYS[1]), redis.call('TIME') return {there, tonumber(t[1]), " +
		"tonumber(t[2])}"
	for range redistest.Sized(200, 200, 2000) {
		_, began := micros(set)
		for there := int64(1); there == 1; {
			var now int64
			if there, now = micros(look); there == 0 {
				require.GreaterOrEqual(t, now-began, int64(2000))
			}
		}
	}
}

// How long a hold lasts is said in whole milliseconds, and its holder counts them from before it asked.
func TestVerdict_WholeMilliseconds_IsNotTooLong(t *testing.T) {
	s := redistest.Embedded(t)
	at := time.Now().Truncate(time.Millisecond)
	for left, want := range map[int64]string{3: "4", 1: "2", 0: "0"} { // 1 + ms; 0: it is over
		till := at.UnixMilli() + left
		for _, phase := range []time.Duration{0, 999 * time.Microsecond} {
			now := at.Add(phase)
			require.Equal(t, want, asked(t, s, now, fmt.Sprintf("renewal_reply(-1, -1, %d, now)", till)))
			require.Equal(t, want, asked(t, s, now, fmt.Sprintf("renewal_reply(-1, %d, nil, now)", left)))
			require.Equal(t, want, asked(t, s, now, fmt.Sprintf("renewal_reply(-1, %d, %d, now)", left, till+1)))
			require.Equal(t, "1", asked(t, s, now, fmt.Sprintf("renewal_reply(0, -1, %d, now)", till)),
				"it was not asked how long")
			if want != "0" {
				require.Equal(t, "false",
					asked(t, s, now.Add(time.Duration(left)*time.Millisecond-time.Microsecond), fmt.Sprintf("expired(%d, now)", till)))
			}
		}
	}
}

// A waiter is told the ms that are left, and asks when those have passed since the reply: then it has expired, wherever
// in its millisecond the server was.
func TestExpiry_WaiterAsksThen_FindsItExpired(t *testing.T) {
	s := redistest.Embedded(t)
	at := time.Now().Truncate(time.Millisecond)
	till := at.Add(20 * time.Millisecond).UnixMilli()
	for _, phase := range []time.Duration{0, time.Microsecond, 999 * time.Microsecond} {
		answered := at.Add(phase)
		left := time.Duration(till-answered.UnixMilli()) * time.Millisecond
		require.Equal(t, "true", asked(t, s, answered.Add(script.Expiry(left)), fmt.Sprintf("expired(%d, now)", till)), "%v",
			phase)
	}
}
