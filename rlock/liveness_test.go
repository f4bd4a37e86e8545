package rlock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	heldlease "github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

// beat is short, and its three are still long for a busy machine.
const beat = 400 * time.Millisecond

func living() rlock.Options {
	return rlock.Options{Liveness: true, Heartbeat: beat, WatchdogTimeout: lease, Process: "test"}
}

// kindOf are locks on which a crashed holder's hold is to be found.
var kindOf = map[string]func(c *rlock.Client, name string) *rlock.Lock{
	"Reentrant":    (*rlock.Client).Reentrant,
	"NonReentrant": (*rlock.Client).NonReentrant,
	"Fenced":       (*rlock.Client).Fenced,
	"Fair":         (*rlock.Client).Fair,
	"Spin":         func(c *rlock.Client, name string) *rlock.Lock { return c.Spin(name, 0, 0) },
	"Plain":        func(c *rlock.Client, name string) *rlock.Lock { return c.Plain(name) },
	"Read":         func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Read() },
	"Write":        func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Write() },
}

// What another program sets as the value of its plain mutex may be any text, and one in sixteen random ones has the
// digit of our version at its place.
func TestLiveness_HoldOfAnotherProgram_IsNotTaken(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r := newRig(t, servers[0], living())
		wire.Must(t, r.redis, "HSET", "Redisson", "8c2d3a54-1111-4fff-9fff-0123456789ab:57", "1")
		wire.Must(t, r.redis, "PEXPIRE", "Redisson", strconv.FormatInt(lease.Milliseconds(), 10))
		locks := map[string]*rlock.Lock{"Redisson": r.locks.Reentrant("Redisson")}
		for name, value := range map[string]string{
			"random digits": "0123456789abcd800a0123456789abcdef012345",
			"a UUID":        "8c2d3a54-1111-8001-9fff-0123456789ab",
			"and a word":    "8c2d3a54-1111-8001-9fff-0123456789ab:host",
		} {
			require.NoError(t, r.redis.Do(within(t), r.redis.B().Set().Key(name).Value(value).Px(lease).Build()).Error())
			locks[name] = r.locks.Plain(name)
		}
		var wg sync.WaitGroup
		for name, l := range locks {
			wg.Go(func() {
				if _, err := l.TryLock(within(t), 8*beat, 0); !isNotAcquired(err) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		wg.Wait()
	})
}

func isNotAcquired(err error) bool {
	return err != nil && strings.Contains(err.Error(), errs.ErrNotAcquired.Error())
}

// outage has the waiter behind p be without an answer for longer than its heartbeats are trusted.
func outage(p *redistest.Proxy) {
	p.Hold(redistest.Down)
	time.Sleep(4 * beat)
	p.Heal()
}

func TestWriter_CutOffForLong_StillKeepsReadersOut(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		holder, cut := newRig(t, s, living()), newRig(t, p.Server(), living())
		h := lock(t, holder.locks.ReadWrite("l").Read(), within(t))
		got := pass(t, cut.locks.ReadWrite("l").Write())
		waits := func() (owner rlock.Owner) {
			redistest.Eventually(t, 20*time.Second, "the writer waits", func() bool {
				state, err := holder.locks.Reentrant("l").Inspect(within(t))
				if err == nil && len(state.Waiters) == 1 {
					owner = state.Waiters[0].Owner
				}
				return owner != ""
			})
			return owner
		}
		before := waits()
		outage(p)
		redistest.Eventually(t, 20*time.Second, "it waits as another owner", func() bool { return waits() != before })
		// As long as its process is not subscribed again it does not count as there.
		redistest.Eventually(t, 20*time.Second, "it keeps readers out", func() bool {
			r, err := holder.locks.ReadWrite("l").Read().WithLabel("another").TryLock(within(t), 0, 0)
			if err == nil {
				require.NoError(t, r.Unlock(within(t)))
				return false
			}
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			return true
		})
		require.NoError(t, h.Unlock(within(t)))
		require.NoError(t, <-got)
	})
}

