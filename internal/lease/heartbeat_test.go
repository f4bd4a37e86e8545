package lease_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// Beats of a second, trusted for three.
var beats = lease.Heartbeats{
	Interval: time.Second, Trust: 3 * time.Second, Value: "process",
	Key: func(group int) string { return fmt.Sprint("alive:", group) },
}

var trusted = beats.Trust - lease.Margin(beats.Trust)

// between is off the beats, so that none goes out in the instant in which a test looks.
const between = 300 * time.Millisecond

// hour is a lease whose renewals are far from any of these tests' times.
const hour = 3 * time.Hour

func TestHeartbeat_Confirmed_KeepsTheHold(t *testing.T) {
	inShopWith(t, beats, func(t *testing.T, s *shop) {
		start := time.Now()
		h := s.take(t, "l", hour)
		require.Equal(t, start.Add(trusted), s.Until(h.Lease), "without any beat")
		time.Sleep(time.Minute + between)
		require.NoError(t, h.why(t))
		require.NoError(t, s.Over(h.Lease))
		require.WithinRange(t, s.Until(h.Lease), time.Now().Add(trusted-beats.Interval), time.Now().Add(trusted))
		at := s.Until(h.Lease).Add(-trusted) // when the last one was sent

		letGo := s.tap.hold()
		time.Sleep(time.Until(at.Add(trusted - time.Millisecond)))
		require.NoError(t, h.why(t))
		require.NoError(t, s.Over(h.Lease))
		time.Sleep(time.Millisecond)
		require.ErrorIs(t, s.Over(h.Lease), errs.ErrLost, "at once, whoever gets to look first")
		time.Sleep(time.Millisecond)
		require.ErrorIs(t, h.why(t), errs.ErrLost)
		require.Equal(t, at.Add(trusted), h.end())
		letGo()
		time.Sleep(time.Minute)
		require.ErrorIs(t, s.Over(h.Lease), errs.ErrLost, "for good")
	})
}

func TestHeartbeat_SlowServer_EndsNoHold(t *testing.T) {
	inShopWith(t, beats, func(t *testing.T, s *shop) {
		h := s.take(t, "l", hour)
		time.Sleep(beats.Interval + between)
		// the second: than the time in which a beat is given up
		for _, slow := range []time.Duration{600 * time.Millisecond, 1400 * time.Millisecond} {
			s.tap.delay(slow)
			time.Sleep(time.Minute)
			require.NoError(t, h.why(t))
			for range 10 { // also in the instant of an answer: a beat counts from before it was sent
				require.WithinRange(t, s.Until(h.Lease), time.Now().Add(trusted-slow-beats.Interval*11/10),
					time.Now().Add(trusted-slow))
				time.Sleep(beats.Interval / 10)
			}
		}
		s.tap.delay(5 * time.Second)
		time.Sleep(time.Minute)
		require.ErrorIs(t, h.why(t), errs.ErrLost, "what is confirmed after its trust is over helps nobody")
	})
}

// A process may die before its second beat, which would give the key an end, too.
func TestHeartbeat_First_HasAnEnd(t *testing.T) {
	inShopWith(t, beats, func(t *testing.T, s *shop) {
		s.take(t, "l", hour)
		seen := 0
		for range 40 {
			synctest.Wait()
			if s.server.Embedded.Exists(beats.Key(0)) {
				seen++
				require.Positive(t, s.server.Embedded.TTL(beats.Key(0)))
			}
			time.Sleep(beats.Interval / 10)
		}
		require.Positive(t, seen)
	})
}

// The others have counted its sleep as time without a beat.
func TestHeartbeat_AfterASleep_IsSentAtOnce(t *testing.T) {
	inShopWith(t, beats, func(t *testing.T, s *shop) {
		ahead := s.wall()
		h := s.take(t, "l", hour)
		time.Sleep(time.Minute + between)
		until := s.Until(h.Lease)
		letGo := s.tap.hold()
		ahead.Add(int64(2 * time.Second))
		s.look(ahead)
		synctest.Wait()
		beat := false
		for _, c := range s.tap.calls() {
			beat = beat || c.keys[0] == "alive:0"
		}
		require.True(t, beat)
		require.Equal(t, until.Add(-2*time.Second), s.Until(h.Lease))
		require.NoError(t, h.why(t))
		now := time.Now()
		letGo()
		synctest.Wait()
		require.Equal(t, now.Add(trusted), s.Until(h.Lease))
		time.Sleep(time.Minute)
		require.NoError(t, h.why(t))
	})
}

