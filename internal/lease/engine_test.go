package lease_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// renew is a renewal script in the form that the package comment asks for, of keys that hold their owner.
var renew = script.New("renew", `
local replies = {}
for i, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  if type(held) == 'table' then
    replies[i] = -1
  elseif held ~= ARGV[2 * i - 1] then
    replies[i] = 0
  else
    replies[i] = 1
    if tonumber(ARGV[2 * i]) > 0 then
      redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), ARGV[2 * i]))
    elseif redis.call('PTTL', key) >= 0 then
      replies[i] = 1 + math.max(redis.call('PTTL', key), 1)
    end
  end
end
return replies`)

const (
	// term is the length of most leases here: renewed every 10 s.
	term = 30 * time.Second
	// long is in which what happens in the end has happened. Renewals, of which it has 60, take most of these tests' time.
	long = 20 * term
)

// tap is the client of an engine: it notes the renewals that pass and can keep their replies back.
type tap struct {
	rueidis.Client
	mu     sync.Mutex
	passed []passage
	gone   chan struct{}         // closed when the test is over
	gate   chan struct{}         // not nil: replies wait until it is closed
	apart  bool                  // a call with more than one key is refused, as while their slot is being migrated
	silent func(key string) bool // calls on such keys are not answered
	slow   time.Duration
	line   chan struct{} // not nil: the server runs one call at a time, each for spell
	spell  time.Duration
}

// passage is one renewal call.
type passage struct {
	at    time.Time
	keys  []string
	looks bool // it only asked
}

func (c *tap) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	words := slices.Clone(cmd.Commands())
	c.mu.Lock()
	gate, slow, refused := c.gate, c.slow, false
	line, spell := c.line, c.spell
	if words[0] == "EVALSHA" {
		n, _ := strconv.Atoi(words[2])
		refused = c.apart && n > 1
		if c.silent != nil && c.silent(words[3]) && gate == nil {
			gate = make(chan struct{})
		}
		c.passed = append(c.passed, passage{time.Now(), words[3 : 3+n], words[3+n+1] == "0" || words[3+n+1] == "-1"})
	}
	c.mu.Unlock()
	if refused {
		const refusal = "return redis.error_reply('TRYAGAIN Multiple keys request during rehashing of slot')"
		return c.Client.Do(ctx, c.B().Eval().Script(refusal).Numkeys(0).Build())
	}
	if line != nil {
		line <- struct{}{} // first come, first served
		select {
		case <-time.After(spell):
		case <-c.gone:
		}
		defer func() { <-line }()
		ctx = context.Background() // what is in its line is run, whoever has left
	}
	res := c.Client.Do(ctx, cmd)
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-c.gone:
		}
	}
	if gate != nil {
		select {
		case <-gate:
		case <-c.gone:
		}
	}
	return res
}

// calls returns the renewals since the last time it was asked.
func (c *tap) calls() []passage {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := c.passed
	c.passed = nil
	return passed
}

// hold keeps the replies of all later calls back until the function it returns is called.
func (c *tap) hold() (letGo func()) {
	gate := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = gate
	return func() {
		c.mu.Lock()
		c.gate = nil
		c.mu.Unlock()
		close(gate)
	}
}

// migrate has calls with several keys refused, or no longer, and those on the key silent not answered.
func (c *tap) migrate(apart bool, silent string) {
	c.hush(func(key string) bool { return key == silent })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apart = apart
}

// hush has the calls on such keys not answered.
func (c *tap) hush(silent func(key string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = silent
}

// delay makes all later replies slow.
func (c *tap) delay(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slow = d
}

// serve has the server run one call at a time from now on, each for that long.
func (c *tap) serve(spell time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line, c.spell = make(chan struct{}, 1), spell
}

// shop is an engine on an embedded server inside a bubble, whose renewals are quick unless the tap says otherwise.
type shop struct {
	*lease.Engine
	server *redistest.Server
	tap    *tap
	events []event
	mu     sync.Mutex
}

type event struct {
	name string
	err  error
}

func inShop(t *testing.T, fn func(t *testing.T, s *shop)) {
	t.Helper()
	inShopWith(t, lease.Heartbeats{}, fn)
}

func inShopWith(t *testing.T, beats lease.Heartbeats, fn func(t *testing.T, s *shop)) {
	t.Helper()
	inFreshShop(t, beats, func(t *testing.T, s *shop) {
		// The first look of all finds out that this server does not track keys; from then on there are only renewals.
		first := s.take(t, "first", term)
		time.Sleep(time.Second)
		require.NoError(t, s.Remove(first.Lease))
		s.tap.calls()
		s.renewals()
		fn(t, s)
	})
}

func inFreshShop(t *testing.T, beats lease.Heartbeats, fn func(t *testing.T, s *shop)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shop{server: redistest.Bubble(t)}
		c := redistest.NoError(rueidis.NewClient(s.server.Option()))(t)
		s.tap = &tap{Client: c, gone: make(chan struct{})}
		s.Engine = lease.New(lease.Config{
			Client: s.tap, Runner: script.NewRunner(s.tap, 500*time.Millisecond), Log: slog.New(slog.DiscardHandler),
			Heartbeats: beats,
		})
		defer func() { // also after a failure: nothing may outlast the bubble
			close(s.tap.gone)
			s.Stop()
			synctest.Wait() // the runner's last flights
			c.Close()
			s.server.Embedded.Close()
		}()
		fn(t, s)
	})
}