// A thousand locks cost what one does, and short holds nothing.
func TestHeartbeats_ManyLocks_OneServesAll(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		r := newRig(t, s, living())
		c := s.Client(t)
		beats := func() int {
			return redistest.CommandCalls(t, c)["set"]
		}
		for range 200 {
			require.NoError(t, lock(t, r.locks.Reentrant("short"), within(t)).Unlock(within(t)))
		}
		var holds []*rlock.Hold
		for n := range redistest.Sized(300, 300, 1000) {
			holds = append(holds, lock(t, r.locks.Reentrant(fmt.Sprint("l", n)), within(t)))
		}
		redistest.Eventually(t, 20*time.Second, "a heartbeat", func() bool { return beats() > 0 })
		time.Sleep(5 * beat)
		require.LessOrEqual(t, beats(), 2, "the key is made once, then its expiry moves")
		found := 0
		for _, key := range keys(t, c) {
			if strings.HasPrefix(key, "redlatch_alive:") {
				found++
				require.Greater(t, r.pttl(t, key), time.Duration(0))
			}
		}
		require.Equal(t, 1, found)
		for _, h := range holds {
			require.NoError(t, h.Unlock(within(t)))
		}
		redistest.Eventually(t, 20*time.Second, "nothing is left", func() bool { return len(keys(t, c)) == 0 })
	})
}

func TestHeartbeats_MemoryFull_GoOn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	o := living()
	o.Heartbeat = 600 * time.Millisecond // three of them outlast a busy machine's pauses
	r := newRig(t, s, o)
	h := lock(t, r.locks.Reentrant("l"), within(t))
	redistest.Eventually(t, 20*time.Second, "a heartbeat", func() bool { return len(keys(t, r.redis)) > 1 })
	wire.Must(t, s.Client(t), "CONFIG", "SET", "maxmemory", "1")
	time.Sleep(4 * o.Heartbeat)
	require.NoError(t, h.Err())
	require.NoError(t, h.Unlock(within(t)))
}

func TestOptions_OfLocksAlone_AreChecked(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	hub := newRig(t, s, rlock.Options{}).hub
	for field, o := range map[string]rlock.Options{
		"Heartbeat is 1ms":    {Liveness: true, Heartbeat: time.Millisecond},
		"Heartbeat is 1m0s":   {Heartbeat: time.Minute},
		"HashOver is -1":      {HashOver: -1},
		`Process is "\xff"`:   {Process: "\xff"},
		"Process is \"xxxxxx": {Process: strings.Repeat("x", rlock.MaxLabel+1)},
	} {
		_, err := rlock.New(hub, o)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		require.ErrorContains(t, err, field)
	}
}

func TestInspect_Waiters_AreInOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	o := living()
	o.Process, o.HashOver = "shop/web-1", 64
	holder := newRig(t, s, o)
	var rigs []*rig
	for range 3 {
		rigs = append(rigs, newRig(t, s, rlock.Options{WatchdogTimeout: lease}))
	}
	ctx, stop := context.WithCancel(within(t))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for kind, of := range map[string]func(*rlock.Client, string) *rlock.Lock{"Fenced": (*rlock.Client).Fenced,
		"Fair": (*rlock.Client).Fair} {
		h := lock(t, of(holder.locks, kind).WithLabel("job"), within(t))
		for n, r := range rigs {
			wg.Go(func() { of(r.locks, kind).WithLabel(fmt.Sprint("waiter ", n)).Lock(ctx) })
			redistest.Eventually(t, 20*time.Second, "in the queue", func() bool {
				state, err := holder.locks.Reentrant(kind).Inspect(within(t))
				return err == nil && len(state.Waiters) == n+1
			})
		}
		redistest.Eventually(t, 20*time.Second, "a heartbeat", func() bool {
			state, err := rigs[0].locks.Reentrant(kind).Inspect(within(t))
			return err == nil && state.Holders[0].Process != ""
		})
		state, err := rigs[0].locks.Reentrant(kind).Inspect(within(t))
		require.NoError(t, err)
		require.True(t, state.Locked)
		require.Len(t, state.Holders, 1)
		require.Equal(t, string(h.Owner()), state.Holders[0].ID)
		require.Equal(t, "job", state.Holders[0].Label)
		require.Equal(t, "shop/web-1", state.Holders[0].Process)
		for n, w := range state.Waiters {
			require.Equal(t, fmt.Sprint("waiter ", n), w.Owner.Label())
			require.True(t, heldlease.Ours(string(w.Owner)))
			require.Equal(t, kind != "Fair", w.Waiting > 0)
		}
		token, _ := h.Token()
		require.Equal(t, token, state.Token)
	}
	w := lock(t, holder.locks.ReadWrite("rw").Read(), within(t))
	wg.Go(func() { rigs[0].locks.ReadWrite("rw").Write().WithLabel("writer").Lock(ctx) })
	redistest.Eventually(t, 20*time.Second, "a writer", func() bool {
		state, err := holder.locks.Reentrant("rw").Inspect(within(t))
		return err == nil && len(state.Waiters) == 1 && state.Waiters[0].Owner.Label() == "writer" && state.Mode == "read"
	})
	require.NoError(t, w.Err())

	long := strings.Repeat("long", 100)
	p := holder.locks.Plain(long)
	ph := lock(t, p, within(t))
	state, err := p.Inspect(within(t))
	require.NoError(t, err)
	require.Equal(t, long, state.Name)
	require.Equal(t, string(ph.Owner()), state.Holders[0].ID)
}

