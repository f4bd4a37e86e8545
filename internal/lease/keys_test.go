package lease_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// renewPair renews claims of two keys each, which hold their owner.
var renewPair = script.New("renew pairs", `
local replies = {}
for i = 1, #KEYS / 2 do
  local a, b, owner, lease = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  replies[i] = 0
  if redis.call('GET', a) == owner and redis.call('GET', b) == owner then
    replies[i] = 1
    if lease > 0 then
      redis.call('PEXPIRE', a, lease)
      redis.call('PEXPIRE', b, lease)
    end
  end
end
return replies`)

func TestAClaimOfSeveralKeysIsRenewedWithAllOfThem(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		pair := func(name string) *held {
			h := claim(name)
			h.More, h.Renew = []string{name + "+"}, renewPair
			s.grant(t, h, term)
			require.NoError(t, s.server.Embedded.Set(name+"+", h.Owner))
			s.server.Embedded.SetTTL(name+"+", term)
			require.True(t, s.Add(h.Claim, time.Now(), time.Now(), term, true, 0))
			return h
		}
		require.Empty(t, s.All())
		a, b := pair("a"), pair("b")
		require.ElementsMatch(t, []*lease.Claim{a.Claim, b.Claim}, s.All())
		c := s.take(t, "c", term) // of one key, by another script
		time.Sleep(time.Hour + 11*time.Second)
		for _, h := range []*held{a, b, c} {
			require.NoError(t, h.why(t))
		}
		for _, call := range s.tap.calls() {
			require.Contains(t, []int{1, 4}, len(call.keys), "%v", call.keys)
		}
		s.server.Embedded.Del("a+")
		time.Sleep(10 * time.Second)
		require.Error(t, a.why(t))
		require.NoError(t, b.why(t))
		require.NoError(t, c.why(t))
	})
}

func TestKeysThatChangeAllTheTimeAreNotTracked(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(t)
	tapped := &tap{Client: c, gone: make(chan struct{})}
	e := lease.New(lease.Config{Client: tapped, Runner: script.NewRunner(tapped, time.Second), Log: slog.New(slog.DiscardHandler)})
	defer e.Stop()
	take := func(name string, untracked bool) *held {
		h := claim(name)
		h.Untracked = untracked
		require.NoError(t, c.Do(t.Context(), c.B().Set().Key(name).Value(h.Owner).PxMilliseconds(2000).Build()).Error())
		require.True(t, e.Add(h.Claim, time.Now(), time.Now(), 2*time.Second, true, 0))
		return h
	}
	busy, calm := take("busy", true), take("calm", false)
	tracked := func() int { return redistest.CommandCalls(t, c)["client|caching"] }
	redistest.Eventually(t, 20*time.Second, "the calm one is tracked", func() bool { return tracked() > 0 })
	tapped.calls()
	for range 50 { // a change that concerns the claim is a reason to look, if it is tracked
		require.NoError(t, c.Do(t.Context(), c.B().Pexpire().Key("busy").Milliseconds(2000).Build()).Error())
		e.Check("busy")
		e.CheckAll()
	}
	renewals := 0
	redistest.Eventually(t, 20*time.Second, "two renewals of the busy one", func() bool {
		for _, call := range tapped.calls() {
			require.Equal(t, []string{"busy"}, call.keys, "the calm one's go over the connection that tracks")
			require.False(t, call.looks)
			renewals++
		}
		return renewals >= 2
	})
	require.NoError(t, busy.why(t))
	require.NoError(t, calm.why(t))
}

func TestLogsCallAnOwnerThatIsNoTextByAnotherName(t *testing.T) {
	var log strings.Builder
	s := redistest.Embedded(t)
	c := s.Client(t)
	e := lease.New(lease.Config{Client: c, Runner: script.NewRunner(c, time.Second), Log: slog.New(slog.NewTextHandler(&log, nil))})
	h := claim("l")
	h.Owner, h.Shown = "\xff\xfe", "fffe"
	require.True(t, e.Add(h.Claim, time.Now(), time.Now(), 20*time.Millisecond, false, 0))
	redistest.Eventually(t, 20*time.Second, "the lease is over", func() bool { return !h.end().IsZero() })
	e.Stop()
	require.Contains(t, log.String(), "owner=fffe")
}