func TestHeartbeat_NewHold_IsTrustedFromItsFirstSight(t *testing.T) {
	inShopWith(t, beats, func(t *testing.T, s *shop) {
		time.Sleep(time.Minute) // beats of before do not count
		asked := time.Now()
		time.Sleep(2 * time.Second)
		h := newLease("l")
		s.grant(t, h, hour)
		require.True(t, s.Add(h.Lease, asked, time.Now(), hour, true, 0))
		require.Equal(t, asked.Add(trusted), s.Until(h.Lease), "not from the call that said so")
		require.NoError(t, s.Remove(h.Lease))

		require.False(t, s.Trusted("l", time.Now().Add(-trusted)))
		require.True(t, s.Trusted("l", time.Now().Add(-trusted+time.Millisecond)))
		late := newLease("late")
		s.grant(t, late, hour)
		require.False(t, s.Add(late.Lease, time.Now().Add(-trusted), time.Now(), hour, true, 0))
		require.Nil(t, s.Find("late", late.Owner))
	})
}

// While another hold keeps the beats going, one that was asked for long ago is trusted like all: a process that saw it
// saw the beats.
func TestHeartbeat_OneHold_CountsForAll(t *testing.T) {
	inShopWith(t, beats, func(t *testing.T, s *shop) {
		asked := time.Now()
		s.take(t, "other", hour)
		time.Sleep(10*time.Second + between)
		h := newLease("l")
		s.grant(t, h, hour)
		require.True(t, s.Add(h.Lease, asked.Add(5*time.Second), time.Now(), hour, true, 0))
		require.Greater(t, s.Until(h.Lease), time.Now().Add(trusted-2*beats.Interval))
		// Before the first beat of the row there may have been none for too long.
		old := newLease("old")
		s.grant(t, old, hour)
		require.False(t, s.Add(old.Lease, asked.Add(-10*time.Second), time.Now(), hour, true, 0))
	})
}

// A gap in the beats ends what may have been seen before it, and no beat after the gap brings that back. A hold that is
// younger outlasts it: its first beat is heard in time.
func TestHeartbeat_AfterAGap_BringsNothingBack(t *testing.T) {
	inShopWith(t, beats, func(t *testing.T, s *shop) {
		old := s.take(t, "old", hour)
		time.Sleep(10*time.Second + between)
		asked := time.Now()
		letGo := s.tap.hold()
		time.Sleep(2 * time.Second)
		young := s.take(t, "young", hour)
		at := time.Now()
		time.Sleep(2500 * time.Millisecond)
		require.ErrorIs(t, old.why(t), errs.ErrLost)
		require.NoError(t, young.why(t))
		require.Equal(t, at.Add(trusted), s.Until(young.Lease))
		letGo()
		time.Sleep(10 * time.Second) // beats again
		require.NoError(t, young.why(t))
		require.False(t, s.Trusted("l", asked))
		require.True(t, s.Trusted("l", time.Now().Add(-5*time.Second)))
	})
}