// renewals returns what the observer was told since the last time.
func (s *shop) renewals() []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events = nil
	return events
}

// held is a lease and its holder, with what it was told.
type held struct {
	*lease.Lease
	shop    *shop // nil unless the renewals matter
	shown   string
	records int
	mu      sync.Mutex
	whys    []error
	ended   time.Time
}

func (h *held) why(t *testing.T) error {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.LessOrEqual(t, len(h.whys), 1, "the end is told once")
	if len(h.whys) == 0 {
		return nil
	}
	return h.whys[0]
}

func (h *held) end() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

func (h *held) Ended(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.whys, h.ended = append(h.whys, why), time.Now()
}

func (h *held) Renewed(err error) {
	if s := h.shop; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, event{h.Name, err})
	}
}

func (*held) InUse() bool     { return true }
func (h *held) Shown() string { return h.shown }
func (h *held) Records() int  { return h.records }

var owners atomic.Int64

func newLease(name string) *held {
	h := &held{}
	h.Lease = &lease.Lease{
		Name: name, Key: name, Owner: strconv.FormatInt(owners.Add(1), 10), Renew: renew, Of: h,
	}
	return h
}

// grant writes the key of h on the server.
func (s *shop) grant(t *testing.T, h *held, d time.Duration) {
	t.Helper()
	if h.shop == nil { // the lease is not registered yet
		h.shop = s
	}
	require.NoError(t, s.server.Embedded.Set(h.Key, h.Owner))
	s.server.Embedded.SetTTL(h.Key, d)
}

// take is an acquisition that took no time, to be renewed.
func (s *shop) take(t *testing.T, name string, d time.Duration) *held {
	t.Helper()
	h := newLease(name)
	s.grant(t, h, d)
	require.True(t, s.Add(h.Lease, time.Now(), time.Now(), d, true, 0))
	return h
}

// fix is an acquisition that took no time, of a lease that is not renewed.
func (s *shop) fix(t *testing.T, h *held, d time.Duration) *held {
	t.Helper()
	s.grant(t, h, d)
	require.True(t, s.Add(h.Lease, time.Now(), time.Now(), d, false, 0))
	return h
}

// wall is a wall clock that a test sets ahead of the other.
func (s *shop) wall() (ahead *atomic.Int64) {
	ahead = new(atomic.Int64)
	synctest.Wait()
	s.look(ahead)
	return ahead
}

// look has the engine look at the wall clock.
func (s *shop) look(ahead *atomic.Int64) {
	s.SetWall(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
}

// engine is one of a client, that logs nothing.
func engine(c rueidis.Client) *lease.Engine {
	return lease.New(lease.Config{Client: c, Runner: script.NewRunner(c, time.Second), Log: slog.New(slog.DiscardHandler)})
}

func TestMargin_AnyLease_IsSmallAndGrows(t *testing.T) {
	t.Parallel()
	require.Equal(t, 160*time.Millisecond, lease.Margin(30*time.Second))
	require.Equal(t, 1050*time.Microsecond, lease.Margin(10*time.Millisecond))
	last := time.Duration(0)
	for d := 10 * time.Millisecond; d < 100*365*24*time.Hour; d += d / 7 {
		m := lease.Margin(d)
		require.Greater(t, m, last)
		require.GreaterOrEqual(t, m, d/200, "clocks that differ by half a percent")
		require.Less(t, m, d/5)
		last = m
	}
}

func TestLease_AllowsForDrift_IsTrustedForLess(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		for length, off := range map[time.Duration]time.Duration{term: 302 * time.Millisecond,
			time.Second: 15 * time.Millisecond} {
			h := newLease("l" + length.String())
			h.Drift = true
			s.fix(t, h, length)
			require.Equal(t, time.Now().Add(length-off), s.Until(h.Lease), "of %v", length)
		}
	})
}

