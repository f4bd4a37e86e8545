package ratelimit_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// longLine is the state of a line of n turns, one each ms, of which some have passed, and from which turns are missing
// that were given back: each tenth, if holes is set.
func longLine(t *testing.T, c rueidis.Client, key string, n, passed int, holes bool) {
	t.Helper()
	must(t, c, "DEL", key)
	const rate, per, burst = 1000, 1000000, 10 // 1,000 units a second
	now := redistest.NoError(raw(c, "TIME").AsStrSlice())(t)
	s, _ := strconv.ParseInt(now[0], 10, 64)
	us, _ := strconv.ParseInt(now[1], 10, 64)
	began, freed := s*1_000_000+us-int64(passed)*1000, 0
	if holes {
		freed = n / 10 * per
	}
	must(t, c, "EVAL", `for i = 1, tonumber(ARGV[1]) do
  if ARGV[3] == '0' or i % 10 > 0 then
    redis.call('ZADD', KEYS[1], string.format('%.0f', ARGV[2] + i * 1000), string.format('%010.0f;id%.0f;1000000', 1000, i))
  end
end`, "1", key, dec(int64(n)), dec(began), map[bool]string{true: "1", false: "0"}[holes])
	must(t, c, "ZADD", key, "-1", fmt.Sprintf("%d;%d;%d;%d;%d;%d;%d;0;%d;%d;", began, began, (burst+n)*per, rate, per,
		burst*per, freed, per, n*per-freed))
	must(t, c, "PEXPIRE", key, "600000")
}

// However long a line is, and however many of its turns have passed while no caller asked, a call reads a part of it.
func TestLine_ManyTurns_ReadInParts(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client(t)
	text := func(name string) string {
		text := redistest.NoError(script.Compose(os.DirFS("."), name))(t)
		return text
	}
	terms := []string{"1000", "1000000", "10"}
	turn := append([]string{"me"}, terms...)
	calls := map[string][]string{
		"take":    append(append([]string{"me", "g"}, terms...), "1", "1"),
		"reserve": append(slices.Clone(turn), "1", "1000000000"),
		"cancel":  append(slices.Clone(turn), "1", ""),
	}
	n := redistest.Sized(20_000, 20_000, 1_000_000)
	for what, passed := range map[string]int{"half have passed": n / 2, "all have passed": 2 * n, "none has": 0} {
		for name, args := range calls {
			for _, holes := range []bool{false, true} {
				longLine(t, c, "l", n, passed, holes)
				for range 3 {
					touched, took, err := rig.Touched(t, c, text(name), []string{"l"}, args)
					require.NoError(t, err)
					for command, some := range touched {
						require.LessOrEqual(t, some, int64(1_100), "%s, %s: %s of %d turns, %v", what, name, command, n, took)
					}
				}
			}
		}
	}
}

// A line that is read in parts answers as one that is read at once, if no turn was given back but one that is still to
// come, which is no reason to let units pass before.
func TestLine_ReadInParts_AnswersAsOne(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	at := time.Now().Truncate(time.Second)
	srv.Embedded.SetTime(at)
	l := on(t, inParts(t, srv.Client(t)), patient).Limiter("l", ratelimit.LimiterOptions{Rate: 1000, Burst: 3})
	m := l.NewModel()
	for i := range 60 {
		id := strconv.Itoa(i)
		want := m.Reserve(at.UnixMicro(), id, 1, 1_000_000)
		got, _, err := l.ReserveAs(ctx, id, "", 1, time.Second)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	want := m.Cancel(at.UnixMicro(), "55", 1)
	got := redistest.NoError(l.CancelAs(ctx, "55", "", 1, ""))(t)
	require.Equal(t, want, got)
	at = at.Add(40 * time.Millisecond)
	srv.Embedded.SetTime(at)
	a := redistest.NoError(l.Peek(ctx, ""))(t)
	require.Zero(t, a.Remaining)
	for i := range 40 {
		now, id := at.UnixMicro(), "late"+strconv.Itoa(i)
		want := m.Reserve(now, id, 1, 1_000_000)
		got, place, err := l.ReserveAs(ctx, id, "", 1, time.Second)
		require.NoError(t, err)
		require.Equal(t, want, got, i)
		if i%3 == 0 {
			want := m.Cancel(now, id, 1)
			got := redistest.NoError(l.CancelAs(ctx, id, "", 1, place))(t)
			require.Equal(t, want, got, i)
		}
		admission := redistest.NoError(l.Allow(ctx, "", 1))(t)
		require.Equal(t, m.Take(now, 1, false), admission)
	}
}

// inParts is a client whose scripts read two turns of a line in a call.
func inParts(t *testing.T, c rueidis.Client) rueidis.Client {
	t.Helper()
	texts := map[string]string{}
	for _, name := range []string{"take", "reserve", "cancel"} {
		text := redistest.NoError(script.Compose(os.DirFS("."), name))(t)
		sum := sha1.Sum([]byte(text))
		few := strings.Replace(text, "local turns = 500", "local turns = 2", 1)
		require.NotEqual(t, text, few)
		texts[hex.EncodeToString(sum[:])] = few
	}
	return partly{c, texts}
}

type partly struct {
	rueidis.Client
	texts map[string]string
}

func (c partly) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	words := cmd.Commands()
	if text := c.texts[words[1]]; words[0] == "EVALSHA" && text != "" {
		n, _ := strconv.Atoi(words[2])
		cmd = c.B().Eval().Script(text).Numkeys(int64(n)).Key(words[3 : 3+n]...).Arg(words[3+n:]...).Build()
	}
	return c.Client.Do(ctx, cmd)
}