// Holds shorter than a beat send none; nothing is sent while nothing is held.
func TestHeartbeat_ShortHolds_IsNotSent(t *testing.T) {
	inShopWith(t, beats, func(t *testing.T, s *shop) {
		time.Sleep(time.Minute)
		s.tap.calls()
		for range 50 {
			h := s.take(t, "l", hour)
			time.Sleep(10 * time.Millisecond)
			require.NoError(t, s.Remove(h.Lease))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		for _, c := range s.tap.calls() {
			require.NotContains(t, strings.Join(c.keys, " "), "alive:")
		}
		require.False(t, s.server.Embedded.Exists("alive:0"))
	})
}

func TestSlotGroups_AllSlots_AreCovered(t *testing.T) {
	t.Parallel()
	seen := map[int]int{}
	for n := range 1 << 14 {
		d := lease.SlotGroup(true, fmt.Sprint("key", n))
		require.True(t, d >= 0 && d < lease.SlotGroups)
		seen[d]++
	}
	require.Len(t, seen, lease.SlotGroups)
	for d := range lease.SlotGroups {
		tag := lease.SlotGroupTag(d)
		require.Equal(t, d, int(keyname.Slot("redlatch_alive:{"+tag+"}:x"))*lease.SlotGroups/16384)
		require.Zero(t, lease.SlotGroup(false, tag))
	}
}

func TestConnectionID_Trust_IsInIt(t *testing.T) {
	t.Parallel()
	for _, trust := range []time.Duration{0, 150 * time.Millisecond, 3 * time.Second, lease.MaxTrust} {
		text, id := lease.NewConnectionID(trust, false)
		require.Equal(t, trust, lease.TrustIn(text+":12"))
		require.Equal(t, trust, lease.TrustIn(text+":12:label"))
		require.Len(t, text, 36)
		require.Equal(t, byte('8'), text[14])
		require.Equal(t, byte(0x80), id[8]&0xc0)
		require.Equal(t, "redlatch_alive:"+text, lease.BeatKeyFor(text, "key"))
		text, _ = lease.NewConnectionID(trust, true)
		require.Equal(t, trust, lease.TrustIn(text+":12"))
		require.Equal(t, "redlatch_alive:{"+lease.SlotGroupTag(lease.SlotGroup(true, "key"))+"}:"+text[:18],
			lease.BeatKeyFor(text[:18], "key"), "as semaphores have it")
		require.Equal(t, "redlatch_alive:", lease.BeatKeyFor("", "key"), "an id of Redisson's has no client")
	}
	for _, foreign := range []string{
		"", "x", "8c2d3a54-1111-4fff-9fff-0123456789ab:57", "8c2d3a54-1111-8zzz-9fff-0123456789ab:57",
		"0123456789abcd800a0123456789abcdef012345",     // random hex digits
		"8c2d3a54-1111-8fff-9fff-0123456789ab",         // a UUID of version 8 that nobody has put a number behind
		"8c2d3a54-1111-8fff-9fff-0123456789ab:job",     // or something else
		"8c2d3a54-1111-8fff-9fff-0123456789ab0123:57",  // or more of itself
		"8c2d3a54-1111-8fff-cfff-0123456789ab:57",      // of another variant
		"x8c2d3a54-1111-8fff-9fff-0123456789ab:57",     // inside something
		"8C2D3A54-1111-8FFF-9FFF-0123456789AB:57",      // ours are in small letters
		"8c2d3a54111118fff9fff00123456789abcdef0000:1", // without dashes
	} {
		require.Zero(t, lease.TrustIn(foreign), foreign)
	}
}

// miniredis lets its clock run on during a script, so the embedded server has a clock that stands still.
func TestBeat_ChangedExpiry_IsAnotherBeat(t *testing.T) {
	t.Parallel()
	show := func(t *testing.T, s *redistest.Server) {
		c := s.Client(t)
		r := script.NewRunner(c, 10*time.Second)
		look := func() lease.Beat {
			b := redistest.NoError(lease.Look(context.Background(), r, "k"))(t)
			return b
		}
		do := func(words ...string) {
			require.NoError(t, c.Do(context.Background(), c.B().Arbitrary(words...).Build()).Error())
		}
		none := look()
		require.Equal(t, lease.Beat{}, none)
		do("SET", "k", "here", "PX", "60000")
		first := look()
		require.Equal(t, "here", first.Value)
		require.False(t, first.Same(none), "a beat after none")
		require.True(t, look().Same(first))
		do("PEXPIRE", "k", "61000")
		second := look()
		require.False(t, second.Same(first))
		do("PEXPIRE", "k", "59000")
		require.False(t, look().Same(second), "also when the clock stepped back")
		do("DEL", "k")
		require.True(t, look().Same(second), "a missing heartbeat proves nothing")
		require.True(t, look().Same(none))
	}
	t.Run("embedded", func(t *testing.T) {
		redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) { show(t, servers[0]) })
	})
	t.Run("redis", func(t *testing.T) { show(t, redistest.Start(t)) })
}

func TestLook_UnexpectedReply_IsAnError(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	_, err := lease.Look(context.Background(), script.NewRunner(redistest.Forged{Client: s.Client(t)}, time.Second), "k")
	require.ErrorContains(t, err, "unexpected reply of 1 values")
	require.NotContains(t, err.Error(), "%!")
}

// ofRenewed are beats for what is renewed alone.
func ofRenewed() lease.Heartbeats {
	b := beats
	b.Renewed = 30 * time.Second
	return b
}

// Who is killed in its first second was there: a beat says so as soon as anything is held.
func TestHeartbeat_FirstHold_IsSentAtOnce(t *testing.T) {
	for name, hold := range map[string]func(t *testing.T, s *shop){
		"of a hold": func(t *testing.T, s *shop) { s.take(t, "l", 30*time.Second) },
		"before it": func(t *testing.T, s *shop) {
			for range 3 {
				s.Announce("l")
			}
			synctest.Wait()
			require.True(t, s.server.Embedded.Exists(beats.Key(0)))
			s.take(t, "l", 30*time.Second)
			s.Announce("l")
		},
		"of a hold of a moment": func(t *testing.T, s *shop) {
			require.NoError(t, s.Remove(s.take(t, "l", 30*time.Second).Lease))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFreshShop(t, ofRenewed(), func(t *testing.T, s *shop) {
				hold(t, s)
				synctest.Wait()
				require.Len(t, s.tap.calls(), 1)
				require.Equal(t, 2*(30*time.Second+beats.Trust), s.server.Embedded.TTL(beats.Key(0)),
					"as long as the lease of whoever comes before the next one")
			})
		})
	}
}