func TestDeadline_Grant_CountsFromBeforeTheSend(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		sent := time.Now()
		time.Sleep(2 * time.Second) // the round trip
		h := newLease("l")
		s.grant(t, h, term)
		require.True(t, s.Add(h.Lease, sent, sent, term, false, 0))
		deadline := sent.Add(term - lease.Margin(term))
		require.Equal(t, deadline, s.Until(h.Lease))
		require.Equal(t, h.Lease, s.Find("l", h.Owner))
		require.Nil(t, s.Find("l", "somebody"))
		time.Sleep(time.Until(deadline) - 1)
		require.NoError(t, s.Over(h.Lease))
		require.NoError(t, h.why(t))
		time.Sleep(time.Nanosecond)
		require.ErrorIs(t, s.Over(h.Lease), errs.ErrLost)
		synctest.Wait()
		require.ErrorIs(t, h.why(t), errs.ErrLost)
		require.Equal(t, deadline, h.end())
		require.ErrorIs(t, s.Remove(h.Lease), errs.ErrLost)
		require.False(t, s.Confirmed(h.Lease, time.Now(), term), "what is over stays over")
		require.False(t, s.Auto(h.Lease, term))
		require.False(t, s.Lost(h.Lease, errs.ErrLost))
		require.Empty(t, s.tap.calls(), "nobody wanted it renewed")
	})
}

func TestLease_OverBeforeItsGrant_IsNotRegistered(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		h := newLease("l")
		require.False(t, s.Add(h.Lease, time.Now(), time.Now().Add(-term+lease.Margin(term)), term, true, 0))
		require.Empty(t, s.Names())
		time.Sleep(long)
		require.NoError(t, h.why(t))
	})
}

func TestRenewals_Slow_KeepToTheirSchedule(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		s.tap.delay(300 * time.Millisecond)
		start := time.Now()
		h := s.take(t, "l", term)
		for n := range redistest.Sized(50, 100, 1000) {
			time.Sleep(time.Until(start.Add(time.Duration(n+1)*10*time.Second + 5*time.Second)))
			calls := s.tap.calls()
			require.Len(t, calls, 1)
			point := start.Add(time.Duration(n+1) * 10 * time.Second)
			require.LessOrEqual(t, calls[0].at, point)
			require.LessOrEqual(t, point.Sub(calls[0].at), 100*time.Millisecond)
			require.Equal(t, calls[0].at.Add(term-lease.Margin(term)), s.Until(h.Lease), "from before the send")
		}
		require.NoError(t, h.why(t))
		require.NoError(t, s.Remove(h.Lease))
	})
}

func TestRemove_ReplyComesAfter_ChangesNothing(t *testing.T) {
	t.Parallel()
	for _, verdict := range []string{"renewed", "gone"} {
		t.Run(verdict, func(t *testing.T) {
			inShop(t, func(t *testing.T, s *shop) {
				h := s.take(t, "l", term)
				deadline := s.Until(h.Lease)
				time.Sleep(9 * time.Second)
				if verdict == "gone" {
					s.server.Embedded.Del("l")
				}
				s.tap.delay(400 * time.Millisecond)
				time.Sleep(time.Second + 200*time.Millisecond)
				require.Equal(t, 1, len(s.tap.calls()), "a renewal is under way")
				require.NoError(t, s.Remove(h.Lease))
				next := s.take(t, "l", term) // the same name again, another owner
				expected := s.Until(next.Lease)
				time.Sleep(time.Second)
				require.Equal(t, deadline, s.Until(h.Lease))
				require.NoError(t, h.why(t))
				require.Empty(t, s.renewals())
				require.Equal(t, expected, s.Until(next.Lease))
				require.Equal(t, []string{"l"}, s.Names())
				time.Sleep(long)
				require.NoError(t, next.why(t))
				require.NoError(t, s.Remove(next.Lease))
			})
		})
	}
}

func TestRenewal_NotHeld_EndsThatLeaseOnly(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		start := time.Now()
		a, b, c := s.take(t, "a", term), s.take(t, "b", term), s.take(t, "c", term)
		time.Sleep(5 * time.Second)
		require.NoError(t, s.server.Embedded.Set("b", "somebody else"))
		time.Sleep(6 * time.Second)
		require.ErrorIs(t, b.why(t), errs.ErrLost)
		require.LessOrEqual(t, b.ended, start.Add(10*time.Second), "at the renewal, not at the deadline")
		require.ElementsMatch(t, []event{{"a", nil}, {"b", errs.ErrLost}, {"c", nil}}, s.renewals())
		require.Equal(t, []string{"a", "c"}, s.Names())
		time.Sleep(long)
		require.NoError(t, a.why(t))
		require.NoError(t, c.why(t))
		held := redistest.NoError(s.server.Embedded.Get("b"))(t)
		require.Equal(t, "somebody else", held)
	})
}

