package election_test

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/script"
)

func TestTheScriptTable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := s.Client(t)
		const key = "redlatch_leader:{x}"
		for _, x := range []struct {
			what, script, before string
			args                 []string
			reply                int64
			after                string
			lasts                bool // in full
			change, value        string
		}{
			{"nobody is announced", "announce", "", []string{"7", "ann"}, 1, "7 ann", true, "", ""},
			{"again, which prolongs it", "announce", "7 ann", []string{"7", "ann"}, 1, "7 ann", true, "", ""},
			{"a former leader is", "announce", "7 ann", []string{"8", "bob"}, 1, "8 bob", true, "", ""},
			{"a later leader is", "announce", "8 bob", []string{"7", "ann"}, 0, "8 bob", false, "", ""},
			{"tokens are numbers and not text", "announce", "9 bob", []string{"10", "ann"}, 1, "10 ann", true, "", ""},
			{"its value changes", "announce", "7 ann", []string{"7", "ann"}, 1, "7 ann 1 new value", true, "1", "new value"},
			{"again", "announce", "7 ann 1 x", []string{"7", "ann"}, 1, "7 ann 2 ", true, "2", ""},
			{"an earlier value comes late", "announce", "7 ann 2 y", []string{"7", "ann"}, 2, "7 ann 2 y", false, "1", "x"},
			{"so does the first", "announce", "7 ann 2 y", []string{"7", "ann"}, 2, "7 ann 2 y", false, "", ""},
			{"a later leader's first", "announce", "7 ann 2 y", []string{"8", "bob"}, 1, "8 bob", true, "", ""},
			{"a later leader has one", "announce", "8 bob 1 9", []string{"7", "ann"}, 0, "8 bob 1 9", false, "3", "x"},
			{"one with a value is taken back", "retract", "7 ann 1 x y", []string{"7", "ann"}, 1, "", false, "", ""},
			{"the next one's is not", "retract", "8 bob 1 x", []string{"8", "bo"}, 0, "8 bob 1 x", false, "", ""},
			{"its own is taken back", "retract", "7 ann", []string{"7", "ann"}, 1, "", false, "", ""},
			{"again", "retract", "", []string{"7", "ann"}, 1, "", false, "", ""},
			{"the next leader's is not", "retract", "8 bob", []string{"7", "ann"}, 0, "8 bob", false, "", ""},
			{"nor the same owner's with another token", "retract", "8 ann", []string{"7", "ann"}, 0, "8 ann", false, "", ""},
		} {
			for twice := range 2 {
				rig.Must(t, c, "FLUSHALL")
				if x.before != "" {
					rig.Must(t, c, "SET", key, x.before, "PX", "60000")
				}
				text, err := script.Compose(os.DirFS("."), x.script)
				require.NoError(t, err)
				args := append([]string{"EVAL", text, "1", key}, x.args...)
				if x.script == "announce" {
					args = append(args[:6], "3600000", key, "PUBLISH")
					args = append(args, cmp.Or(x.change, "0"), x.value)
				} else {
					args = append(args, key, "PUBLISH")
				}
				for range 1 + twice {
					require.Equal(t, x.reply, rig.Number(t, c, args...), "%s: run %d", x.what, twice)
				}
				got := ""
				if rig.Number(t, c, "EXISTS", key) == 1 {
					got = rig.Text(t, c, "GET", key)
				}
				require.Equal(t, x.after, got, x.what)
				if x.after != "" {
					ms, err := strconv.Atoi(strconv.FormatInt(rig.Number(t, c, "PTTL", key), 10))
					require.NoError(t, err)
					require.Equal(t, x.lasts, ms > 60000, x.what)
				}
			}
		}
		rig.Must(t, c, "SET", key, "hello")
		text, err := script.Compose(os.DirFS("."), "announce")
		require.NoError(t, err)
		require.ErrorContains(t, rig.Raw(c, "EVAL", text, "1", key, "7", "ann", "60000", key, "PUBLISH", "0", "").Error(),
			"no announcement")
		require.Equal(t, "hello", rig.Text(t, c, "GET", key))
	})
}