func TestInspect_RightToTheLockAlone_ShowsIt(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	wire.Must(t, r.redis, "ACL", "SETUSER", "narrow", "on", ">secret", "~l", "~redlatch_queue:{l}", "&*", "+@all")
	narrow := newRigWith(t, s, rlock.Options{}, func(o *rueidis.ClientOption) {
		o.Username, o.Password = "narrow", "secret"
	})
	h := lock(t, r.locks.Reentrant("l"), within(t))
	state, err := narrow.locks.Reentrant("l").Inspect(within(t))
	require.NoError(t, err)
	require.Equal(t, string(h.Owner()), state.Holders[0].ID)
}

func TestInspect_Multi_ShowsItsMembers(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{WatchdogTimeout: lease})
		both, err := rlock.Multi(r.locks.Reentrant("a"), r.locks.Fenced("b"))
		require.NoError(t, err)
		state, err := both.Inspect(within(t))
		require.NoError(t, err)
		require.False(t, state.Locked)
		require.Equal(t, []rlock.State{{Name: "a"}, {Name: "b"}}, state.Members)

		one := lock(t, r.locks.Reentrant("a"), within(t))
		state, err = both.Inspect(within(t))
		require.NoError(t, err)
		require.True(t, state.Locked)
		require.Equal(t, []bool{true, false}, []bool{state.Members[0].Locked, state.Members[1].Locked})
		require.NoError(t, one.Unlock(within(t)))

		h := lock(t, both.WithLabel("job"), within(t))
		state, err = both.Inspect(within(t))
		require.NoError(t, err)
		require.Equal(t, both.Name(), state.Name)
		require.Greater(t, state.Lease, lease/2)
		for _, m := range state.Members {
			require.Equal(t, "job", m.Holders[0].Label)
		}
		token, _ := h.Token()
		require.Equal(t, token, state.Members[1].Token)
		require.NoError(t, h.Unlock(within(t)))
	})
}

// A release may name a waiter of its own process that has not asked the server yet.
func TestLiveness_TurnsInTheProcess_AreGranted(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{Liveness: true})
	l := r.locks.Reentrant("l")
	ctx := within(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range redistest.Sized(100, 100, 200) {
				h, err := l.Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(200 * time.Microsecond)
				if err := h.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// The suite shows it of each primitive. A holder whose heartbeats were not confirmed lives on, with a lease of minutes.
// Its heartbeats go on, so no waiter takes the lock over: the holder has to give it back.
func TestUnlock_LostByALivingHolder_IsGivenBack(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		p := redistest.NewProxy(t, servers[0])
		r, other := newRig(t, p.Server(), living()), newRig(t, servers[0], living())
		h := lock(t, r.locks.Reentrant("l"), within(t))
		time.Sleep(5 * beat)
		p.BlackHole(redistest.Up)
		<-h.Done()
		p.Heal()
		kept := lock(t, r.locks.Reentrant("another"), within(t)) // which has heartbeats
		defer kept.Unlock(within(t))
		require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
		require.NoError(t, lock(t, other.locks.Reentrant("l"), within(t)).Unlock(within(t)))
	})
}