func TestRenewal_Unanswered_IsRepeatedUntilTheDeadline(t *testing.T) {
	t.Parallel()
	for _, trouble := range []string{"of one key", "of the server", "of a right", "of the network"} {
		for _, mended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, mended: %v", trouble, mended), func(t *testing.T) {
				inShop(t, func(t *testing.T, s *shop) {
					a, b := s.take(t, "a", term), s.take(t, "b", term)
					deadline := s.Until(b.Lease)
					time.Sleep(5 * time.Second)
					mend, tries := func() {}, 10
					switch trouble {
					case "of one key":
						s.server.Embedded.Del("b")
						s.server.Embedded.HSet("b", "f", "v")
						mend = func() { s.server.Embedded.Del("b"); s.grant(t, b, term) }
					case "of the server":
						s.server.Embedded.SetError("LOADING away")
						mend = func() { s.server.Embedded.SetError("") }
					case "of a right":
						s.server.Embedded.SetError("NOPERM User app has no permissions to run the 'pexpire' command")
						mend = func() { s.server.Embedded.SetError("") }
					case "of the network":
						mend, tries = s.tap.hold(), 2 // where nothing is answered, each when half of what is left has passed
					}
					time.Sleep(21 * time.Second) // until 26 s of 30
					require.GreaterOrEqual(t, len(s.tap.calls()), tries+1)
					require.NoError(t, b.why(t))
					require.Equal(t, deadline, s.Until(b.Lease))
					failed := 0
					for _, ev := range s.renewals() {
						if ev.err != nil {
							require.NotErrorIs(t, ev.err, errs.ErrLost)
							failed++
						}
					}
					require.GreaterOrEqual(t, failed, tries)
					if mended {
						mend()
					}
					time.Sleep(10 * time.Second)
					if mended {
						require.NoError(t, b.why(t))
						time.Sleep(long)
						require.NoError(t, b.why(t))
						s.tap.calls()
						time.Sleep(100 * time.Second)
						require.Equal(t, 10, len(s.tap.calls()), "and the old schedule is resumed")
					} else {
						require.ErrorIs(t, b.why(t), errs.ErrLost)
						require.Equal(t, deadline, b.end())
						mend()
						time.Sleep(long)
						require.Equal(t, deadline, s.Until(b.Lease), "a late reply moves nothing")
						require.NotContains(t, s.Names(), "b")
					}
					if trouble == "of one key" {
						require.NoError(t, a.why(t), "the failure of one key is not another's")
					}
				})
			})
		}
	}
}

func TestMaxHold_RenewedHold_Ends(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		for _, most := range []time.Duration{5 * time.Second, 100 * time.Second} {
			start := time.Now()
			h := newLease("l")
			s.grant(t, h, term)
			require.True(t, s.Add(h.Lease, start, start, term, true, most))
			require.LessOrEqual(t, s.Until(h.Lease), start.Add(most))
			time.Sleep(most - 1)
			require.NoError(t, h.why(t))
			require.Equal(t, start.Add(most), s.Until(h.Lease))
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			require.ErrorIs(t, h.why(t), errs.ErrMaxHold)
			require.Empty(t, s.Names())
			require.Equal(t, errs.ErrMaxHold, s.Remove(h.Lease), "for good")
		}
	})
}

func TestRenewal_NoHandleWantsIt_Stops(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		start := time.Now()
		h := s.fix(t, newLease("l"), term)
		time.Sleep(15 * time.Second)
		require.Empty(t, s.tap.calls())
		require.True(t, s.Auto(h.Lease, term))
		require.True(t, s.Auto(h.Lease, term))
		time.Sleep(100 * time.Second)
		require.Equal(t, 10, len(s.tap.calls()))
		s.Manual(h.Lease)
		time.Sleep(100 * time.Second)
		require.Equal(t, 10, len(s.tap.calls()), "one handle still wants it")
		s.Manual(h.Lease)
		time.Sleep(100 * time.Second)
		require.Empty(t, s.tap.calls())
		require.ErrorIs(t, h.why(t), errs.ErrLost)
		require.Less(t, h.end().Sub(start), 15*time.Second+200*time.Second+term, "the lease ran out")
	})
}

