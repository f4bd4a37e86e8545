package lease_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// A server that could renew everything in 0.6 of the time there is answers most calls later than the call timeout. Were
// they sent anew meanwhile, it would run everything several times, and answer nothing in time.
func TestRenewal_NotAnsweredYet_IsNotSentAnew(t *testing.T) {
	redistest.SkipShort(t)
	const batches, rounds = 36, 4
	inShop(t, func(t *testing.T, s *shop) {
		var all []*held
		for i := range batches * lease.BatchSize {
			all = append(all, s.take(t, fmt.Sprint("l", i), term))
		}
		s.tap.serve(term / 3 * 6 / 10 / batches)
		time.Sleep(rounds*term/3 + term/4)
		calls, lost := len(s.tap.calls()), 0
		for _, h := range all {
			if h.why(t) != nil {
				lost++
			}
		}
		t.Logf("%d calls for %d batches in %d rounds, %d of %d lost", calls, batches, rounds, lost, len(all))
		require.Zero(t, lost)
		require.LessOrEqual(t, calls, (rounds+1)*batches)
		for _, ev := range s.renewals() {
			require.NoError(t, ev.err)
		}
	})
}

func TestLateReply_TwoSends_CountsFromItsOwn(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprintf("the call that was sent since is answered before it: %v", answered), func(t *testing.T) {
			inShop(t, func(t *testing.T, s *shop) {
				start := time.Now()
				h := s.take(t, "l", term)
				granted := s.Until(h.Lease)
				first := s.tap.hold()
				time.Sleep(15 * time.Second)
				sent := s.tap.calls()
				require.Len(t, sent, 1)
				second := s.tap.hold()
				time.Sleep(6 * time.Second)
				again := s.tap.calls()
				require.Len(t, again, 1, "after half of what was left")
				require.Equal(t, granted, s.Until(h.Lease))
				if answered {
					second()
					synctest.Wait()
				}
				first()
				synctest.Wait()
				counts := sent[0].at
				if answered {
					counts = again[0].at
				}
				require.Equal(t, counts.Add(term-lease.Margin(term)), s.Until(h.Lease))
				require.NoError(t, h.why(t))
				if !answered {
					second()
				}
				time.Sleep(time.Until(start.Add(35 * time.Second)))
				require.Len(t, s.tap.calls(), 1, "the schedule is what it was")
				time.Sleep(long)
				require.NoError(t, h.why(t))
				require.Equal(t, 60, len(s.tap.calls()))
			})
		})
	}
}

// The call is given up after half of what was left, and sent anew a quarter of a second later: the reply comes in
// between.
func TestLateReply_OneSend_CountsFromIt(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		start := time.Now()
		h := s.take(t, "l", term)
		first := s.tap.hold()
		time.Sleep(time.Until(start.Add(20 * time.Second)))
		sent := s.tap.calls()
		require.Len(t, sent, 1)
		first()
		synctest.Wait()
		require.Equal(t, sent[0].at.Add(term-lease.Margin(term)), s.Until(h.Lease))
		time.Sleep(9 * time.Second)
		require.Empty(t, s.tap.calls(), "the schedule is what it was")
	})
}

func TestLateReply_NotHeld_EndsTheLease(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		h := s.take(t, "l", term)
		time.Sleep(5 * time.Second)
		s.server.Embedded.Del("l")
		first := s.tap.hold()
		time.Sleep(10 * time.Second)
		s.tap.hold()
		time.Sleep(6 * time.Second)
		require.Len(t, s.tap.calls(), 2)
		require.NoError(t, h.why(t))
		first()
		synctest.Wait()
		require.ErrorIs(t, h.why(t), errs.ErrLost)
	})
}

// ofCluster is a tap that passes for a Cluster's client.
type ofCluster struct{ *tap }

func (ofCluster) Mode() rueidis.ClientMode { return rueidis.ClientModeCluster }

func TestRenewals_SilentNode_EndNoLeaseOfAnother(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	const leases = 150 // most of them in a slot, and so in a call, of their own
	silent := func(key string) bool { return keyname.Slot(key) < 16384/3 }
	synctest.Test(t, func(t *testing.T) {
		server := redistest.Bubble(t)
		c := redistest.NoError(rueidis.NewClient(server.Option()))(t)
		node := &tap{Client: c, gone: make(chan struct{})}
		e := lease.New(lease.Config{Client: ofCluster{node}, Runner: script.NewRunner(ofCluster{node}, 500*time.Millisecond),
			Log: slog.New(slog.DiscardHandler)})
		defer func() {
			close(node.gone)
			e.Stop()
			synctest.Wait()
			c.Close()
			server.Embedded.Close()
		}()
		s := &shop{Engine: e, server: server, tap: node}
		node.hush(silent)
		var all []*held
		for i := range leases {
			all = append(all, s.take(t, fmt.Sprint("l", i), term))
		}
		time.Sleep(3 * term)
		for _, h := range all {
			if silent(h.Key) {
				require.ErrorIs(t, h.why(t), errs.ErrLost, h.Key)
			} else {
				require.NoError(t, h.why(t), h.Key)
			}
		}
	})
}

// dedicated is a client whose dedicated connections note how many keys a call on them has.
type dedicated struct {
	rueidis.Client
	mu   sync.Mutex
	keys map[int]int // calls of so many keys
}

type notedConn struct {
	rueidis.DedicatedClient
	c *dedicated
}

