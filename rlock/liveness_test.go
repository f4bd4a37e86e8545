package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	heldlease "github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func init() { roles["living"] = beLiving }

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

// beLiving holds a lock of each kind named, says so, and says which of them end.
func beLiving() error {
	o := living()
	if os.Args[2] == "dead" {
		o.Liveness = false
	}
	c, locks, err := connectRole(o)
	if err != nil {
		return err
	}
	var out sync.Mutex
	for _, kind := range os.Args[3:] {
		hold, err := kindOf[kind](locks, kind).Lock(context.Background())
		if err != nil {
			return err
		}
		go func() {
			<-hold.Done()
			out.Lock()
			defer out.Unlock()
			fmt.Println("over", kind, hold.Err())
		}()
	}
	for beats := 0; o.Liveness && beats == 0; time.Sleep(beat / 20) {
		alive, err := c.Do(context.Background(), c.B().Keys().Pattern("redlatch_alive:*").Build()).AsStrSlice()
		if err != nil {
			return err
		}
		beats = len(alive)
	}
	out.Lock()
	fmt.Println("held")
	out.Unlock()
	io.Copy(io.Discard, os.Stdin)
	return nil
}

func TestAKilledProcessesHoldsAreTakenOverBeforeTheirLeasesEnd(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	waits := map[string]string{ // what the holder has -> what the waiter asks for
		"Reentrant": "Reentrant", "NonReentrant": "NonReentrant", "Fenced": "Fenced", "Fair": "Fair", "Spin": "Spin",
		"Plain": "Plain", "Write": "Read", "Read": "Write",
	}
	var kinds []string
	for kind := range waits {
		kinds = append(kinds, kind)
	}
	holder := redistest.Spawn(t, "living", s, append([]string{"living"}, kinds...)...)
	require.Equal(t, "held", holder.Line(t))
	var taken sync.Map
	o := living()
	o.CallTimeout = 5 * time.Second // one that is asked again finds what it has taken over already
	o.Observer = heeding(rlock.EventTakenOver, func(e rlock.Event) { taken.Store(e.Name, e.Holds) })
	r := newRig(t, s, o)
	var wg sync.WaitGroup
	began := time.Now()
	holder.Signal(t, syscall.SIGKILL)
	over := map[string]bool{} // before that: its heartbeats were late on a busy machine, and it gave them back itself
	for holder.Out.Scan() {
		if kind, ok := strings.CutPrefix(holder.Out.Text(), "over "); ok {
			over[strings.Fields(kind)[0]] = true
		}
	}
	require.Less(t, len(over), len(waits), "nothing is left to take over")
	for has, asks := range waits {
		wg.Go(func() {
			h, err := kindOf[asks](r.locks, has).Lock(within(t)) // 30 s, of a lease of 5 minutes
			if err != nil {
				t.Errorf("%s: %v", has, err)
				return
			}
			redistest.Eventually(t, 20*time.Second, has+" is said to be taken over", func() bool {
				holds, _ := taken.Load(has)
				return holds == 1 || over[has]
			})
			if err := h.Unlock(within(t)); err != nil {
				t.Errorf("%s: %v", has, err)
			}
		})
	}
	wg.Wait()
	t.Logf("all taken over in %v: %.1f heartbeats", time.Since(began).Round(time.Millisecond),
		time.Since(began).Seconds()/beat.Seconds())
}

func TestALivingHolderIsNeverTakenFrom(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		o := living()
		o.Heartbeat = 2 * beat // the trust of three of them outlasts a busy machine's pauses
		r, other := newRig(t, s, o), newRig(t, s, o)
		h := lock(t, r.locks.Reentrant("l"), within(t))
		h2 := lock(t, r.locks.ReadWrite("rw").Read(), within(t))
		c := s.Client(t)
		ctx, cancel := context.WithTimeout(context.Background(), 8*o.Heartbeat)
		defer cancel()
		var wg sync.WaitGroup
		for _, l := range []*rlock.Lock{other.locks.Reentrant("l"), other.locks.ReadWrite("rw").Write()} {
			wg.Go(func() {
				_, err := l.Lock(ctx)
				if err == nil {
					t.Errorf("%s was taken", l.Name())
				}
			})
		}
		// Heartbeats that go are no proof: the next one brings them back.
		deleted := 0
		for ctx.Err() == nil {
			time.Sleep(2 * o.Heartbeat)
			for _, key := range keys(t, c) {
				if strings.HasPrefix(key, "redlatch_alive:") {
					require.NoError(t, c.Do(within(t), c.B().Del().Key(key).Build()).Error())
					deleted++
				}
			}
		}
		wg.Wait()
		require.NotZero(t, deleted)
		require.NoError(t, h.Err())
		require.NoError(t, h2.Err())
		require.NoError(t, h.Unlock(within(t)))
		require.NoError(t, h2.Unlock(within(t)))
	})
}