// The lease of WithLease, of a lock that was handed over and that somebody re-enters before it was raised: the renewal
// that is due must ask for the longer one.
func TestReentry_BeforeTheRaise_KeepsTheHoldsLease(t *testing.T) {
	t.Parallel()
	const written, short = 4 * time.Second, 2 * time.Second
	for _, left := range []bool{false, true} {
		t.Run(fmt.Sprintf("it ends before the raise: %v", left), func(t *testing.T) {
			inShop(t, func(t *testing.T, s *shop) {
				sent := time.Now()
				h := newLease("l")
				s.grant(t, h, written)
				require.True(t, s.AddHanded(h.Lease, sent, written, term, false, 0))
				time.Sleep(100 * time.Millisecond)
				require.True(t, s.Confirmed(h.Lease, time.Now(), short))
				require.True(t, s.Auto(h.Lease, short))
				require.Empty(t, s.tap.calls())
				if left {
					s.Manual(h.Lease)
				}
				time.Sleep(written / 2)
				require.NoError(t, h.why(t))
				if !left {
					s.Manual(h.Lease)
				}
				require.WithinDuration(t, sent.Add(term), s.Until(h.Lease), written)
				time.Sleep(time.Until(sent.Add(term - time.Second)))
				require.NoError(t, h.why(t))
				time.Sleep(written)
				require.ErrorIs(t, h.why(t), errs.ErrLost)
			})
		})
	}
}

func TestHint_OneKey_IsFollowedAtOnceAndProvesNothing(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		a, b := s.take(t, "a", time.Hour), s.take(t, "b", time.Hour)
		manual := s.fix(t, newLease("m"), time.Hour)
		time.Sleep(time.Minute)
		s.tap.calls()
		s.Check("a")
		s.Check("of nobody here")
		synctest.Wait()
		calls := s.tap.calls()
		require.Len(t, calls, 1)
		require.Equal(t, []string{"a"}, calls[0].keys)
		require.True(t, calls[0].looks)
		require.NoError(t, a.why(t), "it is there")
		s.server.Embedded.Del("a")
		s.Check("a")
		synctest.Wait()
		require.ErrorIs(t, a.why(t), errs.ErrLost)
		s.server.Embedded.Del("m")
		s.CheckAll()
		synctest.Wait()
		require.ErrorIs(t, manual.why(t), errs.ErrLost, "also what is not renewed")
		require.NoError(t, b.why(t))
	})
}

// The connection that tracks comes up, or loses everything, just after a lease was asked about that was a little young
// for it and went with another.
func TestLease_ShortenedByAnother_IsRaisedOrTrustedLess(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		fixed, auto := s.fix(t, newLease("fixed"), term), s.take(t, "auto", term)
		time.Sleep(time.Second)
		s.tap.calls()
		const left = 5 * time.Second
		for _, h := range []*held{fixed, auto} {
			s.server.Embedded.SetTTL(h.Key, left)
			s.Check(h.Key)
		}
		time.Sleep(100 * time.Millisecond)
		require.Less(t, time.Until(s.Until(fixed.Lease)), left)
		require.Greater(t, time.Until(s.Until(fixed.Lease)), left/2)
		require.Greater(t, time.Until(s.Until(auto.Lease)), term-time.Second)
		require.Greater(t, s.server.Embedded.TTL("auto"), term-time.Second)
		time.Sleep(2 * left)
		require.ErrorIs(t, fixed.why(t), errs.ErrLost)
		require.NoError(t, auto.why(t))
	})
}

// A look reads the short lease; before its answer is there, an Extend is confirmed.
func TestLook_BeforeAConfirmation_TakesNothingOffIt(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		h := s.fix(t, newLease("l"), term)
		time.Sleep(time.Second)
		s.server.Embedded.SetTTL("l", 5*time.Second)
		letGo := s.tap.hold()
		s.Check("l")
		time.Sleep(100 * time.Millisecond)
		s.server.Embedded.SetTTL("l", term)
		require.True(t, s.Confirmed(h.Lease, time.Now(), term))
		s.tap.calls()
		letGo()
		time.Sleep(100 * time.Millisecond)
		require.Greater(t, time.Until(s.Until(h.Lease)), term-time.Second)
		require.Len(t, s.tap.calls(), 1, "it is looked at again")
	})
}

func TestConfirmation_BeforeALook_HidesNothingItFound(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		h := s.fix(t, newLease("l"), term)
		time.Sleep(time.Second)
		sent := time.Now() // of an Extend, which is answered late
		time.Sleep(100 * time.Millisecond)
		s.server.Embedded.SetTTL("l", 5*time.Second)
		s.Check("l")
		time.Sleep(100 * time.Millisecond)
		require.Less(t, time.Until(s.Until(h.Lease)), 5*time.Second)
		s.tap.calls()
		require.True(t, s.Confirmed(h.Lease, sent, term))
		time.Sleep(100 * time.Millisecond)
		require.Len(t, s.tap.calls(), 1, "it is looked at again")
		require.Less(t, time.Until(s.Until(h.Lease)), 5*time.Second)
	})
}