// Whatever is acquired, the last beat's key is there for longer than its lease.
func TestHeartbeat_ShortRenewedHolds_OneInALease(t *testing.T) {
	inFreshShop(t, ofRenewed(), func(t *testing.T, s *shop) {
		const minutes = 10
		for range minutes * 80 {
			h := s.take(t, "l", 30*time.Second)
			synctest.Wait()
			require.Greater(t, s.server.Embedded.TTL(beats.Key(0)), 30*time.Second)
			time.Sleep(10 * time.Millisecond)
			require.NoError(t, s.Remove(h.Lease))
			time.Sleep(740 * time.Millisecond) // none is held when the next beat would be due
		}
		sent := 0
		for _, c := range s.tap.calls() {
			if c.keys[0] == beats.Key(0) {
				sent++
			}
		}
		require.InDelta(t, minutes*60/33, sent, 2)
	})
}

// What is not renewed, or is shorter, ends by itself, and beats say nothing of it.
func TestHeartbeat_FixedLease_HasNoPartInIt(t *testing.T) {
	inFreshShop(t, ofRenewed(), func(t *testing.T, s *shop) {
		for name, x := range map[string]struct {
			length time.Duration
			auto   bool
		}{"not renewed": {hour, false}, "short": {29 * time.Second, true}} {
			h := newLease(name)
			s.grant(t, h, x.length)
			at := time.Now()
			require.True(t, s.Add(h.Lease, at.Add(-time.Minute), at, x.length, x.auto, 0))
			require.Equal(t, at.Add(x.length-lease.Margin(x.length)), s.Until(h.Lease))
			time.Sleep(4 * beats.Trust)
			require.NoError(t, h.why(t))
			require.Zero(t, s.Views()[0].Trust)
			require.NoError(t, s.Remove(h.Lease))
		}
		require.False(t, s.server.Embedded.Exists(beats.Key(0)))
	})
}

// waited is something that a monitor watches, without a server but for heartbeats.
type waited struct {
	holds func() []lease.Hold
	taken atomic.Int64
}

func (w *waited) Holds(context.Context) ([]lease.Hold, error) { return w.holds(), nil }

func (w *waited) TakeOver(_ context.Context, gone []lease.Hold) { w.taken.Add(int64(len(gone))) }

func TestMonitor_BeatUnchangedForTheTrust_TakesOver(t *testing.T) {
	inFreshShop(t, lease.Heartbeats{}, func(t *testing.T, s *shop) {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		m := lease.NewMonitor(script.NewRunner(s.tap.Client, time.Second), beats.Interval, time.Second,
			func(fn func(context.Context)) bool {
				running.Go(func() { fn(ctx) })
				return true
			})
		beat := func(key string) {
			require.NoError(t, s.server.Embedded.Set(key, "here"))
			s.server.Embedded.SetTTL(key, hour)
		}
		hold := func(owner string, proven bool) []lease.Hold {
			return []lease.Hold{{Owner: owner, Beat: "alive:" + strings.TrimRight(owner, "1"), Trust: beats.Trust,
				Proven: proven}}
		}
		beat("alive:dead")
		owner := "many"
		watched := map[string]*waited{
			"gone":                {holds: func() []lease.Hold { return hold("dead", true) }},
			"never heard of":      {holds: func() []lease.Hold { return hold("silent", false) }},
			"not known to beat":   {holds: func() []lease.Hold { return hold("other", true) }},
			"beating":             {holds: func() []lease.Hold { return hold("alive", true) }},
			"held by ever others": {holds: func() []lease.Hold { owner += "1"; return hold(owner, false) }},
		}
		for name, w := range watched {
			m.Watch(name, w)
			m.Watch(name, w)
			m.Unwatch(name)
		}
		for n := range 4 * int(beats.Trust/beats.Interval) {
			beat("alive:alive")
			require.True(t, n > 2 || watched["gone"].taken.Load() == 0, "not before it was seen for that long")
			time.Sleep(beats.Interval)
		}
		for name, w := range watched {
			require.Equal(t, name == "gone" || name == "never heard of", w.taken.Load() > 0, name)
			m.Unwatch(name)
		}
		time.Sleep(2 * beats.Trust)
		taken := watched["gone"].taken.Load()
		time.Sleep(10 * beats.Trust)
		require.Equal(t, taken, watched["gone"].taken.Load(), "nobody waits any more, for long")
	})
}