func TestHoldersWithoutHeartbeatsAreNeverTouched(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder := redistest.Spawn(t, "living", s, "dead", "Reentrant", "Fair", "Write")
	require.Equal(t, "held", holder.Line(t))
	holder.Signal(t, syscall.SIGKILL)
	c := s.Client(t)
	java := "8c2d3a54-1111-4fff-9fff-0123456789ab:57"
	require.NoError(t, c.Do(within(t), c.B().Hset().Key("Java").FieldValue().FieldValue(java, "1").Build()).Error())
	require.NoError(t, c.Do(within(t), c.B().Pexpire().Key("Java").Milliseconds(lease.Milliseconds()).Build()).Error())
	r := newRig(t, s, living())
	var wg sync.WaitGroup
	for name, l := range map[string]*rlock.Lock{
		"Reentrant": r.locks.Reentrant("Reentrant"), "Fair": r.locks.Fair("Fair"),
		"Write": r.locks.ReadWrite("Write").Write(), "Java": r.locks.Reentrant("Java"),
	} {
		wg.Go(func() {
			if _, err := l.TryLock(within(t), 5*beat, 0); !isNotAcquired(err) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
}

// What another program sets as the value of its plain mutex may be any text, and one in sixteen random ones has the
// digit of our version at its place.
func TestAPlainLockOfAnotherProgramIsNeverTakenWhateverItsValue(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		r := newRig(t, s, living())
		var wg sync.WaitGroup
		for name, value := range map[string]string{
			"random digits": "0123456789abcd800a0123456789abcdef012345",
			"a UUID":        "8c2d3a54-1111-8001-9fff-0123456789ab",
			"and a word":    "8c2d3a54-1111-8001-9fff-0123456789ab:host",
		} {
			require.NoError(t, r.redis.Do(within(t), r.redis.B().Set().Key(name).Value(value).Px(lease).Build()).Error())
			wg.Go(func() {
				if _, err := r.locks.Plain(name).TryLock(within(t), 8*beat, 0); !isNotAcquired(err) {
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

// A holder that is cut off from the server stops before anybody can take over, though its lease has minutes to go.
func TestAHolderThatIsCutOffStopsBeforeItIsTakenFrom(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		var wg sync.WaitGroup
		for n := range 8 {
			wg.Go(func() {
				name := fmt.Sprint("l", n)
				p := redistest.NewProxy(t, s)
				r, other := newRig(t, p.Server(), living()), newRig(t, s, living())
				h, err := r.locks.Reentrant(name).Lock(within(t))
				if err != nil {
					t.Error(err)
					return
				}
				got := make(chan time.Time, 1)
				go func() {
					h, err := other.locks.Reentrant(name).Lock(within(t))
					got <- time.Now()
					if err != nil {
						t.Error(err)
						return
					}
					h.Unlock(within(t))
				}()
				time.Sleep(time.Duration(n) * beat / 3)
				p.BlackHole([]redistest.Direction{redistest.Up, redistest.Down}[n%2])
				for !h.Until().Before(time.Now()) {
					time.Sleep(time.Millisecond)
				}
				until := h.Until()
				<-h.Done()
				if !errors.Is(h.Err(), errs.ErrLost) {
					t.Errorf("%d: %v", n, h.Err())
				}
				if at := <-got; at.Before(until) {
					t.Errorf("%d: taken over %v before the holder stopped", n, until.Sub(at))
				}
				p.Heal()
			})
		}
		wg.Wait()
	})
}

// A waiter that was handed the lock while it was cut off, and lost it again to one that watched, comes back as another
// owner: whoever saw the old one without heartbeats would take the lock from it at once.
func TestAWaiterThatWasCutOffForLongIsAnotherOwner(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		holder, other, cut := newRig(t, s, living()), newRig(t, s, living()), newRig(t, p.Server(), living())
		h := lock(t, holder.locks.Reentrant("l"), within(t))
		ctx, cancel := context.WithCancel(within(t))
		var wg sync.WaitGroup
		wg.Go(func() {
			if h, err := cut.locks.Reentrant("l").WithLabel("cut").Lock(ctx); err == nil {
				h.Unlock(within(t))
			}
		})
		defer wg.Wait()
		defer cancel()
		waits := func() (owner rlock.Owner) {
			redistest.Eventually(t, 20*time.Second, "in the queue", func() bool {
				state, err := holder.locks.Reentrant("l").Inspect(within(t))
				for _, w := range state.Waiters {
					if w.Owner.Label() == "cut" {
						owner = w.Owner
					}
				}
				return err == nil && owner != ""
			})
			return owner
		}
		before := waits()
		p.Hold(redistest.Down)
		require.NoError(t, h.Unlock(within(t))) // to who is cut off
		h = lock(t, other.locks.Reentrant("l"), within(t))
		p.Heal()
		redistest.Eventually(t, 20*time.Second, "another owner", func() bool { return waits() != before })
		require.NoError(t, h.Err())
		require.NoError(t, h.Unlock(within(t)))
	})
}

// outage has the waiter behind p be without an answer for longer than its heartbeats are trusted.
func outage(p *redistest.Proxy) {
	p.Hold(redistest.Down)
	time.Sleep(4 * beat)
	p.Heal()
}

// It is another owner then, and the queue knows only those that ask for a place.
func TestAFairWaiterCutOffForLongQueuesAnewAndGetsTheLock(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		holder, cut := newRig(t, s, living()), newRig(t, p.Server(), living())
		h := lock(t, holder.locks.Fair("l"), within(t))
		got := pass(t, cut.locks.Fair("l"))
		hasPlace := func(owner string) bool {
			there, err := holder.redis.Do(within(t),
				holder.redis.B().Hexists().Key("redlatch_fair:{l}").Field(owner).Build()).AsBool()
			return err == nil && there
		}
		holder.queued(t, "l", 1)
		before := holder.queue(t, "l")[0]
		redistest.Eventually(t, 20*time.Second, "it can be handed the lock", func() bool { return hasPlace(before) })
		outage(p)
		redistest.Eventually(t, 20*time.Second, "it queues as another owner, alone, and can be handed the lock as that one",
			func() bool {
				line := holder.queue(t, "l")
				return len(line) == 1 && line[0] != before && hasPlace(line[0])
			})
		require.NoError(t, h.Unlock(within(t)))
		require.NoError(t, <-got)
		require.Empty(t, holder.queue(t, "l"))
	})
}

func TestAWriterThatWasCutOffForLongStillKeepsReadersOut(t *testing.T) {
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

func TestAStoppedProcessFindsItsHoldOverWhenItRunsAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder := redistest.Spawn(t, "living", s, "living", "Reentrant")
	require.Equal(t, "held", holder.Line(t))
	holder.Signal(t, syscall.SIGSTOP)
	h := lock(t, newRig(t, s, living()).locks.Reentrant("Reentrant"), within(t))
	holder.Signal(t, syscall.SIGCONT)
	require.Equal(t, "over Reentrant lost", holder.Line(t))
	require.NoError(t, h.Unlock(within(t)))
}

// A thousand locks cost what one does, and short holds nothing.
func TestOneHeartbeatServesAllLocks(t *testing.T) {
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

func TestHeartbeatsGoOnWhileMemoryIsFull(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	o := living()
	o.Heartbeat = 600 * time.Millisecond // three of them outlast a busy machine's pauses
	r := newRig(t, s, o)
	h := lock(t, r.locks.Reentrant("l"), within(t))
	redistest.Eventually(t, 20*time.Second, "a heartbeat", func() bool { return len(keys(t, r.redis)) > 1 })
	admin(t, s.Client(t), "CONFIG", "SET", "maxmemory", "1")
	time.Sleep(4 * o.Heartbeat)
	require.NoError(t, h.Err())
	require.NoError(t, h.Unlock(within(t)))
}

func TestLivenessInACluster(t *testing.T) {
	redistest.InFull(t, "TestAKilledProcessesHoldsAreTakenOverBeforeTheirLeasesEnd")
	t.Parallel()
	s := redistest.Cluster(t)
	o := living()
	o.Heartbeat = 2 * beat // so many connections take a busy machine long
	r, other := newRig(t, s, o), newRig(t, s, o)
	var holds []*rlock.Hold
	for n := range 50 {
		holds = append(holds, lock(t, r.locks.Reentrant(fmt.Sprint("l", n)), within(t)))
	}
	time.Sleep(4 * o.Heartbeat)
	for _, h := range holds {
		require.NoError(t, h.Err())
	}
	// A crash: the client goes away without a word.
	r.redis.Close()
	var wg sync.WaitGroup
	for n := range holds {
		wg.Go(func() {
			h, err := other.locks.Reentrant(fmt.Sprint("l", n)).Lock(within(t))
			if err == nil {
				err = h.Unlock(within(t))
			}
			if err != nil {
				t.Error(n, err)
			}
		})
	}
	wg.Wait()
}

func TestOptionsOfLocksAloneAreChecked(t *testing.T) {
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

func TestInspectShowsWaitersInOrderTokensAndProcesses(t *testing.T) {
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
		require.Equal(t, h.Owner(), state.Holders[0].Owner)
		require.Equal(t, "job", state.Holders[0].Owner.Label())
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
	require.Equal(t, ph.Owner(), state.Holders[0].Owner)
}

func TestInspectAsAUserWhoMaySeeTheLockOnly(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	admin(t, r.redis, "ACL", "SETUSER", "narrow", "on", ">secret", "~l", "~redlatch_queue:{l}", "&*", "+@all")
	narrow := newRigWith(t, s, rlock.Options{}, func(o *rueidis.ClientOption) {
		o.Username, o.Password = "narrow", "secret"
	})
	h := lock(t, r.locks.Reentrant("l"), within(t))
	state, err := narrow.locks.Reentrant("l").Inspect(within(t))
	require.NoError(t, err)
	require.Equal(t, h.Owner(), state.Holders[0].Owner)
}

func TestInspectOfAMultiShowsItsMembers(t *testing.T) {
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
			require.Equal(t, "job", m.Holders[0].Owner.Label())
		}
		token, _ := h.Token()
		require.Equal(t, token, state.Members[1].Token)
		require.NoError(t, h.Unlock(within(t)))
	})
}

// A release may name a waiter of its own process that has not asked the server yet.
func TestWithLivenessTurnsInTheProcessAreGranted(t *testing.T) {
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