func TestHint_Everything_CoversALeaseCheckedEarly(t *testing.T) {
	inFreshShop(t, lease.Heartbeats{}, func(t *testing.T, s *shop) {
		s.take(t, "a", term)
		time.Sleep(8 * time.Millisecond)
		s.take(t, "b", term)
		time.Sleep(42*time.Millisecond + time.Microsecond)
		synctest.Wait()
		calls := s.tap.calls()
		require.Len(t, calls, 1)
		require.ElementsMatch(t, []string{"a", "b"}, calls[0].keys, "it goes with the other")
		s.take(t, "c", term)
		s.CheckAll()
		synctest.Wait()
		calls = s.tap.calls()
		require.Len(t, calls, 1)
		require.Subset(t, calls[0].keys, []string{"a", "b"})
	})
}

// Leases of the same length share calls: full ones if they were taken together, and else one each 100 ms.
func TestRenewals_TakenTogetherOrNot_ShareCalls(t *testing.T) {
	t.Parallel()
	const periods = 3
	for name, x := range map[string]struct {
		leases, together int // so many are taken, and so many in an instant
		pause            time.Duration
		least, most      int // calls in each period
	}{
		"within 90 ms": {leases: 1000, together: 100, pause: 9 * time.Millisecond, least: 1000 / lease.BatchSize,
			most: (1000 + lease.BatchSize - 1) / lease.BatchSize},
		"at any time": {leases: 300, together: 1, pause: 10 * time.Millisecond, most: 300/10 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			inShop(t, func(t *testing.T, s *shop) {
				all := make([]*held, x.leases)
				for i := range all {
					if all[i] = s.take(t, fmt.Sprint("l", i), term); i%x.together == x.together-1 {
						time.Sleep(x.pause)
					}
				}
				time.Sleep(5 * time.Second) // off the renewals
				s.tap.calls()
				time.Sleep(periods * 10 * time.Second)
				passed, renewed := s.tap.calls(), map[string]int{}
				require.LessOrEqual(t, len(passed), periods*x.most)
				require.GreaterOrEqual(t, len(passed), periods*x.least)
				for _, c := range passed {
					require.LessOrEqual(t, len(c.keys), lease.BatchSize)
					for _, k := range c.keys {
						renewed[k]++
					}
				}
				for _, h := range all {
					require.Equal(t, periods, renewed[h.Key])
					require.NoError(t, h.why(t))
				}
			})
		})
	}
}

func TestWallClock_Jumps_ForcesOneRenewal(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		ahead := s.wall()
		start := time.Now()
		a, b := s.take(t, "a", time.Hour), s.take(t, "b", time.Hour)
		deadline := s.Until(a.Lease)
		time.Sleep(time.Minute)
		require.Empty(t, s.tap.calls())

		for range 100 {
			ahead.Add(int64(20 * time.Millisecond)) // slewed by 2 percent
			time.Sleep(time.Second)
		}
		ahead.Add(int64(-10 * time.Minute))
		time.Sleep(time.Minute)
		require.Empty(t, s.tap.calls(), "a clock that is slewed, or set back, says nothing")
		require.Equal(t, deadline, s.Until(a.Lease))

		ahead.Add(int64(time.Minute)) // the machine was suspended
		s.server.Embedded.Del("b")
		time.Sleep(2 * time.Second)
		calls := s.tap.calls()
		require.Len(t, calls, 1)
		require.ElementsMatch(t, []string{"a", "b"}, calls[0].keys)
		require.False(t, calls[0].looks)
		require.ErrorIs(t, b.why(t), errs.ErrLost, "what was lost in its sleep is known at once")
		require.NoError(t, a.why(t))
		require.Equal(t, calls[0].at.Add(time.Hour-lease.Margin(time.Hour)), s.Until(a.Lease))

		time.Sleep(time.Until(start.Add(time.Hour - time.Minute)))
		calls = s.tap.calls()
		require.Len(t, calls, 2, "the schedule is what it was")
		require.WithinDuration(t, start.Add(20*time.Minute), calls[0].at, 100*time.Millisecond)
		require.WithinDuration(t, start.Add(40*time.Minute), calls[1].at, 100*time.Millisecond)
	})
}

// asleep has the machine sleep for d: the wall clock and the server go on, the monotonic clock does not.
func (s *shop) asleep(ahead *atomic.Int64, d time.Duration) {
	ahead.Add(int64(d))
	for _, key := range s.server.Embedded.Keys() {
		if left := s.server.Embedded.TTL(key) - d; left > 0 {
			s.server.Embedded.SetTTL(key, left)
		} else {
			s.server.Embedded.Del(key)
		}
	}
}

