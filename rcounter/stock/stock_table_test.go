package stock_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

const hour = 3600_000

const testEpoch int64 = 1_700_000_000_000_001

// selling writes a stock in the middle of its time, of which so many units are sold.
func selling(t testing.TB, c rueidis.Client, limit, sold int64, users ...string) {
	t.Helper()
	now := serverNow(t, c)
	must(t, c, "DEL", "rc:{s}", "rc:{s}:u", "rc:{s}:r", "rc:{s}:h", "rc:{s}:o", "rc:{s}:l", "rc:{s}:f")
	must(t, c, "HSET", "rc:{s}", "limit", dec(limit), "sold", dec(sold), "seq", dec(sold), "recorded", dec(sold),
		"per", "1",
		"held", "0", "requests", "0", "holds", "0", "start", dec(now-hour), "end", dec(now+hour), "gone", dec(now+2*hour),
		"epoch", dec(testEpoch), "state", "1", "token", "T", "ledger", "0", "revision", "0")
	must(t, c, "PEXPIRE", "rc:{s}", "7200000")
	if len(users) > 0 {
		must(t, c, append([]string{"HSET", "rc:{s}:u"}, users...)...)
		must(t, c, "PEXPIRE", "rc:{s}:u", "7200000")
	}
}

// counts is what a script may change, as one comparable text.
func counts(t testing.TB, c rueidis.Client) string {
	t.Helper()
	h := hash(t, c, "rc:{s}")
	return fmt.Sprintf("sold %s seq %s recorded %s state %s users %v", h["sold"], h["seq"], h["recorded"], h["state"],
		hash(t, c, "rc:{s}:u"))
}

func TestClaim_FieldSpoiled_IsErrCorrupt(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		s := on(t, c, patient).Stock("s")
		for _, field := range []string{"limit", "sold", "held", "seq", "recorded", "requests", "holds", "per", "start",
			"end", "gone", "epoch", "state", "ledger"} {
			selling(t, c, 2, 1, "a", "1;A")
			must(t, c, "HSET", "rc:{s}", field, "x")
			before := counts(t, c)
			_, err := s.Claim(ctx, "b")
			require.ErrorIs(t, err, errs.ErrCorrupt, field)
			require.Equal(t, before, counts(t, c))
		}
	})
}

func TestClaimScript_TooManyClaimants_IsRefused(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		s := on(t, c, patient).Stock("s")
		selling(t, c, 200, 0)
		before := counts(t, c)
		many := make([]string, 129)
		for i := range many {
			many[i] = strconv.Itoa(i)
		}
		_, err := s.ClaimAs(ctx, "B", many...)
		require.ErrorContains(t, err, "1 to 128 claimants")
		_, err = s.ClaimAs(ctx, "B")
		require.ErrorContains(t, err, "1 to 128 claimants")
		require.Equal(t, before, counts(t, c))

		got, err := s.ClaimAs(ctx, "B", many[:128]...)
		require.NoError(t, err)
		for i, g := range got {
			require.Equal(t, stock.Grant{Outcome: stock.Granted, Ordinal: int64(i + 1), N: 1, Remaining: 72,
				Epoch: testEpoch}, g)
		}
	})
}

// leavings puts there what a stock leaves behind whose hash is gone, to end after so many ms, or never.
func leavings(t testing.TB, c rueidis.Client, ms int64) {
	t.Helper()
	selling(t, c, 2, 1, "a", "1;A")
	must(t, c, "HSET", "rc:{s}:r", "r:order", "G;2;1;1;C;;0;a", "u:a", "1")
	must(t, c, "ZADD", "rc:{s}:h", "1", "hold")
	must(t, c, "XADD", "rc:{s}:l", "*", "op", "grant")
	must(t, c, "DEL", "rc:{s}")
	for _, k := range []string{"u", "r", "h", "l"} {
		if ms < 0 {
			must(t, c, "PERSIST", "rc:{s}:"+k)
		} else {
			must(t, c, "PEXPIRE", "rc:{s}:"+k, dec(ms))
		}
	}
}

// A stock's records outlive its hash by an hour. By what they have left it is known whether its retention was over when
// it went, or it was lost.
func TestStock_LeftoverKeys_AreRemovedExceptAfterALoss(t *testing.T) {
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		s := on(t, c, patient).Stock("s")
		verbs := stockVerbs(s)
		for verb, call := range verbs {
			if verb == "Restore" || verb == "Ledger" { // the one changes nothing without a stock, the other only moves entries
				continue
			}
			leavings(t, c, hour)
			err := call()
			if verb == "Open" || verb == "OpenOrJoin" {
				require.NoError(t, err)
				require.Equal(t, []string{"rc:{s}"}, keys(t, c), "opened over what is over")
				must(t, c, "DEL", "rc:{s}")
				continue
			}
			require.NotErrorIs(t, err, errs.ErrCorrupt, verb)
			require.Empty(t, keys(t, c), verb)
		}
		for what, ms := range map[string]int64{"lost while it sold": hour + 60_000, "its end was taken off": -1} {
			for verb, call := range verbs {
				if verb == "Ledger" {
					continue
				}
				leavings(t, c, ms)
				call()
				require.Len(t, keys(t, c), 4, "%s: %s", what, verb)
			}
			_, err := s.Open(ctx, spec(1))
			require.ErrorIs(t, err, errs.ErrCorrupt, what)
			_, err = s.Claim(ctx, "b")
			require.ErrorIs(t, err, errs.ErrCorrupt, what)
		}
		for _, k := range []string{"u", "r", "h", "l"} { // of one key alone
			leavings(t, c, hour)
			must(t, c, "PEXPIRE", "rc:{s}:"+k, dec(hour+60_000))
			_, err := s.Open(ctx, spec(1))
			require.ErrorIs(t, err, errs.ErrCorrupt, k)
		}
	})
}

func TestOpen_RetentionOver_OpenerRemovesItsKeys(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client(t)
	s := on(t, c, exact).Stock("s")
	_, err := s.Open(ctx, stock.Spec{Limit: 1, OpenFor: 100 * time.Millisecond, Retain: 100 * time.Millisecond})
	require.NoError(t, err)
	_, err = s.Claim(ctx, "ann")
	require.NoError(t, err)
	redistest.Eventually(t, time.Minute, "nothing is left", func() bool { return len(keys(t, c)) == 0 })
}
