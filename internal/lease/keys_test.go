package lease_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// renewPair renews leases of two keys each, which hold their owner.
var renewPair = script.New("renew pairs", `
local replies = {}
if #KEYS == 1 then
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return {0}
  end
  if tonumber(ARGV[2]) > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return {1}
end
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

// pair is an acquisition of two keys, to be renewed.
func (s *shop) pair(t *testing.T, name string) *held {
	t.Helper()
	h := newLease(name)
	h.More, h.Renew = &[]string{name + "+"}, renewPair
	s.grant(t, h, term)
	require.NoError(t, s.server.Embedded.Set(name+"+", h.Owner))
	s.server.Embedded.SetTTL(name+"+", term)
	require.True(t, s.Add(h.Lease, time.Now(), time.Now(), term, true, 0))
	return h
}

// While a slot is being migrated two leases in it may lie on two nodes, for as long as that takes. What is true of one
// of them must not be waited for by the others: its node may be the one that is gone.
func TestRenewals_LeasesApart_AreMadeOneByOne(t *testing.T) {
	redistest.SkipShort(t)
	inShop(t, func(t *testing.T, s *shop) {
		var all []*held
		for i := range lease.BatchSize + 2 {
			all = append(all, s.take(t, fmt.Sprint("l", i), term))
		}
		look := s.take(t, "manual", time.Hour)
		s.Manual(look.Lease)
		s.tap.migrate(true, "l7")
		time.Sleep(term / 2)
		require.NoError(t, s.server.Embedded.Set("l3", "somebody else"))
		s.server.Embedded.Del("manual")
		s.CheckAll()
		time.Sleep(5 * term)
		for i, h := range all {
			if i == 3 || i == 7 {
				require.ErrorIs(t, h.why(t), errs.ErrLost)
				continue
			}
			require.NoError(t, h.why(t), h.Key)
		}
		require.True(t, all[3].end().Before(all[7].end()), "one is known to be lost, the other not to be held")
		require.ErrorIs(t, look.why(t), errs.ErrLost)
		for _, ev := range s.renewals() {
			if ev.name != "l3" && ev.name != "l7" && ev.name != "manual" {
				require.NoError(t, ev.err, ev.name)
			}
		}
		s.tap.migrate(false, "")
		time.Sleep(term)
		s.tap.calls()
		time.Sleep(5 * term)
		require.LessOrEqual(t, len(s.tap.calls()), 15*3, "together again")
	})
}

func TestRenewal_KeysApart_IsMadeKeyByKey(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		a, b, c := s.pair(t, "a"), s.pair(t, "b"), s.pair(t, "c")
		s.tap.migrate(true, "c+")
		deadline := s.Until(c.Lease)
		time.Sleep(10 * term)
		require.NoError(t, a.why(t))
		require.NoError(t, b.why(t))
		require.ErrorIs(t, c.why(t), errs.ErrLost, "what one key says is not enough")
		require.Equal(t, deadline, c.end())
		require.Positive(t, s.server.Embedded.TTL("a+"))
		s.server.Embedded.Del("a+")
		time.Sleep(10*time.Second + time.Second)
		require.ErrorIs(t, a.why(t), errs.ErrLost)
		require.NoError(t, b.why(t))
	})
}

// renewTaken renews a lease of two keys, of which the second is often missing. Whenever that one is asked about,
// somebody has just taken the hold out of both keys.
var renewTaken = script.New("renew what is taken", `
if ARGV[3] == '1' then
  return {redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0}
end
redis.call('DEL', KEYS[1]:sub(1, -2))
return {1}`)

func TestRenewal_TakenKeyByKey_IsLostAtOnce(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		s.tap.migrate(true, "")
		h := newLease("a")
		h.More, h.Renew = &[]string{"a+"}, renewTaken
		s.grant(t, h, term)
		require.True(t, s.Add(h.Lease, time.Now(), time.Now(), term, true, 0))
		time.Sleep(term / 2) // one renewal
		require.ErrorIs(t, h.why(t), errs.ErrLost)
	})
}

func TestRenewal_SeveralKeys_HasAllOfThem(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		require.Empty(t, s.All())
		a, b := s.pair(t, "a"), s.pair(t, "b")
		require.ElementsMatch(t, []*lease.Lease{a.Lease, b.Lease}, s.All())
		c := s.take(t, "c", term) // of one key, by another script
		time.Sleep(long + 11*time.Second)
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

func TestTracking_BusyKeys_AreLeftOut(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	tapped := &tap{Client: c, gone: make(chan struct{})}
	e := engine(tapped)
	defer e.Stop()
	take := func(name string, untracked bool) *held {
		h := newLease(name)
		h.Untracked = untracked
		require.NoError(t, c.Do(t.Context(), c.B().Set().Key(name).Value(h.Owner).PxMilliseconds(2000).Build()).Error())
		require.True(t, e.Add(h.Lease, time.Now(), time.Now(), 2*time.Second, true, 0))
		return h
	}
	busy, calm := take("busy", true), take("calm", false)
	tracked := func() int { return redistest.CommandCalls(t, c)["client|caching"] }
	redistest.Eventually(t, 20*time.Second, "the calm one is tracked", func() bool { return tracked() > 0 })
	tapped.calls()
	for range 50 { // a change that concerns the lease is a reason to look, if it is tracked
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

func TestLog_BinaryOwner_IsShownAsText(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	s := redistest.Embedded(t)
	c := s.Client(t)
	e := lease.New(lease.Config{Client: c, Runner: script.NewRunner(c, time.Second),
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	h := newLease("l")
	h.Owner, h.shown = "\xff\xfe", "fffe"
	require.True(t, e.Add(h.Lease, time.Now(), time.Now(), 20*time.Millisecond, false, 0))
	redistest.Eventually(t, 20*time.Second, "the lease is over", func() bool { return !h.end().IsZero() })
	e.Stop()
	require.Contains(t, log.String(), "owner=fffe")
}