// A fixed lease that is not over yet when the machine wakes, and the long one of an Extend, end when the server ends
// them.
func TestSleep_HoldAfterwards_IsTrustedAsTheServerSays(t *testing.T) {
	t.Parallel()
	const nap = 10 * time.Second
	for _, x := range []struct {
		name    string
		auto    bool
		extends bool
	}{{name: "fixed"}, {name: "fixed, then extended", extends: true},
		{name: "renewed, and extended beyond that", auto: true, extends: true}} {
		t.Run(x.name, func(t *testing.T) {
			inShop(t, func(t *testing.T, s *shop) {
				ahead := s.wall()
				h := newLease("l")
				lasts := term
				s.grant(t, h, lasts)
				require.True(t, s.Add(h.Lease, time.Now(), time.Now(), term, x.auto, 0))
				if x.extends {
					lasts = 2 * term
					s.server.Embedded.SetTTL("l", lasts)
					require.True(t, s.Confirmed(h.Lease, time.Now(), lasts))
				}
				start, deadline := time.Now(), s.Until(h.Lease)
				time.Sleep(5*time.Second + 300*time.Millisecond) // not in the instant in which the engine looks at the wall clock
				s.asleep(ahead, nap)
				require.Equal(t, deadline.Add(-nap), s.Until(h.Lease), "Until needs no timer")
				time.Sleep(2 * time.Second)
				require.NoError(t, h.why(t))
				over := start.Add(lasts - nap) // on the server
				until := s.Until(h.Lease)
				require.False(t, until.After(over))
				require.WithinDuration(t, over, until, time.Second)
				if x.auto {
					s.Manual(h.Lease)
				}
				time.Sleep(2 * lasts)
				require.ErrorIs(t, h.why(t), errs.ErrLost)
				require.Equal(t, until, h.end())
			})
		})
	}
}

func TestWallClock_Step_EndsNoHold(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		ahead := s.wall()
		fixed, auto := s.fix(t, newLease("fixed"), term), s.take(t, "auto", term)
		deadline := s.Until(fixed.Lease)
		time.Sleep(time.Second)
		letGo := s.tap.hold()
		ahead.Add(int64(24 * time.Hour))
		time.Sleep(8 * time.Second)
		for _, h := range []*held{fixed, auto} {
			require.True(t, s.Until(h.Lease).Before(time.Now()), "nobody knows")
			require.NoError(t, h.why(t))
			require.NoError(t, s.Over(h.Lease))
		}
		letGo()
		time.Sleep(time.Second)
		require.WithinDuration(t, deadline, s.Until(fixed.Lease), 100*time.Millisecond)
		require.Greater(t, time.Until(s.Until(auto.Lease)), term/2)
		s.tap.calls()
		time.Sleep(time.Until(deadline) - time.Second)
		for _, c := range s.tap.calls() {
			require.NotContains(t, c.keys, "fixed", "asked once")
		}
		require.NoError(t, fixed.why(t))
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, fixed.why(t), errs.ErrLost)
		require.NoError(t, auto.why(t))
	})
}

// A renewal under way when the machine falls asleep: its answer says what was true before.
func TestSleep_AnswerFromBefore_IsNoneAfterwards(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		ahead := s.wall()
		h := s.take(t, "l", term)
		time.Sleep(9 * time.Second)
		s.tap.delay(450 * time.Millisecond)
		time.Sleep(time.Second)
		synctest.Wait()
		sent := s.tap.calls()
		require.Len(t, sent, 1)
		time.Sleep(time.Millisecond)
		s.asleep(ahead, 15*time.Second)
		s.look(ahead)
		synctest.Wait()
		before := s.Until(h.Lease)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		answered := s.Until(h.Lease)
		require.True(t, answered.After(before), "answered")
		require.Equal(t, sent[0].at.Add(term-lease.Margin(term)-15*time.Second), answered)
		time.Sleep(2 * time.Second)
		again := s.tap.calls()
		require.NotEmpty(t, again)
		require.False(t, again[0].looks)
		require.Greater(t, s.Until(h.Lease), sent[0].at.Add(term-time.Second), "and it is asked again")
		require.NoError(t, h.why(t))
	})
}

// late is a client whose dedicated connections, or the first answers on them, come when a gate is opened, whatever
// becomes of the context, as rueidis' do of a server that is silent.
type late struct {
	rueidis.Client
	gate    chan struct{}
	connect bool // it is the connection that is late
	asked   atomic.Int32
	closed  atomic.Int32
}

type lateConn struct {
	rueidis.DedicatedClient
	c *late
}

func (c *late) Dedicate() (rueidis.DedicatedClient, func()) {
	if c.connect {
		c.asked.Add(1)
		<-c.gate
	}
	conn, release := c.Client.Dedicate()
	return &lateConn{conn, c}, release
}