// What a leader is asked: (requests before, who asks) -> (reply, requests after). Instants are seconds after the
// server's time.
func TestTheScriptTableOfRequests(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := s.Client(t)
		const key = "redlatch_requests:{x}"
		text := map[string]string{}
		for _, name := range []string{"stand", "drain", "requests"} {
			var err error
			text[name], err = script.Compose(os.DirFS("."), name)
			require.NoError(t, err)
		}
		now := func() int64 {
			list, err := rig.Raw(c, "TIME").AsIntSlice()
			require.NoError(t, err)
			return list[0] * 1000
		}
		at := func(first string, second, end int) string {
			return fmt.Sprintf("%s %d %d", first, now()+int64(second)*1000, now()+int64(end)*1000)
		}
		for _, x := range []struct {
			what, id, value        string
			token, priority, stood string
			reply                  []int64
			left                   int64
		}{
			{"nothing", "", "", "7", "0", "-1", []int64{0, 0, 0}, 0},
			{"to resign", "drain", fmt.Sprintf("7 1500 %d", now()+60000), "7", "0", "-1", []int64{1, 1500, 0}, 1},
			{"an earlier leader is", "drain", fmt.Sprintf("6 1500 %d", now()+60000), "7", "0", "-1", []int64{0, 0, 0}, 1},
			{"that is over", "drain", fmt.Sprintf("7 1500 %d", now()-5000), "7", "0", "-1", []int64{0, 0, 0}, 0},
			{"a preferred one stands", "c:1", at("5", 0, 60), "7", "4", "-1", []int64{0, 0, 1}, 1},
			{"one that is preferred as much", "c:1", at("5", 0, 60), "7", "5", "-1", []int64{0, 0, 0}, 1},
			{"it is gone", "c:1", at("5", -60, -5), "7", "4", "-1", []int64{0, 0, 0}, 0},
			{"it has stood for long", "c:1", at("5", -60, 60), "7", "4", "30000", []int64{0, 0, 1}, 1},
			{"not yet", "c:1", at("5", -10, 60), "7", "4", "30000", []int64{0, 0, 0}, 1},
		} {
			rig.Must(t, c, "FLUSHALL")
			if x.id != "" {
				rig.Must(t, c, "HSET", key, x.id, x.value)
			}
			for range 2 {
				list, err := rig.Raw(c, "EVAL", text["requests"], "1", key, x.token, x.priority, x.stood).AsIntSlice()
				require.NoError(t, err)
				require.Equal(t, x.reply, list, x.what)
				require.Equal(t, x.left, rig.Number(t, c, "HLEN", key), x.what)
			}
		}
		rig.Must(t, c, "HSET", key, "c:1", "hello")
		require.ErrorContains(t, rig.Raw(c, "EVAL", text["requests"], "1", key, "7", "0", "-1").Error(), "no requests")

		// since stays for as long as the candidate is believed; the key ends with the last request
		rig.Must(t, c, "DEL", key)
		for _, x := range []struct {
			what   string
			before string
			since  int64 // s before now
		}{
			{"new", "", 0}, {"again", at("5", -20, 60), 20}, {"after a break", at("5", -20, -5), 0},
			{"with another priority", at("3", -20, 60), 20},
		} {
			rig.Must(t, c, "DEL", key)
			if x.before != "" {
				rig.Must(t, c, "HSET", key, "c:1", x.before)
			}
			for range 2 {
				require.EqualValues(t, 1, rig.Number(t, c, "EVAL", text["stand"], "1", key, "c:1", "5", "60000"))
			}
			var priority, since, ends int64
			_, err := fmt.Sscan(rig.Text(t, c, "HGET", key, "c:1"), &priority, &since, &ends)
			require.NoError(t, err)
			require.EqualValues(t, 5, priority)
			require.InDelta(t, now()-x.since*1000, since, 15_000, x.what)
			require.InDelta(t, now()+60000, ends, 15_000)
			require.Positive(t, rig.Number(t, c, "PTTL", key))
		}
		for range 2 {
			require.EqualValues(t, 1, rig.Number(t, c, "EVAL", text["drain"], "1", key, "7", "1500", "3600000"))
		}
		require.Greater(t, rig.Number(t, c, "PTTL", key), int64(600000))
		require.EqualValues(t, 1, rig.Number(t, c, "EVAL", text["stand"], "1", key, "c:1", "5", "60000"))
		require.Greater(t, rig.Number(t, c, "PTTL", key), int64(600000), "the drain stands")
	})
}
