package redpacket_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/table"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

// TestPacket_EachRow_DoesWhatItSays runs the tables in testdata/scripts, which call the scripts themselves.
func TestPacket_EachRow_DoesWhatItSays(t *testing.T) {
	t.Parallel()
	table.RunAll(t, "testdata/scripts", table.How{})
}

// packetCounts is what a script may change, as one comparable text.
func packetCounts(t testing.TB, c rueidis.Client) string {
	t.Helper()
	h := hash(t, c, "rc:{p}:p")
	left := redistest.NoError(raw(c, "LRANGE", "rc:{p}:a", "0", "-1").AsStrSlice())(t)
	return fmt.Sprintf("taken %s given %s state %s shares %s users %v", h["taken"], h["given"], h["state"],
		strings.Join(left, " "), hash(t, c, "rc:{p}:g"))
}

// What a packet leaves outlives its hash by an hour, as that of a stock does, and is told from what was lost in the
// same way.
func TestPacket_LeftoverKeys_AreRemovedExceptAfterALoss(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		p := on(t, c, patient).Packet("p")
		verbs := packetVerbs(p)
		leaves := func(ms map[string]int64) {
			must(t, c, "DEL", "rc:{p}:p", "rc:{p}:a", "rc:{p}:g")
			must(t, c, "RPUSH", "rc:{p}:a", "20", "30")
			must(t, c, "HSET", "rc:{p}:g", "a", "1;10")
			for k, ms := range ms {
				if ms < 0 {
					must(t, c, "PERSIST", "rc:{p}:"+k)
				} else {
					must(t, c, "PEXPIRE", "rc:{p}:"+k, dec(ms))
				}
			}
		}
		for verb, call := range verbs {
			leaves(map[string]int64{"a": hour, "g": hour})
			err := call()
			if verb == "Send" {
				require.NoError(t, err)
				require.Zero(t, number(t, c, "HLEN", "rc:{p}:g"), "sent over what is over")
				require.EqualValues(t, 2, number(t, c, "LLEN", "rc:{p}:a"))
				require.LessOrEqual(t, number(t, c, "PTTL", "rc:{p}:p")+hour, number(t, c, "PTTL", "rc:{p}:a")+1000,
					"the shares outlive the packet")
				continue
			}
			require.ErrorIs(t, err, redpacket.ErrNoPacket, verb)
			require.Empty(t, keys(t, c), verb)
		}
		for what, ms := range map[string]map[string]int64{
			"lost while shares were taken":    {"a": hour + 60_000, "g": hour + 60_000},
			"the ends of all were taken off":  {"a": -1, "g": -1},
			"the shares' end was taken off":   {"a": -1, "g": hour},
			"the users' end was taken off":    {"a": hour, "g": -1},
			"the users' end was put off":      {"a": hour, "g": hour + 60_000},
			"a user's record without its end": {"a": 0, "g": -1}, // PEXPIRE 0 deletes
		} {
			for verb, call := range verbs {
				leaves(ms)
				before := keys(t, c)
				err := call()
				require.ElementsMatch(t, before, keys(t, c), "%s: %s", what, verb)
				require.ErrorIs(t, err, redpacket.ErrNoPacket, "%s: %s", what, verb)
				require.ErrorIs(t, err, errs.ErrCorrupt, "%s: %s", what, verb)
			}
			// a late copy of a part of the sending that was lost
			_, err := p.SendAs(ctx, "T", packet(60, 3), []int64{10, 20, 30}, 2, 1)
			require.ErrorIs(t, err, errs.ErrCorrupt, what)
		}
		// a late copy of a part, when all is over: it stores nothing
		leaves(map[string]int64{"a": hour, "g": hour})
		_, err := p.SendAs(ctx, "T", packet(60, 3), []int64{10, 20, 30}, 2, 1)
		require.ErrorContains(t, err, "unavailable: the parts of")
		require.Empty(t, keys(t, c))
	})
}

// One that was sent in several parts is big enough to be worth a timer.
func TestSend_BigPacketOver_SenderRemovesItsKeys(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client(t)
	o := packet(10_000, 4000)
	o.OpenFor, o.Retain = 100*time.Millisecond, 100*time.Millisecond
	sent(t, on(t, c, patient), "p", o)
	redistest.Eventually(t, time.Minute, "nothing is left", func() bool { return len(keys(t, c)) == 0 })
}