func (x *lateConn) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if !x.c.connect {
		x.c.asked.Add(1)
		<-x.c.gate
	}
	return x.DedicatedClient.Do(ctx, cmd)
}

func (x *lateConn) Close() {
	x.c.closed.Add(1)
	x.DedicatedClient.Close()
}

func TestStop_ConnectionNotThereYet_DoesNotWait(t *testing.T) {
	t.Parallel()
	for _, connect := range []bool{true, false} {
		for _, closed := range []bool{true, false} {
			t.Run(fmt.Sprintf("the connection, not its first answer: %v, the client is closed first: %v", connect, closed),
				func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						server := redistest.Bubble(t)
						inner := redistest.NoError(rueidis.NewClient(server.Option()))(t)
						c := &late{Client: inner, gate: make(chan struct{}), connect: connect}
						e := engine(c)
						h := newLease("l")
						require.NoError(t, server.Embedded.Set(h.Key, h.Owner))
						require.True(t, e.Add(h.Lease, time.Now(), time.Now(), term, true, 0))
						time.Sleep(time.Second)
						require.EqualValues(t, 1, c.asked.Load())
						stopped := make(chan struct{})
						go func() {
							e.Stop()
							close(stopped)
						}()
						synctest.Wait()
						select {
						case <-stopped:
						default:
							t.Error("Stop waits")
						}
						if closed {
							c.Close()
						}
						close(c.gate)
						time.Sleep(time.Minute)
						require.EqualValues(t, 1, c.closed.Load())
						if !closed {
							require.NoError(t, c.Do(t.Context(), c.B().Ping().Build()).Error())
							c.Close()
						}
						<-stopped
						server.Embedded.Close()
					})
				})
		}
	}
}

func TestEndAll_Holds_AreStillRenewed(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		h := s.take(t, "l", term)
		s.EndAll(errs.ErrClosed)
		require.ErrorIs(t, h.why(t), errs.ErrClosed)
		time.Sleep(long + 5*time.Second)
		require.Equal(t, 60, len(s.tap.calls()), "the lock is still held for the work that is ending")
		require.NoError(t, s.Remove(h.Lease))
	})
}

func TestEngine_EverythingAtOnce_LeavesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	c := s.Client(t)
	e := engine(c)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				h := newLease(strconv.Itoa(rand.IntN(20)))
				s.Embedded.Set(h.Key, h.Owner) // may take it from another worker, whose next renewal says so
				if !e.Add(h.Lease, time.Now(), time.Now(), 20*time.Millisecond, rand.IntN(2) == 0,
					time.Duration(rand.IntN(2))*30*time.Millisecond) {
					continue
				}
				for range rand.IntN(20) {
					switch rand.IntN(8) {
					case 0:
						e.Auto(h.Lease, 40*time.Millisecond)
					case 1:
						e.Confirmed(h.Lease, time.Now(), 30*time.Millisecond)
					case 2:
						e.Check(h.Key)
					case 3:
						e.CheckAll()
					case 4:
						e.Over(h.Lease)
						e.Until(h.Lease)
					case 5:
						e.Find(h.Key, h.Owner)
						e.Names()
					case 6:
						e.Lost(h.Lease, errs.ErrLost)
					case 7:
						script.Pause(context.Background(), time.Duration(rand.IntN(5))*time.Millisecond)
					}
				}
				removed := e.Remove(h.Lease) == nil
				h.mu.Lock()
				if removed && len(h.whys) > 0 || len(h.whys) > 1 {
					t.Errorf("removed: %v, ended: %v", removed, h.whys)
				}
				h.mu.Unlock()
			}
		})
	}
	time.AfterFunc(redistest.Sized[time.Duration](100, 300, 2000)*time.Millisecond, func() { close(stop) })
	wg.Wait()
	n, due := e.Entries()
	require.Zero(t, n)
	require.Zero(t, due)
	e.Stop()
}

func TestWatchdog_AddAndRemoveInALoop_StaysAsleep(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		var looks atomic.Int32
		s.SetWall(func() time.Time { looks.Add(1); return time.Now() })
		synctest.Wait()
		looks.Store(0)
		for range 300 {
			h := newLease("l")
			s.grant(t, h, term)
			require.True(t, s.Add(h.Lease, time.Now(), time.Now(), term, true, 0))
			require.NoError(t, s.Remove(h.Lease)) // before the watchdog gets to look
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, looks.Load(), int32(3))
		h := s.take(t, "later", term)
		time.Sleep(long)
		require.NoError(t, h.why(t), "it wakes when there is something to do")
	})
}