func (c *dedicated) Dedicate() (rueidis.DedicatedClient, func()) {
	conn, release := c.Client.Dedicate()
	return notedConn{conn, c}, release
}

func (x notedConn) DoMulti(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	for _, cmd := range cmds {
		if words := cmd.Commands(); words[0] == "EVALSHA" {
			n, _ := strconv.Atoi(words[2])
			x.c.mu.Lock()
			x.c.keys[n]++
			x.c.mu.Unlock()
		}
	}
	return x.DedicatedClient.DoMulti(ctx, cmds...)
}

func (c *dedicated) seen() map[int]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.keys)
}

func TestTracking_Call_HasFewKeys(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ leases, keys, calls, most int }{
		"of one key":                 {leases: 320, keys: 1, calls: 5, most: 64},
		"of two":                     {leases: 160, keys: 2, calls: 5, most: 64},
		"of more than a call has of": {leases: 3, keys: 80, calls: 3, most: 80},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			c := &dedicated{Client: s.Client(t), keys: map[int]int{}}
			e := engine(c)
			defer e.Stop()
			always := script.New("always held", "local r = {} for i = 1, #ARGV / 2 do r[i] = 1 end return r")
			for i := range x.leases {
				h := newLease(fmt.Sprint("l", i))
				more := make([]string, x.keys-1)
				for k := range more {
					more[k] = fmt.Sprint("l", i, "+", k)
				}
				h.Renew, h.More = always, &more
				require.True(t, e.Add(h.Lease, time.Now(), time.Now(), time.Hour, true, 0))
			}
			// all of them are looked at when the connection is there, and when they are so old that they are to be tracked
			calls := func() (n int) {
				for _, m := range c.seen() {
					n += m
				}
				return n
			}
			redistest.Eventually(t, 60*time.Second, "all are tracked", func() bool { return calls() > 0 })
			before := calls()
			e.CheckAll()
			redistest.Eventually(t, 60*time.Second, "and looked at", func() bool { return calls() >= before+x.calls })
			for n := range c.seen() {
				require.LessOrEqual(t, n, x.most)
			}
			require.Contains(t, c.seen(), x.most, "as many as it may have")
		})
	}
}

// A permit for many is many records: what bounds a call is those. One that has more than a call may have is renewed by
// itself.
func TestRenewals_ManyRecords_AreBoundedInACall(t *testing.T) {
	const leases, each = 100, 400
	inShop(t, func(t *testing.T, s *shop) {
		for i := range leases {
			h := newLease(fmt.Sprint("l", i))
			if h.records = each; i == leases/2 {
				h.records = 3 * lease.BatchRecords
			}
			s.grant(t, h, term)
			require.True(t, s.Add(h.Lease, time.Now(), time.Now(), term, true, 0))
		}
		time.Sleep(term / 2)
		renewed := map[string]int{}
		for _, c := range s.tap.calls() {
			require.LessOrEqual(t, len(c.keys), lease.BatchRecords/each)
			for _, k := range c.keys {
				renewed[k]++
				if k == fmt.Sprint("l", leases/2) {
					require.Len(t, c.keys, 1)
				}
			}
		}
		require.Len(t, renewed, leases)
	})
}

// They are lined up once: nothing is done about them until a call is answered.
func TestRenewals_WaitForTheirCall_CostNothing(t *testing.T) {
	redistest.SkipShort(t)
	const leases = 2 * lease.MaxFlights * lease.BatchSize
	inShop(t, func(t *testing.T, s *shop) {
		for i := range leases {
			s.take(t, fmt.Sprint("l", i), term)
		}
		time.Sleep(term/3 - time.Second)
		letGo := s.tap.hold()
		time.Sleep(2 * time.Second)
		require.Len(t, s.tap.calls(), lease.MaxFlights)
		var looks atomic.Int32
		s.SetWall(func() time.Time { looks.Add(1); return time.Now() })
		time.Sleep(5 * time.Second)
		require.LessOrEqual(t, looks.Load(), int32(10), "the watchdog sleeps")
		require.Empty(t, s.tap.calls())
		letGo()
		synctest.Wait()
		require.Len(t, s.tap.calls(), lease.MaxFlights, "the others, as soon as there is room")
		time.Sleep(time.Second)
		require.Len(t, s.Names(), leases)
	})
}

func TestRenewals_ShortLease_GoesBeforeLongOnes(t *testing.T) {
	redistest.SkipShort(t)
	const batches, spell = 60, 25 * time.Millisecond
	inShop(t, func(t *testing.T, s *shop) {
		var all []*held
		for i := range batches * lease.BatchSize {
			all = append(all, s.take(t, fmt.Sprint("l", i), term))
		}
		s.tap.serve(spell)
		time.Sleep(term/3 - 200*time.Millisecond)
		const short = batches * spell // and a third of it is over before it is due
		h := s.take(t, "short", short)
		time.Sleep(3 * time.Second)
		for _, h := range append(all, h) {
			require.NoError(t, h.why(t), h.Key)
		}
	})
}

func TestExtend_Deadline_CountsFromBeforeTheSend(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		h := s.take(t, "l", term)
		s.tap.delay(300 * time.Millisecond)
		sent := time.Now()
		confirmed := redistest.NoError(s.Extend(t.Context(), h.Lease, 2*term))(t)
		require.True(t, confirmed)
		require.Equal(t, sent.Add(2*term-lease.Margin(2*term)), s.Until(h.Lease))
	})
}
