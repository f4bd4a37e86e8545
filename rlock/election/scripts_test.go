package election_test

import (
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
		}{
			{"nobody is announced", "announce", "", []string{"7", "ann"}, 1, "7 ann", true},
			{"again, which prolongs it", "announce", "7 ann", []string{"7", "ann"}, 1, "7 ann", true},
			{"a former leader is", "announce", "7 ann", []string{"8", "bob"}, 1, "8 bob", true},
			{"a later leader is", "announce", "8 bob", []string{"7", "ann"}, 0, "8 bob", false},
			{"tokens are numbers and not text", "announce", "9 bob", []string{"10", "ann"}, 1, "10 ann", true},
			{"its own is taken back", "retract", "7 ann", []string{"7", "ann"}, 1, "", false},
			{"again", "retract", "", []string{"7", "ann"}, 1, "", false},
			{"the next leader's is not", "retract", "8 bob", []string{"7", "ann"}, 0, "8 bob", false},
			{"nor the same owner's with another token", "retract", "8 ann", []string{"7", "ann"}, 0, "8 ann", false},
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
					args = append(args, "3600000")
				}
				args = append(args, key, "PUBLISH")
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
		require.ErrorContains(t, rig.Raw(c, "EVAL", text, "1", key, "7", "ann", "60000", key, "PUBLISH").Error(),
			"no announcement")
		require.Equal(t, "hello", rig.Text(t, c, "GET", key))
	})
}
